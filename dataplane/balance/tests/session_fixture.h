// SPDX-License-Identifier: Apache-2.0
/* Shared by the session tests: a table of any geometry, random numbers, sessions with a name. */
#ifndef SESSION_FIXTURE_H
#define SESSION_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "session_file.h"

struct fixture {
	struct session_table table;
	struct session_index index;
	struct session_geometry geometry;
	uint8_t *region;
};

static inline void fixture_open(struct fixture *f, uint32_t records, uint32_t buckets)
{
	session_geometry_init(&f->geometry, records, buckets);
	f->region = aligned_alloc(SY_CACHE_LINE, f->geometry.size);
	assert_non_null(f->region);
	memset(f->region, 0, f->geometry.size);
	session_table_init(&f->table, &f->index, 7, f->region, &f->geometry);
}

static inline void fixture_close(struct fixture *f)
{
	free(f->region);
}

/* splitmix64: the same numbers in every run. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* A session identified by a number, which its client address contains. */
static inline struct session session_named(uint64_t name)
{
	return (struct session){
	        .client = {.d = {0x20010db8, name}},
	        .client_port = (uint16_t)name,
	        .server = 5,
	        .local = 1,
	        .state = SESSION_ESTABLISHED,
	};
}

struct wanted {
	uint64_t name;
	enum session_direction direction;
};

static inline bool wanted_match(const void *ctx, const struct session *candidate,
                                enum session_direction direction)
{
	const struct wanted *w = ctx;
	return candidate->client.d[1] == w->name && direction == w->direction;
}

static inline uint32_t find_named(const struct session_table *t, uint64_t hash, uint64_t name,
                                  enum session_direction direction)
{
	struct wanted w = {name, direction};
	enum session_direction found =
	        direction == SESSION_CLIENT ? SESSION_SERVER : SESSION_CLIENT;
	uint32_t record = session_find(t->index, hash, wanted_match, &w, &found);

	if (record != SESSION_NONE)
		assert_int_equal(found, direction);
	return record;
}

static inline uint32_t insert_named(struct session_table *t, uint64_t name, uint64_t client_hash,
                                    uint64_t server_hash)
{
	struct session hot = session_named(name);
	return session_insert(t, &hot, &(struct session_cold){.created = 1}, client_hash,
	                      server_hash);
}

/* Index entries in use. Buckets count how many of their entries lie in other buckets. */
static inline uint32_t index_used(const struct session_table *t)
{
	uint32_t used = 0, *absent = calloc(session_bucket_count(t->index), sizeof(*absent));

	assert_non_null(absent);
	for (uint32_t i = 0; i < session_bucket_count(t->index); i++) {
		const struct session_bucket *b = &session_buckets(t->index)[i];
		uint32_t empty = session_bucket_match(b, 0);
		assert_int_equal(b->guests & (empty | ~0u << SESSION_BUCKET_ENTRIES), 0);
		for (uint32_t guests = b->guests; guests != 0; guests &= guests - 1)
			absent[session_bucket_other(t->index, i, b->tags[__builtin_ctz(guests)])]++;
		used += SESSION_BUCKET_ENTRIES - (uint32_t)__builtin_popcount(empty);
	}
	for (uint32_t i = 0; i < session_bucket_count(t->index); i++)
		assert_int_equal(session_buckets(t->index)[i].absent, absent[i]);
	free(absent);
	return used;
}

#endif
