// SPDX-License-Identifier: Apache-2.0
/* share, and measured shares with the other schedulers. */
#include <math.h>

#include "scheduler_fixture.h"

/* Pearson's statistic of the last picks against shares that sum to 1. */
static double chi_square(const struct fixture *f, unsigned count, const double *share,
                         unsigned picks)
{
	double sum = 0;
	for (unsigned i = 0; i < count; i++) {
		double expected = share[i] * picks, off = f->picks[i] - expected;
		assert_true(expected >= 5);
		sum += off * off / expected;
	}
	return sum;
}

/* The value that it exceeds by chance once in a thousand times (Wilson and Hilferty). */
static double chi_square_limit(unsigned freedom)
{
	double k = 2.0 / (9.0 * freedom);
	return freedom * pow(1 - k + 3.09 * sqrt(k), 3);
}

static void test_draws_follow_the_shares(void **state)
{
	struct fixture *f = *state;
	static const unsigned counts[] = {1, 2, 3, 10, 100, 1000};
	for (unsigned c = 0; c < SY_ARRAY_LEN(counts); c++) {
		unsigned n = counts[c];
		struct member m[SERVERS] = {0};
		double share[SERVERS], sum = 0;
		for (unsigned i = 0; i < n; i++)
			sum += share[i] = 1 + i % 7;
		for (unsigned i = 0; i < n; i++) {
			share[i] /= sum;
			m[i] = (struct member){.weight = 10, .measured = share[i]};
		}
		pool_set(f, &scheduler_share, n, m);
		pick_many(f, 200000);
		if (n > 1)
			assert_true(chi_square(f, n, share, 200000) < chi_square_limit(n - 1));
		assert_true(f->picks[n - 1] > 0);
	}
}

/* The statistic finds what is wrong. */
static void test_chi_square_notices(void **state)
{
	struct fixture *f = *state;
	const double even[] = {0.5, 0.5};
	const struct member m[] = {{.weight = 1, .measured = 0.51},
	                           {.weight = 1, .measured = 0.49}};
	pool_set(f, &scheduler_share, 2, m);
	pick_many(f, 200000);
	assert_true(chi_square(f, 2, even, 200000) > chi_square_limit(1));
}

/* At any moment each server has had its share of the sessions, except for a few: independent
 * numbers would be off by hundreds. */
static void test_counts_stay_close(void **state)
{
	struct fixture *f = *state;
	static uint32_t had[SERVERS];
	static const unsigned counts[] = {2, 3, 10, 50};
	for (unsigned c = 0; c < SY_ARRAY_LEN(counts); c++) {
		unsigned n = counts[c];
		struct member m[SERVERS] = {0};
		double share[SERVERS], sum = 0;
		for (unsigned i = 0; i < n; i++)
			sum += share[i] = 1 + (double)(random_next() % 1000) / 100;
		for (unsigned i = 0; i < n; i++) {
			share[i] /= sum;
			m[i] = (struct member){.weight = 10, .measured = share[i]};
		}
		pool_set(f, &scheduler_share, n, m);
		memset(f->picks, 0, sizeof(f->picks));
		for (unsigned picks = 1; picks <= 20000; picks++) {
			f->picks[pick_one(f)]++;
			for (unsigned i = 0; i < n; i++)
				assert_true(fabs(f->picks[i] - share[i] * picks) < 5);
			if (picks % 60)
				continue;
			/* The last 60. */
			for (unsigned i = 0; i < n; i++) {
				assert_true(fabs(f->picks[i] - had[i] - share[i] * 60) < 3 ||
				            picks == 60);
				had[i] = f->picks[i];
			}
		}
	}
}

/* Services, and workers, begin anywhere: what is alike would add up. */
static void test_rows_begin_anywhere(void **state)
{
	struct fixture *f = *state;
	const uint16_t weight[] = {1, 1, 1, 1};
	pool_set_weights(f, &scheduler_share, 4, weight);
	memset(f->picks, 0, sizeof(f->picks));
	for (unsigned n = 0; n < 4000; n++) {
		f->cursor[3] = 0; /* as a service that has had no session yet */
		f->picks[pick_one(f)]++;
	}
	for (unsigned i = 0; i < 4; i++)
		assert_in_range(f->picks[i], 850, 1150);
}

