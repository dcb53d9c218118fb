// SPDX-License-Identifier: Apache-2.0
#include "sy_limit_table.h"

#include <stdlib.h>
#include <sys/mman.h>

#define WAYS  4
#define TRIES 16 /* lost races after which a packet is not limited */

struct bucket {
	uint64_t tag; /* 0: never used */
	uint64_t level;
} __attribute__((aligned(16)));

struct line {
	struct bucket way[WAYS];
} __attribute__((aligned(SY_CACHE_LINE)));
_Static_assert(sizeof(struct line) == SY_CACHE_LINE, "one line");
_Static_assert(sizeof(struct bucket) == sizeof(struct sy_limit), "a bucket takes 16 bytes");

/* Counters beside a bucket. Writers and readers: any threads, relaxed. */
struct client {
	struct sy_limit_key key;
	struct sy_limit_counts passed, above;
};
_Static_assert(sizeof(struct client) == 48, "a place of a table takes 64 bytes");

struct sy_limit_table {
	struct line *line;
	struct client *client;
	uint32_t max, lines;
	bool shared; /* several threads charge it */
	struct sy_hash_key key;
};

static uint32_t lines_of(uint32_t max)
{
	return (max + WAYS - 1) / WAYS;
}

size_t sy_limit_table_bytes(uint32_t max)
{
	return lines_of(max) * sizeof(struct line) + max * sizeof(struct client);
}

