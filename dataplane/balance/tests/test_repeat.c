// SPDX-License-Identifier: Apache-2.0
/* Repetitions at a worker: how long a hash is stored, and how often there are false positives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "repeat.h"

/* Spreads numbers over 64 bits (splitmix64). */
static uint64_t hash_of(uint64_t n)
{
	n = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
	n = (n ^ n >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	n = (n ^ n >> 27) * UINT64_C(0x94d049bb133111eb);
	return n ^ n >> 31;
}

static int setup(void **state)
{
	*state = repeats_create();
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	repeats_destroy(*state);
	return 0;
}

/* Again in the same second does not count; in each of the next REPEAT_SECONDS it does. */
static void test_seconds(void **state)
{
	struct repeats *r = *state;
	uint64_t n = 0;
	for (uint32_t begin = 0; begin < 14; begin++)
		for (uint32_t later = 0; later < 20; later++, n++) {
			uint32_t now = 1000 + begin;
			repeat_prefetch(r, hash_of(n));
			assert_false(repeat_note(r, hash_of(n), now));
			assert_int_equal(repeat_note(r, hash_of(n), now + later),
			                 later >= 1 && later <= REPEAT_SECONDS);
		}
}

/* Each time that it is seen counts anew. */
static void test_again_and_again(void **state)
{
	struct repeats *r = *state;
	assert_false(repeat_note(r, hash_of(1), 10));
	for (uint32_t now = 11; now < 100; now += REPEAT_SECONDS)
		assert_true(repeat_note(r, hash_of(1), now));
	assert_false(repeat_note(r, hash_of(1), 200));
}

/* A flood of a million different ones a second, for longer than the table remembers. */
static void test_mistakes(void **state)
{
	struct repeats *r = *state;
	const uint64_t flood = 1000000;
	uint64_t mistaken = 0, n = 1u << 20;
	for (uint32_t now = 50; now < 60; now++) {
		mistaken = 0;
		for (uint64_t k = 0; k < flood; k++)
			mistaken += repeat_note(r, hash_of(n++), now);
	}
	assert_in_range(mistaken, flood / 1000, flood / 15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_seconds, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_again_and_again, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_mistakes, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
