// SPDX-License-Identifier: Apache-2.0
#include "ours.h"

#include <stdlib.h>

struct ours *ours_build(const struct ours_entry *entries, unsigned count)
{
	uint32_t places = 16;
	while (places < 2 * (uint64_t)count)
		places *= 2;
	struct ours *o = calloc(1, sizeof(*o) + places * sizeof(o->entry[0]));
	if (!o)
		return NULL;
	o->mask = places - 1;
	for (unsigned n = 0; n < count; n++) {
		uint32_t i = ours_hash(&entries[n].addr);
		while (o->entry[i & o->mask].kind != OURS_NONE)
			i++;
		o->entry[i & o->mask] = entries[n];
	}
	return o;
}
