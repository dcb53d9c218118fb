// SPDX-License-Identifier: Apache-2.0
/*
 * The session index: the inline code that runs for every packet. Included by session.h only.
 *
 *   bucket  0                      20       22       24                                  64
 *           │ tag × 10 (2 bytes)   │ absent │ guests │ entry × 10 (4 bytes)               │
 *   entry   │ record number (31 bits) │ direction (1 bit) │
 *
 * A tag of 0 marks an empty place. An entry lies in one of two buckets. Each of the two follows
 * from the other and the tag, so an entry can be moved without knowing its hash. `absent` counts
 * the entries whose first bucket is this one but which lie in their other bucket. While it is 0,
 * which is usual unless the table is rather full, a look-up need not read the other bucket.
 */
#ifndef SY_SESSION_INDEX_H
#define SY_SESSION_INDEX_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define SESSION_BUCKET_PLACES 10

struct session_bucket {
	uint16_t tags[SESSION_BUCKET_PLACES];
	uint16_t absent; /* entries whose first bucket this is, but which lie in their other one */
	uint16_t guests; /* one bit per place: its entry has another first bucket */
	uint32_t entries[SESSION_BUCKET_PLACES];
} __attribute__((aligned(SY_CACHE_LINE)));
_Static_assert(sizeof(struct session_bucket) == SY_CACHE_LINE, "a look-up costs one line");

/* Every worker's look-ups read the first line. The second is written when a session is created or
 * ends; other threads read only its `live` (relaxed). */
struct session_table {
	struct session_bucket *buckets;
	struct session *hot;
	struct session_cold *cold;
	uint16_t *cursors; /* SESSION_PORT_CURSORS */
	uint32_t bucket_count;
	uint32_t capacity; /* records */
	uint8_t slot;

	uint32_t live __attribute__((aligned(SY_CACHE_LINE)));
	uint32_t top;       /* records from here up are free and on no list */
	uint32_t free_head; /* free records below top; SESSION_NONE: none */
	uint32_t sweep_at;  /* the next record to visit */
	uint32_t evict_at;  /* the next record to consider for eviction: evict.c */
	uint32_t refused;   /* insertions that found no record. Reader: control thread, relaxed */
};
_Static_assert(sizeof(struct session_table) == 2 * SY_CACHE_LINE, "tables share no line");

/* Where the slots' tables lie. place: the lower 32 bits hold the cache line of the first bucket,
 * counted from `base`; the upper 32 bits hold the number of buckets. Writer: the slot's worker when
 * its table grows, `hot` first. Readers: any worker, `place` first: an entry of the smaller table
 * is valid in the larger one too. */
struct session_space {
	uint8_t *base;
	uint64_t place[SY_SLOTS];
	struct session *hot[SY_SLOTS];
};

/* The part of a slot's table that a look-up needs; no other field is set. Reading struct
 * session_table would cost one more cache line per packet, and 16 KB of L1 for all slots instead of
 * 4 KB. place: as read. */
static inline __attribute__((always_inline)) struct session_table
session_table_at(const struct session_space *space, uint8_t slot, uint64_t place)
{
	return (struct session_table){.buckets = (struct session_bucket *)space->base +
	                                         (uint32_t)place,
	                              .hot = space->hot[slot],
	                              .bucket_count = (uint32_t)(place >> 32)};
}

/* Of a slot that the calling worker owns: no other thread moves its table. */
static inline __attribute__((always_inline)) struct session_table
session_table_of(const struct session_space *space, uint8_t slot)
{
	return session_table_at(space, slot, space->place[slot]);
}

/* Of any slot: reads the place once, before the hot halves. */
static inline __attribute__((always_inline)) struct session_table
session_table_of_any(const struct session_space *space, uint8_t slot)
{
	return session_table_at(space, slot,
	                        __atomic_load_n(&space->place[slot], __ATOMIC_ACQUIRE));
}

/* The first bucket of a hash, in a slot that the calling worker owns. */
static inline __attribute__((always_inline)) const struct session_bucket *
session_space_bucket(const struct session_space *space, uint8_t slot, uint64_t hash)
{
	uint64_t place = space->place[slot];
	return (const struct session_bucket *)space->base +
	       ((uint32_t)place + ((hash >> 32) * (place >> 32) >> 32));
}

/* Publishes a new place of a slot's table. */
static inline void session_space_set(struct session_space *space, const struct session_table *t)
{
	uint64_t line = (uint64_t)(t->buckets - (struct session_bucket *)space->base);
	__atomic_store_n(&space->hot[t->slot], t->hot, __ATOMIC_RELEASE);
	__atomic_store_n(&space->place[t->slot], line | (uint64_t)t->bucket_count << 32,
	                 __ATOMIC_RELEASE);
}

/* Tag and bucket come from disjoint bits of the hash: 0–15 and 32–63. */
static inline uint16_t session_tag(uint64_t hash)
{
	uint16_t tag = (uint16_t)hash;
	return tag ? tag : 1;
}

/* Multiply-shift: any number of buckets, no division. */
static inline uint32_t session_bucket_of(const struct session_table *t, uint64_t hash)
{
	return (uint32_t)((hash >> 32) * t->bucket_count >> 32);
}

/* The other bucket of an entry: f(tag) − bucket, modulo the number of buckets. It is its own
 * inverse. */
static inline uint32_t session_bucket_other(const struct session_table *t, uint32_t bucket,
                                            uint16_t tag)
{
	uint32_t spread = tag * 0x9e3779b1u; /* 2^32 over the golden ratio: spreads tags */
	uint32_t sum = (uint32_t)((uint64_t)spread * t->bucket_count >> 32);
	return sum >= bucket ? sum - bucket : sum + t->bucket_count - bucket;
}

