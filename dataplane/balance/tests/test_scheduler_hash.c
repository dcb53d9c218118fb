// SPDX-License-Identifier: Apache-2.0
/* Distribution of the picks of sh, maglev and conhash, and which clients move when servers are
 * added or removed. */
#include "scheduler_fixture.h"

#include <math.h>
#include <stdio.h>

#define FLOWS 400000

static const struct scheduler_ops *const hashing[] = {&scheduler_sh, &scheduler_maglev,
                                                      &scheduler_conhash};
#define HASHING SY_ARRAY_LEN(hashing)

static struct member *members(unsigned count, uint16_t weight)
{
	struct member *m = calloc(count, sizeof(*m));
	for (unsigned i = 0; i < count; i++)
		m[i].weight = weight;
	return m;
}

/* ---- distribution ---------------------------------------------------------------------------- */

/* Compares with the shares by weight: chi-square per degree of freedom, and the worst share. */
static void measure(struct fixture *f, unsigned count, const struct member *m, double *chi,
                    double *worst)
{
	double sum = 0;
	for (unsigned i = 0; i < count; i++)
		sum += m[i].weight;
	pick_many(f, FLOWS);
	*chi = *worst = 0;
	for (unsigned i = 0; i < count; i++) {
		double want = FLOWS * m[i].weight / sum, off = f->picks[i] - want;
		*chi += off * off / want / (count - 1);
		*worst = fmax(*worst, fabs(off) / want);
	}
}

/* sh and maglev are as even as random picks (chi-square within five standard deviations of its
 * mean). A ring with 512 points per server has shares of its own, about 1/√512 off. */
static void check_distribution(struct fixture *f, unsigned count, const struct member *m,
                               double ring_worst)
{
	for (unsigned n = 0; n < HASHING; n++) {
		double chi, worst, bound = 1 + 5 * sqrt(2.0 / (count - 1));
		pool_set(f, hashing[n], count, m);
		measure(f, count, m, &chi, &worst);
		if (hashing[n] == &scheduler_conhash)
			assert_true(worst < ring_worst);
		else
			assert_true(chi < bound);
	}
}

static void test_equal(void **state)
{
	for (unsigned count = 2; count <= 100; count = count == 2 ? 10 : count * 10) {
		struct member *m = members(count, 7);
		check_distribution(*state, count, m, 0.2);
		free(m);
	}
}

static void test_weights(void **state)
{
	struct member *m = members(40, 0);
	for (unsigned i = 0; i < 40; i++)
		m[i].weight = (uint16_t)(10 + 10 * (i % 4));
	check_distribution(*state, 40, m, 0.3);
	free(m);
}

/* Shares of servers that are down go to the others by weight. */
static void test_spread_of_the_lost(void **state)
{
	struct fixture *f = *state;
	struct member *m = members(20, 5);
	for (unsigned n = 0; n < HASHING; n++) {
		for (unsigned i = 0; i < 20; i++)
			m[i].down = i >= 8;
		pool_set(f, hashing[n], 20, m);
		pick_many(f, 80000);
		for (unsigned i = 0; i < 20; i++)
			assert_in_range(f->picks[i], i < 8 ? 7500 : 0, i < 8 ? 12500 : 0);
	}
	free(m);
}

/* 1 of 500 is up: repeated hashing may miss it, but a server is still found. */
static void test_the_last_one(void **state)
{
	struct fixture *f = *state;
	struct member *m = members(500, 5);
	for (unsigned i = 0; i < 500; i++)
		m[i].down = i != 321;
	for (unsigned n = 0; n < HASHING; n++) {
		pool_set(f, hashing[n], 500, m);
		pick_many(f, 1000);
		assert_int_equal(f->picks[321], 1000);
	}
	free(m);
}

/* ---- disruption ------------------------------------------------------------------------------ */

/* Of the clients whose server before is not `own`, how many have another one after (and not
 * `own`). */
static double moved(struct fixture *f, struct pool *before, struct pool *after, uint32_t own)
{
	unsigned others = 0, changed = 0;
	for (unsigned n = 0; n < FLOWS; n++) {
		uint64_t hash = random_next();
		uint32_t from = pick_from(f, before, hash), to = pick_from(f, after, hash);
		if (from == own)
			continue;
		others++;
		changed += to != from && to != own;
	}
	return (double)changed / others;
}

static struct pool *pool_of(struct fixture *f, const struct scheduler_ops *ops, struct member *m)
{
	return pool_make(f, ops, 100, m, INT64_MAX);
}

