// SPDX-License-Identifier: Apache-2.0
/* The list of a VIP's port ranges, compared with a search through every range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../base/tests/test_random.h"
#include "ranges.h"

#define MODEL_RANGES 24

struct plain {
	unsigned count;
	struct range range[MODEL_RANGES];
};

static uint32_t plain_find(const struct plain *m, uint16_t port)
{
	const struct range *best = NULL;
	for (unsigned i = 0; i < m->count; i++) {
		const struct range *r = &m->range[i];
		if (r->first <= port && port <= r->last &&
		    (!best || r->last - r->first < best->last - best->first))
			best = r;
	}
	return best ? best->id : RANGE_NONE;
}

/* Whether this range is disjoint from every other, or one contains the other and they differ. */
static bool plain_accepts(const struct plain *m, uint16_t first, uint16_t last)
{
	for (unsigned i = 0; i < m->count; i++) {
		const struct range *r = &m->range[i];
		bool apart = last < r->first || r->last < first;
		bool within = (r->first <= first && last <= r->last) ||
		              (first <= r->first && r->last <= last);
		if ((!apart && !within) || (r->first == first && r->last == last))
			return false;
	}
	return true;
}

static void check_same(const struct plain *m, const struct ranges *r)
{
	assert_int_equal(r->count, m->count);
	for (unsigned i = 0; i < m->count; i++)
		for (int step = -1; step <= 1; step++) {
			uint16_t first = (uint16_t)(m->range[i].first + step),
			         last = (uint16_t)(m->range[i].last + step);
			assert_int_equal(ranges_find(r, first), plain_find(m, first));
			assert_int_equal(ranges_find(r, last), plain_find(m, last));
		}
	for (unsigned i = 0; i < 64; i++) {
		uint16_t port = (uint16_t)random_next();
		assert_int_equal(ranges_find(r, port), plain_find(m, port));
	}
}

static void test_like_plain(void **state)
{
	for (unsigned round = 0; round < 200; round++) {
		struct plain m = {0};
		struct ranges *r = ranges_without(NULL, 0, 0, 0);
		uint16_t mask =
		        (uint16_t)(UINT16_MAX >>
		                   random_next() % 11); /* ports close together or spread out */
		for (unsigned step = 0; step < 100; step++) {
			struct ranges *next = NULL;
			uint16_t first = (uint16_t)random_next() & mask,
			         last = (uint16_t)(first + (random_next() & mask & 0xfff));
			if (m.count > 0 && random_next() % 3 == 0) {
				unsigned i = (unsigned)(random_next() % m.count);
				next = ranges_without(r, m.range[i].first, m.range[i].last,
				                      m.range[i].id);
				m.range[i] = m.range[--m.count];
			} else if (m.count < MODEL_RANGES && last > first &&
			           plain_accepts(&m, first, last)) {
				m.range[m.count++] =
				        (struct range){.first = first, .last = last, .id = step};
				next = ranges_with(r, first, last, step);
			}
			if (!next)
				continue;
			free(r);
			r = next;
			check_same(&m, r);
		}
		free(r);
	}
}

/* Between two steps of a transaction ranges may overlap: one that contains the port is found. */
static void test_overlap(void **state)
{
	struct ranges *r = ranges_without(NULL, 0, 0, 0);
	struct plain m = {0};
	while (m.count < MODEL_RANGES) {
		uint16_t first = (uint16_t)random_next(), last = (uint16_t)(first + 9000);
		if (last < first)
			continue;
		m.range[m.count] = (struct range){.first = first, .last = last, .id = m.count};
		struct ranges *next = ranges_with(r, first, last, m.count++);
		free(r);
		r = next;
	}
	for (unsigned port = 0; port <= UINT16_MAX; port++)
		assert_int_equal(ranges_find(r, (uint16_t)port) == RANGE_NONE,
		                 plain_find(&m, (uint16_t)port) == RANGE_NONE);
	free(r);
}

/* The same ports under another id; the old id is removed later. */
static void test_taken_over(void **state)
{
	struct ranges *one = ranges_with(NULL, 0, UINT16_MAX, 7);
	struct ranges *two = ranges_with(one, 0, UINT16_MAX, 8);
	struct ranges *three = ranges_without(two, 0, UINT16_MAX, 7);
	assert_int_equal(three->count, 1);
	assert_int_equal(ranges_find(three, 0), 8);
	assert_int_equal(ranges_find(three, UINT16_MAX), 8);
	struct ranges *none = ranges_without(three, 0, UINT16_MAX, 8);
	assert_int_equal(none->count, 0);
	assert_int_equal(ranges_find(none, 80), RANGE_NONE);
	free(one);
	free(two);
	free(three);
	free(none);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_like_plain),
	        cmocka_unit_test(test_overlap),
	        cmocka_unit_test(test_taken_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
