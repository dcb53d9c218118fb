// SPDX-License-Identifier: Apache-2.0
/* CUBIC in integers against RFC 9438's equations in floating point. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "congestion.h"
#include "random.h"

#define MSS 1000

/* ---- the cube root --------------------------------------------------------------------------- */

static void test_root(void **state)
{
	(void)state;
	for (uint64_t n = 0; n <= 2642245; n++) { /* the last one whose cube has 64 bits */
		assert_int_equal(cubic_root(n * n * n), n);
		if (n > 0)
			assert_int_equal(cubic_root(n * n * n - 1), n - 1);
	}
	assert_int_equal(cubic_root(UINT64_MAX), 2642245);
}

/* ---- a sender, and the same in floating point ------------------------------------------------ */

struct model {
	double window, ssthresh, max, k, prior, estimate, epoch; /* segments, seconds */
	bool avoiding, timed_out;
};

struct sender {
	struct congestion c;
	struct rtt rtt;
	struct model m;
	uint32_t una;
	uint64_t now_ms;
	uint32_t rtt_ms;
};

/* After a first loss at a window of so many segments. */
static struct sender sender_of(uint32_t segments, uint32_t rtt_ms)
{
	struct sender o = {.una = 5, .now_ms = 4294960000u, .rtt_ms = rtt_ms};
	rtt_init(&o.rtt);
	rtt_sample(&o.rtt, rtt_ms * 1000, 1, o.now_ms);
	congestion_init(&o.c, &congestion_cubic, MSS, o.una, o.now_ms);
	o.c.window = segments * MSS;
	o.m = (struct model){.window = segments, .ssthresh = INFINITY};
	return o;
}

static void model_reduce(struct model *m)
{
	m->max = m->window < m->max ? m->window * (1 + 0.7) / 2 : m->window; /* 4.7 */
	m->prior = m->window;
	m->ssthresh = fmax(m->window * 0.7, 2); /* 4.6 */
	m->window = m->ssthresh;
	m->avoiding = false;
}

static void sender_reduce(struct sender *o)
{
	congestion_reduce(&o->c, o->c.window, o->now_ms);
	congestion_recovered(&o->c, o->now_ms);
	model_reduce(&o->m);
}

static void sender_time_out(struct sender *o)
{
	congestion_timed_out(&o->c, o->c.window, false, o->now_ms);
	model_reduce(&o->m);
	o->m.window = 1;
	o->m.timed_out = true;
}

static double cubic_at(const struct model *m, double t)
{
	return 0.4 * pow(t - m->k, 3) + m->max;
}

/* Segments acknowledged; in congestion avoidance as 4.2 to 4.5 say. */
static void model_acked(struct model *m, double segments, double now, double rtt)
{
	if (m->window < m->ssthresh) {
		double more = fmin(segments, m->timed_out ? 1 : 2);
		double space = m->ssthresh - m->window;
		segments = more > space ? more - space : 0;
		m->window = fmin(m->window + more, m->ssthresh);
		if (segments == 0)
			return;
	}
	if (!m->avoiding) {
		m->avoiding = true;
		m->epoch = now;
		m->estimate = m->window;
		if (m->timed_out || m->max < m->window)
			m->max = m->window; /* 4.8, 4.10 */
		m->k = cbrt((m->max - m->window) / 0.4);
		m->timed_out = false;
	}
	double t = now - m->epoch, alpha = m->estimate >= m->prior ? 1 : 3 * 0.3 / 1.7;
	m->estimate += alpha * segments / m->window;
	if (cubic_at(m, t) < m->estimate) {
		m->window = fmax(m->window, m->estimate);
		return;
	}
	double target = fmin(fmax(cubic_at(m, t + rtt), m->window), 1.5 * m->window);
	m->window += (target - m->window) / m->window * segments;
}

/* The window is full, and so much of it is acknowledged. */
static void sender_acked(struct sender *o, uint32_t bytes)
{
	congestion_sent(&o->c, o->c.window);
	o->una += bytes;
	struct congestion_ack in = {.bytes = bytes,
	                            .una = o->una,
	                            .nxt = o->una + o->c.window - bytes,
	                            .now_ms = o->now_ms};
	congestion_acked(&o->c, &in, &o->rtt);
	model_acked(&o->m, bytes / (double)MSS, o->now_ms / 1000.0,
	            rtt_smoothed_us(&o->rtt) / 1000 / 1000.0);
}

/* A round trip, in 10 ACKs. */
static void sender_round(struct sender *o)
{
	uint32_t window = o->c.window;
	for (unsigned n = 0; n < 10; n++, o->now_ms += o->rtt_ms / 10)
		sender_acked(o, window / 10);
}

static void assert_like_model(const struct sender *o)
{
	double window = o->c.window / (double)MSS;
	if (fabs(window - o->m.window) > 0.02 * o->m.window + 1)
		fail_msg("the window is %f instead of %f segments", window, o->m.window);
}

/* ---- RFC 9438 -------------------------------------------------------------------------------- */

static void test_curve(void **state) /* 4.2: K = cbrt(100 * 0.3 / 0.4) = 4.217 s */
{
	struct sender o = sender_of(100, 100);
	(void)state;
	sender_reduce(&o);
	assert_int_equal(o.c.window, 70 * MSS);
	sender_round(&o);
	assert_in_range(o.c.cubic.inflection_ms, 4216, 4218);
	assert_int_equal(o.c.cubic.w_max, 100 * MSS);
	while (o.now_ms < o.c.cubic.epoch_ms + (UINT64_C(1) << 32) * (o.now_ms >> 32) + 4200)
		sender_round(&o);
	/* flat, where the loss was: concave before, convex after */
	assert_in_range(o.c.window, 99 * MSS, 101 * MSS);
	uint32_t there = o.c.window;
	for (unsigned n = 0; n < 10; n++)
		sender_round(&o);
	assert_in_range(o.c.window, there, there + 2 * MSS);
	for (unsigned n = 0; n < 30; n++)
		sender_round(&o);
	assert_in_range(o.c.window, there + 20 * MSS, there + 40 * MSS); /* 0.4 * 4^3 = 25.6 */
	assert_like_model(&o);
}

