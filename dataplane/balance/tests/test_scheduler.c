// SPDX-License-Identifier: Apache-2.0
/* Distribution and order of the picks of rr, wrr, lc, wlc and sed. */
#include "scheduler_fixture.h"

static const struct scheduler_ops *const turns[] = {&scheduler_rr, &scheduler_wrr};
static const struct scheduler_ops *const least[] = {&scheduler_lc, &scheduler_wlc, &scheduler_sed};

/* ---- all schedulers -------------------------------------------------------------------------- */

/* No server, no server up, none with a weight, none below its limit. */
static void test_none(void **state)
{
	struct fixture *f = *state;
	static const struct member down[] = {{.weight = 1, .down = true}, {.weight = 0}};
	static const struct member full[] = {{.weight = 1, .limit = 2}, {.weight = 9, .limit = 1}};
	for (unsigned n = 1; n <= SCHEDULERS; n++) {
		const struct scheduler_ops *ops = scheduler_find(n);
		f->active[0] = 2;
		f->active[1] = 1;
		pool_set(f, ops, 0, NULL);
		assert_int_equal(pick_one(f), PICK_NONE);
		pool_set(f, ops, 2, down);
		assert_int_equal(f->pool->members, 1);
		assert_int_equal(f->pool->eligible, 0);
		assert_int_equal(pick_one(f), PICK_NONE);
		pool_set(f, ops, 2, full);
		assert_int_equal(pick_one(f), PICK_NONE);
		f->active[1] = 0;
		assert_int_equal(pick_one(f), 1);
	}
	assert_null(scheduler_find(0));
	assert_null(scheduler_find(SCHEDULERS + 1));
}

/* Full servers get no sessions, and the others share them by weight. */
static void test_full(void **state)
{
	struct fixture *f = *state;
	struct member m[20];
	for (unsigned i = 0; i < 20; i++)
		m[i] = (struct member){.weight = (uint16_t)(1 + i % 2), .limit = i < 10 ? 1 : 0};
	for (unsigned n = 1; n <= SCHEDULERS; n++) {
		memset(f->active, 0, sizeof(f->active));
		for (unsigned i = 0; i < 10; i++)
			f->active[i] = 1;
		for (unsigned i = 10; i < 20; i++)
			f->active[i] = m[i].weight; /* for the schedulers that go by load */
		pool_set(f, scheduler_find(n), 20, m);
		pick_many(f, 30000);
		for (unsigned i = 0; i < 20; i++) {
			unsigned weight = f->pool->ops->by_weight ? m[i].weight : 1;
			unsigned want = 30000 * weight / (f->pool->ops->by_weight ? 15 : 10);
			if (i < 10)
				assert_int_equal(f->picks[i], 0);
			else if (n != 3 && n != 4 && n != 5 &&
			         f->pool->ops != &scheduler_p2c) /* the loads never change */
				assert_in_range(f->picks[i], want * 3 / 4, want * 5 / 4);
		}
	}
}

/* ---- round robin ----------------------------------------------------------------------------- */

static void test_rr(void **state)
{
	struct fixture *f = *state;
	static const uint16_t weight[] = {7, 1, 1, 300};
	pool_set_weights(f, &scheduler_rr, 4, weight);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(pick_one(f), i % 4);
}

/* Whatever servers come or go, no server waits longer than one round. */
static void test_rr_changes(void **state)
{
	struct fixture *f = *state;
	uint16_t weight[8];
	for (unsigned round = 0; round < 200; round++) {
		unsigned candidates = 0;
		for (unsigned i = 0; i < 8; i++)
			candidates += weight[i] = random_next() % 2;
		pool_set_weights(f, &scheduler_rr, 8, weight);
		if (candidates == 0)
			continue;
		pick_many(f, 3 * candidates);
		for (unsigned i = 0; i < 8; i++)
			assert_int_equal(f->picks[i], 3 * weight[i]);
		pick_many(f, random_next() % 5);
	}
}

/* Over as many picks as the sum of the weights, each server gets exactly its weight. */
static void test_wrr_exact(void **state)
{
	struct fixture *f = *state;
	uint16_t weight[64];
	for (unsigned round = 0; round < 50; round++) {
		unsigned count = 1 + random_next() % 64;
		for (unsigned i = 0; i < count; i++)
			weight[i] = 1 + random_next() % 100;
		memset(f->current, 0, sizeof(f->current));
		pool_set_weights(f, &scheduler_wrr, count, weight);
		for (unsigned again = 0; again < 3; again++) {
			pick_many(f, (unsigned)f->pool->weight);
			for (unsigned i = 0; i < count; i++)
				assert_int_equal(f->picks[i], weight[i]);
		}
	}
}

