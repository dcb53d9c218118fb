// SPDX-License-Identifier: Apache-2.0
/* A pool of servers identified by their position, and one worker that picks from it. */
#ifndef SCHEDULER_FIXTURE_H
#define SCHEDULER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../base/tests/test_random.h"
#include "scheduler.h"

#define SERVERS 1024

struct fixture {
	struct scheduler_state state;
	int64_t current[SERVERS];
	uint32_t position[SERVERS], cursor[4], active[SERVERS], delay[SERVERS];
	struct table_cache *table_cache;
	struct pool *pool;
	uint32_t picks[SERVERS];
	uint32_t ceiling; /* of the next pool */
};

/* A server's settings; all 0: weight 1, up, no limit. */
struct member {
	uint16_t weight;
	bool absent; /* not configured */
	bool down;
	uint16_t share;  /* 0: SHARES, the full share */
	uint32_t limit;  /* 0: none */
	double measured; /* share; 0: none */
};

static inline int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	f->state = (struct scheduler_state){f->current, f->position, f->cursor, 1};
	f->table_cache = table_cache_create();
	*state = f;
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;
	unsigned tables;
	uint64_t bytes;
	pool_free(f->pool, f->table_cache);
	table_cache_measure(f->table_cache, &tables, &bytes);
	assert_int_equal(tables, 0);
	assert_int_equal(bytes, 0);
	table_cache_destroy(f->table_cache);
	free(f);
	return 0;
}

/* Server i listens on 10.0.i.i port 80. */
static inline uint64_t server_name(unsigned i)
{
	struct sy_addr a = sy_addr_v4(0);
	a.b[12] = 10;
	a.b[14] = (uint8_t)(i >> 8);
	a.b[15] = (uint8_t)i;
	return scheduler_name(&a, 80);
}

static inline struct pool *pool_make(struct fixture *f, const struct scheduler_ops *ops,
                                     unsigned count, const struct member *m, int64_t piece)
{
	struct pool *p = pool_create(ops, count);
	assert_non_null(p);
	p->ceiling = f->ceiling;
	for (unsigned i = 0; i < count; i++) {
		uint16_t share = m[i].down ? 0 : (m[i].share ? m[i].share : SHARES);
		uint32_t limit = m[i].limit ? m[i].limit : UINT32_MAX;
		if (m[i].absent)
			continue;
		if (m[i].measured > 0)
			pool_measure(p, i, server_name(i), m[i].weight,
			             (uint32_t)(m[i].measured * 4294967295.0), share, limit);
		else
			pool_add(p, i, server_name(i), m[i].weight, share, limit);
	}
	int rc;
	do {
		int64_t budget = piece;
		rc = pool_build(p, f->table_cache, &budget);
		assert_true(rc >= 0);
	} while (rc == 1);
	return p;
}

/* Sets the pool for the following picks. */
static inline void pool_set(struct fixture *f, const struct scheduler_ops *ops, unsigned count,
                            const struct member *m)
{
	struct pool *before = f->pool;
	f->pool = pool_make(f, ops, count, m, INT64_MAX);
	pool_free(before, f->table_cache);
}

static inline void pool_set_weights(struct fixture *f, const struct scheduler_ops *ops,
                                    unsigned count, const uint16_t *weight)
{
	struct member m[SERVERS] = {0};
	for (unsigned i = 0; i < count; i++)
		m[i].weight = weight[i];
	pool_set(f, ops, count, m);
}

/* The server that a client with this hash gets; PICK_NONE: none. */
static inline uint32_t pick_from(struct fixture *f, const struct pool *pool, uint64_t hash)
{
	const struct pick p = {pool, &f->state, f->active, f->delay, 3, hash};
	uint32_t i = pool->ops->pick(&p);
	if (i == PICK_NONE)
		return PICK_NONE;
	assert_true(i < pool->members);
	assert_in_range(pool->candidate[i].share, 1, SHARES);
	return pool->candidate[i].server;
}

static inline uint32_t pick_one(struct fixture *f)
{
	uint64_t hash = f->pool->ops->by_hash ? random_next() : 0;
	return pick_from(f, f->pool, hash);
}

static inline void pick_many(struct fixture *f, unsigned count)
{
	memset(f->picks, 0, sizeof(f->picks));
	while (count--) {
		uint32_t server = pick_one(f);
		assert_in_range(server, 0, SERVERS - 1);
		f->picks[server]++;
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
