// SPDX-License-Identifier: Apache-2.0
/* p2c: of two that are drawn, the one with the smaller product of load and delay. */
#include "scheduler_fixture.h"

static void test_load_alone(void **state)
{
	struct fixture *f = *state;
	const uint16_t weight[] = {1, 2, 3};
	pool_set_weights(f, &scheduler_p2c, 3, weight);
	for (unsigned n = 0; n < 6000; n++)
		f->active[pick_one(f)]++;
	for (unsigned i = 0; i < 3; i++)
		assert_in_range(f->active[i], 1000 * weight[i] - 30, 1000 * weight[i] + 30);
}

/* Of the two that are drawn, the better one: the best of n gets (2n - 1)/n², the worst 1/n², but
 * for probes. Two draws differ, so here it gets none of the others. */
static void test_delay_decides(void **state)
{
	struct fixture *f = *state;
	const struct member m[4] = {{.weight = 1}, {.weight = 1}, {.weight = 1}, {.weight = 1}};
	pool_set(f, &scheduler_p2c, 4, m);
	for (unsigned i = 0; i < 4; i++)
		f->delay[i] = 1000000 * (1 + i);
	pick_many(f, 60000);
	assert_in_range(f->picks[0], 28500, 31000); /* 1/2, and a little of the probes */
	assert_in_range(f->picks[1], 19000, 21000);
	assert_in_range(f->picks[2], 9000, 11000);
	assert_in_range(f->picks[3], 200, 800); /* probes: 1 of 32, where it is drawn first */
}

static void test_sessions_balance_delay(void **state)
{
	struct fixture *f = *state;
	const uint16_t weight[] = {1, 1};
	pool_set_weights(f, &scheduler_p2c, 2, weight);
	f->delay[0] = 1000000;
	f->delay[1] = 3000000;
	for (unsigned n = 0; n < 4000; n++)
		f->active[pick_one(f)]++;
	assert_in_range(f->active[0], 2850, 3030);
}

/* Measured shares include delays, which must not count twice. */
static void test_measured_shares(void **state)
{
	struct fixture *f = *state;
	const struct member m[3] = {{.weight = 1, .measured = 0.5},
	                            {.weight = 1, .measured = 0.3},
	                            {.weight = 1, .measured = 0.2}};
	pool_set(f, &scheduler_p2c, 3, m);
	for (unsigned i = 0; i < 3; i++)
		f->delay[i] = 1000000 * (1 + 5 * i);
	for (unsigned n = 0; n < 10000; n++)
		f->active[pick_one(f)]++;
	for (unsigned i = 0; i < 3; i++)
		assert_in_range(f->active[i], 10000 * m[i].measured - 50,
		                10000 * m[i].measured + 50);
}

/* An unknown delay is no short one. */
static void test_unknown_delay(void **state)
{
	struct fixture *f = *state;
	const uint16_t weight[] = {1, 1};
	pool_set_weights(f, &scheduler_p2c, 2, weight);
	f->delay[0] = 1000000;
	for (unsigned n = 0; n < 1000; n++)
		f->active[pick_one(f)]++;
	assert_in_range(f->active[0], 495, 505);
}

static void test_unavailable(void **state)
{
	struct fixture *f = *state;
	struct member m[3] = {
	        {.weight = 1, .down = true}, {.weight = 1, .limit = 2}, {.weight = 1}};
	pool_set(f, &scheduler_p2c, 3, m);
	f->active[1] = 2;
	pick_many(f, 1000);
	assert_int_equal(f->picks[2], 1000);
	m[2].down = true;
	pool_set(f, &scheduler_p2c, 3, m);
	assert_int_equal(pick_one(f), PICK_NONE);
	f->active[1] = 1;
	assert_int_equal(pick_one(f), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_load_alone),
	        TEST(test_delay_decides),
	        TEST(test_sessions_balance_delay),
	        TEST(test_measured_shares),
	        TEST(test_unknown_delay),
	        TEST(test_unavailable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