static void test_reduction(void **state) /* 4.6: beta is 0.7; at least 2 segments */
{
	struct sender o = sender_of(100, 100);
	(void)state;
	congestion_reduce(&o.c, 50 * MSS, o.now_ms); /* of what is under way */
	assert_int_equal(o.c.ssthresh, 35 * MSS);
	congestion_reduce(&o.c, 2 * MSS, o.now_ms);
	assert_int_equal(o.c.ssthresh, 2 * MSS);
}

static void test_fast_convergence(void **state) /* 4.7 */
{
	struct sender o = sender_of(100, 100);
	(void)state;
	sender_reduce(&o);
	assert_int_equal(o.c.cubic.w_max, 100 * MSS);
	sender_reduce(&o); /* at 70, less than 100 */
	assert_int_equal(o.c.cubic.w_max, 70 * MSS * 17 / 20);
	o = sender_of(100, 100);
	sender_reduce(&o);
	while (o.c.window <= 101 * MSS)
		sender_round(&o);
	uint32_t window = o.c.window;
	sender_reduce(&o);
	assert_int_equal(o.c.cubic.w_max, window);
}

static void test_reno_friendly(void **state) /* 4.3: 9/17 in a round trip, then 1 */
{
	struct sender o = sender_of(20, 10);
	(void)state;
	sender_reduce(&o); /* 14 */
	for (unsigned n = 0; n < 10; n++)
		sender_round(&o);
	assert_in_range(o.c.window, 19 * MSS - 300, 19 * MSS + 300); /* 14 + 10 * 9/17 = 19.3 */
	for (unsigned n = 0; n < 3; n++)
		sender_round(&o);
	uint32_t window = o.c.window;
	for (unsigned n = 0; n < 5; n++)
		sender_round(&o);
	assert_in_range(o.c.window, window + 4700, window + 5100);
	assert_like_model(&o);
}

static void test_time_out(void **state) /* 4.8: the curve begins at its inflection */
{
	struct sender o = sender_of(200, 100);
	(void)state;
	sender_time_out(&o);
	assert_int_equal(o.c.ssthresh, 140 * MSS);
	while (congestion_slow_start(&o.c))
		sender_round(&o);
	sender_round(&o);
	assert_int_equal(o.c.cubic.inflection_ms, 0);
	assert_in_range(o.c.cubic.w_max, 140 * MSS, 141 * MSS);
}

static void test_growth_is_bounded(void **state) /* 4.2: at most by half in a round trip */
{
	struct sender o = sender_of(10, 100);
	(void)state;
	sender_reduce(&o);
	sender_round(&o);
	o.now_ms += 100000; /* the curve is far above */
	o.m.epoch = o.now_ms / 1000.0 - 100.1;
	uint32_t window = o.c.window;
	congestion_sent(&o.c, window);
	sender_acked(&o, window);
	assert_in_range(o.c.window, window * 3 / 2 - 10, window * 3 / 2);
}

static void test_undo(void **state) /* 4.9.1: W_max, K, and the epoch are as before */
{
	struct sender o = sender_of(100, 100);
	(void)state;
	sender_reduce(&o);
	for (unsigned n = 0; n < 10; n++)
		sender_round(&o);
	struct congestion before = o.c;
	congestion_reduce(&o.c, o.c.window, o.now_ms);
	congestion_recovered(&o.c, o.now_ms);
	congestion_undo(&o.c);
	assert_memory_equal(&before.cubic, &o.c.cubic, sizeof(before.cubic));
	assert_int_equal(before.window, o.c.window);
	assert_true(o.c.avoiding);
	for (unsigned n = 0; n < 30; n++)
		sender_round(&o);
	assert_like_model(&o);
}

/* Losses, time-outs, changing round trips, ACKs of all sizes. */
static void test_model(void **state)
{
	(void)state;
	for (unsigned run = 0; run < 100; run++) {
		struct sender o = sender_of(10 + random_below(2000), 1 + random_below(300));
		sender_reduce(&o);
		for (unsigned step = 0; step < 3000; step++) {
			unsigned what = random_below(1000);
			o.now_ms += random_below(o.rtt_ms / 5 + 1);
			if (what == 0) {
				sender_time_out(&o);
			} else if (what < 3) {
				sender_reduce(&o);
			} else if (what < 5) {
				o.rtt_ms = 1 + random_below(300);
				rtt_init(&o.rtt);
				rtt_sample(&o.rtt, o.rtt_ms * 1000, 1, o.now_ms);
			} else {
				sender_acked(&o, 1 + random_below(o.c.window / 5 + 1));
			}
			if (o.m.window > 100000) { /* far away from where windows are */
				o = sender_of(10 + random_below(2000), 1 + random_below(300));
				sender_reduce(&o);
			}
			assert_like_model(&o);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_root),
	        cmocka_unit_test(test_curve),
	        cmocka_unit_test(test_reduction),
	        cmocka_unit_test(test_fast_convergence),
	        cmocka_unit_test(test_reno_friendly),
	        cmocka_unit_test(test_time_out),
	        cmocka_unit_test(test_growth_is_bounded),
	        cmocka_unit_test(test_undo),
	        cmocka_unit_test(test_model),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
