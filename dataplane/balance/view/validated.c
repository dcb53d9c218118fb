// SPDX-License-Identifier: Apache-2.0
#include "validated.h"

#include <stdlib.h>

#include "table_map.h"

#define BUCKETS (1u << 16)
#define WORDS   8
/* The words of a bucket available to clients that a challenge has not validated. */
#define SEEN_WORDS 4
/* Buckets per tick: the whole table takes 21 s, far less than the 18 hours that 16 bits of seconds
 * express. */
#define TICK_BUCKETS 64
/* A session of such a client renews its word if it is older than this. */
#define SEEN_RENEWED 60

struct bucket {
	uint64_t word[WORDS];
};
_Static_assert(sizeof(struct bucket) == SY_CACHE_LINE, "one line");

struct validated {
	struct bucket *bucket; /* writers: workers, and the control thread by compare-and-swap */
	uint32_t tick_at;      /* control thread */
};

struct validated *validated_create(void)
{
	struct validated *p = calloc(1, sizeof(*p));
	if (p)
		p->bucket = table_map(BUCKETS, sizeof(*p->bucket));
	if (p && p->bucket)
		return p;
	free(p);
	return NULL;
}

void validated_destroy(struct validated *p)
{
	if (p)
		table_unmap(p->bucket, BUCKETS, sizeof(*p->bucket));
	free(p);
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The decoded word of a client. */
struct client {
	uint32_t tag;
	uint16_t second;
	uint8_t credit;
	bool validated;
	uint8_t proofs;
};

static uint64_t word_make(const struct client *c)
{
	return (uint64_t)c->tag << 32 | (uint64_t)c->second << 16 | (uint64_t)c->credit << 8 |
	       (uint64_t)c->validated << 7 | (c->proofs & VALIDATED_PROOFS);
}

static struct client word_read(const uint64_t *at)
{
	uint64_t word = __atomic_load_n(at, __ATOMIC_RELAXED);
	return (struct client){.tag = (uint32_t)(word >> 32),
	                       .second = (uint16_t)(word >> 16),
	                       .credit = (uint8_t)(word >> 8),
	                       .validated = word >> 7 & 1,
	                       .proofs = word & VALIDATED_PROOFS};
}

static void word_write(uint64_t *at, const struct client *c)
{
	__atomic_store_n(at, word_make(c), __ATOMIC_RELAXED);
}

/* Seconds since its last use; another worker's clock may be slightly ahead. */
static uint16_t client_age(const struct client *c, uint32_t now)
{
	uint16_t age = (uint16_t)(now - c->second);
	return age > UINT16_MAX - SEEN_RENEWED ? 0 : age;
}

/* Is the word empty or expired? */
static bool client_is_over(const struct client *c, uint32_t now)
{
	return (!c->validated && c->credit == 0 && c->proofs == 0) ||
	       client_age(c, now) > VALIDATED_SECONDS;
}

static struct bucket *bucket_of(const struct validated *p, uint64_t client)
{
	return &p->bucket[client % BUCKETS];
}

static uint32_t tag_of(uint64_t client)
{
	return (uint32_t)(client >> 32);
}

/* The client's word; NULL: none. */
static uint64_t *word_find(const struct validated *p, uint64_t client, uint32_t now,
                           struct client *c)
{
	struct bucket *bucket = bucket_of(p, client);
	for (unsigned i = 0; i < WORDS; i++) {
		*c = word_read(&bucket->word[i]);
		if (c->tag == tag_of(client) && !client_is_over(c, now))
			return &bucket->word[i];
	}
	*c = (struct client){.tag = tag_of(client)};
	return NULL;
}

/* Returns the word that a new client replaces; NULL: none. Without a validation by a challenge, the
 * client replaces the least recently used client that is not validated either. A validated client
 * replaces such a client first, otherwise the oldest validated one. */
static uint64_t *word_place(const struct validated *p, uint64_t client, uint32_t now,
                            bool validated)
{
	struct bucket *bucket = bucket_of(p, client);
	uint64_t *place = NULL;
	uint32_t worth = UINT32_MAX;
	for (unsigned i = validated ? WORDS : SEEN_WORDS; i-- > 0;) {
		const struct client c = word_read(&bucket->word[i]);
		if (client_is_over(&c, now))
			return &bucket->word[i];
		if (c.validated && !validated)
			continue;
		uint32_t this = (uint32_t)c.validated << 16 | (uint16_t)~client_age(&c, now);
		if (this < worth) {
			worth = this;
			place = &bucket->word[i];
		}
	}
	return place;
}

/* ---- clients --------------------------------------------------------------------------------- */

void validated_prefetch(const struct validated *p, uint64_t client)
{
	__builtin_prefetch(bucket_of(p, client));
}

bool validated_has_credit(const struct validated *p, uint64_t client, uint32_t now)
{
	struct client c;
	return word_find(p, client, now, &c) && c.credit > 0;
}

bool validated_consume(struct validated *p, uint64_t client, uint32_t now)
{
	struct client c;
	uint64_t *word = word_find(p, client, now, &c);
	if (!word || c.credit == 0)
		return false;
	c.credit--;
	c.second = (uint16_t)now;
	word_write(word, &c);
	return true;
}

unsigned validated_proofs(const struct validated *p, uint64_t client, uint32_t now)
{
	struct client c;
	return word_find(p, client, now, &c) ? c.proofs : 0;
}

void validated_add(struct validated *p, uint64_t client, uint32_t now)
{
	struct client c;
	uint64_t *word = word_find(p, client, now, &c);
	if (!word)
		word = word_place(p, client, now, true);
	c.second = (uint16_t)now;
	c.credit = VALIDATED_CREDITS;
	c.validated = true;
	c.proofs = (c.proofs + 1) & VALIDATED_PROOFS;
	word_write(word, &c);
}

void validated_add_seen(struct validated *p, uint64_t client, unsigned credits, uint32_t now)
{
	struct client c;
	uint64_t *word = word_find(p, client, now, &c);
	if (word && c.credit >= credits && client_age(&c, now) < SEEN_RENEWED)
		return; /* most calls: leave the cache line with other workers */
	if (!word)
		word = word_place(p, client, now, false);
	if (!word)
		return;
	c.second = (uint16_t)now;
	if (c.credit < credits)
		c.credit = (uint8_t)credits;
	word_write(word, &c);
}

void validated_tick(struct validated *p, uint32_t now)
{
	for (unsigned n = 0; n < TICK_BUCKETS; n++) {
		struct bucket *bucket = &p->bucket[p->tick_at];
		p->tick_at = (p->tick_at + 1) % BUCKETS;
		for (unsigned i = 0; i < WORDS; i++) {
			const struct client c = word_read(&bucket->word[i]);
			uint64_t word = word_make(&c);
			if (word != 0 && client_is_over(&c, now))
				__atomic_compare_exchange_n(&bucket->word[i], &word, 0, false,
				                            __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		}
	}
}