/* One server fails and returns: with maglev and conhash no client of another server moves. */
static void test_one_of_100_fails(void **state)
{
	struct fixture *f = *state;
	struct member *m = members(100, 10);
	for (unsigned n = 1; n < HASHING; n++)
		for (unsigned own = 0; own < 100; own += 33) {
			struct pool *before = pool_of(f, hashing[n], m);
			m[own].down = true;
			struct pool *after = pool_of(f, hashing[n], m);
			m[own].down = false;
			struct pool *again = pool_of(f, hashing[n], m);
			assert_true(moved(f, before, after, own) == 0);
			assert_true(moved(f, after, again, own) == 0);
			for (unsigned k = 0; k < 1000; k++) {
				uint64_t hash = random_next();
				assert_int_equal(pick_from(f, before, hash),
				                 pick_from(f, again, hash));
			}
			pool_free(before, f->table_cache);
			pool_free(after, f->table_cache);
			pool_free(again, f->table_cache);
		}
	free(m);
}

/* A server removed from or added to the configuration: at most 0.3 % of the others' clients
 * move. */
static void test_one_of_100_leaves(void **state)
{
	struct fixture *f = *state;
	struct member *m = members(100, 10);
	for (unsigned n = 1; n < HASHING; n++) {
		double sum = 0;
		for (unsigned own = 0; own < 100; own += 9) {
			struct pool *before = pool_of(f, hashing[n], m);
			m[own].absent = true;
			struct pool *after = pool_of(f, hashing[n], m);
			m[own].absent = false;
			double left = moved(f, before, after, own);
			double joined = moved(f, after, before, own);
			sum += left;
			assert_true(left <= 0.003 && joined <= 0.003);
			if (hashing[n] == &scheduler_conhash)
				assert_true(left == 0 && joined == 0);
			pool_free(before, f->table_cache);
			pool_free(after, f->table_cache);
		}
		printf("%s: %.3f %% of the others' clients move when 1 of 100 servers leaves\n",
		       hashing[n]->name, 100 * sum / 12);
	}
	free(m);
}

/* A second failure moves only that server's clients, and slow start returns its clients
 * gradually. */
static void test_slow_return(void **state)
{
	struct fixture *f = *state;
	struct member *m = members(100, 10);
	m[5].down = true;
	for (unsigned n = 1; n < HASHING; n++) {
		m[50].down = true;
		struct pool *before = pool_of(f, hashing[n], m);
		m[50].down = false;
		for (uint16_t share = 1; share <= SHARES; share++) {
			m[50].share = share;
			struct pool *after = pool_of(f, hashing[n], m);
			assert_true(moved(f, before, after, 50) == 0);
			unsigned own = 0, before_own = 0;
			for (unsigned k = 0; k < FLOWS; k++) {
				uint64_t hash = random_next();
				own += pick_from(f, after, hash) == 50;
				before_own += pick_from(f, before, hash) == 50;
			}
			/* of 1/99 of all */
			assert_in_range(own, FLOWS / 99 * share / 16 * 7 / 10,
			                FLOWS / 99 * share / 16 * 14 / 10 + 60);
			assert_true(share == 1 ? before_own == 0 : before_own > 0);
			pool_free(before, f->table_cache);
			before = after;
		}
		pool_free(before, f->table_cache);
	}
	free(m);
}

/* ---- construction ---------------------------------------------------------------------------- */

/* The order of the configuration and the ids do not matter: two forwarders agree. */
static void test_agreement(void **state)
{
	struct fixture *f = *state;
	for (unsigned n = 0; n < HASHING; n++) {
		struct pool *one = pool_create(hashing[n], 30), *two = pool_create(hashing[n], 30);
		int64_t budget = INT64_MAX;
		for (unsigned i = 0; i < 30; i++) {
			unsigned k = 29 - i;
			pool_add(one, i, server_name(i), (uint16_t)(1 + i), SHARES, UINT32_MAX);
			pool_add(two, k + 500, server_name(k), (uint16_t)(1 + k), SHARES,
			         UINT32_MAX);
		}
		assert_int_equal(pool_build(one, f->table_cache, &budget), 0);
		struct table_cache *elsewhere = table_cache_create();
		assert_int_equal(pool_build(two, elsewhere, &budget), 0);
		for (unsigned k = 0; k < 20000; k++) {
			uint64_t hash = random_next();
			assert_int_equal(pick_from(f, one, hash) + 500, pick_from(f, two, hash));
		}
		pool_free(one, f->table_cache);
		pool_free(two, elsewhere);
		table_cache_destroy(elsewhere);
	}
}

