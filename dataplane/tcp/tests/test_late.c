// SPDX-License-Identifier: Apache-2.0
/* What connections learn from each other's late answers, and who has no say in it (timer.c). */
#include "pair.h"

#include "../timer.h"

#define MANY    2048u
#define LATE_US 3000000u

static void answers_are_late(struct sy_stack *s, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		timer_late(s, LATE_US);
}

/* RFC 9040 2: a few peers, whatever they say, do not slow the others down. */
static void test_a_few_are_not_all(void **state)
{
	const struct sy_stack_options o = {.pool = tests_pool(), .connections = MANY};
	struct sy_stack_endpoint from = {0}, to = {.port = htons(PAIR_PORT)};
	struct sy_stack *s;
	sy_stack_id id;

	assert_int_equal(sy_stack_create(&o, PAIR_MS, &s, NULL), 0);
	sy_addr_parse("10.0.0.1", &from.addr);
	sy_addr_parse("10.0.0.2", &to.addr);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(sy_stack_connect(s, &from, &to, i, PAIR_MS, &id), 0);
	answers_are_late(s, MANY / 64 - 1);
	assert_int_equal(s->late.least_ms, 0);
	answers_are_late(s, 1);
	assert_int_equal(s->late.least_ms, LATE_US / 1000);
	sy_stack_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_a_few_are_not_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
