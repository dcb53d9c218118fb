// SPDX-License-Identifier: Apache-2.0
/*
 * The session index: the inline code that runs for every packet. Included by session.h only.
 *
 *   bucket  0                      20       22       24                                  64
 *           │ tag × 10 (2 bytes)   │ absent │ guests │ entry × 10 (4 bytes)               │
 *   entry   │ record number (31 bits) │ direction (1 bit) │
 *
 * A tag of 0 marks an empty entry. An entry lies in one of two buckets. Each of the two follows
 * from the other and the tag, so an entry can be moved without knowing its hash. `absent` counts
 * the entries whose first bucket is this one but which lie in their other bucket. While it is 0,
 * which is usual unless the table is rather full, a look-up need not read the other bucket.
 */
#ifndef SY_SESSION_INDEX_H
#define SY_SESSION_INDEX_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define SESSION_BUCKET_ENTRIES 10

struct session_bucket {
	uint16_t tags[SESSION_BUCKET_ENTRIES];
	uint16_t absent; /* entries whose first bucket this is, but which lie in their other one */
	uint16_t guests; /* one bit per entry: it has another first bucket */
	uint32_t entries[SESSION_BUCKET_ENTRIES];
} __attribute__((aligned(SY_CACHE_LINE)));
_Static_assert(sizeof(struct session_bucket) == SY_CACHE_LINE, "a look-up costs one line");

/*
 * Location of a slot's buckets and hot halves: all that look-ups read of its table. The indexes of
 * all slots are one array of 4 KB, apart from the tables' other fields, so that it stays in the L1
 * cache. Addresses have 48 bits: the kernel maps higher ones only on request.
 *
 * location │ cache line of the first bucket (42 bits: its address / 64) │ buckets (22 bits) │
 *
 * Writer: the slot's worker when its table grows, `hot` first. Readers: any worker, `location`
 * first: an entry of the smaller table is valid in the larger one too.
 */
struct session_index {
	uint64_t location;
	struct session *hot;
};
#define SESSION_INDEX_LINE_BITS 42
#define SESSION_INDEX_BUCKETS   (UINT32_C(1) << (64 - SESSION_INDEX_LINE_BITS))

/* Look-ups read only `index` of it. The second line is written when a session is created or ends;
 * other threads read only `live` (relaxed). */
struct session_table {
	struct session_index *index; /* the slot's, or that of a larger table in preparation */
	struct session_cold *cold;
	uint16_t *cursors; /* SESSION_PORT_CURSORS */
	uint32_t capacity; /* records */
	uint8_t slot;

	uint32_t live __attribute__((aligned(SY_CACHE_LINE)));
	uint32_t top;       /* records from here on are free and on no list */
	uint32_t free_head; /* free records below top; SESSION_NONE: none */
	uint32_t sweep_at;  /* the next record to visit */
	uint32_t evict_at;  /* the next record to consider for eviction: evict.c */
	uint32_t refused;   /* insertions that found no record. Reader: control thread, relaxed */
	uint32_t embryonic; /* sessions that are embryonic, of those that are counted */
	bool counted;       /* a whole sweep has counted all sessions */
	uint16_t none_tick; /* start of the second that port_none is about */
	uint64_t port_none; /* by port cursor: a whole search in that second found no port */
	uint64_t home_none; /* likewise, at the home address */
};
_Static_assert(sizeof(struct session_table) == 2 * SY_CACHE_LINE, "tables share no line");

/* The first bucket. */
static inline __attribute__((always_inline)) struct session_bucket *
session_buckets(const struct session_index *x)
{
	uint64_t line = x->location
	                << (64 -
	                    SESSION_INDEX_LINE_BITS); /* the shift drops the bits of the count */
	return (struct session_bucket *)(line >> (64 - SESSION_INDEX_LINE_BITS - 6));
}

static inline __attribute__((always_inline)) uint32_t
session_bucket_count(const struct session_index *x)
{
	return (uint32_t)(x->location >> SESSION_INDEX_LINE_BITS);
}

