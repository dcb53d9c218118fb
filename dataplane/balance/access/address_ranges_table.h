// SPDX-License-Identifier: Apache-2.0
/* The table of address_ranges.h as it lies in memory, for the code that builds it and the code that
 * looks addresses up. */
#ifndef ADDRESS_RANGES_TABLE_H
#define ADDRESS_RANGES_TABLE_H

#include "address_ranges.h"

#define RANGES_CHILD UINT32_C(0x80000000) /* in a value: the number of a block follows */
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

/* Which networks have an address in a set: four bits of one word each, by a hash. A network that
 * has none passes with a chance of some 0.3 %. */
struct filter {
	uint64_t *word;   /* [2^(64 − shift)] */
	uint64_t mask[2]; /* of an address as it lies in memory: its network */
	unsigned shift;
};

struct family {
	struct filter filter;
	struct entry *entry; /* of all blocks */
	struct block *block; /* 0: the first level's */
	uint32_t *root;      /* [2^root_bits + 1]; NULL: no set has this family */
	unsigned root_shift; /* 32 − root_bits */
	size_t entries, entry_capacity, blocks, block_capacity;
};

struct address_ranges {
	bool large;              /* a filter is larger than the first cache: begin look-ups early */
	struct family family[2]; /* [0]: IPv6, [1]: IPv4 */
	unsigned classes;
	uint32_t *sets; /* [classes] */
};

/* Of an address' network. Its upper bits choose the word, the lower ones the bits in it. */
static inline uint64_t filter_hash(const struct filter *f, const struct sy_addr *a)
{
	uint64_t h = sy_hash_mix((a->d[0] & f->mask[0]) ^ UINT64_C(0x9e3779b97f4a7c15),
	                         (a->d[1] & f->mask[1]) ^ UINT64_C(0xc2b2ae3d27d4eb4f));
	return h * UINT64_C(0xd6e8feb86659fd93);
}

static inline uint64_t *filter_word(const struct filter *f, uint64_t hash)
{
	return &f->word[hash >> f->shift];
}

/* The bits of a network in its word. The hash's lowest bits are the worst ones. */
static inline uint64_t filter_bits(uint64_t hash)
{
	return UINT64_C(1) << (hash >> 8 & 63) | UINT64_C(1) << (hash >> 14 & 63) |
	       UINT64_C(1) << (hash >> 20 & 63) | UINT64_C(1) << (hash >> 26 & 63);
}

/* Begins the look-up of an address: prefetches what decides most of them. */
static inline struct address_look address_look_begin(const struct address_ranges *r,
                                                     const struct sy_addr *a)
{
	const struct filter *f = &r->family[sy_addr_is_v4(a)].filter;
	const uint64_t hash = filter_hash(f, a);
	const struct address_look look = {filter_word(f, hash), filter_bits(hash)};
	__builtin_prefetch(look.word);
	return look;
}

#endif
