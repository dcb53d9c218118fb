// SPDX-License-Identifier: Apache-2.0
/* Rates, guarantees, weights and priorities, in virtual time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "line.h"

static double bits(const struct flow *f, uint64_t ns)
{
	return (double)f->bytes * 8e9 / (double)ns;
}

static void assert_rate(double got, double wanted, double share)
{
	if (fabs(got - wanted) > wanted * share)
		fail_msg("%.6g bit/s in place of %.6g: off by %.3f %%", got, wanted,
		         100 * (got / wanted - 1));
}

/* Starts the line, lets bursts pass, and measures. */
static void measure(struct line *l, uint64_t ns)
{
	line_run(l, ns / 4);
	line_forget(l);
	line_run(l, ns);
}

static void test_port(void **state)
{
	static const uint64_t rates[] = {MBIT, 33333333, GBIT, 10 * GBIT, 100 * GBIT};
	for (unsigned i = 0; i < SY_ARRAY_LEN(rates); i++) {
		struct line l;
		struct sy_shape_config *c = line_config(rates[i]);
		line_open(&l, c);
		l.step_ns = rates[i] > GBIT ? 1000 : 8000000000000 / rates[i];
		/* 12 MB, and at least 2 ms. */
		uint64_t ns = (uint64_t)(12e6 * 8e9 / (double)rates[i]);
		struct flow *f = line_flow(&l, 0, 0, 1514, 0);
		measure(&l, ns > 2 * MS ? ns : 2 * MS);
		assert_rate(bits(f, ns > 2 * MS ? ns : 2 * MS), (double)rates[i], 0.002);
		line_close(&l);
	}
}

static void test_layer(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(GBIT);
	c->header = 24;
	c->min = 84;
	line_open(&l, c);
	struct flow *f = line_flow(&l, 0, 0, 60, 0);
	measure(&l, 20 * MS);
	assert_rate(bits(f, 20 * MS), 1e9 * 60 / 84, 0.002);
	line_close(&l);
}

/* Rates and bursts at their bounds. */
static void test_bounds(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(SY_SHAPE_RATE_MIN);
	c->burst = 100000000000;
	const unsigned s = line_service(c, line_tenant(c, "t", 0, SY_SHAPE_RATE_MAX, 1), "s",
	                                SY_SHAPE_RATE_MAX, SY_SHAPE_RATE_MAX, 1);
	line_open(&l, c);
	struct flow *f = line_flow(&l, s, 0, 1514, 0);
	line_run(&l, MS / 10);
	assert_true(f->sent > 1000);
	line_close(&l);
}

/* Each level respects its maximum; the rest is for others. */
static void test_maximum(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(GBIT);
	const unsigned acme = line_tenant(c, "acme", 0, 400 * MBIT, 1);
	const unsigned web = line_service(c, acme, "web", 0, 100 * MBIT, 1);
	const unsigned dns = line_service(c, acme, "dns", 0, 0, 1);
	const unsigned bulk = line_class(c, "bulk", 7, 1, 8);
	c->class[bulk].maximum = 30 * MBIT;
	line_open(&l, c);
	struct flow *of_web = line_flow(&l, web, 0, 1514, 0);
	struct flow *of_bulk = line_flow(&l, web, 8, 1514, 0);
	struct flow *of_dns = line_flow(&l, dns, 0, 512, 0);
	struct flow *other = line_flow(&l, 0, 0, 1514, 0);
	measure(&l, 400 * MS);
	assert_rate(bits(of_bulk, 400 * MS), 30e6, 0.01);
	assert_rate(bits(of_web, 400 * MS), 70e6, 0.01);
	assert_rate(bits(of_dns, 400 * MS), 300e6, 0.01);
	assert_rate(bits(other, 400 * MS), 600e6, 0.01);
	line_close(&l);
}

