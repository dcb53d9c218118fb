// SPDX-License-Identifier: Apache-2.0
/* Sequence number marks of a connection advance with it: a stale mark would lie ahead after 2^31
 * bytes. Then a short segment would wait (Nagle), losses without SACK would not be recovered, ECN
 * marks would be ignored, and the window would stay. */
#include "duo.h"

#define SEGMENTS 100

static const struct sy_stack_options none;

static void test_full_segments(void **state)
{
	const struct connection *a, *b;
	uint32_t first;

	duo_begin(none, none, true);
	a = duo_sender();
	b = connection_of(duo.b, duo.to);
	first = a->snd_una;
	/* Neither a short segment nor a loss, nor another window of the sender's. */
	for (unsigned i = 0; i < SEGMENTS; i++) {
		duo_write(2u * a->mss, 0);
		duo_settle();
		assert_int_equal(duo_read(), 2u * a->mss);
		assert_int_equal(a->snd_una, a->snd_nxt);
		assert_int_equal(a->small_end, a->snd_una);
		assert_int_equal(a->recover, a->snd_una);
		assert_int_equal(b->snd_wl1, a->snd_nxt - a->mss);
	}
	assert_int_equal(a->snd_una - first, 2u * SEGMENTS * a->mss);
	duo_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_full_segments)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