static void test_wrr_order(void **state)
{
	struct fixture *f = *state;
	static const uint16_t weight[] = {5, 1, 1};
	static const uint32_t want[] = {0, 1, 0, 0, 0, 2, 0};
	pool_set_weights(f, &scheduler_wrr, 3, weight);
	for (unsigned i = 0; i < 5 * SY_ARRAY_LEN(want); i++)
		assert_int_equal(pick_one(f), want[i % SY_ARRAY_LEN(want)]);
}

/* At every pick each server is at most two sessions away from its share. */
static void check_smooth(struct fixture *f, unsigned count, const uint16_t *weight)
{
	uint32_t seen[256] = {0};
	memset(f->current, 0, sizeof(f->current));
	memset(f->position, 0, sizeof(f->position));
	pool_set_weights(f, &scheduler_wrr, count, weight);
	for (uint32_t n = 1; n <= 2 * f->pool->weight; n++) {
		seen[pick_one(f)]++;
		for (unsigned i = 0; i < count; i++) {
			double share = (double)n * weight[i] / (double)f->pool->weight;
			assert_true(seen[i] - share < 2 && share - seen[i] < 2);
		}
	}
}

static void test_wrr_smooth(void **state)
{
	struct fixture *f = *state;
	static const uint16_t weight[] = {100, 50, 25, 10, 5, 1, 1};
	check_smooth(f, SY_ARRAY_LEN(weight), weight);
	/* One heavy server among many light ones, and many classes of several servers. */
	uint16_t many[256];
	for (unsigned i = 0; i < 101; i++)
		many[i] = i ? 1 : 100;
	check_smooth(f, 101, many);
	for (unsigned i = 0; i < 60; i++)
		many[i] = (uint16_t)(1 + i / 4);
	check_smooth(f, 60, many);
}

/* A service's shares follow its weights within about one round, whatever the old weights were: a
 * server is neither starved nor flooded because of its old weight. */
static void test_wrr_changes(void **state)
{
	struct fixture *f = *state;
	static const uint16_t before[] = {65535, 65535, 1, 65535};
	static const uint16_t after[] = {1, 2, 3, 4};
	for (unsigned phase = 0; phase < 20; phase++) {
		memset(f->current, 0, sizeof(f->current));
		pool_set_weights(f, &scheduler_wrr, 4, before);
		pick_many(f, 1000 + phase);
		pool_set_weights(f, &scheduler_wrr, 4, after);
		pick_many(f, 100);
		for (unsigned i = 0; i < 4; i++)
			assert_in_range(f->picks[i], 10 * after[i] - 4, 10 * after[i] + 4);
	}
}

static void test_wrr_come_and_go(void **state)
{
	struct fixture *f = *state;
	uint16_t weight[8];
	for (unsigned round = 0; round < 300; round++) {
		unsigned candidates = 0;
		for (unsigned i = 0; i < 8; i++) {
			weight[i] = random_next() % 3 ? 1 + random_next() % 20 : 0;
			candidates += weight[i] > 0;
		}
		pool_set_weights(f, &scheduler_wrr, 8, weight);
		if (candidates == 0)
			continue;
		pick_many(f, 5 * (unsigned)f->pool->weight);
		for (unsigned i = 0; i < 8; i++) {
			/* The old weights leave at most one round's share. */
			uint32_t slack = weight[i] ? 2 + weight[i] : 0, want = 5 * weight[i];
			assert_in_range(f->picks[i], want > slack ? want - slack : 0, want + slack);
		}
		pick_many(f, random_next() % 30);
	}
}

/* A server in slow start gets this many sixteenths of the others' rate, under rr too. */
static void test_turn_share(void **state)
{
	struct fixture *f = *state;
	for (unsigned n = 0; n < 2; n++)
		for (uint16_t share = 1; share <= SHARES; share++) {
			const struct member m[] = {{.weight = 3}, {.weight = 3, .share = share}};
			memset(f->current, 0, sizeof(f->current));
			pool_set(f, turns[n], 2, m);
			pick_many(f, 10u * (16u + share));
			assert_int_equal(f->picks[0], 160);
			assert_int_equal(f->picks[1], 10 * share);
		}
}

/* ---- by load --------------------------------------------------------------------------------- */

static uint16_t weight_of(const struct fixture *f, const struct member *m)
{
	return f->pool->ops->by_weight ? m->weight : 1;
}

/* The picked server has the least load of all, at every pick, while sessions end at random. */
static void test_least_is_least(void **state)
{
	struct fixture *f = *state;
	struct member m[50];
	for (unsigned i = 0; i < 50; i++)
		m[i] = (struct member){.weight = (uint16_t)(1 + random_next() % 1000),
		                       .down = i % 7 == 3,
		                       .limit = i % 5 ? 0 : 60};
	for (unsigned n = 0; n < SY_ARRAY_LEN(least); n++) {
		unsigned ahead = least[n] == &scheduler_sed;
		memset(f->active, 0, sizeof(f->active));
		pool_set(f, least[n], 50, m);
		for (unsigned k = 0; k < 20000; k++) {
			uint32_t got = pick_one(f), end = (uint32_t)(random_next() % 50);
			assert_false(m[got].down);
			for (unsigned i = 0; i < 50; i++)
				if (!m[i].down && (!m[i].limit || f->active[i] < m[i].limit))
					assert_true((uint64_t)(f->active[got] + ahead) *
					                    weight_of(f, &m[i]) <=
					            (uint64_t)(f->active[i] + ahead) *
					                    weight_of(f, &m[got]));
			f->active[got]++;
			assert_true(!m[got].limit || f->active[got] <= m[got].limit);
			if (f->active[end] > 0 && k % 3)
				f->active[end]--;
		}
	}
}