/* Guaranteed rates are had under any overload; what is left goes by weights. */
static void test_guaranteed(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(GBIT);
	const unsigned gold = line_tenant(c, "gold", 300 * MBIT, 0, 1);
	const unsigned a = line_service(c, gold, "a", 200 * MBIT, 0, 1);
	const unsigned b = line_service(c, gold, "b", 0, 0, 1);
	line_service(c, gold, "", 0, 0, 1);
	struct flow *flow[12];
	unsigned services[12] = {a, b};
	for (unsigned i = 0; i < 10; i++) {
		char name[] = {'t', (char)('0' + i), 0};
		services[2 + i] =
		        line_service(c, line_tenant(c, name, 0, 0, i == 0 ? 4 : 1), "", 0, 0, 1);
	}
	line_open(&l, c);
	for (unsigned i = 0; i < 12; i++)
		flow[i] = line_flow(&l, services[i], 0, i % 2 ? 1514 : 300, 0);
	measure(&l, 400 * MS);
	/* 700 Mbit/s are left, for weights 1 (gold), 4, and 9 times 1: 50 Mbit/s each. */
	assert_rate(bits(flow[0], 400 * MS) + bits(flow[1], 400 * MS), 350e6, 0.01);
	assert_true(bits(flow[0], 400 * MS) > 0.99 * 200e6);
	assert_rate(bits(flow[2], 400 * MS), 200e6, 0.02);
	for (unsigned i = 3; i < 12; i++)
		assert_rate(bits(flow[i], 400 * MS), 50e6, 0.02);
	line_close(&l);
}

/* An idle guarantee is for others, and comes back at once. */
static void test_lent(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(100 * MBIT);
	const unsigned a = line_service(c, line_tenant(c, "a", 80 * MBIT, 0, 1), "a", 0, 0, 1);
	line_open(&l, c);
	struct flow *other = line_flow(&l, 0, 0, 1514, 0);
	measure(&l, 100 * MS);
	assert_rate(bits(other, 100 * MS), 100e6, 0.01);
	struct flow *late = line_flow(&l, a, 0, 1514, 0);
	line_forget(&l);
	line_run(&l, 100 * MS);
	assert_rate(bits(late, 100 * MS), 90e6, 0.02);
	assert_rate(bits(other, 100 * MS), 10e6, 0.1);
	line_close(&l);
}

static void test_weights(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(GBIT);
	const unsigned two = line_class(c, "two", 7, 2, 2), five = line_class(c, "five", 7, 5, 5);
	assert_int_equal(two + five, 3);
	line_open(&l, c);
	struct flow *one = line_flow(&l, 0, 0, 1514, 0), *second = line_flow(&l, 0, 2, 200, 0),
	            *fifth = line_flow(&l, 0, 5, 900, 0);
	measure(&l, 100 * MS);
	assert_rate(bits(one, 100 * MS), 1e9 / 8, 0.01);
	assert_rate(bits(second, 100 * MS), 2e9 / 8, 0.01);
	assert_rate(bits(fifth, 100 * MS), 5e9 / 8, 0.01);
	line_close(&l);
}

/* The high class waits for the frame under way, whatever floods; in all services and tenants. */
static void test_priority(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(100 * MBIT);
	line_class(c, "voice", 0, 1, 46);
	line_class(c, "video", 1, 1, 34);
	const unsigned web = line_service(c, line_tenant(c, "acme", 0, 0, 1), "web", 0, 0, 1);
	line_open(&l, c);
	struct flow *voice = line_flow(&l, web, 46, 214, 1 * MS);
	for (unsigned service = 0; service <= web; service++) {
		line_flow(&l, service, 0, 1514, 0);
		line_flow(&l, service, 34, 1514, 0);
	}
	measure(&l, 1000 * MS);
	assert_int_equal(voice->sent, 1000);
	assert_true(voice->max_delay_ns <= 1514 * 80 + l.step_ns);
	/* The lowest class gets nothing. */
	assert_int_equal(l.flow[1].sent, 0);
	assert_int_equal(l.flow[3].sent, 0);
	line_close(&l);
}

/* A high class waits for the frame being sent, even beside guaranteed rates of others, which they
 * get nevertheless. */
