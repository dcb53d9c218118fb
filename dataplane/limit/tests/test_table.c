// SPDX-License-Identifier: Apache-2.0
/* Buckets of many keys: each as exact as a bucket alone, bounded in number, and made and forgotten
 * without a key gaining or losing by it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../base/tests/test_random.h"

static void limit_step(void);
#define SY_LIMIT_STEP() limit_step()
#include "../limit_table.c"

#define SECOND UINT64_C(1000000000)
#define MS     UINT64_C(1000000)
#define START  (100 * SECOND)

static struct sy_limit_rate rate_of(uint64_t per_second, uint64_t burst)
{
	struct sy_limit_rate r;
	assert_int_equal(sy_limit_rate_init(&r, per_second, SECOND, burst, START, NULL), 0);
	return r;
}

static struct sy_limit_key key_of(uint64_t n)
{
	return (struct sy_limit_key){{0, n}};
}

static enum sy_limit_answer take(struct sy_limit_table *t, const struct sy_limit_rate *r,
                                 uint64_t key, uint64_t now, uint64_t cost)
{
	const struct sy_limit_key k = key_of(key);
	struct sy_limit_entry place;
	return sy_limit_table_charge(t, r, &k, sy_limit_volume(r, now), cost, &place);
}

/* Other threads, each of which charges this key just before a bucket is swapped. */
static struct {
	struct sy_limit_table *table;
	const struct sy_limit_rate *rate;
	uint64_t key;
	unsigned left;
} rivals;

static void limit_step(void)
{
	const unsigned left = rivals.left;
	if (left == 0)
		return;
	rivals.left = 0; /* they do not race each other */
	assert_int_equal(take(rivals.table, rivals.rate, rivals.key, START, 1), SY_LIMIT_CHARGED);
	rivals.left = left - 1;
}

/* However many races for its bucket a packet loses, it is limited. */
static void test_races(void **state)
{
	struct sy_limit_rate r = rate_of(1000, 100);
	struct sy_limit_table *t = sy_limit_table_create(64, 2);
	(void)state;
	assert_int_equal(take(t, &r, 1, START, 1), SY_LIMIT_CHARGED);
	rivals.table = t;
	rivals.rate = &r;
	rivals.key = 1;
	rivals.left = 40;
	assert_int_equal(take(t, &r, 1, START, 1), SY_LIMIT_CHARGED);
	assert_int_equal(rivals.left, 0);
	assert_int_equal(take(t, &r, 1, START, 58), SY_LIMIT_CHARGED);
	assert_int_equal(take(t, &r, 1, START, 1), SY_LIMIT_ABOVE);
	assert_int_equal(sy_limit_table_used(t, &r, sy_limit_volume(&r, START)), 1);
	assert_int_equal(sy_limit_table_used(t, &r, sy_limit_volume(&r, START + SECOND)), 0);
	sy_limit_table_destroy(t);
}

/* Random packets of 300 keys behave as with 300 buckets, in a table with space for all. */
static void test_model(void **state)
{
	enum { KEYS = 300, PACKETS = 200000 };
	struct sy_limit_table *t = sy_limit_table_create(4096, 1);
	struct sy_limit_rate r = rate_of(30000, 6000);
	struct sy_limit alone[KEYS];
	uint64_t now = START, answers[3] = {0};
	(void)state;
	for (unsigned i = 0; i < KEYS; i++)
		sy_limit_init(&alone[i], &r, 0, now);
	for (unsigned n = 0; n < PACKETS; n++) {
		/* during pauses all buckets become full, so their entries are free */
		now += n % 50000 ? random_next() % 100000 : SECOND;
		unsigned key = (unsigned)(random_next() % KEYS);
		uint64_t cost = 64 + random_next() % 1437, volume = sy_limit_volume(&r, now);
		const struct sy_limit_key k = key_of(key);
		struct sy_limit_entry place;
		bool may = sy_limit_charge(&alone[key], SY_LIMIT_OWN, &r, NULL, volume, cost);
		enum sy_limit_answer a = sy_limit_table_charge(t, &r, &k, volume, cost, &place);
		assert_int_equal(a, may ? SY_LIMIT_CHARGED : SY_LIMIT_ABOVE);
		if (may && n % 7 == 0) {
			sy_limit_refund(&alone[key], SY_LIMIT_OWN, NULL, cost);
			sy_limit_table_refund(t, &place, cost);
		}
		answers[a]++;
	}
	assert_true(answers[SY_LIMIT_CHARGED] > PACKETS / 10);
	assert_true(answers[SY_LIMIT_ABOVE] > PACKETS / 10);
	sy_limit_table_destroy(t);
}

/* Never more keys than entries. The others pass; once buckets are full again, they get entries. */
static void test_bounded(void **state)
{
	static const uint32_t sizes[] = {1, 3, 4, 5, 1000};
	struct sy_limit_rate r = rate_of(1000, 100);
	(void)state;
	for (unsigned s = 0; s < SY_ARRAY_LEN(sizes); s++) {
		struct sy_limit_table *t = sy_limit_table_create(sizes[s], 1);
		unsigned limited = 0;
		for (unsigned key = 1; key <= 20000; key++)
			limited += take(t, &r, key, START, 100) == SY_LIMIT_CHARGED;
		assert_int_equal(limited, sizes[s]);
		assert_int_equal(sy_limit_table_capacity(t), sizes[s]);
		limited = 0;
		for (unsigned key = 1; key <= 20000; key++)
			limited += take(t, &r, key, START, 100) == SY_LIMIT_ABOVE;
		assert_int_equal(limited, sizes[s]); /* the same ones still have their buckets */
		limited = 0;
		for (unsigned key = 100000; key < 120000; key++)
			limited += take(t, &r, key, START + SECOND, 100) == SY_LIMIT_CHARGED;
		assert_int_equal(limited, sizes[s]);
		sy_limit_table_destroy(t);
	}
}