/* All services with the same servers share one table, up or down; a different weight makes another
 * table. */
static void test_sharing(void **state)
{
	struct fixture *f = *state;
	struct member *m = members(30, 3);
	for (unsigned n = 1; n < HASHING; n++) {
		struct pool *pool[50];
		unsigned tables;
		uint64_t bytes;
		for (unsigned i = 0; i < 50; i++) {
			m[0].down = i % 2;
			m[1].weight = i < 49 ? 3 : 4;
			pool[i] = pool_make(f, hashing[n], 30, m, INT64_MAX);
		}
		m[1].weight = 3;
		assert_ptr_equal(pool[0]->made, pool[48]->made);
		assert_ptr_not_equal(pool[0]->made, pool[49]->made);
		table_cache_measure(f->table_cache, &tables, &bytes);
		assert_int_equal(tables, 2);
		assert_true(bytes > 30 * 100);
		for (unsigned i = 0; i < 50; i++)
			pool_free(pool[i], f->table_cache);
		table_cache_measure(f->table_cache, &tables, &bytes);
		assert_int_equal(tables, 0);
	}
	free(m);
}

/* The same table is built in steps of any size, each within its budget. */
static void test_pieces(void **state)
{
	struct fixture *f = *state;
	struct member *m = members(200, 3);
	for (unsigned i = 0; i < 200; i++)
		m[i].weight = (uint16_t)(1 + random_next() % 50);
	for (unsigned n = 1; n < HASHING; n++) {
		struct pool *whole = pool_make(f, hashing[n], 200, m, INT64_MAX);
		struct table_cache *cache = f->table_cache;
		f->table_cache = table_cache_create();
		struct pool *pieces = pool_make(f, hashing[n], 200, m, 1000);
		for (unsigned k = 0; k < 50000; k++) {
			uint64_t hash = random_next();
			assert_int_equal(pick_from(f, whole, hash), pick_from(f, pieces, hash));
		}
		pool_free(pieces, f->table_cache);
		table_cache_destroy(f->table_cache);
		f->table_cache = cache;
		pool_free(whole, f->table_cache);
	}
	free(m);
}

/* A pool discarded before it is built leaves no memory. */
static void test_given_up(void **state)
{
	struct fixture *f = *state;
	for (unsigned n = 1; n < HASHING; n++) {
		struct pool *p = pool_create(hashing[n], 200);
		int64_t budget = 5000;
		for (unsigned i = 0; i < 200; i++)
			pool_add(p, i, server_name(i), 1, SHARES, UINT32_MAX);
		assert_int_equal(pool_build(p, f->table_cache, &budget), 1);
		pool_free(p, f->table_cache);
	}
}

/* Addresses of both families spread; the port counts only when asked for. */
static void test_client_hash(void **state)
{
	struct fixture *f = *state;
	struct member *m = members(16, 1);
	struct sy_addr v6 = {.b = {0x20, 1, 0xd, 0xb8}};
	pool_set(f, &scheduler_maglev, 16, m);
	for (unsigned family = 0; family < 2; family++) {
		memset(f->picks, 0, sizeof(f->picks));
		for (unsigned i = 0; i < 65536; i++) {
			struct sy_addr a = family ? v6 : sy_addr_v4(0);
			a.b[14] = (uint8_t)(i >> 8);
			a.b[15] = (uint8_t)i;
			uint64_t hash = scheduler_hash(&a, (uint16_t)i, false);
			assert_true(hash == scheduler_hash(&a, (uint16_t)(i + 1), false));
			assert_true(scheduler_hash(&a, 1, true) != scheduler_hash(&a, 2, true));
			f->picks[pick_from(f, f->pool, hash)]++;
		}
		for (unsigned i = 0; i < 16; i++)
			assert_in_range(f->picks[i], 3700, 4500);
	}
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_equal),        TEST(test_weights),          TEST(test_spread_of_the_lost),
	        TEST(test_the_last_one), TEST(test_one_of_100_fails), TEST(test_one_of_100_leaves),
	        TEST(test_slow_return),  TEST(test_agreement),        TEST(test_sharing),
	        TEST(test_pieces),       TEST(test_given_up),         TEST(test_client_hash),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
