// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the named sets that an address is in. All sets together cut the addresses into ranges of
 * equal membership. The table is immutable: a new version replaces it whole. Depends on base alone.
 *
 * Each family's table has levels of 32 bits, IPv4 one, IPv6 up to four. A level consists of blocks:
 *
 *     block   | start, value | start, value | …   4 bytes each, sorted. The range of an address's
 *                                                 32 bits is the last whose start is not above them
 *     value   class (0: in no set); or bit 31, and the next level's block
 *     root    positions in the first block, by the upper 16 to 20 bits: about two ranges are left
 *     filter  a Bloom filter of the networks that have an address in a set, one line per look-up:
 *             it decides most clients
 *
 * class a mask, one bit per set
 */
#ifndef ADDRESS_RANGES_H
#define ADDRESS_RANGES_H

#include <sy_base.h>

#define ADDRESS_SETS 32 /* max sets of one table */

struct address_ranges;

/* The prefixes of a set: sorted by address, disjoint, with host bits 0. */
struct prefix_list {
	const struct sy_prefix *at;
	uint32_t count;
};

/* Does the list have these properties? If not, *bad is the index of the first wrong prefix. */
bool prefix_list_is_sorted(const struct prefix_list *list, uint32_t *bad);

/* Builds the table of these sets; set i has bit i. Returns 0, -ENOMEM, or -E2BIG if the sets
 * overlap in more than 65 535 ways. Free it with address_ranges_free(). */
int address_ranges_build(const struct prefix_list *sets, unsigned count,
                         struct address_ranges **out);
void address_ranges_free(struct address_ranges *r);

/* The sets of each of n addresses, as bitmaps. The cache misses of the look-ups overlap. */
void address_ranges_find(const struct address_ranges *r, const struct sy_addr *const *addr,
                         uint32_t *sets, unsigned n);

/* A look-up in progress: see address_ranges_table.h. */
struct address_lookup {
	const struct filter_line *line;
	uint64_t hash; /* selects its bits */
};
#define ADDRESS_LOOKUPS 64u /* max look-ups of one batch */

/* Memory of the table. */
size_t address_ranges_bytes(const struct address_ranges *r);

#endif
