// SPDX-License-Identifier: Apache-2.0
/* Every timer fires when due, exactly once, whatever is set meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "random.h"
#include "wheel.h"

#define START UINT64_C(123456789)

/* The owner of timers: has the deadlines, and re-arms early ones. 0: not set. */
struct owner {
	struct wheel wheel;
	struct wheel_link *links;
	uint64_t *due;
	uint8_t *early; /* number of early expiries */
	uint32_t count;
};

static void owner_init(struct owner *o, uint32_t count, uint64_t now)
{
	o->links = calloc(count, sizeof(*o->links));
	o->due = calloc(count, sizeof(*o->due));
	o->early = calloc(count, sizeof(*o->early));
	o->count = count;
	assert_true(o->links && o->due && o->early);
	wheel_init(&o->wheel, o->links, now);
}

static void owner_free(struct owner *o)
{
	free(o->links);
	free(o->due);
	free(o->early);
}

static void owner_set(struct owner *o, uint32_t index, uint64_t due)
{
	wheel_set(&o->wheel, index, due);
	o->due[index] = due > o->wheel.now ? due : o->wheel.now + 1;
	o->early[index] = 0;
}

static void owner_clear(struct owner *o, uint32_t index)
{
	wheel_clear(&o->wheel, index);
	o->due[index] = 0;
}

/* Takes what wheel_peek() announced. */
static uint32_t peeked_take(struct wheel *w, uint64_t now)
{
	uint32_t peeked = WHEEL_NONE, index;
	unsigned count = wheel_peek(w, now, &peeked, 1);

	index = wheel_take(w, now);
	assert_int_equal(count, index != WHEEL_NONE);
	assert_int_equal(index, peeked);
	return index;
}

/* The next one that is due. */
static uint32_t owner_take(struct owner *o, uint64_t now)
{
	uint32_t index;
	while ((index = peeked_take(&o->wheel, now)) != WHEEL_NONE) {
		assert_true(index < o->count && o->due[index] != 0);
		assert_false(wheel_is_set(&o->wheel, index));
		if (o->due[index] <= now)
			break;
		assert_true(++o->early[index] < 4);
		wheel_set(&o->wheel, index, o->due[index]);
	}
	return index;
}

static void test_exact(void **state)
{
	static const uint64_t after[] = {0,        1,        2,       254,   255,     256,
	                                 257,      511,      512,     513,   65535,   65536,
	                                 65537,    131072,   70000,   99999, 1 << 20, 16777215,
	                                 16777216, 16777217, 33554432};
	(void)state;
	for (uint64_t start = START; start < START + 1024; start += 51) {
		for (unsigned n = 0; n < sizeof(after) / sizeof(*after); n++) {
			struct owner o;
			owner_init(&o, 1, start);
			owner_set(&o, 0, start + after[n]);
			uint64_t due = start + (after[n] ? after[n] : 1), now = start;
			uint32_t taken = WHEEL_NONE;
			/* from each time that the wheel names to the next one */
			while (taken == WHEEL_NONE) {
				assert_true(wheel_next(&o.wheel) > now);
				now = wheel_next(&o.wheel);
				assert_true(now <= due);
				taken = owner_take(&o, now);
			}
			assert_int_equal(now, due);
			assert_int_equal(wheel_next(&o.wheel), WHEEL_NEVER);
			owner_free(&o);
		}
	}
}

/* Timers beyond the last slot fire when that slot begins, and are re-armed. */
static void test_beyond_the_last_slot(void **state)
{
	struct wheel_link links[1] = {{0}};
	struct wheel w;
	(void)state;
	wheel_init(&w, links, START);
	wheel_set(&w, 0, UINT64_MAX);
	uint64_t at = wheel_next(&w);
	assert_true(at > START + (UINT64_C(254) << 24) && at <= START + (UINT64_C(255) << 24) + 1);
	assert_int_equal(wheel_take(&w, at - 1), WHEEL_NONE);
	assert_int_equal(wheel_take(&w, at), 0);
	wheel_set(&w, 0, at + 5);
	assert_int_equal(wheel_take(&w, at + 4), WHEEL_NONE);
	assert_int_equal(wheel_take(&w, at + 5), 0);
}

static void test_ends(void **state)
{
	struct wheel_link links[2] = {{0}};
	struct wheel w;
	(void)state;
	wheel_init(&w, links, START);
	wheel_set(&w, 0, START + 3);
	wheel_set(&w, 1, START + 3);
	for (unsigned n = 0; n < 2; n++) { /* re-armed for the same, past time */
		uint32_t index = wheel_take(&w, START + 3);
		assert_int_equal(index, n);
		wheel_set(&w, index, START + 3);
	}
	assert_int_equal(wheel_take(&w, START + 3), WHEEL_NONE);
	assert_int_equal(wheel_take(&w, START + 4), 0);
	wheel_clear(&w, 1);
	wheel_clear(&w, 1);
	assert_int_equal(wheel_take(&w, START + 99), WHEEL_NONE);
	assert_int_equal(wheel_next(&w), WHEEL_NEVER);
	/* after days without a timer: as exact as ever */
	assert_int_equal(wheel_take(&w, START + 500000000), WHEEL_NONE);
	wheel_set(&w, 1, START + 500000200);
	assert_int_equal(wheel_next(&w), START + 500000200);
}