static void test_priority_and_guarantee(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(100 * MBIT);
	line_class(c, "voice", 0, 1, 46);
	const unsigned web = line_service(c, line_tenant(c, "acme", 0, 0, 1), "web", 0, 0, 1);
	const unsigned dns =
	        line_service(c, line_tenant(c, "gold", 60 * MBIT, 0, 1), "dns", 0, 0, 1);
	line_open(&l, c);
	struct flow *voice = line_flow(&l, web, 46, 1514, 1 * MS);
	struct flow *bulk = line_flow(&l, dns, 0, 1514, 0);
	line_flow(&l, web, 0, 1514, 0);
	measure(&l, 1000 * MS);
	assert_true(bits(bulk, 1000 * MS) > 0.99 * 60e6);
	assert_int_equal(voice->sent, 1000);
	assert_true(voice->max_delay_ns <= 1514 * 80 + l.step_ns);
	line_close(&l);
}

/* A guaranteed rate holds beside a flood of a higher class. */
static void test_guaranteed_beside_flood(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(100 * MBIT);
	line_class(c, "voice", 0, 1, 46);
	const unsigned dns =
	        line_service(c, line_tenant(c, "gold", 30 * MBIT, 0, 1), "dns", 0, 0, 1);
	line_open(&l, c);
	struct flow *voice = line_flow(&l, 0, 46, 1514, 0), *bulk = line_flow(&l, dns, 0, 1514, 0);
	measure(&l, 1000 * MS);
	assert_rate(bits(bulk, 1000 * MS), 30e6, 0.01);
	assert_rate(bits(voice, 1000 * MS), 70e6, 0.01);
	line_close(&l);
}

/* A service whose high class sends now and then keeps its round for the others. */
static void test_turn_is_kept(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(100 * MBIT);
	line_class(c, "voice", 0, 1, 46);
	for (unsigned i = 0; i < 10; i++) {
		char name[] = {'s', (char)('0' + i), 0};
		line_service(c, 0, name, 0, 0, 1);
	}
	line_open(&l, c);
	struct flow *flow[10];
	for (unsigned i = 0; i < 10; i++)
		flow[i] = line_flow(&l, 1 + i, 0, 1514, 0);
	struct flow *voice = line_flow(&l, 1, 46, 114, MS / 2);
	measure(&l, 1000 * MS);
	const double left = 100e6 - bits(voice, 1000 * MS);
	for (unsigned i = 0; i < 10; i++)
		assert_rate(bits(flow[i], 1000 * MS), left / 10, 0.02);
	line_close(&l);
}

/* sy_shape_next() is neither late, nor so early that an owner would poll. */
static void test_next(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(10 * MBIT);
	const unsigned slow = line_service(c, 0, "slow", 0, MBIT, 1);
	line_open(&l, c);
	assert_true(sy_shape_next(l.shape) == SY_SHAPE_NEVER);
	struct flow *f = line_flow(&l, slow, 0, 1514, 0);
	unsigned wakes = 0;
	for (unsigned i = 0; i < 60; i++)
		line_put(&l, f);
	const uint64_t begin = l.now_ns;
	for (; sy_shape_waiting(l.shape) > 0; wakes++) {
		line_receive(&l);
		uint64_t next = sy_shape_next(l.shape);
		if (next != SY_SHAPE_NEVER) {
			assert_true(next > l.now_ns);
			l.now_ns = next;
		}
	}
	/* The burst, then one frame each 12.1 ms. */
	assert_in_range(wakes, 55, 62);
	assert_rate((double)(f->bytes - 4096) * 8e9 / (double)(l.now_ns - begin), 1e6, 0.03);
	line_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_port),
	        cmocka_unit_test(test_layer),
	        cmocka_unit_test(test_bounds),
	        cmocka_unit_test(test_maximum),
	        cmocka_unit_test(test_guaranteed),
	        cmocka_unit_test(test_lent),
	        cmocka_unit_test(test_weights),
	        cmocka_unit_test(test_priority),
	        cmocka_unit_test(test_priority_and_guarantee),
	        cmocka_unit_test(test_guaranteed_beside_flood),
	        cmocka_unit_test(test_turn_is_kept),
	        cmocka_unit_test(test_next),
	};
	return cmocka_run_group_tests(tests, line_setup, NULL);
}
