// SPDX-License-Identifier: Apache-2.0
/* The table of validated clients: credits, age, and replacement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "validated.h"

#define DAY 86400u

/* Clients of one bucket, with different tags. */
static uint64_t client_of(uint32_t n)
{
	return (uint64_t)(n + 1) << 32 | 77;
}

static int setup(void **state)
{
	*state = validated_create();
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	validated_destroy(*state);
	return 0;
}

static unsigned spend(struct validated *p, uint64_t client, uint32_t now)
{
	unsigned credits = 0;
	while (credits < 1000 && validated_consume(p, client, now))
		credits++;
	return credits;
}

static void tick_all(struct validated *p, uint32_t now)
{
	for (unsigned n = 0; n < 65536 / 64; n++)
		validated_tick(p, now);
}

static void test_credits(void **state)
{
	struct validated *p = *state;
	for (uint32_t now = 0; now < 300; now += 100) {
		uint64_t client = client_of(now);
		assert_false(validated_consume(p, client, now));
		assert_int_equal(validated_proofs(p, client, now), 0);
		validated_add(p, client, now);
		assert_int_equal(validated_proofs(p, client, now), 1);
		assert_int_equal(spend(p, client, now), VALIDATED_CREDITS);
		assert_false(validated_has_credit(p, client, now));
		assert_int_equal(validated_proofs(p, client, now), 1);
		assert_int_equal(spend(p, client_of(now) ^ 1, now), 0);
		assert_int_equal(spend(p, client_of(now + 1), now), 0);
		validated_add(p, client, now);
		assert_int_equal(spend(p, client, now), VALIDATED_CREDITS);
	}
}

/* The number of proofs counts up, and around. */
static void test_proofs(void **state)
{
	struct validated *p = *state;
	for (unsigned n = 1; n < 300; n++) {
		validated_add(p, client_of(0), 5);
		assert_int_equal(validated_proofs(p, client_of(0), 5), n & VALIDATED_PROOFS);
		assert_true(validated_has_credit(p, client_of(0), 5));
	}
}

/* Ten minutes since the last use, also where the second wraps; never again hours later. */
static void test_age(void **state)
{
	struct validated *p = *state;
	static const uint32_t begin[] = {0, 100, 65535 - 300, 65535, 3 * DAY};
	for (unsigned i = 0; i < SY_ARRAY_LEN(begin); i++) {
		uint64_t client = client_of(i);
		uint32_t now = begin[i];
		validated_add(p, client, now);
		for (unsigned n = 0; n < 5; n++) {
			now += VALIDATED_SECONDS;
			assert_true(validated_consume(p, client, now));
		}
		assert_true(validated_consume(p, client, now - 1)); /* another worker's clock */
		assert_true(validated_consume(p, client, now));
		assert_false(validated_has_credit(p, client, now + VALIDATED_SECONDS + 1));
		assert_int_equal(validated_proofs(p, client, now + VALIDATED_SECONDS + 1), 0);
		/* Once the tick has come by, nothing is left for the next two days. */
		tick_all(p, now + VALIDATED_SECONDS + 1);
		for (uint32_t later = VALIDATED_SECONDS + 1; later < 2 * DAY; later++)
			assert_false(validated_has_credit(p, client, now + later));
		validated_add(p, client, now + 2 * DAY);
		assert_int_equal(spend(p, client, now + 2 * DAY), VALIDATED_CREDITS);
	}
}

/* The tick removes no client that is still valid. */
static void test_tick(void **state)
{
	struct validated *p = *state;
	for (uint32_t now = 65536 - 900; now < 65536 + 900; now += 20) {
		validated_add(p, client_of(now), now);
		tick_all(p, now);
		for (uint32_t age = 0; age < 160; age += 20)
			if (now - age >= 65536 - 900)
				assert_true(validated_has_credit(p, client_of(now - age), now));
	}
}

static unsigned known(const struct validated *p, uint32_t first, unsigned count, uint32_t now)
{
	unsigned found = 0;
	for (uint32_t n = first; n < first + count; n++)
		found += validated_has_credit(p, client_of(n), now);
	return found;
}

/* Seen clients use at most half of a bucket, and replace no validated client. */
static void test_seen(void **state)
{
	struct validated *p = *state;
	for (uint32_t n = 0; n < 100; n++)
		validated_add_seen(p, client_of(n), SEEN_CREDITS, 10 + n);
	assert_int_equal(known(p, 0, 100, 110), 4);
	assert_int_equal(known(p, 96, 4, 110), 4); /* those seen last */
	assert_int_equal(spend(p, client_of(99), 110), SEEN_CREDITS);
	/* Validated clients use the empty words first, then those of the others. */
	for (uint32_t n = 0; n < 4; n++)
		validated_add(p, client_of(1000 + n), 110);
	assert_int_equal(known(p, 96, 3, 110), 3);
	for (uint32_t n = 4; n < 8; n++)
		validated_add(p, client_of(1000 + n), 110);
	assert_int_equal(known(p, 1000, 8, 110), 8);
	assert_int_equal(known(p, 0, 100, 110), 0);
	for (uint32_t n = 0; n < 100; n++)
		validated_add_seen(p, client_of(n), SEEN_CREDITS, 111);
	assert_int_equal(known(p, 0, 100, 111), 0);
	assert_int_equal(known(p, 1000, 8, 111), 8);
	/* A ninth one replaces that whose last use is longest ago. */
	for (uint32_t n = 0; n < 8; n++)
		assert_true(validated_consume(p, client_of(1000 + n), n == 5 ? 112 : 113));
	validated_add(p, client_of(2000), 114);
	assert_false(validated_has_credit(p, client_of(1005), 114));
	assert_int_equal(known(p, 1000, 8, 114), 7);
	assert_true(validated_has_credit(p, client_of(2000), 114));
}

/* A session without a challenge replaces no validated client, and renews a seen one. */
static void test_seen_again(void **state)
{
	struct validated *p = *state;
	validated_add(p, client_of(1), 100);
	validated_add_seen(p, client_of(1), SEEN_CREDITS, 600);
	assert_int_equal(spend(p, client_of(1), 1200), VALIDATED_CREDITS);
	validated_add_seen(p, client_of(1), SEEN_CREDITS, 1200);
	assert_int_equal(spend(p, client_of(1), 1200), SEEN_CREDITS);
	for (uint32_t now = 0; now < 5000; now += 50)
		validated_add_seen(p, client_of(2), SEEN_CREDITS, now);
	assert_int_equal(spend(p, client_of(2), 5000 + VALIDATED_SECONDS - 120), SEEN_CREDITS);
	validated_add_seen(p, client_of(3), SEEN_CREDITS, 6000);
	assert_int_equal(validated_proofs(p, client_of(3), 6000), 0);
	validated_add(p, client_of(3), 6000);
	assert_int_equal(validated_proofs(p, client_of(3), 6000), 1);
	assert_int_equal(spend(p, client_of(3), 6000), VALIDATED_CREDITS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {TEST(credits), TEST(proofs), TEST(age),
	                                   TEST(tick),    TEST(seen),   TEST(seen_again)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
