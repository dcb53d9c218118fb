// SPDX-License-Identifier: Apache-2.0
/* Over a long time, a bucket passes exactly its rate, at every rate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sy_limit.h"

#define SECOND UINT64_C(1000000000)
#define HOUR   (3600 * SECOND)
#define BITS   (8 * SECOND) /* the period of bits/s in bytes */
#define START  UINT64_C(123456789012345)

static uint64_t random_state = 1;

static uint64_t random_below(uint64_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % n;
}

static struct sy_limit_rate rate_of(uint64_t amount, uint64_t period_ns, uint64_t burst)
{
	struct sy_limit_rate r;
	assert_int_equal(sy_limit_rate_init(&r, amount, period_ns, burst, START, NULL), 0);
	return r;
}

/* All units of a rate up to a time, exactly: amount * since / period. */
static uint64_t exact(uint64_t amount, uint64_t period_ns, uint64_t since_ns)
{
	return (uint64_t)((unsigned __int128)amount * since_ns / period_ns);
}

/* ---- volumes --------------------------------------------------------------------------------- */

static const uint64_t amounts[] = {1,
                                   7,
                                   8000,
                                   999983,
                                   1000000,
                                   2000000,
                                   1000000007,
                                   UINT64_C(10000000000),
                                   UINT64_C(100000000003),
                                   UINT64_C(400000000000)};

static void test_volume_is_exact(void **state)
{
	(void)state;
	for (unsigned i = 0; i < SY_ARRAY_LEN(amounts); i++) {
		struct sy_limit_rate r = rate_of(amounts[i], BITS, 1);
		assert_int_equal(r.slope >> 62, 1);
		for (unsigned n = 0; n < 2000; n++) {
			uint64_t since =
			        random_below(UINT64_C(1) << 31) * (1 + random_below(HOUR / 1000));
			uint64_t want = exact(amounts[i], BITS, since);
			uint64_t got = sy_limit_volume(&r, START + since);
			uint64_t error = r.shift < 64 ? since >> r.shift : 0; /* 2^-62 of it */
			assert_true(got - want <= 1 + error);
		}
	}
}

static void test_time_before_the_start(void **state)
{
	(void)state;
	struct sy_limit_rate r = rate_of(8000, BITS, 1);
	assert_int_equal(sy_limit_volume(&r, START - 5 * SECOND), 0);
	assert_int_equal(sy_limit_volume(&r, START), 0);
	assert_int_equal(sy_limit_volume(&r, START + SECOND), 1000);
}