/* The index of a slot of any worker. A worker reads those of its own slots directly: no other
 * thread moves them. */
static inline __attribute__((always_inline)) struct session_index
session_index_of_any(const struct session_index *x)
{
	uint64_t location = __atomic_load_n(&x->location, __ATOMIC_ACQUIRE);
	return (struct session_index){location, x->hot};
}

/* Publishes the location of a slot's table. count is below SESSION_INDEX_BUCKETS. */
static inline void session_index_set(struct session_index *x, const struct session_bucket *buckets,
                                     uint32_t count, struct session *hot)
{
	uint64_t line = (uintptr_t)buckets / SY_CACHE_LINE;
	__atomic_store_n(&x->hot, hot, __ATOMIC_RELEASE);
	__atomic_store_n(&x->location, line | (uint64_t)count << SESSION_INDEX_LINE_BITS,
	                 __ATOMIC_RELEASE);
}

/* Tag and bucket come from disjoint bits of the hash: 0–15 and 32–63. */
static inline uint16_t session_tag(uint64_t hash)
{
	uint16_t tag = (uint16_t)hash;
	return tag ? tag : 1;
}

/* Multiply-shift: any number of buckets, no division. */
static inline uint32_t session_bucket_of(const struct session_index *x, uint64_t hash)
{
	return (uint32_t)((hash >> 32) * session_bucket_count(x) >> 32);
}

static inline __attribute__((always_inline)) struct session_bucket *
session_bucket_first(const struct session_index *x, uint64_t hash)
{
	return &session_buckets(x)[session_bucket_of(x, hash)];
}

/* The other bucket of an entry: f(tag) − bucket, modulo the number of buckets. It is its own
 * inverse. */
static inline uint32_t session_bucket_other(const struct session_index *x, uint32_t bucket,
                                            uint16_t tag)
{
	uint32_t spread = tag * 0x9e3779b1u; /* 2^32 over the golden ratio: spreads tags */
	uint32_t sum = (uint32_t)((uint64_t)spread * session_bucket_count(x) >> 32);
	return sum >= bucket ? sum - bucket : sum + session_bucket_count(x) - bucket;
}

/* Bit i of the result: entry i has this tag. */
static inline uint32_t session_bucket_match_portable(const struct session_bucket *b, uint16_t tag)
{
	uint32_t mask = 0;
	for (unsigned i = 0; i < SESSION_BUCKET_ENTRIES; i++)
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
	       ((1u << SESSION_BUCKET_ENTRIES) - 1);
#else
	return session_bucket_match_portable(b, tag);
#endif
}

/* Prefetch into L2. L1 supports about ten outstanding misses and drops further prefetches: most of
 * a burst. L2 to L1 takes a few cycles, which the work on other packets hides. */
#define SESSION_PREFETCH(at) __builtin_prefetch((at), 0, 2)

static SY_PREFETCH_INLINE void session_prefetch_bucket(const struct session_index *x, uint64_t hash)
{
	SESSION_PREFETCH(session_bucket_first(x, hash));
}

/* Returns the first entry in a bucket with this tag, and prefetches its record; or SESSION_NONE. */
static inline __attribute__((always_inline)) uint32_t
session_bucket_guess(const struct session_index *x, const struct session_bucket *b, uint16_t tag)
{
	uint32_t mask = session_bucket_match(b, tag);
	if (SY_UNLIKELY(mask == 0))
		return SESSION_NONE;
	uint32_t entry = b->entries[__builtin_ctz(mask)];
	SESSION_PREFETCH(&x->hot[entry >> 1]);
	return entry;
}

/* Of the first bucket of a hash. Five of six entries lie there even in a full table (insertion
 * prefers it), so the other bucket is prefetched only if the first has no such tag. */
static inline __attribute__((always_inline)) uint32_t
session_guess_in(const struct session_index *x, const struct session_bucket *b, uint64_t hash)
{
	uint16_t tag = session_tag(hash);
	uint32_t entry = session_bucket_guess(x, b, tag);
	if (SY_UNLIKELY(entry == SESSION_NONE && b->absent)) {
		uint32_t bucket = (uint32_t)(b - session_buckets(x));
		SESSION_PREFETCH(&session_buckets(x)[session_bucket_other(x, bucket, tag)]);
	}
	return entry;
}

