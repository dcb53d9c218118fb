// SPDX-License-Identifier: Apache-2.0
/* Real threads on one bucket, under ThreadSanitizer, which reports a race by failing. No unit may
 * be created or lost. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "sy_limit_table.h"

#define THREADS        4
#define CHARGES        50000
#define CHARGED_BEFORE 500000 /* before the threads begin */
#define SECOND         UINT64_C(1000000000)

struct thread {
	pthread_t id;
	struct sy_limit *limit;
	const struct sy_limit_rate *rate;
	enum sy_limit_engine engine;
	uint64_t local, passed, refused;
};

/* Time advances by a microsecond with each packet, independently in each thread. */
static void *take_many(void *arg)
{
	struct thread *t = arg;
	for (unsigned i = 0; i < CHARGES; i++) {
		uint64_t volume = sy_limit_volume(t->rate, SECOND + i * UINT64_C(1000));
		uint64_t cost = 64 + i % 1437;
		if (!sy_limit_charge(t->limit, t->engine, t->rate, &t->local, volume, cost)) {
			t->refused++;
			continue;
		}
		t->passed += cost;
		if (i % 16 == 0) {
			sy_limit_refund(t->limit, t->engine, &t->local, cost);
			t->passed -= cost;
		}
	}
	return NULL;
}

/* Whether what passed and what is left make up the burst and all that came since. The bucket never
 * is full, so nothing is forfeited. */
static bool engine_check(enum sy_limit_engine engine)
{
	struct sy_limit_rate rate;
	struct sy_limit limit;
	struct thread thread[THREADS];
	uint64_t passed = 0, held = 0, refused = 0;

	if (sy_limit_rate_init(&rate, 400000000, 8 * SECOND, 1000000, SECOND, NULL) < 0)
		return false;
	sy_limit_init(&limit, &rate, 4500, SECOND);
	sy_limit_charge(&limit, SY_LIMIT_OWN, &rate, NULL, sy_limit_volume(&rate, SECOND),
	                CHARGED_BEFORE);
	for (unsigned i = 0; i < THREADS; i++) {
		thread[i] = (struct thread){.limit = &limit, .rate = &rate, .engine = engine};
		if (pthread_create(&thread[i].id, NULL, take_many, &thread[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(thread[i].id, NULL);
		passed += thread[i].passed;
		held += thread[i].local;
		refused += thread[i].refused;
	}
	uint64_t volume = sy_limit_volume(&rate, SECOND + CHARGES * UINT64_C(1000));
	uint64_t left = sy_limit_credit(&limit, &rate, volume);
	printf("engine %u: %lu passed, %lu held, %lu left of %lu, %lu refused\n", engine,
	       (unsigned long)passed, (unsigned long)held, (unsigned long)left,
	       (unsigned long)(volume + rate.burst), (unsigned long)refused);
	return CHARGED_BEFORE + passed + held + left == volume + rate.burst && refused > 0;
}

/* ---- a table of buckets ---------------------------------------------------------------------- */

#define KEYS 5

struct table_thread {
	pthread_t id;
	struct sy_limit_table *table;
	const struct sy_limit_rate *rate;
	uint64_t passed[KEYS], refused, unlimited;
};

/* Also keys that come and go, whose buckets are soon full again. */
static void *table_charge_many(void *arg)
{
	struct table_thread *t = arg;
	for (unsigned i = 0; i < CHARGES; i++) {
		uint64_t volume = sy_limit_volume(t->rate, SECOND + i * UINT64_C(1000));
		uint64_t cost = 64 + i % 1437;
		const struct sy_limit_key key = {{1, i % KEYS}}, other = {{2, i}};
		struct sy_limit_entry place;
		sy_limit_table_charge(t->table, t->rate, &other, volume, 1, &place);
		sy_limit_table_count(t->table, &place, false, 1, 1);
		switch (sy_limit_table_charge(t->table, t->rate, &key, volume, cost, &place)) {
		case SY_LIMIT_CHARGED:
			t->passed[i % KEYS] += cost;
			break;
		case SY_LIMIT_ABOVE:
			t->refused++;
			continue;
		default:
			t->unlimited++;
			continue;
		}
		sy_limit_table_count(t->table, &place, false, 1, cost);
		if (i % 16 == 0) {
			sy_limit_table_refund(t->table, &place, cost);
			t->passed[i % KEYS] -= cost;
		}
	}
	return NULL;
}

/* All that is left in a key's bucket. */
static uint64_t table_drain(struct sy_limit_table *t, const struct sy_limit_rate *r, uint64_t n,
                            uint64_t volume)
{
	const struct sy_limit_key key = {{1, n}};
	struct sy_limit_entry place;
	uint64_t left = 0;
	for (uint64_t cost = UINT64_C(1) << 20; cost > 0; cost /= 2)
		while (sy_limit_table_charge(t, r, &key, volume, cost, &place) == SY_LIMIT_CHARGED)
			left += cost;
	return left;
}

static bool table_check(void)
{
	struct sy_limit_rate rate;
	struct table_thread thread[THREADS];
	uint64_t refused = 0, unlimited = 0;
	struct sy_limit_table *table = sy_limit_table_create(4096, THREADS);
	struct sy_limit_entry place;

	if (!table || sy_limit_rate_init(&rate, 80000000, 8 * SECOND, 1000000, SECOND, NULL) < 0)
		return false;
	for (uint64_t n = 0; n < KEYS; n++)
		sy_limit_table_charge(table, &rate, &(struct sy_limit_key){{1, n}},
		                      sy_limit_volume(&rate, SECOND), CHARGED_BEFORE, &place);
	for (unsigned i = 0; i < THREADS; i++) {
		thread[i] = (struct table_thread){.table = table, .rate = &rate};
		if (pthread_create(&thread[i].id, NULL, table_charge_many, &thread[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(thread[i].id, NULL);
		refused += thread[i].refused;
		unlimited += thread[i].unlimited;
	}
	uint64_t volume = sy_limit_volume(&rate, SECOND + CHARGES * UINT64_C(1000));
	bool right = refused > 0 && unlimited == 0;
	for (uint64_t n = 0; n < KEYS; n++) {
		uint64_t passed = 0, left = table_drain(table, &rate, n, volume);
		for (unsigned i = 0; i < THREADS; i++)
			passed += thread[i].passed[n];
		printf("key %lu: %lu passed, %lu left of %lu\n", (unsigned long)n,
		       (unsigned long)passed, (unsigned long)left,
		       (unsigned long)(volume + rate.burst));
		right = right && CHARGED_BEFORE + passed + left == volume + rate.burst;
	}
	sy_limit_table_destroy(table);
	return right;
}

int main(void)
{
	static const enum sy_limit_engine shared[] = {SY_LIMIT_CAS, SY_LIMIT_LOCK,
	                                              SY_LIMIT_LIGHT_LOCK};
	for (unsigned i = 0; i < SY_ARRAY_LEN(shared); i++)
		if (!engine_check(shared[i]))
			return 1;
	return table_check() ? 0 : 1;
}
