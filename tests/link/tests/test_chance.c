// SPDX-License-Identifier: Apache-2.0
/* Draws have their distribution, each within five standard deviations of its mean over many seeds,
 * and are repeatable. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#include "link_chance.h"

#define DRAWS 100000u
#define SEEDS 20u

static void check_share(double share, uint64_t hits, double draws)
{
	double deviation = sqrt(draws * share * (1 - share));
	if (fabs((double)hits - draws * share) > 5 * deviation)
		fail_msg("%lu hits of %.0f at %g", hits, draws, share);
}

static void test_hits_have_their_probability(void **state)
{
	static const double shares[] = {0.001, 0.01, 0.25, 0.5, 0.99};
	for (unsigned i = 0; i < 5; i++)
		for (uint64_t seed = 0; seed < SEEDS; seed++) {
			uint64_t hits = 0;
			for (uint64_t n = 0; n < DRAWS; n++)
				hits += chance_hits(shares[i], chance_draw(seed, CHANCE_LOSS, n));
			check_share(shares[i], hits, DRAWS);
		}
}

/* Over all seeds the hits scatter as they should: neither too regular nor too wild. */
static void test_hits_scatter_over_seeds(void **state)
{
	double squares = 0;
	unsigned runs = 400, draws = 10000;
	for (uint64_t seed = 0; seed < runs; seed++) {
		double hits = 0;
		for (uint64_t n = 0; n < draws; n++)
			hits += chance_hits(0.1, chance_draw(seed, CHANCE_DUPLICATE, n));
		squares += (hits - 1000) * (hits - 1000) / 900;
	}
	/* Chi squared with 400 degrees of freedom: 400 +- 28.3. */
	assert_true(squares > 400 - 5 * 28.3);
	assert_true(squares < 400 + 5 * 28.3);
}

static void test_extreme_probabilities_are_exact(void **state)
{
	for (uint64_t n = 0; n < 1000; n++) {
		assert_false(chance_hits(0, chance_draw(1, CHANCE_LOSS, n)));
		assert_true(chance_hits(1, chance_draw(1, CHANCE_LOSS, n)));
	}
	assert_false(chance_hits(0, 0));
	assert_true(chance_hits(1, UINT64_MAX));
}

/* Draws of different purposes, seeds and adjacent numbers are independent: half of the bits differ.
 */
static void test_draws_are_independent(void **state)
{
	uint64_t bits[3] = {0};
	for (uint64_t n = 0; n < DRAWS; n++) {
		uint64_t one = chance_draw(7, CHANCE_LOSS, n);
		bits[0] += __builtin_popcountll(one ^ chance_draw(7, CHANCE_REORDER, n));
		bits[1] += __builtin_popcountll(one ^ chance_draw(8, CHANCE_LOSS, n));
		bits[2] += __builtin_popcountll(one ^ chance_draw(7, CHANCE_LOSS, n + 1));
	}
	for (unsigned i = 0; i < 3; i++)
		check_share(0.5, bits[i], 64.0 * DRAWS);
}

/* Pinned: a seed that a test has printed still means the same on another machine. */
static void test_draws_are_the_same_everywhere(void **state)
{
	assert_true(chance_draw(1, CHANCE_LOSS, 0) == 0xa38e7994aff5383b);
	assert_true(chance_draw(42, CHANCE_CORRUPT, 123456789) == 0x0aa881c664dffbe0);
}

static void test_numbers_below_a_limit_are_even(void **state)
{
	uint64_t count[7] = {0};
	for (uint64_t n = 0; n < DRAWS; n++) {
		uint64_t at = chance_below(7, chance_draw(3, CHANCE_BIT, n));
		assert_true(at < 7);
		count[at]++;
	}
	for (unsigned i = 0; i < 7; i++)
		check_share(1.0 / 7, count[i], DRAWS);
	assert_int_equal(chance_below(7, UINT64_MAX), 6);
}

static void test_jitter_has_its_distribution(void **state)
{
	double (*const draw[])(uint64_t, unsigned, uint64_t) = {chance_uniform, chance_normal};
	static const double deviations[] = {0.28867513, 1.0 / 6};
	for (unsigned i = 0; i < 2; i++) {
		double sum = 0, squares = 0;
		for (uint64_t n = 0; n < DRAWS; n++) {
			double at = draw[i](5, CHANCE_JITTER, n);
			assert_true(at >= 0 && at <= 1);
			sum += at;
			squares += (at - 0.5) * (at - 0.5);
		}
		double deviation = sqrt(squares / DRAWS);
		assert_true(fabs(sum / DRAWS - 0.5) < 5 * deviations[i] / sqrt(DRAWS));
		assert_true(fabs(deviation / deviations[i] - 1) < 0.02);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_hits_have_their_probability),
	        cmocka_unit_test(test_hits_scatter_over_seeds),
	        cmocka_unit_test(test_extreme_probabilities_are_exact),
	        cmocka_unit_test(test_draws_are_independent),
	        cmocka_unit_test(test_draws_are_the_same_everywhere),
	        cmocka_unit_test(test_numbers_below_a_limit_are_even),
	        cmocka_unit_test(test_jitter_has_its_distribution),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