/* A full server's sessions go to the others by their shares, not to those that its numbers precede.
 */
static void test_full_ones_are_replaced_evenly(void **state)
{
	struct fixture *f = *state;
	struct member m[] = {{.weight = 1, .measured = 0.4, .limit = 1},
	                     {.weight = 1, .measured = 0.3},
	                     {.weight = 1, .measured = 0.2},
	                     {.weight = 1, .measured = 0.1}};
	f->active[0] = 1;
	pool_set(f, &scheduler_share, 4, m);
	pick_many(f, 60000);
	assert_int_equal(f->picks[0], 0);
	assert_in_range(f->picks[1], 29400, 30600);
	assert_in_range(f->picks[2], 19400, 20600);
	assert_in_range(f->picks[3], 9400, 10600);
}

static void test_weights_until_measured(void **state)
{
	struct fixture *f = *state;
	const uint16_t weight[] = {1, 3, 0, 4};
	pool_set_weights(f, &scheduler_share, 4, weight);
	pick_many(f, 80000);
	assert_in_range(f->picks[0], 9500, 10500);
	assert_in_range(f->picks[1], 29000, 31000);
	assert_int_equal(f->picks[2], 0);
}

static void test_unavailable_are_skipped(void **state)
{
	struct fixture *f = *state;
	struct member m[] = {{.weight = 1, .measured = 0.90},
	                     {.weight = 1, .measured = 0.06},
	                     {.weight = 1, .measured = 0.04, .limit = 3}};
	m[0].down = true;
	pool_set(f, &scheduler_share, 3, m);
	f->active[2] = 2;
	pick_many(f, 10000);
	assert_int_equal(f->picks[0], 0);
	assert_in_range(f->picks[1], 5700, 6300);
	f->active[2] = 3; /* full */
	pick_many(f, 1000);
	assert_int_equal(f->picks[1], 1000);
	m[0] = (struct member){.weight = 1, .measured = 0.9999, .limit = 1};
	f->active[0] = 1; /* nearly every draw finds a full server */
	pool_set(f, &scheduler_share, 3, m);
	pick_many(f, 1000);
	assert_int_equal(f->picks[1], 1000);
	m[1].down = true;
	pool_set(f, &scheduler_share, 3, m);
	assert_int_equal(pick_one(f), PICK_NONE);
}

static void test_slow_start_by_sixteenths(void **state)
{
	struct fixture *f = *state;
	const struct member m[] = {{.weight = 1, .measured = 0.5},
	                           {.weight = 1, .measured = 0.5, .share = 4}};
	pool_set(f, &scheduler_share, 2, m);
	pick_many(f, 50000);
	assert_in_range(f->picks[1], 9500, 10500); /* 4 to 16 */
}

/* Every scheduler by weight follows measured shares. */
static void test_others_follow(void **state)
{
	struct fixture *f = *state;
	static const struct scheduler_ops *const position[] = {&scheduler_wrr, &scheduler_share,
	                                                       &scheduler_sh, &scheduler_maglev,
	                                                       &scheduler_conhash};
	const double share[] = {0.4, 0.1, 0.2, 0.3};
	struct member m[4];
	for (unsigned i = 0; i < 4; i++)
		m[i] = (struct member){.weight = 7, .measured = share[i]};
	f->ceiling = (uint32_t)(0.4 / 7 * 4294967295.0);
	for (unsigned n = 0; n < SY_ARRAY_LEN(position); n++) {
		pool_set(f, position[n], 4, m);
		pick_many(f, 100000);
		for (unsigned i = 0; i < 4; i++)
			assert_in_range(f->picks[i], 100000 * (share[i] - 0.04),
			                100000 * (share[i] + 0.04));
	}
	pool_set(f, &scheduler_rr, 4, m); /* ignores them, as it ignores weights */
	pick_many(f, 4000);
	assert_int_equal(f->picks[0], 1000);
	pool_set(f, &scheduler_wlc, 4, m);
	for (unsigned n = 0; n < 1000; n++)
		f->active[pick_one(f)]++;
	for (unsigned i = 0; i < 4; i++)
		assert_in_range(f->active[i], 1000 * share[i] - 2, 1000 * share[i] + 2);
}

