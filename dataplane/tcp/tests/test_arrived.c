// SPDX-License-Identifier: Apache-2.0
/* Out-of-order data, and its SACK blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define CHECK(condition) assert_true(condition)
#include "arrived_model.h"
#include "random.h"

/* A receiver as in the RFCs' examples: consumes in-order data and acknowledges. */
struct receiver {
	struct arrived arrived;
	struct pool pool;
	union arrived_cell cells[64];
	uint32_t next;
	struct sack_block blocks[SACK_BLOCKS];
	unsigned count;
};

static void receiver_init(struct receiver *r, uint32_t next)
{
	*r = (struct receiver){.next = next};
	pool_init(&r->pool, r->cells, sizeof(*r->cells), 64);
}

static void receive(struct receiver *r, uint32_t from, uint32_t to)
{
	static char buffer;
	struct arrived_cut cut;
	arrived_add(&r->arrived, &r->pool, r->next, from, to, &buffer);
	while (arrived_take(&r->arrived, &r->pool, r->next, &cut))
		r->next += cut.length;
	r->count = arrived_blocks(&r->arrived, &r->pool, r->blocks, SACK_BLOCKS);
}

/* count, and from, to of each block. */
static void expect(const struct receiver *r, uint32_t next, unsigned count, ...)
{
	va_list blocks;
	assert_int_equal(r->next, next);
	assert_int_equal(r->count, count);
	va_start(blocks, count);
	for (unsigned n = 0; n < count; n++) {
		assert_int_equal(r->blocks[n].from, va_arg(blocks, int));
		assert_int_equal(r->blocks[n].to, va_arg(blocks, int));
	}
	va_end(blocks);
}

/* RFC 2018 5 case 1: the end of a window is lost: no SACK block. */
static void test_nothing_out_of_order(void **state)
{
	struct receiver r;
	(void)state;
	receiver_init(&r, 5000);
	for (uint32_t from = 5000; from < 7000; from += 500)
		receive(&r, from, from + 500);
	expect(&r, 7000, 0);
	assert_int_equal(r.pool.taken, 0);
}

/* RFC 2018, 5, case 2: the first of eight is lost. One block grows. */
static void test_first_lost(void **state)
{
	struct receiver r;
	(void)state;
	receiver_init(&r, 5000);
	for (int from = 5500; from < 9000; from += 500) {
		receive(&r, (uint32_t)from, (uint32_t)from + 500);
		expect(&r, 5000, 1, 5500, from + 500);
	}
	receive(&r, 5000, 5500);
	expect(&r, 9000, 0);
	assert_int_equal(r.pool.taken, 0);
}

/* RFC 2018, 5, case 3: each second one is lost; then the 4th comes, and the 2nd. */
static void test_every_second_lost(void **state)
{
	struct receiver r;
	(void)state;
	receiver_init(&r, 5000);
	receive(&r, 5000, 5500);
	expect(&r, 5500, 0);
	receive(&r, 6000, 6500);
	expect(&r, 5500, 1, 6000, 6500);
	receive(&r, 7000, 7500);
	expect(&r, 5500, 2, 7000, 7500, 6000, 6500);
	receive(&r, 8000, 8500);
	expect(&r, 5500, 3, 8000, 8500, 7000, 7500, 6000, 6500);
	receive(&r, 6500, 7000);
	expect(&r, 5500, 2, 6000, 7500, 8000, 8500);
	receive(&r, 5500, 6000);
	expect(&r, 7500, 1, 8000, 8500);
}

/* RFC 2018 4: the block of the segment first, then the most recently reported ones, as many as fit.
 */
static void test_most_recent_first(void **state)
{
	struct receiver r;
	(void)state;
	receiver_init(&r, 0);
	for (uint32_t n = 1; n <= 6; n++)
		receive(&r, 100 * n, 100 * n + 50);
	expect(&r, 0, 4, 600, 650, 500, 550, 400, 450, 300, 350);
	receive(&r, 150, 160);
	expect(&r, 0, 4, 100, 160, 600, 650, 500, 550, 400, 450);
	assert_int_equal(arrived_blocks(&r.arrived, &r.pool, r.blocks, 2), 2);
	assert_int_equal(r.blocks[1].from, 600);
	assert_int_equal(arrived_blocks(&r.arrived, &r.pool, r.blocks, 0), 0);
	r.count = arrived_blocks(&r.arrived, &r.pool, r.blocks, 99);
	expect(&r, 0, 4, 100, 160, 600, 650, 500, 550, 400, 450);
}

/* RFC 2883, 4.1: whole segments twice: before RCV.NXT, with a gap beyond, and in a block. */
static void test_duplicate_segments(void **state)
{
	struct receiver r;
	(void)state;
	receiver_init(&r, 3000);
	receive(&r, 3000, 3500);
	receive(&r, 3500, 4000);
	receive(&r, 3000, 3500); /* 4.1.1 */
	expect(&r, 4000, 1, 3000, 3500);
	r.count = arrived_blocks(&r.arrived, &r.pool, r.blocks, SACK_BLOCKS);
	expect(&r, 4000, 0); /* reported once */
	receive(&r, 4500, 5000);
	receive(&r, 3000, 3500); /* 4.1.2 */
	expect(&r, 4000, 2, 3000, 3500, 4500, 5000);
	receive(&r, 5000, 5500);
	receive(&r, 5000, 5500); /* 4.1.3: then the block that holds it */
	expect(&r, 4000, 2, 5000, 5500, 4500, 5500);
}

