// SPDX-License-Identifier: Apache-2.0
/* The table of address_ranges.h as it lies in memory, for the code that builds it and the code that
 * looks addresses up. */
#ifndef ADDRESS_RANGES_TABLE_H
#define ADDRESS_RANGES_TABLE_H

#include "address_ranges.h"

#define RANGES_CHILD   UINT32_C(0x80000000) /* in a value: the number of a block follows */
#define RANGES_FILTER4 24u                  /* bits of an IPv4 network in the filter */
#define RANGES_FILTER6 48u                  /* bits of an IPv6 network in the filter */
/* Entries that are all compared: most searches behind the root are shorter. The array of entries
 * has so many more. */
#define RANGES_SEARCH_SHORT 8u

struct block {
	uint32_t at, count;
};

/* A range: from its start to the next one's. */
struct entry {
	uint32_t start, value;
};

struct family {
	struct entry *entry; /* of all blocks */
	struct block *block; /* 0: the first level's */
	uint32_t *root;      /* [2^root_bits + 1]; NULL: no set has this family */
	unsigned root_shift; /* 32 − root_bits */
	uint64_t *filter;    /* a bit for each network that has an address in a set; NULL: none */
	unsigned filter_shift;
	size_t entries, entry_capacity, blocks, block_capacity;
};

struct address_ranges {
	struct family family[2]; /* [0]: IPv6, [1]: IPv4 */
	unsigned classes;
	uint32_t *sets; /* [classes] */
};

/* The number of a network in the filter. An IPv4 network has a bit of its own; IPv6 networks share
 * them, by a hash. */
static inline uint64_t filter_place(uint64_t upper, unsigned shift)
{
	return upper * UINT64_C(0x9e3779b97f4a7c15) >> shift;
}

#endif
