// SPDX-License-Identifier: Apache-2.0
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#include "lateness.h"
#include "link_chance.h"
#include "store.h"

#define ROOM 5000u

static void test_pool_slots_are_reused(void **state)
{
	struct pool pool;
	uint32_t taken[4];
	assert_int_equal(pool_open(&pool, 4, 2048), 0);
	for (unsigned i = 0; i < 4; i++) {
		taken[i] = pool_take(&pool);
		assert_int_not_equal(taken[i], STORE_NONE);
		pool_bytes(&pool, taken[i])[2047] = (uint8_t)i;
	}
	assert_int_equal(pool_take(&pool), STORE_NONE);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pool_bytes(&pool, taken[i])[2047], i);
	pool_give(&pool, taken[2]);
	assert_int_equal(pool.used, 3);
	assert_int_equal(pool_take(&pool), taken[2]);
	assert_int_equal(pool_take(&pool), STORE_NONE);
	pool_close(&pool);
}

static void test_queue_is_first_in_first_out(void **state)
{
	struct pool pool;
	struct queue queue;
	assert_int_equal(pool_open(&pool, 8, 64), 0);
	queue_clear(&queue);
	assert_int_equal(queue_take(&queue, &pool), STORE_NONE);
	for (unsigned round = 0; round < 2; round++) {
		uint32_t index[3];
		for (unsigned i = 0; i < 3; i++) {
			index[i] = pool_take(&pool);
			pool.packet[index[i]].length = 10 * (i + 1);
			queue_put(&queue, &pool, index[i]);
		}
		assert_int_equal(queue.packets, 3);
		assert_int_equal(queue.bytes, 60);
		for (unsigned i = 0; i < 3; i++) {
			assert_int_equal(queue_take(&queue, &pool), index[i]);
			pool_give(&pool, index[i]);
		}
		assert_int_equal(queue.packets, 0);
		assert_int_equal(queue.bytes, 0);
	}
	pool_close(&pool);
}

/* Random times, many of them equal: the earliest leaves first, equal ones in order of arrival. */
static void test_heap_returns_the_earliest(void **state)
{
	struct heap heap;
	static uint64_t due[ROOM], count;
	uint64_t last = 0, taken = 0;
	uint32_t last_index = 0;
	assert_int_equal(heap_open(&heap, ROOM), 0);
	assert_true(heap_due(&heap) == UINT64_MAX);
	assert_int_equal(heap_take(&heap), STORE_NONE);
	while (count < ROOM || heap.count) {
		bool put = count < ROOM && chance_hits(0.7, chance_draw(1, 0, count + taken));
		if (put) {
			/* Later entries are never earlier than dequeued ones, as in time. */
			due[count] = last + chance_below(50, chance_draw(1, 1, count));
			heap_put(&heap, due[count], (uint32_t)count);
			count++;
			continue;
		}
		uint64_t first = heap_due(&heap);
		uint32_t index = heap_take(&heap);
		if (index == STORE_NONE)
			continue;
		assert_true(due[index] == first);
		assert_true(first >= last);
		assert_true(first > last || taken == 0 || index > last_index);
		last = first;
		last_index = index;
		taken++;
	}
	assert_int_equal(taken, ROOM);
	heap_close(&heap);
}

static void test_lateness_is_at_most_a_sixteenth_more(void **state)
{
	static struct lateness l;
	for (uint64_t ns = 1; ns <= 1000; ns++)
		lateness_add(&l, ns);
	/* Never less than the sample, and at most a sixteenth more. */
	assert_in_range(lateness_share(&l, 0.5), 500, 500 + 500 / 16);
	assert_in_range(lateness_share(&l, 0.99), 990, 1000);
	assert_int_equal(lateness_share(&l, 1), 1000);
	assert_int_equal(lateness_share(&l, 0), 1);
	lateness_add(&l, UINT64_MAX);
	assert_true(lateness_share(&l, 1) == UINT64_MAX);
	assert_true(l.max == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_pool_slots_are_reused),
	        cmocka_unit_test(test_queue_is_first_in_first_out),
	        cmocka_unit_test(test_heap_returns_the_earliest),
	        cmocka_unit_test(test_lateness_is_at_most_a_sixteenth_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
