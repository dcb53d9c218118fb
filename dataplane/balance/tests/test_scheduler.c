// SPDX-License-Identifier: Apache-2.0
/* Distribution and order of what the schedulers pick. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <forwarder.pb-c.h>

#include "../balance.h"

#define SERVERS 64
#define RR      STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR
#define WRR     STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_WRR

struct fixture {
	struct balance_worker worker;
	int64_t current[SERVERS];
	uint32_t next[4];
	struct service *service;
	uint32_t picks[SERVERS];
};

static int setup(void **state)
{
	struct fixture *f = aligned_alloc(SY_CACHE_LINE, sizeof(*f) + SY_CACHE_LINE);
	memset(f, 0, sizeof(*f));
	f->worker.wrr_current = f->current;
	f->worker.rr_next = f->next;
	f->service = calloc(1, sizeof(struct service) + SERVERS * sizeof(struct candidate));
	f->service->id = 3;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	free(f->service);
	free(f);
	return 0;
}

/* Servers are named by their place; weight 0: not a candidate. */
static void service_set(struct fixture *f, uint8_t scheduler, unsigned count,
                        const uint32_t weight[])
{
	f->service->scheduler = scheduler;
	f->service->candidates = f->service->total_weight = 0;
	for (unsigned i = 0; i < count; i++) {
		if (weight[i] == 0)
			continue;
		f->service->candidate[f->service->candidates++] = (struct candidate){i, weight[i]};
		f->service->total_weight += weight[i];
	}
}

static void pick(struct fixture *f, unsigned count)
{
	memset(f->picks, 0, sizeof(f->picks));
	while (count--) {
		uint32_t server = scheduler_pick(&f->worker, f->service);
		assert_in_range(server, 0, SERVERS - 1);
		f->picks[server]++;
	}
}

static void test_none(void **state)
{
	struct fixture *f = *state;
	for (unsigned scheduler = RR; scheduler <= WRR; scheduler++) {
		service_set(f, (uint8_t)scheduler, 0, NULL);
		assert_int_equal(scheduler_pick(&f->worker, f->service), SERVER_NONE);
	}
}

static void test_rr(void **state)
{
	struct fixture *f = *state;
	static const uint32_t weight[] = {7, 1, 1, 300};
	service_set(f, RR, 4, weight);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(scheduler_pick(&f->worker, f->service), i % 4);
}

/* Whoever comes or goes, nobody is left out for longer than a round. */
static void test_rr_changes(void **state)
{
	struct fixture *f = *state;
	uint32_t weight[8];
	srand(1);
	for (unsigned round = 0; round < 200; round++) {
		unsigned candidates = 0;
		for (unsigned i = 0; i < 8; i++)
			candidates += weight[i] = (uint32_t)rand() % 2;
		service_set(f, RR, 8, weight);
		if (candidates == 0)
			continue;
		pick(f, 3 * candidates);
		for (unsigned i = 0; i < 8; i++)
			assert_int_equal(f->picks[i], 3 * weight[i]);
		pick(f, (unsigned)rand() % 5);
	}
}

/* Over as many picks as the weights sum to, each server gets exactly its weight. */
static void test_wrr_exact(void **state)
{
	struct fixture *f = *state;
	uint32_t weight[SERVERS];
	srand(2);
	for (unsigned round = 0; round < 50; round++) {
		unsigned count = 1 + (unsigned)rand() % SERVERS;
		for (unsigned i = 0; i < count; i++)
			weight[i] = 1 + (uint32_t)rand() % 100;
		memset(f->current, 0, sizeof(f->current));
		service_set(f, WRR, count, weight);
		for (unsigned again = 0; again < 3; again++) {
			pick(f, f->service->total_weight);
			for (unsigned i = 0; i < count; i++)
				assert_int_equal(f->picks[i], weight[i]);
		}
	}
}

static void test_wrr_order(void **state)
{
	struct fixture *f = *state;
	static const uint32_t weight[] = {5, 1, 1};
	static const uint32_t want[] = {0, 0, 1, 0, 2, 0, 0};
	service_set(f, WRR, 3, weight);
	for (unsigned i = 0; i < 5 * SY_ARRAY_LEN(want); i++)
		assert_int_equal(scheduler_pick(&f->worker, f->service),
		                 want[i % SY_ARRAY_LEN(want)]);
}

/* Smooth: at no moment is a server further from its share than one pick per server. */
static void test_wrr_smooth(void **state)
{
	struct fixture *f = *state;
	static const uint32_t weight[] = {100, 50, 25, 10, 5, 1, 1};
	uint32_t seen[SY_ARRAY_LEN(weight)] = {0};
	service_set(f, WRR, SY_ARRAY_LEN(weight), weight);
	for (uint32_t n = 1; n <= 2 * f->service->total_weight; n++) {
		seen[scheduler_pick(&f->worker, f->service)]++;
		for (unsigned i = 0; i < SY_ARRAY_LEN(weight); i++) {
			double share = (double)n * weight[i] / f->service->total_weight;
			assert_true(seen[i] - share < 2 && share - seen[i] < 2);
		}
	}
}

/* A service's shares follow its weights within about a round, whatever they were before: a server
 * neither starves nor floods for what it got under its old weight. */
static void test_wrr_changes(void **state)
{
	struct fixture *f = *state;
	static const uint32_t before[] = {65535, 65535, 1, 65535};
	static const uint32_t after[] = {1, 2, 3, 4};
	for (unsigned phase = 0; phase < 20; phase++) {
		memset(f->current, 0, sizeof(f->current));
		service_set(f, WRR, 4, before);
		pick(f, 1000 + phase);
		service_set(f, WRR, 4, after);
		pick(f, 100);
		for (unsigned i = 0; i < 4; i++)
			assert_in_range(f->picks[i], 10 * after[i] - 4, 10 * after[i] + 4);
	}
}

static void test_wrr_come_and_go(void **state)
{
	struct fixture *f = *state;
	uint32_t weight[8];
	srand(3);
	for (unsigned round = 0; round < 300; round++) {
		unsigned candidates = 0;
		for (unsigned i = 0; i < 8; i++) {
			weight[i] = rand() % 3 ? 1 + (uint32_t)rand() % 20 : 0;
			candidates += weight[i] > 0;
		}
		service_set(f, WRR, 8, weight);
		if (candidates == 0)
			continue;
		pick(f, 5 * f->service->total_weight);
		for (unsigned i = 0; i < 8; i++) {
			/* What is left over from before is at most a share of one round. */
			uint32_t slack = weight[i] ? 2 + weight[i] : 0, want = 5 * weight[i];
			assert_in_range(f->picks[i], want > slack ? want - slack : 0, want + slack);
		}
		pick(f, (unsigned)rand() % 30);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_none),        TEST(test_rr),
	        TEST(test_rr_changes),  TEST(test_wrr_exact),
	        TEST(test_wrr_order),   TEST(test_wrr_smooth),
	        TEST(test_wrr_changes), TEST(test_wrr_come_and_go),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
