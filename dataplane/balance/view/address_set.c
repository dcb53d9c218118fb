// SPDX-License-Identifier: Apache-2.0
#include "address_set.h"

#include <stdlib.h>

static void build_v4(struct address_set *o, const struct address_set_entry *entries, unsigned count)
{
	for (unsigned n = 0; n < count; n++) {
		if (!sy_addr_is_v4(&entries[n].addr))
			continue;
		uint32_t address = entries[n].addr.w[3], i = address_set_hash_v4(address);
		while (o->v4[i & o->mask] != 0)
			i++;
		o->v4[i & o->mask] = address | (uint64_t)entries[n].kind << 32;
	}
}

struct address_set *address_set_build(const struct address_set_entry *entries, unsigned count)
{
	uint32_t places = 16;
	while (places < 2 * (uint64_t)count)
		places *= 2;
	struct address_set *o =
	        calloc(1, sizeof(*o) + places * (sizeof(o->entry[0]) + sizeof(o->v4[0])));
	if (!o)
		return NULL;
	o->mask = places - 1;
	o->v4 = (uint64_t *)&o->entry[places];
	for (unsigned n = 0; n < count; n++) {
		uint32_t i = address_set_hash(&entries[n].addr);
		while (o->entry[i & o->mask].kind != ADDRESS_SET_NONE)
			i++;
		o->entry[i & o->mask] = entries[n];
	}
	build_v4(o, entries, count);
	return o;
}
