// SPDX-License-Identifier: Apache-2.0
/* Memory layout of the table of address_ranges.h, for the code that builds it and the code that
 * looks addresses up. */
#ifndef ADDRESS_RANGES_TABLE_H
#define ADDRESS_RANGES_TABLE_H

#include <arpa/inet.h>

#include "address_ranges.h"

#define RANGES_CHILD UINT32_C(0x80000000) /* flag in a value: the number of a block follows */
/* Number of entries compared unconditionally: most searches behind the root are shorter. The array
 * of entries is padded by this many. */
#define RANGES_SEARCH_SHORT 8u

struct block {
	uint32_t at, count;
};

/* A range: from its start to the next one's. */
struct entry {
	uint32_t start, value;
};

/* Filter of networks with an address in a set. By its hash, a network has a line, four words of it,
 * and two bits of each. The chance of a false positive is about 0.1 %. Two of the words decide
 * nearly all look-ups; the other two are for those that pass these. */
struct filter {
	struct filter_line *line;
	uint64_t lines;   /* in a hash: the line's offset in bytes; the number of lines is 2^n */
	uint64_t mask[2]; /* mask of an address in memory order: its network */
};

struct filter_line {
	uint64_t word[2][4]; /* a network has two of each four */
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
	bool large;              /* the filter exceeds the L1 cache: begin look-ups early */
	struct family family[2]; /* [0]: IPv6, [1]: IPv4 */
	unsigned classes;
	uint32_t *sets; /* [classes] */
};

/* All users of this header must compute the same hash. DPDK requires SSE4.2 anyway. */
#if defined(__x86_64__) && !defined(__SSE4_2__)
#error "needs -msse4.2"
#endif

/* Hash of an address's network. */
static inline uint64_t filter_hash(const struct filter *f, bool v4, const struct sy_addr *a)
{
	const uint64_t high = v4 ? 0 : a->d[0] & f->mask[0], low = a->d[1] & f->mask[1];
#ifdef __x86_64__
	const uint64_t h = __builtin_ia32_crc32di(__builtin_ia32_crc32di(0, high), low);
#else
	const uint64_t h = sy_hash_mix(high ^ UINT64_C(0x9e3779b97f4a7c15),
	                               low ^ UINT64_C(0xc2b2ae3d27d4eb4f));
#endif
	return h * UINT64_C(0xd6e8feb86659fd93);
}

static inline struct filter_line *filter_line_of(const struct filter *f, uint64_t hash)
{
	return (struct filter_line *)((uint8_t *)f->line + (hash & f->lines));
}

/* Selects two bits in each of two words, by the upper bits of the hash, from the lowest one on: */
#define FILTER_WORDS 36 /* which word of each four, two bits each */
#define FILTER_BITS  40 /* which bits of the first word, then of the second, six bits each */

/* Two more bits of each of the two words beside these, likewise. */
static inline uint64_t filter_rest(uint64_t hash)
{
	return hash * UINT64_C(0x9e3779b97f4a7c15) >> 40;
}

/* Has the word both bits that h selects? In the lowest bit; other bits are undefined. */
static inline uint64_t filter_has(uint64_t word, uint64_t h)
{
	return word >> (h & 63) & word >> (h >> 6 & 63);
}

/* The bits of a network in one of its words. */
static inline uint64_t filter_bits(uint64_t h)
{
	return UINT64_C(1) << (h & 63) | UINT64_C(1) << (h >> 6 & 63);
}

static inline void filter_enter(struct filter *f, uint64_t hash)
{
	struct filter_line *l = filter_line_of(f, hash);
	const uint64_t one = hash >> FILTER_WORDS & 3, other = hash >> (FILTER_WORDS + 2) & 3;
	const uint64_t bits = hash >> FILTER_BITS, rest = filter_rest(hash);
	l->word[0][one] |= filter_bits(bits);
	l->word[1][other] |= filter_bits(bits >> 12);
	l->word[0][one ^ 1] |= filter_bits(rest);
	l->word[1][other ^ 1] |= filter_bits(rest >> 12);
}

/* Starts the look-up of an address of this family. Does not prefetch. */
static inline struct address_lookup address_lookup_of(const struct address_ranges *r, bool v4,
                                                      const struct sy_addr *a)
{
	const struct filter *f = &r->family[v4].filter;
	const uint64_t hash = filter_hash(f, v4, a);
	return (struct address_lookup){filter_line_of(f, hash), hash};
}

static SY_PREFETCH_INLINE void address_lookup_prefetch(const struct address_lookup *lookup)
{
	__builtin_prefetch(lookup->line);
}

/* Starts the look-up of an address, and prefetches the words that decide most look-ups. */
static inline struct address_lookup address_lookup_begin(const struct address_ranges *r,
                                                         const struct sy_addr *a)
{
	const struct address_lookup lookup = address_lookup_of(r, sy_addr_is_v4(a), a);
	address_lookup_prefetch(&lookup);
	return lookup;
}

/* 0: the address is in no set; true for nearly all that are in none. Otherwise 1. */
static inline uint64_t address_lookup_may_match(const struct address_lookup *lookup)
{
	const uint64_t h = lookup->hash >> FILTER_WORDS;
	const struct filter_line *l = lookup->line;
	const uint64_t one = l->word[0][h & 3], other = l->word[1][h >> 2 & 3];
	return filter_has(one, h >> 4) & filter_has(other, h >> 16) & 1;
}

/* The same for look-ups that address_lookup_may_match() lets pass. */
static inline uint64_t address_lookup_may_match_rest(const struct address_lookup *lookup)
{
	const uint64_t h = lookup->hash >> FILTER_WORDS, rest = filter_rest(lookup->hash);
	const struct filter_line *l = lookup->line;
	const uint64_t one = l->word[0][(h & 3) ^ 1], other = l->word[1][(h >> 2 & 3) ^ 1];
	return filter_has(one, rest) & filter_has(other, rest >> 12) & 1;
}

/* Returns false if the address is in no set; true if it may be in one. */
static inline bool address_lookup_passes(const struct address_lookup *lookup)
{
	return SY_UNLIKELY(address_lookup_may_match(lookup)) &&
	       address_lookup_may_match_rest(lookup);
}

/* Bitmap of the n look-ups that pass. */
static inline uint64_t address_lookups_pass(const struct address_lookup *lookup, unsigned n)
{
	uint64_t may = 0, pass = 0;
	for (unsigned k = n; k-- > 0;)
		may = may << 1 | address_lookup_may_match(&lookup[k]);
	for (; SY_UNLIKELY(may); may &= may - 1)
		if (address_lookup_may_match_rest(&lookup[__builtin_ctzll(may)]))
			pass |= may & -may;
	return pass;
}

/* Continues a look-up that passes: prefetches what address_ranges_find() reads next. */
static SY_PREFETCH_INLINE void address_lookup_continue(const struct address_ranges *r,
                                                       const struct sy_addr *a)
{
	const bool v4 = sy_addr_is_v4(a);
	const struct family *f = &r->family[v4];
	__builtin_prefetch(&f->root[ntohl(a->w[v4 ? 3 : 0]) >> f->root_shift]);
	__builtin_prefetch(r->sets);
}

#endif