/* wrr puts shares that hardly differ into one class: a pick does not look at all servers. */
static void test_wrr_has_few_classes(void **state)
{
	struct fixture *f = *state;
	struct member m[SERVERS] = {0};
	double sum = 0;
	for (unsigned i = 0; i < 1000; i++)
		sum += 1000 + i;
	for (unsigned i = 0; i < 1000; i++)
		m[i] = (struct member){.weight = 1, .measured = (1000 + i) / sum};
	pool_set(f, &scheduler_wrr, 1000, m);
	unsigned different = 1;
	for (unsigned i = 1; i < 1000; i++)
		different += f->pool->candidate[i].weight != f->pool->candidate[i - 1].weight;
	assert_in_range(different, 20, 64);
	pick_many(f, 100000);
	for (unsigned i = 0; i < 1000; i++)
		assert_in_range(f->picks[i], 100000 * m[i].measured * 0.95 - 1,
		                100000 * m[i].measured * 1.05 + 1);
}

/* What a hashing scheduler does with clients when shares change from before[] to after[]. */
static unsigned moved(struct fixture *f, const struct scheduler_ops *ops, unsigned count,
                      const double *before, const double *after)
{
	struct member m[SERVERS] = {0};
	const unsigned clients = 20000;
	uint64_t hash = 1;
	unsigned moves = 0;
	for (unsigned i = 0; i < count; i++)
		m[i] = (struct member){.weight = 1, .measured = before[i]};
	struct pool *one = pool_make(f, ops, count, m, INT64_MAX);
	for (unsigned i = 0; i < count; i++)
		m[i].measured = after[i];
	struct pool *two = pool_make(f, ops, count, m, INT64_MAX);
	assert_ptr_equal(one->made, two->made); /* one table */
	for (unsigned n = 0; n < clients; n++) {
		hash = hash_next(hash + n);
		moves += pick_from(f, one, hash) != pick_from(f, two, hash);
	}
	pool_free(one, f->table_cache);
	pool_free(two, f->table_cache);
	return moves * 1000 / clients;
}

static void test_tables_stay(void **state)
{
	struct fixture *f = *state;
	static const struct scheduler_ops *const table[] = {&scheduler_maglev, &scheduler_conhash};
	double before[10], after[10];
	for (unsigned i = 0; i < 10; i++)
		before[i] = after[i] = 0.1;
	after[3] = 0.05;
	f->ceiling = (uint32_t)(0.1 * 4294967295.0);
	for (unsigned n = 0; n < 2; n++) {
		assert_int_equal(moved(f, table[n], 10, before, before), 0);
		/* Half of one server's clients, which is what it has to lose: 5 %. */
		assert_in_range(moved(f, table[n], 10, before, after), 35, 65);
	}
}

static void test_ceiling_has_hysteresis(void **state)
{
	assert_int_equal(pool_ceiling(0, 900), 900);
	assert_int_equal(pool_ceiling(900, 910), 900);
	assert_int_equal(pool_ceiling(900, 400), 900);
	assert_int_equal(pool_ceiling(900, 1200), 1600);
	assert_int_equal(pool_ceiling(1600, 1500), 1600);
	assert_int_equal(pool_ceiling(1600, 300), 400);
	assert_int_equal(pool_ceiling(1, UINT32_MAX), UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_draws_follow_the_shares),
	        TEST(test_chi_square_notices),
	        TEST(test_counts_stay_close),
	        TEST(test_rows_begin_anywhere),
	        TEST(test_full_ones_are_replaced_evenly),
	        TEST(test_weights_until_measured),
	        TEST(test_unavailable_are_skipped),
	        TEST(test_slow_start_by_sixteenths),
	        TEST(test_others_follow),
	        TEST(test_wrr_has_few_classes),
	        TEST(test_tables_stay),
	        TEST(test_ceiling_has_hysteresis),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
