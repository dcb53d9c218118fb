// SPDX-License-Identifier: Apache-2.0
/* Frames cut into random pieces come out whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../control_frame.h"

#define MAX 100000

static uint32_t seed = 7;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

static size_t frame_put(uint8_t *out, size_t len)
{
	for (int i = 0; i < 4; i++)
		out[i] = (uint8_t)(len >> (24 - 8 * i));
	for (size_t i = 0; i < len; i++)
		out[4 + i] = (uint8_t)draw(256);
	return 4 + len;
}

static void test_pieces(void **state)
{
	struct frame_reader r = {0};
	uint8_t *frame = malloc(MAX + 4), *where;
	for (unsigned round = 0; round < 300; round++) {
		size_t sizes[] = {0, 1, draw(50), draw(20000), draw(MAX + 1), MAX};
		size_t len = sizes[draw(6)], total = frame_put(frame, len), at = 0;
		enum frame_state s = FRAME_MORE;
		assert_false(frame_is_cut(&r));
		while (s == FRAME_MORE) {
			size_t want = frame_want(&r, &where);
			assert_true(want > 0 && want <= total - at);
			size_t n = 1 + draw(draw(2) ? 7 : (uint32_t)want);
			n = n < want ? n : want;
			memcpy(where, frame + at, n);
			at += n;
			s = frame_add(&r, n, MAX);
			assert_true(frame_is_cut(&r));
		}
		assert_int_equal(s, FRAME_WHOLE);
		assert_int_equal(at, total);
		assert_int_equal(r.len, len);
		if (len)
			assert_memory_equal(r.body, frame + 4, len);
		frame_next(&r);
	}
	frame_free(&r);
	free(frame);
}

static void test_too_large(void **state)
{
	struct frame_reader r = {0};
	uint8_t head[4] = {0, 1, 0x86, 0xa1}, *where; /* MAX + 1 */
	assert_int_equal(frame_want(&r, &where), 4);
	memcpy(where, head, 4);
	assert_int_equal(frame_add(&r, 4, MAX), FRAME_TOO_LARGE);
	assert_null(r.body); /* no memory was allocated for it */
	frame_free(&r);
}

/* An announced length alone allocates no memory. */
static void test_promise(void **state)
{
	struct frame_reader r = {0};
	uint8_t head[4] = {0xff, 0xff, 0xff, 0xff}, *where;
	frame_want(&r, &where);
	memcpy(where, head, 4);
	assert_int_equal(frame_add(&r, 4, UINT32_MAX), FRAME_MORE);
	assert_true(r.capacity <= 65536);
	frame_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_pieces),
	        cmocka_unit_test(test_too_large),
	        cmocka_unit_test(test_promise),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
