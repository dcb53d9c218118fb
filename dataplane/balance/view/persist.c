// SPDX-License-Identifier: Apache-2.0
/*
 * Bindings of client prefixes to servers: one table for all workers, without locks.
 *
 *     bucket    | head | entry | entry | … |    eight 64-bit entries, one cache line
 *     entry     | tag, 24 bits | server id, 24 bits | second, 16 bits |    0: empty
 *
 * The tag is a keyed hash of prefix and service. Every entry is inserted at the head: the worker
 * copies the present head to another position, then exchanges the head for its own entry. So
 * insertions into a bucket are serialized. If two workers insert the same prefix, the second one
 * fails, searches again, and finds the first one's choice.
 */
#include <stdlib.h>

#include "balance.h"
#include "table_map.h"

#define BUCKETS   (1u << 17)
#define WORDS     8
#define HEAD_SLOT 0
/* Buckets per tick: the whole table takes 41 s, far less than the 18 hours that 16 bits of seconds
 * express. */
#define TICK_BUCKETS 64
/* Workers' clocks differ slightly: an entry may be from the next second. */
#define AGE_MAX (UINT16_MAX - 60)

struct bucket {
	uint64_t word[WORDS];
};
_Static_assert(sizeof(struct bucket) == SY_CACHE_LINE, "one line");

struct persist {
	struct bucket *bucket; /* writers: workers, control thread; by compare-and-swap */
	uint32_t tick_at;      /* control thread */
};

struct persist *persist_create(void)
{
	struct persist *p = calloc(1, sizeof(*p));
	if (p)
		p->bucket = table_map(BUCKETS, sizeof(*p->bucket));
	if (p && p->bucket)
		return p;
	free(p);
	return NULL;
}

void persist_destroy(struct persist *p)
{
	if (p)
		table_unmap(p->bucket, BUCKETS, sizeof(*p->bucket));
	free(p);
}

/* ---- entries --------------------------------------------------------------------------------- */

static uint64_t entry_make(uint32_t tag, uint32_t server, uint32_t now)
{
	return (uint64_t)tag << 40 | (uint64_t)server << 16 | (uint16_t)now;
}

static uint32_t entry_tag(uint64_t word)
{
	return (uint32_t)(word >> 40);
}

static uint32_t entry_server(uint64_t word)
{
	return (uint32_t)(word >> 16) & 0xffffff;
}

static uint16_t entry_age(uint64_t word, uint32_t now)
{
	uint16_t age = (uint16_t)(now - word);
	return age > AGE_MAX ? 0 : age;
}