/* It names what comes, in its order and no more than there is, and changes nothing. */
static void test_peek(void **state)
{
	struct wheel_link links[5] = {{0}};
	uint32_t peeked[8];
	struct wheel w;
	(void)state;
	wheel_init(&w, links, START);
	assert_int_equal(wheel_peek(&w, START + 9, peeked, 8), 0);
	for (uint32_t n = 0; n < 5; n++)
		wheel_set(&w, 4 - n, START + 3 + n / 4);
	assert_int_equal(wheel_peek(&w, START + 2, peeked, 8), 0);
	assert_int_equal(wheel_peek(&w, START + 3, peeked, 2), 2);
	assert_int_equal(wheel_peek(&w, START + 4, peeked, 8), 4); /* of one slot */
	for (uint32_t n = 0; n < 4; n++) {
		assert_int_equal(peeked[n], 4 - n);
		assert_int_equal(wheel_take(&w, START + 4), 4 - n);
	}
	assert_int_equal(wheel_peek(&w, START + 4, peeked, 8), 1);
	assert_int_equal(wheel_take(&w, START + 4), peeked[0]);
	assert_int_equal(wheel_peek(&w, START + 4, peeked, 8), 0);
}

static uint64_t random_after(void)
{
	return random_below(1u << random_below(27));
}

/* All that are due, and no other, in each step. */
static void check_taken(struct owner *o, uint64_t now)
{
	uint32_t due = 0, taken = 0, index, set = 0;
	uint64_t next = wheel_next(&o->wheel);
	for (uint32_t n = 0; n < o->count; n++) {
		due += o->due[n] && o->due[n] <= now;
		assert_true(o->due[n] == 0 || o->due[n] >= next);
	}
	while ((index = owner_take(o, now)) != WHEEL_NONE) {
		taken++;
		o->due[index] = 0;
		if (random_below(3) == 0) { /* re-arms itself or another one */
			uint32_t other = random_below(2) ? index : random_below(o->count);
			due -= o->due[other] && o->due[other] <= now;
			owner_set(o, other, now + random_after());
		}
	}
	assert_int_equal(taken, due);
	for (uint32_t n = 0; n < o->count; n++) {
		assert_int_equal(wheel_is_set(&o->wheel, n), o->due[n] != 0);
		set += o->due[n] != 0;
	}
	assert_int_equal(o->wheel.count, set);
}

static void test_random(void **state)
{
	struct owner o;
	uint64_t now = START;
	(void)state;
	owner_init(&o, 100, now);
	for (unsigned step = 0; step < 100000; step++) {
		for (unsigned n = random_below(4); n > 0; n--)
			owner_set(&o, random_below(o.count), now + random_after());
		if (random_below(4) == 0)
			owner_clear(&o, random_below(o.count));
		now += random_below(8) ? random_below(20) : random_after() / 16;
		check_taken(&o, now);
	}
	owner_free(&o);
}

/* Four millions, moved and cleared, through 100 s. */
static void test_millions(void **state)
{
	const uint32_t count = 4000000;
	struct owner o;
	uint32_t taken = 0, cleared = 0, index;
	(void)state;
	owner_init(&o, count, START);
	for (uint32_t n = 0; n < count; n++)
		owner_set(&o, n, START + 1 + random_below(100000));
	for (uint32_t n = 0; n < count; n += 3)
		owner_set(&o, n, START + 1 + random_below(100000));
	for (uint32_t n = 1; n < count; n += 4, cleared++)
		owner_clear(&o, n);
	for (uint64_t now = START; now <= START + 100000; now += 7) {
		while ((index = owner_take(&o, now)) != WHEEL_NONE) {
			assert_true(o.due[index] > now - 7 || now == START);
			o.due[index] = 0;
			taken++;
		}
	}
	assert_int_equal(taken + o.wheel.count, count - cleared);
	while (owner_take(&o, START + 100000) != WHEEL_NONE)
		taken++;
	assert_int_equal(o.wheel.count, 0);
	owner_free(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_exact),  cmocka_unit_test(test_beyond_the_last_slot),
	        cmocka_unit_test(test_ends),   cmocka_unit_test(test_peek),
	        cmocka_unit_test(test_random), cmocka_unit_test(test_millions),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
