// SPDX-License-Identifier: Apache-2.0
/* RFC 6298's rules, RFC 7323's appendix G, and the least round-trip time against a plain list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "random.h"
#include "rtt.h"

#define NOW 4294960000u /* the milliseconds' lower half wraps around soon */

static void test_first_time_out(void **state) /* RFC 6298, 2.1 and 5.7 */
{
	struct rtt r;
	(void)state;
	rtt_init(&r);
	assert_int_equal(rtt_timeout_ms(&r), 1000);
	rtt_back_off(&r);
	assert_int_equal(rtt_timeout_ms(&r), 2000);
	rtt_syn_lost(&r);
	assert_int_equal(rtt_timeout_ms(&r), 3000);
	rtt_sample(&r, 100000, 1, NOW);
	assert_int_equal(rtt_timeout_ms(&r), 300);
	rtt_syn_lost(&r); /* there is a sample: it counts */
	assert_int_equal(rtt_timeout_ms(&r), 300);
}

static void test_first_sample(void **state) /* RFC 6298, 2.2 */
{
	struct rtt r;
	(void)state;
	rtt_init(&r);
	rtt_sample(&r, 500000, 7, NOW);
	assert_int_equal(rtt_smoothed_us(&r), 500000);
	assert_int_equal(rtt_variation_us(&r), 250000);
	assert_int_equal(rtt_timeout_ms(&r), 1500);
}

static void test_later_samples(void **state) /* RFC 6298, 2.3: the variation by the old SRTT */
{
	struct rtt r;
	(void)state;
	rtt_init(&r);
	rtt_sample(&r, 800000, 1, NOW);
	rtt_sample(&r, 400000, 1, NOW);
	assert_int_equal(rtt_variation_us(&r), 400000); /* 3/4 * 400 + 1/4 * 400 */
	assert_int_equal(rtt_smoothed_us(&r), 750000);  /* 7/8 * 800 + 1/8 * 400 */
	rtt_sample(&r, 1550000, 1, NOW);
	assert_int_equal(rtt_variation_us(&r), 500000);
	assert_int_equal(rtt_smoothed_us(&r), 850000);
	assert_int_equal(rtt_timeout_ms(&r), 2850);
}

static void test_bounds(void **state) /* RFC 6298, 2.4 and 2.5 */
{
	struct rtt r;
	(void)state;
	rtt_init(&r);
	for (unsigned n = 0; n < 1000; n++)
		rtt_sample(&r, 50, 1, NOW);
	assert_in_range(rtt_variation_us(&r), 0, 1);
	assert_int_equal(rtt_timeout_ms(&r), RTT_MIN_TIMEOUT_MS + 1);
	rtt_sample(&r, UINT32_MAX, 1, NOW);
	rtt_sample(&r, UINT32_MAX, 1, NOW);
	assert_int_equal(rtt_timeout_ms(&r), RTT_MAX_TIMEOUT_MS);
	rtt_init(&r);
	rtt_sample(&r, 0, 0, NOW); /* counts as a sample of 1 us */
	assert_int_equal(rtt_smoothed_us(&r), 1);
}

static void test_back_off(void **state) /* RFC 6298, 5.5: twice as long, up to the bound */
{
	struct rtt r;
	uint32_t ms = 300;
	(void)state;
	rtt_init(&r);
	rtt_sample(&r, 100000, 1, NOW);
	for (unsigned n = 0; n < 100; n++) {
		assert_int_equal(rtt_timeout_ms(&r), ms);
		rtt_back_off(&r);
		ms = 2 * ms < RTT_MAX_TIMEOUT_MS ? 2 * ms : RTT_MAX_TIMEOUT_MS;
	}
	rtt_restart(&r);
	assert_int_equal(rtt_timeout_ms(&r), 300);
}

static void test_back_off_ends_by_a_sample(void **state) /* RFC 6298, 5 */
{
	struct rtt r;
	(void)state;
	rtt_init(&r);
	for (unsigned n = 0; n < 50; n++)
		rtt_sample(&r, 100000, 1, NOW);
	rtt_back_off(&r);
	assert_int_equal(rtt_timeout_ms(&r), 600);
	rtt_sample(&r, 100000, 1, NOW);
	assert_int_equal(rtt_timeout_ms(&r), 300);
	/* after several, the old SRTT counts no more */
	for (unsigned n = 0; n < 4; n++)
		rtt_back_off(&r);
	rtt_sample(&r, 400000, 1, NOW);
	assert_int_equal(rtt_smoothed_us(&r), 400000);
	assert_int_equal(rtt_variation_us(&r), 200000);
}

/* RFC 7323, G: a window of samples weighs about as much as one sample a window. */
static void test_samples_per_window(void **state)
{
	static const uint32_t counts[] = {1, 2, 10, 100, 10000};
	(void)state;
	for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		struct rtt r;
		rtt_init(&r);
		rtt_sample(&r, 100000, 1, NOW);
		for (unsigned n = 0; n < 1000; n++)
			rtt_sample(&r, 100000, 1, NOW);
		for (uint32_t n = 0; n < 8 * counts[i]; n++) /* 8 windows: 1 - 1/e of the way */
			rtt_sample(&r, 200000, counts[i], NOW);
		assert_in_range(rtt_smoothed_us(&r), 162000, 167000);
	}
}

/* However many samples, the smoothed one arrives: nothing is lost in rounding. */
static void test_converges(void **state)
{
	struct rtt r;
	(void)state;
	rtt_init(&r);
	rtt_sample(&r, 10000, 1, NOW);
	for (uint32_t n = 0; n < 400000; n++)
		rtt_sample(&r, 10050, 2000, NOW);
	assert_in_range(rtt_smoothed_us(&r), 10049, 10050);
}

static void test_least(void **state) /* RFC 8985, 6.2, step 1 */
{
	enum { COUNT = 200000 };
	static uint32_t us[COUNT];
	static uint64_t at[COUNT];
	struct rtt r;
	uint64_t now = NOW;
	(void)state;
	rtt_init(&r);
	assert_int_equal(rtt_min_us(&r), 0);
	for (uint32_t n = 0, first = 0; n < COUNT; n++) {
		now += random_below(100) ? random_below(200) : random_below(30000);
		us[n] = 1 + random_below(1u << random_below(20));
		at[n] = now;
		rtt_sample(&r, us[n], 1, now);
		/* between the least of all 10 s and that of the last 5 s */
		while (at[first] + RTT_MIN_WINDOW_MS < now)
			first++;
		uint32_t min = UINT32_MAX, recent = UINT32_MAX;
		for (uint32_t i = first; i <= n; i++) {
			min = us[i] < min ? us[i] : min;
			if (at[i] + RTT_MIN_WINDOW_MS / 2 > now)
				recent = us[i] < recent ? us[i] : recent;
		}
		assert_in_range(rtt_min_us(&r), min, recent);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_first_time_out),
	        cmocka_unit_test(test_first_sample),
	        cmocka_unit_test(test_later_samples),
	        cmocka_unit_test(test_bounds),
	        cmocka_unit_test(test_back_off),
	        cmocka_unit_test(test_back_off_ends_by_a_sample),
	        cmocka_unit_test(test_samples_per_window),
	        cmocka_unit_test(test_converges),
	        cmocka_unit_test(test_least),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