/* RFC 2883 4.1.3: the block with the duplicate precedes those reported later. */
static void test_duplicate_then_its_block(void **state)
{
	struct receiver r;
	(void)state;
	receiver_init(&r, 0);
	receive(&r, 100, 200);
	receive(&r, 300, 400);
	receive(&r, 120, 180);
	expect(&r, 0, 3, 120, 180, 100, 200, 300, 400);
}

/* RFC 2883 4.2: parts of segments; of several parts the first is reported. */
static void test_duplicate_parts(void **state)
{
	struct receiver r;
	(void)state;
	receiver_init(&r, 1000); /* 4.2.1 */
	receive(&r, 1000, 1500);
	receive(&r, 2000, 2500);
	receive(&r, 1000, 2000);
	expect(&r, 2500, 1, 1000, 1500);
	receiver_init(&r, 1000); /* 4.2.2: both before the new RCV.NXT */
	receive(&r, 1000, 1500);
	receive(&r, 2000, 2500);
	receive(&r, 1000, 2500);
	expect(&r, 2500, 1, 1000, 1500);
	receiver_init(&r, 1000); /* 4.2.3: both beyond a gap */
	receive(&r, 1500, 2000);
	receive(&r, 2500, 3000);
	receive(&r, 1500, 3000);
	expect(&r, 1000, 2, 1500, 2000, 1500, 3000);
}

/* RFC 9293, 3.10.7.4: what was kept is not replaced by what another segment says of it. */
static void test_first_bytes_win(void **state)
{
	struct receiver r;
	struct arrived_cut cut;
	char a, b;
	(void)state;
	receiver_init(&r, 0);
	assert_int_equal(arrived_add(&r.arrived, &r.pool, 0, 100, 200, &a).kept, 1);
	struct arrived_news outcome = arrived_add(&r.arrived, &r.pool, 0, 0, 300, &b);
	assert_int_equal(outcome.kept, 2); /* before and after */
	assert_true(outcome.duplicate);
	assert_ptr_equal(arrived_take(&r.arrived, &r.pool, 0, &cut), &b);
	assert_int_equal(cut.skip, 0);
	assert_int_equal(cut.length, 100);
	assert_ptr_equal(arrived_take(&r.arrived, &r.pool, 100, &cut), &a);
	assert_int_equal(cut.skip, 0);
	assert_int_equal(cut.length, 100);
	assert_ptr_equal(arrived_take(&r.arrived, &r.pool, 200, &cut), &b);
	assert_int_equal(cut.skip, 200);
	assert_int_equal(cut.length, 100);
	assert_null(arrived_take(&r.arrived, &r.pool, 300, &cut));
	assert_int_equal(r.pool.taken, 0);
}

/* However a peer scatters its bytes, what is kept is bounded, and holes can still be filled. */
static void test_bounded(void **state)
{
	static union arrived_cell cells[2 * ARRIVED_BLOCKS + 100];
	struct arrived a = {0};
	struct pool p;
	char buffer;
	uint32_t kept = 0, next = 0;
	struct arrived_cut cut;
	(void)state;
	pool_init(&p, cells, sizeof(*cells), 2 * ARRIVED_BLOCKS + 100);
	for (uint32_t n = 1; n < 1000; n++) {
		struct arrived_news outcome = arrived_add(&a, &p, 0, 2 * n, 2 * n + 1, &buffer);
		assert_int_equal(outcome.kept + outcome.refused, 1);
		kept += outcome.kept;
	}
	assert_int_equal(kept, ARRIVED_BLOCKS);
	for (uint32_t n = 0; n + 1 < ARRIVED_BLOCKS; n++) { /* no block more, though some bytes */
		assert_int_equal(arrived_add(&a, &p, next, 2 * n, 2 * n + 2, &buffer).kept, 1);
		while (arrived_take(&a, &p, next, &cut))
			next += cut.length;
	}
	assert_int_equal(a.blocks, 1); /* the last one */
	assert_non_null(arrived_drop(&a, &p));
	assert_null(arrived_drop(&a, &p));
	assert_int_equal(p.taken, 0);
}

static void test_random(void **state)
{
	static struct model m;
	uint32_t refused = 0, max = 0;
	(void)state;
	model_init(&m, UINT32_MAX - 100000);
	for (unsigned step = 0; step < 300000; step++) {
		unsigned what = random_below(100), span = step / 1000 % 2 ? 30 : 300;
		if (what < 60) {
			int from = (int)random_below(MODEL_BYTES + 40) - 40;
			int to = from + 1 + (int)random_below(random_below(8) ? 8 : span);
			model_add(&m, from, to < MODEL_BYTES ? to : MODEL_BYTES);
		} else if (what < 85) {
			model_tell(&m, random_below(5));
		} else if (what < 98) {
			model_take(&m);
		} else if (what == 98) {
			model_advance(&m, random_below(span));
		} else {
			for (uint32_t n = random_below(80); n > 0; n--)
				model_drop(&m);
		}
		CHECK(model_agrees(&m));
		refused += m.pool.taken + 2 >= MODEL_CELLS;
		max = m.arrived.blocks > max ? m.arrived.blocks : max;
	}
	assert_true(refused > 1000 && max > 30);
	while (m.arrived.pieces)
		model_drop(&m);
	CHECK(model_agrees(&m));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_nothing_out_of_order),
	        cmocka_unit_test(test_first_lost),
	        cmocka_unit_test(test_every_second_lost),
	        cmocka_unit_test(test_most_recent_first),
	        cmocka_unit_test(test_duplicate_segments),
	        cmocka_unit_test(test_duplicate_then_its_block),
	        cmocka_unit_test(test_duplicate_parts),
	        cmocka_unit_test(test_first_bytes_win),
	        cmocka_unit_test(test_bounded),
	        cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
