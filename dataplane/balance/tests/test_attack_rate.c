// SPDX-License-Identifier: Apache-2.0
/* When packets of one kind are called an attack: rates by second, and the changes expected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "attacks.h"

#define SECOND UINT64_C(1000000000)

struct told {
	unsigned begins, ends;
	enum attack_change last;
};

/* So many seconds at this rate. */
static struct told pass(struct attack_rate *r, uint64_t *count, uint64_t rate, unsigned seconds)
{
	struct told told = {0};
	for (unsigned i = 0; i < seconds; i++) {
		uint64_t seen;
		*count += rate;
		told.last = attack_rate_update(r, *count, SECOND, &seen);
		assert_int_equal(seen, rate);
		told.begins += told.last == ATTACK_BEGINS;
		told.ends += told.last == ATTACK_ENDS;
	}
	return told;
}

static void test_a_flood_begins_and_ends(void **state)
{
	struct attack_rate r = {0};
	uint64_t count = 0;
	(void)state;
	assert_int_equal(pass(&r, &count, 20, 60).begins, 0);
	assert_int_equal(pass(&r, &count, 5000, 1).begins, 0); /* one second is none */
	assert_int_equal(pass(&r, &count, 5000, 1).begins, 1);
	struct told on = pass(&r, &count, 5000, 1000);
	assert_int_equal(on.begins + on.ends, 0);
	assert_int_equal(on.last, ATTACK_GOES_ON);
	assert_true(r.usual < 25); /* an attack does not become usual */
	assert_int_equal(pass(&r, &count, 20, 29).ends, 0);
	assert_int_equal(pass(&r, &count, 20, 1).ends, 1);
	assert_int_equal(pass(&r, &count, 20, 100).begins, 0);
}

static void test_a_pause_does_not_end_it(void **state)
{
	struct attack_rate r = {0};
	uint64_t count = 0;
	(void)state;
	pass(&r, &count, 0, 20);
	assert_int_equal(pass(&r, &count, 9000, 2).begins, 1);
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(pass(&r, &count, 0, 25).ends, 0);
		assert_int_equal(pass(&r, &count, 9000, 1).begins, 0);
	}
}

static void test_few_packets_are_none(void **state)
{
	struct attack_rate r = {0};
	uint64_t count = 0;
	(void)state;
	pass(&r, &count, 0, 300);
	assert_int_equal(pass(&r, &count, 1000, 60).begins, 0);
}

static void test_a_busy_site_is_none(void **state)
{
	struct attack_rate r = {0};
	uint64_t count = 0;
	(void)state;
	assert_int_equal(pass(&r, &count, 50000, 30).begins, 0); /* also right after a start */
	assert_int_equal(pass(&r, &count, 300000, 30).begins, 0);
	assert_int_equal(pass(&r, &count, 3000000, 2).begins, 1);
}

static void test_a_morning_is_none(void **state)
{
	struct attack_rate r = {0};
	uint64_t count = 0;
	unsigned begins = 0;
	(void)state;
	pass(&r, &count, 100, 300);
	for (uint64_t rate = 100; rate < 100000; rate += rate / 50) /* doubles in 6 minutes */
		begins += pass(&r, &count, rate, 10).begins;
	assert_int_equal(begins, 0);
}

static void test_a_counter_that_fell_begins_anew(void **state)
{
	struct attack_rate r = {.last = 1000000};
	uint64_t count = 1000000, rate;
	(void)state;
	pass(&r, &count, 10, 60);
	assert_int_equal(attack_rate_update(&r, 50, SECOND, &rate), ATTACK_NONE);
	assert_int_equal(rate, 0);
	assert_int_equal(attack_rate_update(&r, 60, SECOND, &rate), ATTACK_NONE);
	assert_int_equal(rate, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_a_flood_begins_and_ends),
	        cmocka_unit_test(test_a_pause_does_not_end_it),
	        cmocka_unit_test(test_few_packets_are_none),
	        cmocka_unit_test(test_a_busy_site_is_none),
	        cmocka_unit_test(test_a_morning_is_none),
	        cmocka_unit_test(test_a_counter_that_fell_begins_anew),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