static uint64_t entry_read(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

static bool entry_swap(uint64_t *at, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(at, &from, to, false, __ATOMIC_SEQ_CST,
	                                   __ATOMIC_SEQ_CST);
}

/* Is the entry valid: not expired, and its server eligible? */
static bool entry_is_live(const struct sy_balance *b, uint64_t word, const struct service *s,
                          uint32_t now)
{
	const struct endpoint *e = &b->endpoint[entry_server(word)];
	uint16_t age = entry_age(word, now);
	return age <= s->policy.persistence.timeout && (int32_t)(now - age - e->created) >= 0 &&
	       SY_READ(e->eligible) && (!SY_READ(e->backup) || s->pool->eligible == 0);
}

/* Is the entry empty, expired or invalid? */
static bool entry_is_over(const struct sy_balance *b, uint64_t word, uint32_t now)
{
	if (word == 0)
		return true;
	const struct endpoint *e = &b->endpoint[entry_server(word)];
	const struct service *s = endpoint_service(b, e);
	return !s || SY_READ(e->removed) || !entry_is_live(b, word, s, now);
}

/* ---- finding and binding --------------------------------------------------------------------- */

struct key {
	struct bucket *bucket;
	uint32_t tag;
	uint32_t service;
};

static struct key key_of(const struct sy_balance *b, const struct service *s,
                         const struct sy_addr *client)
{
	bool v4 = sy_addr_is_v4(client);
	unsigned bits = v4 ? 96u + s->policy.persistence.prefix4 : s->policy.persistence.prefix6;
	struct sy_addr prefix = *client;
	for (unsigned i = 0; i < sizeof(prefix.b); i++)
		if (8 * i >= bits)
			prefix.b[i] = 0;
		else if (8 * i + 8 > bits)
			prefix.b[i] &= (uint8_t)(0xff << (8 * i + 8 - bits));
	uint64_t h = sy_hash_mix(prefix.d[0] ^ b->key.k[0], prefix.d[1] ^ b->key.k[1]);
	h = sy_hash_mix(h ^ b->key.k[2], s->id ^ b->key.k[3]);
	return (struct key){
	        .bucket = &b->persist->bucket[h >> 40 & (BUCKETS - 1)],
	        .tag = 1 + (uint32_t)(h & 0xffffffff) % 0xffffff,
	        .service = s->id,
	};
}

/* A false match, with another prefix of the same service, binds both to one server: harmless. */
static bool key_matches(const struct sy_balance *b, const struct key *k, uint64_t word)
{
	return entry_tag(word) == k->tag && b->endpoint[entry_server(word)].service == k->service;
}

/* Restarts the entry's timeout. Returns false if another thread has changed it. */
static bool entry_renew(uint64_t *at, uint64_t word, uint32_t now)
{
	uint64_t renewed = entry_make(entry_tag(word), entry_server(word), now);
	return renewed == word || entry_swap(at, word, renewed);
}

uint32_t persist_find(struct sy_balance *b, const struct service *s, const struct sy_addr *client,
                      uint32_t now)
{
	const struct key k = key_of(b, s, client);
	for (unsigned i = 0; i < WORDS; i++) {
		uint64_t word = entry_read(&k.bucket->word[i]);
		while (key_matches(b, &k, word) && entry_is_live(b, word, s, now)) {
			if (entry_renew(&k.bucket->word[i], word, now))
				return entry_server(word);
			word = entry_read(&k.bucket->word[i]);
		}
	}
	return SERVER_NONE;
}

/* Searches the bucket for the prefix, and removes its entries that are refused or invalid. Returns
 * false if an entry changed meanwhile. */
static bool bucket_clear(struct sy_balance *b, const struct key *k, const struct service *s,
                         uint32_t refused, uint32_t now, uint32_t *found)
{
	*found = SERVER_NONE;
	for (unsigned i = 0; i < WORDS; i++) {
		uint64_t word = entry_read(&k->bucket->word[i]);
		if (!key_matches(b, k, word))
			continue;
		if (entry_server(word) != refused && entry_is_live(b, word, s, now))
			*found = entry_server(word);
		else if (!entry_swap(&k->bucket->word[i], word, 0))
			return false;
	}
	return true;
}

/* The position for the present head: an empty or invalid entry, otherwise the oldest. */
static uint64_t *bucket_victim(struct sy_balance *b, struct bucket *bucket, uint32_t now,
                               uint64_t *held)
{
	uint64_t *victim = NULL;
	for (unsigned i = HEAD_SLOT + 1; i < WORDS; i++) {
		uint64_t word = entry_read(&bucket->word[i]);
		bool over = entry_is_over(b, word, now);
		if (!victim || over || entry_age(word, now) > entry_age(*held, now)) {
			victim = &bucket->word[i];
			*held = word;
		}
		if (over)
			break;
	}
	return victim;
}

uint32_t persist_bind(struct sy_balance *b, const struct service *s, const struct sy_addr *client,
                      uint32_t server, uint32_t refused, uint32_t now)
{
	const struct key k = key_of(b, s, client);
	uint64_t *head = &k.bucket->word[HEAD_SLOT];
	for (;;) {
		uint64_t first = entry_read(head), held = 0;
		uint32_t found;
		if (!bucket_clear(b, &k, s, refused, now, &found))
			continue;
		if (found != SERVER_NONE)
			return found;
		uint64_t *place = NULL;
		if (!entry_is_over(b, first, now)) {
			place = bucket_victim(b, k.bucket, now, &held);
			if (!entry_swap(place, held, first))
				continue;
		}
		if (entry_swap(head, first, entry_make(k.tag, server, now)))
			return server;
		/* The head may have been removed meanwhile: its copy must not stay. */
		if (place)
			entry_swap(place, first, 0);
	}
}

void persist_tick(struct sy_balance *b)
{
	uint32_t now = (uint32_t)(balance_now(b) / 1000000000u);
	for (unsigned n = 0; n < TICK_BUCKETS; n++) {
		struct bucket *bucket = &b->persist->bucket[b->persist->tick_at];
		b->persist->tick_at = (b->persist->tick_at + 1) % BUCKETS;
		for (unsigned i = 0; i < WORDS; i++) {
			uint64_t word = entry_read(&bucket->word[i]);
			if (word != 0 && entry_is_over(b, word, now))
				entry_swap(&bucket->word[i], word, 0);
		}
	}
}