/* With sessions that last, every server has its share of them; sed favours the heavy servers
 * first. */
static void test_least_share(void **state)
{
	struct fixture *f = *state;
	static const uint16_t weight[] = {1, 2, 3, 10, 20, 64};
	for (unsigned n = 0; n < SY_ARRAY_LEN(least); n++) {
		memset(f->active, 0, sizeof(f->active));
		pool_set_weights(f, least[n], 6, weight);
		double sum = least[n]->by_weight ? 100 : 6;
		for (unsigned k = 1; k <= 2000; k++) {
			f->active[pick_one(f)]++;
			for (unsigned i = 0; i < 6; i++) {
				double part = (least[n]->by_weight ? weight[i] : 1) / sum;
				double ahead = least[n] == &scheduler_sed ? 6 * part : 0;
				assert_true(f->active[i] <= k * part + 1 + ahead);
			}
		}
		for (unsigned i = 0; i < 6; i++) {
			double share = 2000 * (least[n]->by_weight ? weight[i] : 1) / sum;
			assert_true(f->active[i] > share - 2);
		}
	}
}

/* Equal servers take turns, even if each session ends before the next is created. */
static void test_least_ties(void **state)
{
	struct fixture *f = *state;
	uint16_t weight[10];
	for (unsigned i = 0; i < 10; i++)
		weight[i] = 4;
	for (unsigned n = 0; n < SY_ARRAY_LEN(least); n++) {
		memset(f->active, 0, sizeof(f->active));
		pool_set_weights(f, least[n], 10, weight);
		for (unsigned busy = 0; busy < 3; busy++) {
			pick_many(f, 1000);
			for (unsigned i = 0; i < 10; i++)
				assert_int_equal(f->picks[i], 100);
			for (unsigned i = 0; i < 10; i++)
				f->active[i] += 7;
		}
	}
}

/* Two workers share only the counters: a burst on both spreads like a burst on one. */
static void test_least_two_workers(void **state)
{
	struct fixture *f = *state;
	uint32_t cursor[4] = {0};
	const struct scheduler_state other = {f->current, f->position, cursor, 2}, own = f->state;
	uint16_t weight[16];
	for (unsigned i = 0; i < 16; i++)
		weight[i] = 1;
	for (unsigned n = 0; n < SY_ARRAY_LEN(least); n++) {
		memset(f->active, 0, sizeof(f->active));
		pool_set_weights(f, least[n], 16, weight);
		for (unsigned k = 0; k < 1600; k++) {
			f->state = random_next() % 2 ? other : own;
			f->active[pick_one(f)]++;
		}
		for (unsigned i = 0; i < 16; i++)
			assert_int_equal(f->active[i], 100);
		f->state = own;
	}
}

/* A new server catches up; slow start limits it to its share of the others' load. */
static void test_least_newcomer(void **state)
{
	struct fixture *f = *state;
	struct member m[4] = {{.weight = 2}, {.weight = 2}, {.weight = 2}, {.weight = 2}};
	for (unsigned n = 0; n < SY_ARRAY_LEN(least); n++) {
		for (unsigned i = 0; i < 4; i++)
			f->active[i] = i < 3 ? 160 : 0;
		m[3].share = 2;
		pool_set(f, least[n], 4, m);
		for (unsigned k = 0; k < 20; k++)
			f->active[pick_one(f)]++;
		assert_in_range(f->active[3], 19, 20);
		for (unsigned k = 0; k < 480; k++)
			f->active[pick_one(f)]++;
		assert_in_range(f->active[3], 30, 50);
		m[3].share = 0;
		pool_set(f, least[n], 4, m);
		for (unsigned k = 0; k < 2000; k++)
			f->active[pick_one(f)]++;
		assert_in_range(f->active[3], 740, 750);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_none),
	        TEST(test_full),
	        TEST(test_rr),
	        TEST(test_rr_changes),
	        TEST(test_wrr_exact),
	        TEST(test_wrr_order),
	        TEST(test_wrr_smooth),
	        TEST(test_wrr_changes),
	        TEST(test_wrr_come_and_go),
	        TEST(test_turn_share),
	        TEST(test_least_is_least),
	        TEST(test_least_share),
	        TEST(test_least_ties),
	        TEST(test_least_two_workers),
	        TEST(test_least_newcomer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