/* Zeroed pages; they use no memory until touched. */
static void *pages(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

struct sy_limit_table *sy_limit_table_create(uint32_t max, unsigned threads)
{
	struct sy_limit_table *t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->max = max;
	t->lines = lines_of(max);
	t->shared = threads > 1;
	t->line = pages(t->lines * sizeof(*t->line));
	t->client = pages(max * sizeof(*t->client));
	if (t->line && t->client && sy_hash_key_random(&t->key) == 0)
		return t;
	sy_limit_table_destroy(t);
	return NULL;
}

void sy_limit_table_destroy(struct sy_limit_table *t)
{
	if (!t)
		return;
	if (t->line)
		munmap(t->line, t->lines * sizeof(*t->line));
	if (t->client)
		munmap(t->client, t->max * sizeof(*t->client));
	free(t);
}

/* ---- buckets --------------------------------------------------------------------------------- */

static uint64_t tag_of(const struct sy_limit_table *t, const struct sy_limit_key *key)
{
	return sy_hash_v4(&t->key, key->d[0], key->d[1]) | 1;
}

/* The first entry of a tag's line n, 0 or 1. */
static inline uint32_t line_of(const struct sy_limit_table *t, uint64_t tag, unsigned n)
{
	uint64_t half = n ? tag >> 32 : tag & UINT32_MAX;
	return (uint32_t)(half * t->lines >> 32) * WAYS;
}

static inline struct bucket *bucket_at(const struct sy_limit_table *t, uint32_t at)
{
	return &t->line[at / WAYS].way[at % WAYS];
}

/* May be torn: bucket_swap() detects that. */
static inline struct bucket bucket_read(const struct bucket *b)
{
	return (struct bucket){__atomic_load_n(&b->tag, __ATOMIC_RELAXED),
	                       __atomic_load_n(&b->level, __ATOMIC_RELAXED)};
}

static inline bool bucket_swap(struct bucket *b, struct bucket old, struct bucket new)
{
	union {
		struct bucket bucket;
		unsigned __int128 word;
	} from = {old}, to = {new};
	SY_LIMIT_STEP();
	return __sync_bool_compare_and_swap((unsigned __int128 *)(void *)b, from.word, to.word);
}

static inline bool bucket_is_full(struct bucket b, uint64_t volume, uint64_t burst)
{
	return b.tag == 0 || (int64_t)(b.level - (volume - burst)) <= 0;
}

/* Returns the entry of a tag, otherwise a free one in the line with more free ones, and its
 * content; SY_LIMIT_NO_ENTRY: neither. */
static uint32_t bucket_find(const struct sy_limit_table *t, uint64_t tag, uint64_t volume,
                            uint64_t burst, struct bucket *had)
{
	uint32_t found = SY_LIMIT_NO_ENTRY;
	unsigned max = 0;
	for (unsigned n = 0; n < 2; n++) {
		uint32_t first = line_of(t, tag, n), free_at = SY_LIMIT_NO_ENTRY;
		struct bucket free_had = {0, 0};
		unsigned free_count = 0;
		for (uint32_t at = first; at < first + WAYS && at < t->max; at++) {
			struct bucket b = bucket_read(bucket_at(t, at));
			if (b.tag == tag) {
				*had = b;
				return at;
			}
			if (!bucket_is_full(b, volume, burst))
				continue;
			if (free_count++ == 0) {
				free_at = at;
				free_had = b;
			}
		}
		if (free_count > max) {
			max = free_count;
			found = free_at;
			*had = free_had;
		}
	}
	return found;
}

/* Two threads may create a bucket for one key at the same time, in two entries. The entry that
 * look-ups find first is the bucket; the other one is refunded. */
static bool is_found_first(const struct sy_limit_table *t, uint64_t tag, uint32_t at)
{
	struct bucket had;
	return bucket_find(t, tag, 0, 0, &had) == at;
}

static void client_begin(struct client *c, const struct sy_limit_key *key)
{
	static const struct sy_limit_counts none;
	__atomic_store_n(&c->key.d[0], key->d[0], __ATOMIC_RELAXED);
	__atomic_store_n(&c->key.d[1], key->d[1], __ATOMIC_RELAXED);
	__atomic_store_n(&c->passed.packets, none.packets, __ATOMIC_RELAXED);
	__atomic_store_n(&c->passed.bytes, none.bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&c->above.packets, none.packets, __ATOMIC_RELAXED);
	__atomic_store_n(&c->above.bytes, none.bytes, __ATOMIC_RELAXED);
}

enum sy_limit_answer sy_limit_table_charge(struct sy_limit_table *t, const struct sy_limit_rate *r,
                                           const struct sy_limit_key *key, uint64_t volume,
                                           uint64_t cost, struct sy_limit_entry *place)
{
	const uint64_t tag = tag_of(t, key);
	/* Retry after a lost race for an existing bucket: another thread has charged it. */
	for (unsigned tries = 0; tries < TRIES;) {
		struct bucket had;
		uint32_t at = bucket_find(t, tag, volume, r->burst, &had);
		*place = (struct sy_limit_entry){tag, at};
		if (SY_UNLIKELY(at == SY_LIMIT_NO_ENTRY))
			return SY_LIMIT_UNLIMITED;
		bool made = had.tag != tag;
		tries += made;
		uint64_t level = made ? volume - r->burst : had.level;
		if (!sy_limit_next(&level, volume, r->burst, cost)) {
			if (made) /* the cost exceeds a full bucket */
				place->at = SY_LIMIT_NO_ENTRY;
			return SY_LIMIT_ABOVE;
		}
		if (!bucket_swap(bucket_at(t, at), had, (struct bucket){tag, level}))
			continue;
		if (SY_LIKELY(!made))
			return SY_LIMIT_CHARGED;
		if (SY_LIKELY(is_found_first(t, tag, at))) {
			client_begin(&t->client[at], key);
			return SY_LIMIT_CHARGED;
		}
		sy_limit_table_refund(t, place, cost);
	}
	place->at = SY_LIMIT_NO_ENTRY;
	return SY_LIMIT_UNLIMITED;
}

bool sy_limit_table_peek(const struct sy_limit_table *t, const struct sy_limit_rate *r,
                         const struct sy_limit_key *key, uint64_t volume, uint64_t cost,
                         struct sy_limit_entry *place)
{
	const uint64_t tag = tag_of(t, key);
	struct bucket had;
	uint32_t at = bucket_find(t, tag, 0, 0, &had);
	const bool there = at != SY_LIMIT_NO_ENTRY && had.tag == tag;
	*place = (struct sy_limit_entry){tag, there ? at : SY_LIMIT_NO_ENTRY};
	return !there || sy_limit_next(&had.level, volume, r->burst, cost);
}

struct sy_limit_entry sy_limit_table_find(const struct sy_limit_table *t,
                                          const struct sy_limit_key *key)
{
	struct bucket had;
	const uint64_t tag = tag_of(t, key);
	uint32_t at = bucket_find(t, tag, 0, 0, &had);
	return (struct sy_limit_entry){
	        tag, at != SY_LIMIT_NO_ENTRY && had.tag == tag ? at : SY_LIMIT_NO_ENTRY};
}

void sy_limit_table_refund(struct sy_limit_table *t, const struct sy_limit_entry *place,
                           uint64_t cost)
{
	if (place->at == SY_LIMIT_NO_ENTRY)
		return;
	struct bucket *b = bucket_at(t, place->at);
	for (;;) {
		struct bucket had = bucket_read(b);
		/* Reused for another key: it was full, so nothing is lost. */
		if (had.tag != place->tag ||
		    bucket_swap(b, had, (struct bucket){had.tag, had.level - cost}))
			return;
	}
}

void sy_limit_table_settle(struct sy_limit_table *t, uint64_t volume)
{
	for (uint32_t at = 0; at < t->max; at++) {
		struct bucket *b = bucket_at(t, at), had;
		do
			had = bucket_read(b);
		while (had.tag != 0 && (int64_t)(had.level - volume) > 0 &&
		       !bucket_swap(b, had, (struct bucket){had.tag, volume}));
	}
}

/* ---- counts ---------------------------------------------------------------------------------- */

static inline void count_add(uint64_t *counter, uint64_t n, bool shared)
{
	if (shared)
		__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
	else
		__atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + n,
		                 __ATOMIC_RELAXED);
}

