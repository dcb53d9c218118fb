// SPDX-License-Identifier: Apache-2.0
/* SY_LIMIT_ATOMIC behind real event devices: two consumers, and no unit is created or lost,
 * although buckets are read and written without protection. Several buckets have one flow. */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#include <rte_lcore.h>

/* Another thread may run between reading and writing a level: shared use is detected. */
#define SY_LIMIT_STEP() sched_yield()
#include "sy_limit.h"

#include "event_eal.h"
#include "sy_event.h"

#define BUCKETS   40u
#define FLOWS     16u
#define PACKETS   400u /* of each bucket */
#define CONSUMERS 2u
#define BURST     200000u
#define START     UINT64_C(1000000000)

struct experiment {
	struct sy_event *event;
	struct sy_limit_rate rate;
	struct sy_limit limit[BUCKETS];
	uint64_t volume;
	uint64_t passed[BUCKETS], lost[BUCKETS]; /* by the holder */
	uint64_t consumed;
};

struct consumer {
	pthread_t id;
	struct experiment *x;
	unsigned port;
};

static void *consumer_main(void *arg)
{
	struct consumer *c = arg;
	struct experiment *x = c->x;
	struct sy_event_port *p = sy_event_port(x->event, c->port);
	if (rte_thread_register())
		abort();
	while (__atomic_load_n(&x->consumed, __ATOMIC_ACQUIRE) < BUCKETS * PACKETS) {
		struct rte_event e[SY_EVENT_BURST];
		unsigned n = sy_event_receive(p, e, SY_EVENT_BURST);
		for (unsigned i = 0; i < n; i++) {
			uint32_t bucket = (uint32_t)(e[i].u64 >> 32), cost = (uint32_t)e[i].u64;
			bool passes = sy_limit_charge(&x->limit[bucket], SY_LIMIT_ATOMIC, &x->rate,
			                              NULL, x->volume, cost);
			*(passes ? &x->passed[bucket] : &x->lost[bucket]) += cost;
		}
		__atomic_add_fetch(&x->consumed, n, __ATOMIC_ACQ_REL);
		if (n == 0)
			sched_yield();
	}
	rte_thread_unregister();
	return NULL;
}

static uint32_t cost_of(uint32_t packet)
{
	return 64 + packet * 331 % 1437;
}

static void nothing_lost(uint64_t word, void *ctx)
{
	fail_msg("an event was left");
}

static void packets_send(struct experiment *x)
{
	struct sy_event_port *p = sy_event_port(x->event, 0);
	for (uint32_t n = 0; n < PACKETS; n++) {
		struct rte_event e[BUCKETS];
		for (uint32_t b = 0; b < BUCKETS; b++)
			sy_event_make(p, &e[b], b % FLOWS, (uint64_t)b << 32 | cost_of(n));
		for (unsigned sent = 0; sent < BUCKETS;) {
			sent += sy_event_send(p, e + sent, BUCKETS - sent);
			if (sent < BUCKETS)
				sched_yield();
		}
	}
	while (__atomic_load_n(&x->consumed, __ATOMIC_ACQUIRE) < BUCKETS * PACKETS) {
		sy_event_maintain(p);
		sched_yield();
	}
}

static void test_exact(void **state)
{
	static struct experiment x;
	struct sy_event_options o = {
	        .device = *state, .model = SY_EVENT_ATOMIC, .ports = 3, .consumers = 6};
	struct consumer consumer[CONSUMERS];
	struct sy_error err = {0};
	uint64_t all = 0;

	x = (struct experiment){0};
	assert_int_equal(sy_limit_rate_init(&x.rate, 1, 1, BURST, START, &err), 0);
	x.volume = sy_limit_volume(&x.rate, START);
	for (unsigned b = 0; b < BUCKETS; b++)
		sy_limit_init(&x.limit[b], &x.rate, 0, START);
	if (sy_event_open(&o, &x.event, &err))
		fail_msg("%s", err.text);
	for (unsigned i = 0; i < CONSUMERS; i++) {
		consumer[i] = (struct consumer){.x = &x, .port = i + 1};
		assert_int_equal(pthread_create(&consumer[i].id, NULL, consumer_main, &consumer[i]),
		                 0);
	}
	packets_send(&x);
	for (unsigned i = 0; i < CONSUMERS; i++)
		pthread_join(consumer[i].id, NULL);
	sy_event_close(x.event, nothing_lost, NULL);
	for (uint32_t n = 0; n < PACKETS; n++)
		all += cost_of(n);
	for (unsigned b = 0; b < BUCKETS; b++) {
		assert_int_equal(x.passed[b] + sy_limit_credit(&x.limit[b], &x.rate, x.volume),
		                 BURST);
		assert_int_equal(x.passed[b] + x.lost[b], all);
		assert_true(x.lost[b] > 0);
	}
}

int main(void)
{
	static char dsw[] = "event_dsw", sw[] = "event_sw";
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_prestate(test_exact, dsw),
	        cmocka_unit_test_prestate(test_exact, sw),
	};
	event_eal_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