/* Bit i of the result: place i has this tag. */
static inline uint32_t session_bucket_match_portable(const struct session_bucket *b, uint16_t tag)
{
	uint32_t mask = 0;
	for (unsigned i = 0; i < SESSION_BUCKET_PLACES; i++)
		mask |= (uint32_t)(b->tags[i] == tag) << i;
	return mask;
}

static inline uint32_t session_bucket_match(const struct session_bucket *b, uint16_t tag)
{
#ifdef __SSE2__
	const uint8_t *tags = (const uint8_t *)b;
	__m128i wanted = _mm_set1_epi16((short)tag);
	__m128i low = _mm_cmpeq_epi16(_mm_load_si128((const __m128i *)tags), wanted);
	__m128i high = _mm_cmpeq_epi16(_mm_loadl_epi64((const __m128i *)(tags + 16)), wanted);
	return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high)) &
	       ((1u << SESSION_BUCKET_PLACES) - 1);
#else
	return session_bucket_match_portable(b, tag);
#endif
}

/* Into the L2 cache. L1 supports about ten outstanding misses and drops further prefetches, which
 * would be most of a burst. From L2 to L1 takes a few cycles, which the work on other packets
 * hides. */
#define SESSION_PREFETCH(at) __builtin_prefetch((at), 0, 2)

static inline void session_prefetch_bucket(const struct session_table *t, uint64_t hash)
{
	SESSION_PREFETCH(&t->buckets[session_bucket_of(t, hash)]);
}

/* Returns the first entry in a bucket with this tag, and prefetches its record; or SESSION_NONE. */
static inline __attribute__((always_inline)) uint32_t
session_bucket_guess(const struct session_table *t, const struct session_bucket *b, uint16_t tag)
{
	uint32_t mask = session_bucket_match(b, tag);
	if (SY_UNLIKELY(mask == 0))
		return SESSION_NONE;
	uint32_t entry = b->entries[__builtin_ctz(mask)];
	SESSION_PREFETCH(&t->hot[entry >> 1]);
	return entry;
}

/* Of the first bucket of a hash. Five of six entries lie there even in a full table (insertion
 * prefers it), so the other bucket is prefetched only if the first has no such tag. */
static inline __attribute__((always_inline)) uint32_t
session_guess_in(const struct session_table *t, const struct session_bucket *b, uint64_t hash)
{
	uint16_t tag = session_tag(hash);
	uint32_t entry = session_bucket_guess(t, b, tag);
	if (SY_UNLIKELY(entry == SESSION_NONE && b->absent)) {
		uint32_t bucket = (uint32_t)(b - t->buckets);
		SESSION_PREFETCH(&t->buckets[session_bucket_other(t, bucket, tag)]);
	}
	return entry;
}

static inline __attribute__((always_inline)) uint32_t session_guess(const struct session_table *t,
                                                                    uint64_t hash)
{
	return session_guess_in(t, &t->buckets[session_bucket_of(t, hash)], hash);
}

static inline __attribute__((always_inline)) uint32_t
session_guess_other(const struct session_table *t, uint64_t hash)
{
	uint16_t tag = session_tag(hash);
	uint32_t bucket = session_bucket_of(t, hash);
	if (!t->buckets[bucket].absent)
		return SESSION_NONE;
	return session_bucket_guess(t, &t->buckets[session_bucket_other(t, bucket, tag)], tag);
}

static inline __attribute__((always_inline)) uint32_t
session_find(const struct session_table *t, uint64_t hash, session_match match, const void *ctx,
             enum session_direction *direction)
{
	uint16_t tag = session_tag(hash);
	uint32_t bucket = session_bucket_of(t, hash);

	for (unsigned choice = 0; choice < 2; choice++) {
		const struct session_bucket *b = &t->buckets[bucket];
		uint32_t mask = session_bucket_match(b, tag);
		for (; mask != 0; mask &= mask - 1) {
			uint32_t entry = b->entries[__builtin_ctz(mask)];
			enum session_direction side = (enum session_direction)(entry & 1);
			if (SY_LIKELY(match(ctx, &t->hot[entry >> 1], side))) {
				*direction = side;
				return entry >> 1;
			}
		}
		if (choice == 0 && !b->absent)
			break;
		bucket = session_bucket_other(t, bucket, tag);
	}
	return SESSION_NONE;
}

static inline __attribute__((always_inline)) uint32_t
session_find_guessed(const struct session_table *t, uint32_t guess, uint64_t hash,
                     session_match match, const void *ctx, enum session_direction *direction)
{
	enum session_direction side = (enum session_direction)(guess & 1);

	if (SY_LIKELY(guess != SESSION_NONE && match(ctx, &t->hot[guess >> 1], side))) {
		*direction = side;
		return guess >> 1;
	}
	return session_find(t, hash, match, ctx, direction);
}

/* The record that the next session gets. The free list (records below top) is used first: it keeps
 * record numbers low and sweeps short. */
static inline uint32_t session_free_first(const struct session_table *t)
{
	if (t->free_head != SESSION_NONE)
		return t->free_head;
	return t->top < t->capacity ? t->top : SESSION_NONE;
}

static inline void session_prefetch_free(const struct session_table *t)
{
	uint32_t record = session_free_first(t);

	if (record == SESSION_NONE)
		return;
	__builtin_prefetch(&t->hot[record], 1);
	__builtin_prefetch(&t->cold[record], 1);
}

static inline struct session *session_at(const struct session_table *t, uint32_t record)
{
	return &t->hot[record];
}

static inline struct session_cold *session_cold_at(const struct session_table *t, uint32_t record)
{
	return &t->cold[record];
}

static inline const struct session_cold *session_cold_beside(const struct session_table *t,
                                                             const struct session *hot)
{
	return &t->cold[hot - t->hot];
}

#endif
