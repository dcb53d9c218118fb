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

/* Which networks have an address in a set. By its hash, a network has a line, two words of it, and
 * two bits of each. One that has no address in a set passes with a chance of some 0.3 %. */
struct filter {
	struct filter_line *line; /* [2^(64 − shift)] */
	uint64_t mask[2];         /* of an address as it lies in memory: its network */
	unsigned shift;
};

struct filter_line {
	uint64_t word[2][4]; /* a network has one of each four */
};
_Static_assert(sizeof(struct filter_line) == SY_CACHE_LINE, "one miss a look-up");

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

/* All who include this must mean the same hash. DPDK wants this of the processor anyway. */
#if defined(__x86_64__) && !defined(__SSE4_2__)
#error "needs -msse4.2"
#endif

/* Of an address' network. Its upper bits choose the line, others the bits in it. */
static inline uint64_t filter_hash(const struct filter *f, const struct sy_addr *a)
{
	const uint64_t high = a->d[0] & f->mask[0], low = a->d[1] & f->mask[1];
#ifdef __x86_64__
	const uint64_t h = __builtin_ia32_crc32di(__builtin_ia32_crc32di(0, high), low);
#else
	const uint64_t h = sy_hash_mix(high ^ UINT64_C(0x9e3779b97f4a7c15),
	                               low ^ UINT64_C(0xc2b2ae3d27d4eb4f));
#endif
	return h * UINT64_C(0xd6e8feb86659fd93);
}

/* The bits of a network in one of its two words. */
static inline uint64_t filter_bits(uint64_t hash)
{
	return UINT64_C(1) << (hash & 63) | UINT64_C(1) << (hash >> 6 & 63);
}

static inline void filter_enter(struct filter *f, uint64_t hash)
{
	struct filter_line *l = &f->line[hash >> f->shift];
	l->word[0][hash & 3] |= filter_bits(hash >> 4);
	l->word[1][hash >> 2 & 3] |= filter_bits(hash >> 22);
}

/* Begins the look-up of an address: prefetches what decides most of them. */
static inline struct address_look address_look_begin(const struct address_ranges *r,
                                                     const struct sy_addr *a)
{
	const struct filter *f = &r->family[sy_addr_is_v4(a)].filter;
	const uint64_t hash = filter_hash(f, a);
	const struct address_look look = {&f->line[hash >> f->shift], hash};
	__builtin_prefetch(look.line);
	return look;
}

/* False: the address is in no set. True: it may be in one. */
static inline bool address_look_passes(const struct address_look *look)
{
	const uint64_t h = look->hash;
	const struct filter_line *l = look->line;
	return !((~l->word[0][h & 3] & filter_bits(h >> 4)) |
	         (~l->word[1][h >> 2 & 3] & filter_bits(h >> 22)));
}

#endif
