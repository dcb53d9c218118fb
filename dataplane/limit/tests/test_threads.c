// SPDX-License-Identifier: Apache-2.0
/* Real threads on one bucket, under ThreadSanitizer, which reports a race by failing. No unit may
 * be created or lost. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "sy_limit.h"

#define THREADS 4
#define TAKES   50000
#define TAKEN   500000 /* before the threads begin */
#define SECOND  UINT64_C(1000000000)

struct thread {
	pthread_t id;
	struct sy_limit *limit;
	const struct sy_limit_rate *rate;
	enum sy_limit_engine engine;
	uint64_t local, passed, refused;
};

/* Time goes on by a microsecond with each packet, differently in each thread. */
static void *take_many(void *arg)
{
	struct thread *t = arg;
	for (unsigned i = 0; i < TAKES; i++) {
		uint64_t volume = sy_limit_volume(t->rate, SECOND + i * UINT64_C(1000));
		uint64_t cost = 64 + i % 1437;
		if (!sy_limit_take(t->limit, t->engine, t->rate, &t->local, volume, cost)) {
			t->refused++;
			continue;
		}
		t->passed += cost;
		if (i % 16 == 0) {
			sy_limit_give_back(t->limit, t->engine, &t->local, cost);
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
	sy_limit_take(&limit, SY_LIMIT_OWN, &rate, NULL, sy_limit_volume(&rate, SECOND), TAKEN);
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
	uint64_t volume = sy_limit_volume(&rate, SECOND + TAKES * UINT64_C(1000));
	uint64_t left = sy_limit_credit(&limit, &rate, volume);
	printf("engine %u: %lu passed, %lu held, %lu left of %lu, %lu refused\n", engine,
	       (unsigned long)passed, (unsigned long)held, (unsigned long)left,
	       (unsigned long)(volume + rate.burst), (unsigned long)refused);
	return TAKEN + passed + held + left == volume + rate.burst && refused > 0;
}

int main(void)
{
	static const enum sy_limit_engine shared[] = {SY_LIMIT_CAS, SY_LIMIT_LOCK,
	                                              SY_LIMIT_LIGHT_LOCK};
	for (unsigned i = 0; i < SY_ARRAY_LEN(shared); i++)
		if (!engine_check(shared[i]))
			return 1;
	return 0;
}
