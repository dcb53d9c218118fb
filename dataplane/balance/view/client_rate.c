// SPDX-License-Identifier: Apache-2.0
#include "client_rate.h"

#include <stdlib.h>

#include "table_map.h"

#define BUCKETS (1u << 16)
#define WORDS   8
#define TRIES   16 /* lost races after which a session is not counted */
/* Buckets per tick: the whole table takes 21 s; 40 bits of microseconds express six days. */
#define TICK_BUCKETS 64

#define TIME_BITS 40
#define TIME_MASK ((UINT64_C(1) << TIME_BITS) - 1)
#define SECOND_US UINT64_C(1000000)

struct bucket {
	uint64_t word[WORDS];
};
_Static_assert(sizeof(struct bucket) == SY_CACHE_LINE, "one line");
_Static_assert(CLIENT_BURST_MAX *SECOND_US < TIME_MASK / 2, "the time of a word is less ahead");

struct client_rates {
	struct bucket *bucket; /* writers: workers, and the control thread by compare-and-swap */
	uint32_t tick_at;      /* control thread */
};

struct client_rates *client_rates_create(void)
{
	struct client_rates *r = calloc(1, sizeof(*r));
	if (r)
		r->bucket = table_map(BUCKETS, sizeof(*r->bucket));
	if (r && r->bucket)
		return r;
	free(r);
	return NULL;
}

void client_rates_destroy(struct client_rates *r)
{
	if (r)
		table_unmap(r->bucket, BUCKETS, sizeof(*r->bucket));
	free(r);
}

/* Microseconds until the word's time; 0: it has passed. */
static uint64_t word_ahead(uint64_t word, uint64_t now_us)
{
	uint64_t ahead = (word - now_us) & TIME_MASK;
	return word != 0 && ahead <= TIME_MASK / 2 ? ahead : 0;
}

/* The client's word, or one whose time has passed; NULL: neither. *word: its value. */
static uint64_t *word_find(struct bucket *bucket, uint64_t tag, uint64_t now_us, uint64_t *word)
{
	uint64_t *place = NULL;
	for (unsigned i = 0; i < WORDS; i++) {
		uint64_t one = __atomic_load_n(&bucket->word[i], __ATOMIC_RELAXED);
		bool counts = word_ahead(one, now_us) > 0;
		if (counts && one >> TIME_BITS == tag) {
			*word = one;
			return &bucket->word[i];
		}
		if (!counts && !place) {
			*word = one;
			place = &bucket->word[i];
		}
	}
	return place;
}

bool client_rate_charge(struct client_rates *r, uint64_t client, uint64_t now_us,
                        uint32_t per_second, uint32_t burst)
{
	struct bucket *bucket = &r->bucket[client % BUCKETS];
	const uint64_t tag = client >> TIME_BITS, interval = SECOND_US / per_second;
	for (unsigned n = 0; n < TRIES; n++) {
		uint64_t word, *at = word_find(bucket, tag, now_us, &word);
		if (!at)
			return true;
		uint64_t ahead = word_ahead(word, now_us);
		const bool accepted = ahead <= (burst - 1) * interval;
		if (!accepted && ahead <= burst * interval)
			return false;
		/* cap: the limits were different when the time was stored */
		ahead = accepted ? ahead + interval : burst * interval;
		uint64_t next = tag << TIME_BITS | ((now_us + ahead) & TIME_MASK);
		if (__atomic_compare_exchange_n(at, &word, next, false, __ATOMIC_RELAXED,
		                                __ATOMIC_RELAXED))
			return accepted;
	}
	return true;
}

void client_rates_tick(struct client_rates *r, uint64_t now_us)
{
	for (unsigned n = 0; n < TICK_BUCKETS; n++) {
		struct bucket *bucket = &r->bucket[r->tick_at];
		r->tick_at = (r->tick_at + 1) % BUCKETS;
		for (unsigned i = 0; i < WORDS; i++) {
			uint64_t word = __atomic_load_n(&bucket->word[i], __ATOMIC_RELAXED);
			if (word != 0 && word_ahead(word, now_us) == 0)
				__atomic_compare_exchange_n(&bucket->word[i], &word, 0, false,
				                            __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		}
	}
}
