// SPDX-License-Identifier: Apache-2.0
#include "address_set.h"

#include <stdlib.h>

static void build_v4(struct address_set *set, const struct address_set_entry *entries,
                     unsigned count)
{
	for (unsigned n = 0; n < count; n++) {
		if (!sy_addr_is_v4(&entries[n].addr))
			continue;
		uint32_t address = entries[n].addr.w[3], i = address_set_hash_v4(address);
		while (set->v4[i & set->mask] != 0)
			i++;
		set->v4[i & set->mask] = address | (uint64_t)entries[n].kind << 32;
	}
}

struct address_set *address_set_build(const struct address_set_entry *entries, unsigned count)
{
	uint32_t places = 16;
	while (places < 2 * (uint64_t)count)
		places *= 2;
	struct address_set *set =
	        calloc(1, sizeof(*set) + places * (sizeof(set->entry[0]) + sizeof(set->v4[0])));
	if (!set)
		return NULL;
	set->mask = places - 1;
	set->v4 = (uint64_t *)&set->entry[places];
	for (unsigned n = 0; n < count; n++) {
		uint32_t i = address_set_hash(&entries[n].addr);
		while (set->entry[i & set->mask].kind != ADDRESS_SET_NONE)
			i++;
		set->entry[i & set->mask] = entries[n];
	}
	build_v4(set, entries, count);
	return set;
}