void sy_limit_table_count(struct sy_limit_table *t, const struct sy_limit_entry *place, bool above,
                          uint64_t packets, uint64_t bytes)
{
	if (place->at == SY_LIMIT_NO_ENTRY)
		return;
	struct client *c = &t->client[place->at];
	struct sy_limit_counts *counts = above ? &c->above : &c->passed;
	count_add(&counts->packets, packets, t->shared);
	count_add(&counts->bytes, bytes, t->shared);
}

uint32_t sy_limit_table_capacity(const struct sy_limit_table *t)
{
	return t->max;
}

uint32_t sy_limit_table_used(const struct sy_limit_table *t, const struct sy_limit_rate *r,
                             uint64_t volume)
{
	uint32_t used = 0;
	for (uint32_t at = 0; at < t->max; at++)
		used += !bucket_is_full(bucket_read(bucket_at(t, at)), volume, r->burst);
	return used;
}

static struct sy_limit_counts counts_read(const struct sy_limit_counts *c)
{
	return (struct sy_limit_counts){__atomic_load_n(&c->packets, __ATOMIC_RELAXED),
	                                __atomic_load_n(&c->bytes, __ATOMIC_RELAXED)};
}

bool sy_limit_table_read(const struct sy_limit_table *t, uint32_t place,
                         const struct sy_limit_rate *r, uint64_t volume,
                         struct sy_limit_client *out)
{
	const struct bucket b = bucket_read(bucket_at(t, place));
	if (b.tag == 0)
		return false;
	const struct client *c = &t->client[place];
	out->key.d[0] = __atomic_load_n(&c->key.d[0], __ATOMIC_RELAXED);
	out->key.d[1] = __atomic_load_n(&c->key.d[1], __ATOMIC_RELAXED);
	out->passed = counts_read(&c->passed);
	out->above = counts_read(&c->above);
	out->full = bucket_is_full(b, volume, r->burst);
	return tag_of(t, &out->key) == b.tag; /* otherwise it is being created */
}