static void test_bounds(void **state)
{
	(void)state;
	struct sy_limit_rate r;
	struct sy_error err = {0};
	static const uint64_t bad[][3] = {{0, 1, 1},
	                                  {1, 0, 1},
	                                  {1, 1, 0},
	                                  {SY_LIMIT_AMOUNT_MAX + 1, 1, 1},
	                                  {1, 1, SY_LIMIT_AMOUNT_MAX + 1},
	                                  {1, SY_LIMIT_AMOUNT_MAX, 1}};
	for (unsigned i = 0; i < SY_ARRAY_LEN(bad); i++) {
		assert_true(sy_limit_rate_init(&r, bad[i][0], bad[i][1], bad[i][2], 0, &err) < 0);
		assert_non_null(strstr(err.text, "limit"));
	}
	assert_int_equal(sy_limit_rate_init(&r, 1, UINT64_C(1) << 60, 1, 0, &err), 0);
	assert_int_equal(sy_limit_volume(&r, INT64_MAX), 7);
	assert_int_equal(sy_limit_rate_init(&r, SY_LIMIT_AMOUNT_MAX, 1, 1, 0, &err), 0);
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* Charges all credit at a time, to the unit. */
static uint64_t drain(struct sy_limit *l, const struct sy_limit_rate *r, uint64_t now)
{
	uint64_t taken = 0, volume = sy_limit_volume(r, now);
	for (uint64_t cost = r->burst; cost > 0; cost /= 2)
		while (sy_limit_charge(l, SY_LIMIT_CAS, r, NULL, volume, cost))
			taken += cost;
	return taken;
}

/* Sends packets of these lengths, always more than may pass, for an hour; at its end units, until
 * none passes. Returns what passed. */
static uint64_t flood(const struct sy_limit_rate *r, uint64_t step_ns, uint64_t shortest,
                      uint64_t longest)
{
	struct sy_limit l;
	uint64_t passed = 0, now = START;
	sy_limit_init(&l, r, 0, now);
	for (; now <= START + HOUR; now += step_ns) {
		uint64_t volume = sy_limit_volume(r, now);
		for (;;) {
			uint64_t cost = shortest + random_below(longest - shortest + 1);
			if (!sy_limit_charge(&l, SY_LIMIT_CAS, r, NULL, volume, cost))
				break;
			passed += cost;
		}
	}
	return passed + drain(&l, r, START + HOUR);
}

/* Goal: a relative error of 1e-6 at most from 8 kbit/s to 400 Gbit/s. There is none: an hour at
 * these rates is a whole number of bytes, and so many pass. */
static void test_an_hour(void **state)
{
	(void)state;
	static const struct {
		uint64_t bits, step_ns, shortest, longest;
	} runs[] = {
	        {8000, 7 * SECOND / 100, 1, 9},
	        {1000000, SECOND / 300, 64, 1500},
	        {2000000, SECOND / 300, 64, 1500},
	        {UINT64_C(1000000000), SECOND / 100, 1500, 64000},
	        {UINT64_C(400000000000), SECOND / 997, UINT64_C(1000000), UINT64_C(9000000)},
	};
	for (unsigned i = 0; i < SY_ARRAY_LEN(runs); i++) {
		uint64_t burst = runs[i].longest + runs[i].bits / 8 * runs[i].step_ns / SECOND + 1;
		struct sy_limit_rate r = rate_of(runs[i].bits, BITS, 2 * burst);
		uint64_t passed = flood(&r, runs[i].step_ns, runs[i].shortest, runs[i].longest);
		assert_int_equal(passed, exact(runs[i].bits, BITS, HOUR) + r.burst);
	}
}

static void test_a_full_bucket_forfeits(void **state)
{
	(void)state;
	struct sy_limit_rate r = rate_of(8000, BITS, 1500);
	struct sy_limit l;
	sy_limit_init(&l, &r, 0, START);
	for (unsigned seconds = 1; seconds < 100000; seconds *= 10) {
		uint64_t volume = sy_limit_volume(&r, START + seconds * 1000 * SECOND);
		assert_int_equal(sy_limit_credit(&l, &r, volume), 1500);
		assert_false(sy_limit_charge(&l, SY_LIMIT_OWN, &r, NULL, volume, 1501));
		assert_true(sy_limit_charge(&l, SY_LIMIT_OWN, &r, NULL, volume, 1500));
		assert_false(sy_limit_charge(&l, SY_LIMIT_OWN, &r, NULL, volume, 1));
		assert_int_equal(sy_limit_credit(&l, &r, volume), 0);
	}
}

static void test_given_back(void **state)
{
	(void)state;
	struct sy_limit_rate r = rate_of(8000, BITS, 1500);
	for (unsigned engine = 0; engine < SY_LIMIT_ENGINES; engine++) {
		struct sy_limit l;
		uint64_t local = 0, volume = sy_limit_volume(&r, START);
		sy_limit_init(&l, &r, 1500, START);
		assert_true(sy_limit_charge(&l, engine, &r, &local, volume, 1000));
		assert_false(sy_limit_charge(&l, engine, &r, &local, volume, 1000));
		sy_limit_refund(&l, engine, &local, 1000);
		assert_true(sy_limit_charge(&l, engine, &r, &local, volume, 1500));
		assert_false(sy_limit_charge(&l, engine, &r, &local, volume, 1));
	}
}

static void test_peek(void **state)
{
	(void)state;
	struct sy_limit_rate r = rate_of(8000, BITS, 1500);
	uint64_t volume = sy_limit_volume(&r, START), later = sy_limit_volume(&r, START + SECOND);
	struct sy_limit l;
	sy_limit_init(&l, &r, 0, START);
	assert_true(sy_limit_peek(&l, &r, volume, 1500));
	assert_false(sy_limit_peek(&l, &r, volume, 1501));
	assert_int_equal(sy_limit_credit(&l, &r, volume), 1500); /* nothing was charged */
	assert_true(sy_limit_charge(&l, SY_LIMIT_ATOMIC, &r, NULL, volume, 1000));
	assert_true(sy_limit_peek(&l, &r, volume, 500));
	assert_false(sy_limit_peek(&l, &r, volume, 501));
	assert_true(sy_limit_peek(&l, &r, later, 1500));
}

/* ---- changes --------------------------------------------------------------------------------- */

static void test_change_keeps_the_credit(void **state)
{
	(void)state;
	struct sy_limit_rate r = rate_of(8000, BITS, 10000), next;
	struct sy_limit l;
	uint64_t now = START;
	sy_limit_init(&l, &r, 0, now);
	assert_true(sy_limit_charge(&l, SY_LIMIT_CAS, &r, NULL, sy_limit_volume(&r, now), 9000));
	now += 2 * SECOND; /* 1000 left, and 2000 since */
	assert_int_equal(sy_limit_rate_change(&next, &r, 80000, BITS, 10000, now, NULL), 0);
	assert_int_equal(sy_limit_credit(&l, &next, sy_limit_volume(&next, now)), 3000);
	now += SECOND / 10;
	assert_int_equal(sy_limit_credit(&l, &next, sy_limit_volume(&next, now)), 4000);
	/* A larger burst is no present, a smaller one cuts. */
	assert_int_equal(sy_limit_rate_change(&r, &next, 80000, BITS, 20000, now, NULL), 0);
	assert_int_equal(sy_limit_credit(&l, &r, sy_limit_volume(&r, now)), 4000);
	assert_int_equal(sy_limit_rate_change(&next, &r, 80000, BITS, 1500, now, NULL), 0);
	assert_int_equal(sy_limit_credit(&l, &next, sy_limit_volume(&next, now)), 1500);
}

/* A thread that still uses 400 Gbit/s for a millisecond must not silence 8 kbit/s for hours. */
static void test_settled_after_a_change(void **state)
{
	(void)state;
	struct sy_limit_rate fast = rate_of(UINT64_C(400000000000), BITS, 1500), slow;
	for (unsigned engine = 0; engine < SY_LIMIT_ENGINES; engine++) {
		struct sy_limit l;
		uint64_t now = START + SECOND, late = now + SECOND / 1000, local = 0;
		sy_limit_init(&l, &fast, 1500, START);
		assert_int_equal(sy_limit_rate_change(&slow, &fast, 8000, BITS, 1500, now, NULL),
		                 0);
		assert_true(sy_limit_charge(&l, engine, &fast, &local, sy_limit_volume(&fast, late),
		                            1500));
		uint64_t volume = sy_limit_volume(&slow, late);
		assert_int_equal(sy_limit_credit(&l, &slow, volume), 0);
		sy_limit_settle(&l, engine, volume);
		assert_int_equal(sy_limit_credit(&l, &slow, sy_limit_volume(&slow, late + SECOND)),
		                 1000);
		sy_limit_settle(&l, engine, sy_limit_volume(&slow, late + SECOND));
		assert_int_equal(sy_limit_credit(&l, &slow, sy_limit_volume(&slow, late + SECOND)),
		                 1000);
	}
}

/* Volumes pass 2^64: differences count. */
static void test_wrap(void **state)
{
	(void)state;
	struct sy_limit_rate r = rate_of(8000, BITS, 1500), next;
	r.volume = UINT64_MAX - 2000;
	struct sy_limit l;
	sy_limit_init(&l, &r, 0, START);
	for (unsigned second = 0; second < 10; second++) {
		uint64_t volume = sy_limit_volume(&r, START + second * SECOND);
		assert_int_equal(sy_limit_credit(&l, &r, volume), second ? 1000 : 1500);
		assert_true(
		        sy_limit_charge(&l, SY_LIMIT_CAS, &r, NULL, volume, second ? 1000 : 1500));
		assert_false(sy_limit_charge(&l, SY_LIMIT_CAS, &r, NULL, volume, 1));
	}
	uint64_t now = START + 9 * SECOND;
	assert_int_equal(sy_limit_rate_change(&next, &r, 8000, BITS, 1500, now, NULL), 0);
	assert_int_equal(sy_limit_credit(&l, &next, sy_limit_volume(&next, now)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_volume_is_exact),
	        cmocka_unit_test(test_time_before_the_start),
	        cmocka_unit_test(test_bounds),
	        cmocka_unit_test(test_an_hour),
	        cmocka_unit_test(test_a_full_bucket_forfeits),
	        cmocka_unit_test(test_given_back),
	        cmocka_unit_test(test_peek),
	        cmocka_unit_test(test_change_keeps_the_credit),
	        cmocka_unit_test(test_settled_after_a_change),
	        cmocka_unit_test(test_wrap),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