static inline __attribute__((always_inline)) uint32_t session_guess(const struct session_index *x,
                                                                    uint64_t hash)
{
	return session_guess_in(x, session_bucket_first(x, hash), hash);
}

static inline __attribute__((always_inline)) uint32_t
session_guess_other(const struct session_index *x, uint64_t hash)
{
	uint16_t tag = session_tag(hash);
	uint32_t bucket = session_bucket_of(x, hash);
	if (!session_buckets(x)[bucket].absent)
		return SESSION_NONE;
	return session_bucket_guess(x, &session_buckets(x)[session_bucket_other(x, bucket, tag)],
	                            tag);
}

static inline __attribute__((always_inline)) uint32_t
session_find(const struct session_index *x, uint64_t hash, session_match match, const void *ctx,
             enum session_direction *direction)
{
	uint16_t tag = session_tag(hash);
	uint32_t bucket = session_bucket_of(x, hash);

	for (unsigned choice = 0; choice < 2; choice++) {
		const struct session_bucket *b = &session_buckets(x)[bucket];
		uint32_t mask = session_bucket_match(b, tag);
		for (; mask != 0; mask &= mask - 1) {
			uint32_t entry = b->entries[__builtin_ctz(mask)];
			enum session_direction side = (enum session_direction)(entry & 1);
			if (SY_LIKELY(match(ctx, &x->hot[entry >> 1], side))) {
				*direction = side;
				return entry >> 1;
			}
		}
		if (choice == 0 && !b->absent)
			break;
		bucket = session_bucket_other(x, bucket, tag);
	}
	return SESSION_NONE;
}

static inline __attribute__((always_inline)) uint32_t
session_find_guessed(const struct session_index *x, uint32_t guess, uint64_t hash,
                     session_match match, const void *ctx, enum session_direction *direction)
{
	enum session_direction side = (enum session_direction)(guess & 1);

	if (SY_LIKELY(guess != SESSION_NONE && match(ctx, &x->hot[guess >> 1], side))) {
		*direction = side;
		return guess >> 1;
	}
	return session_find(x, hash, match, ctx, direction);
}

/* Is the session included in `embryonic`? After adoption the first sweep counts the sessions. */
static inline bool session_is_counted(const struct session_table *t, uint32_t record)
{
	return t->counted || record < t->sweep_at;
}

/* Sessions were adopted: the next sweep begins with the first record and counts them. */
static inline void session_table_recount(struct session_table *t)
{
	t->sweep_at = 0;
	t->embryonic = 0;
	t->counted = false;
}

/* Max embryonic sessions of the table while others exist that may be evicted for them. */
static inline uint32_t session_max_embryonic(const struct session_table *t)
{
	return t->capacity / 2;
}

/* The record that the next session gets. The free list (below top) comes first: it keeps record
 * numbers low and sweeps short. */
static inline uint32_t session_free_first(const struct session_table *t)
{
	if (t->free_head != SESSION_NONE)
		return t->free_head;
	return t->top < t->capacity ? t->top : SESSION_NONE;
}

static SY_PREFETCH_INLINE void session_prefetch_free(const struct session_table *t)
{
	uint32_t record = session_free_first(t);

	if (record == SESSION_NONE)
		return;
	__builtin_prefetch(&t->index->hot[record], 1);
	__builtin_prefetch(&t->cold[record], 1);
}

static inline struct session *session_at(const struct session_table *t, uint32_t record)
{
	return &t->index->hot[record];
}

static inline struct session_cold *session_cold_at(const struct session_table *t, uint32_t record)
{
	return &t->cold[record];
}

static inline const struct session_cold *session_cold_beside(const struct session_table *t,
                                                             const struct session *hot)
{
	return &t->cold[hot - t->index->hot];
}

#endif