/* Until a table is three quarters full, hardly a key finds no place. */
static void test_load(void **state)
{
	enum { MAX = 65536, KEYS = MAX * 3 / 4 };
	struct sy_limit_rate r = rate_of(1000, 100);
	struct sy_limit_table *t = sy_limit_table_create(MAX, 1);
	unsigned unlimited = 0;
	(void)state;
	for (unsigned key = 1; key <= KEYS; key++)
		unlimited += take(t, &r, key, START, 1) == SY_LIMIT_UNLIMITED;
	print_message("%u of %u keys found no place\n", unlimited, KEYS);
	assert_true(unlimited < KEYS / 50);
	sy_limit_table_destroy(t);
}

/* As docs/design/0032-limits.md says: bytes per bucket, and per client shown. */
static void test_bytes(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct bucket), 16);
	assert_int_equal(sy_limit_table_bytes(1000000), 1000000 * (16 + 48));
}

static void test_too_much(void **state)
{
	struct sy_limit_rate r = rate_of(1000, 100);
	struct sy_limit_table *t = sy_limit_table_create(16, 1);
	(void)state;
	assert_int_equal(take(t, &r, 1, START, 101), SY_LIMIT_ABOVE);
	assert_int_equal(take(t, &r, 1, START, 100), SY_LIMIT_CHARGED);
	assert_int_equal(take(t, &r, 1, START, 1), SY_LIMIT_ABOVE);
	assert_int_equal(take(t, &r, 1, START + MS, 1), SY_LIMIT_CHARGED);
	sy_limit_table_destroy(t);
}

/* A fast rate that becomes a slow one: what exceeds the new line is forgiven. */
static void test_settle(void **state)
{
	struct sy_limit_rate fast = rate_of(UINT64_C(50000000000), 1000000), slow;
	struct sy_limit_table *t = sy_limit_table_create(16, 1);
	uint64_t now = START + MS;
	(void)state;
	assert_int_equal(sy_limit_rate_change(&slow, &fast, 1000, SECOND, 2000, START, NULL), 0);
	assert_int_equal(take(t, &fast, 1, now, 500000), SY_LIMIT_CHARGED); /* after the change */
	for (unsigned n = 0; n < 50; n++)
		take(t, &fast, 1, now + n * MS, 1000000);
	now += 50 * MS;
	assert_int_equal(take(t, &slow, 1, now + SECOND, 1), SY_LIMIT_ABOVE);
	sy_limit_table_settle(t, sy_limit_volume(&slow, now));
	assert_int_equal(take(t, &slow, 1, now, 1), SY_LIMIT_ABOVE);
	assert_int_equal(take(t, &slow, 1, now + SECOND, 1000), SY_LIMIT_CHARGED);
	assert_int_equal(take(t, &slow, 1, now + SECOND, 1), SY_LIMIT_ABOVE);
	sy_limit_table_destroy(t);
}

static void test_counts(void **state)
{
	struct sy_limit_rate r = rate_of(1000, 1000);
	struct sy_limit_table *t = sy_limit_table_create(64, 1);
	struct sy_limit_client c;
	unsigned found = 0;
	(void)state;
	for (uint64_t key = 1; key <= 3; key++)
		for (unsigned n = 0; n < 20 * key; n++) {
			const struct sy_limit_key k = key_of(key);
			struct sy_limit_entry place;
			bool above = sy_limit_table_charge(t, &r, &k, sy_limit_volume(&r, START),
			                                   100, &place) == SY_LIMIT_ABOVE;
			sy_limit_table_count(t, &place, above, 1, 100);
		}
	for (uint32_t at = 0; at < sy_limit_table_capacity(t); at++) {
		if (!sy_limit_table_read(t, at, &r, sy_limit_volume(&r, START), &c))
			continue;
		found++;
		assert_int_equal(c.key.d[0], 0);
		assert_int_equal(c.passed.packets, 10);
		assert_int_equal(c.passed.bytes, 1000);
		assert_int_equal(c.above.packets, 20 * c.key.d[1] - 10);
		assert_int_equal(c.above.bytes, 100 * c.above.packets);
		assert_false(c.full);
		assert_true(
		        sy_limit_table_read(t, at, &r, sy_limit_volume(&r, START + SECOND), &c));
		assert_true(c.full);
	}
	assert_int_equal(found, 3);
	sy_limit_table_destroy(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_model),  cmocka_unit_test(test_bounded),
	        cmocka_unit_test(test_load),   cmocka_unit_test(test_too_much),
	        cmocka_unit_test(test_settle), cmocka_unit_test(test_counts),
	        cmocka_unit_test(test_races),  cmocka_unit_test(test_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
