// SPDX-License-Identifier: Apache-2.0
#include "client_count.h"

#include <stdlib.h>

#include "table_map.h"

#define BUCKETS       (1u << 18)
#define WORDS         8
#define COUNT_BITS    24
#define COUNT_MASK    ((UINT64_C(1) << COUNT_BITS) - 1)
#define SLOT_BYTES    (SESSION_RECORDS_MAX / 8)
#define RELEASE_TRIES 65536

struct bucket {
	uint64_t word[WORDS];
};
_Static_assert(sizeof(struct bucket) == SY_CACHE_LINE, "one line");
_Static_assert(CLIENT_SESSIONS_MAX < COUNT_MASK, "a count has 24 bits");

struct client_counts {
	struct bucket *bucket; /* writers: workers, by compare-and-swap */
	uint8_t *bits;         /* [SY_SLOTS][SLOT_BYTES] */
	uint64_t lost;         /* releases that found no word */
};

struct client_counts *client_counts_create(void)
{
	struct client_counts *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->bucket = table_map(BUCKETS, sizeof(*c->bucket));
	c->bits = table_map(SY_SLOTS, SLOT_BYTES);
	if (c->bucket && c->bits)
		return c;
	client_counts_destroy(c);
	return NULL;
}

void client_counts_destroy(struct client_counts *c)
{
	if (!c)
		return;
	table_unmap(c->bucket, BUCKETS, sizeof(*c->bucket));
	table_unmap(c->bits, SY_SLOTS, SLOT_BYTES);
	free(c);
}

uint8_t *client_counts_bits(struct client_counts *c, uint8_t slot)
{
	return c->bits + (size_t)slot * SLOT_BYTES;
}

/* Result of a search for a client. */
struct found {
	uint64_t sum;
	uint64_t *own, *empty; /* a word of the client that is not full; the first empty one */
	uint64_t was;          /* value of *own */
};

static struct found bucket_find(struct bucket *bucket, uint64_t client)
{
	struct found f = {0};
	for (unsigned i = 0; i < WORDS; i++) {
		uint64_t word = __atomic_load_n(&bucket->word[i], __ATOMIC_RELAXED);
		if (word == 0) {
			f.empty = f.empty ? f.empty : &bucket->word[i];
		} else if (word >> COUNT_BITS == client >> COUNT_BITS) {
			f.sum += word & COUNT_MASK;
			f.own = &bucket->word[i];
			f.was = word;
		}
	}
	return f;
}

static struct bucket *bucket_of(const struct client_counts *c, uint64_t client)
{
	return &c->bucket[client % BUCKETS];
}

static bool word_swap(uint64_t *at, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(at, &from, to, false, __ATOMIC_RELAXED,
	                                   __ATOMIC_RELAXED);
}

uint32_t client_count_read(const struct client_counts *c, uint64_t client)
{
	return (uint32_t)bucket_find(bucket_of(c, client), client).sum;
}

enum client_count_result client_count_acquire(struct client_counts *c, uint64_t client,
                                              uint32_t limit)
{
	for (;;) { /* a swap fails only because another worker's succeeded */
		const struct found f = bucket_find(bucket_of(c, client), client);
		if (f.sum >= limit)
			return CLIENT_OVER;
		if (f.own && (f.was & COUNT_MASK) == COUNT_MASK)
			return CLIENT_UNCOUNTED;
		if (f.own ? word_swap(f.own, f.was, f.was + 1)
		          : f.empty && word_swap(f.empty, 0, (client & ~COUNT_MASK) | UINT64_C(1)))
			return CLIENT_COUNTED;
		if (!f.own && !f.empty)
			return CLIENT_UNCOUNTED;
	}
}

void client_count_release(struct client_counts *c, uint64_t client)
{
	/* One of the words counts the session, whatever other workers change meanwhile. Bounded: an
	 * error must not stop a worker. */
	for (unsigned n = 0; n < RELEASE_TRIES; n++) {
		const struct found f = bucket_find(bucket_of(c, client), client);
		if (f.own && word_swap(f.own, f.was, (f.was - 1) & COUNT_MASK ? f.was - 1 : 0))
			return;
	}
	__atomic_fetch_add(&c->lost, 1, __ATOMIC_RELAXED);
}

uint64_t client_counts_lost(const struct client_counts *c)
{
	return c ? __atomic_load_n(&c->lost, __ATOMIC_RELAXED) : 0;
}

uint64_t client_counts_sum(const struct client_counts *c)
{
	uint64_t sum = 0;
	for (uint32_t n = 0; c && n < BUCKETS * WORDS; n++)
		sum += __atomic_load_n(&c->bucket[n / WORDS].word[n % WORDS], __ATOMIC_RELAXED) &
		       COUNT_MASK;
	return sum;
}
