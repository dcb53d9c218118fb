// SPDX-License-Identifier: Apache-2.0
/* What all congestion controls share, and NewReno. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "congestion.h"
#include "random.h"

#define MSS 1000

static const struct congestion_ops *const all[] = {&congestion_newreno, &congestion_cubic};
#define ALL (sizeof(all) / sizeof(*all))

/* A sender that fills its window, and gets an ACK for each two segments. */
struct sender {
	struct congestion c;
	struct rtt rtt;
	uint32_t una, nxt;
	uint64_t now_ms;
	uint32_t rtt_ms;
};

static struct sender sender_of(const struct congestion_ops *ops)
{
	struct sender o = {.una = 5, .nxt = 5, .now_ms = 4294967000u, .rtt_ms = 100};
	rtt_init(&o.rtt);
	congestion_init(&o.c, ops, MSS, o.nxt, o.now_ms);
	return o;
}

static void sender_fill(struct sender *o, uint32_t max)
{
	uint32_t window = o->c.window < max ? o->c.window : max;
	if (o->nxt - o->una < window)
		o->nxt = o->una + window;
	congestion_sent(&o->c, o->nxt - o->una);
}

static void sender_acked(struct sender *o, uint32_t bytes)
{
	o->una += bytes;
	struct congestion_ack in = {.bytes = bytes,
	                            .una = o->una,
	                            .nxt = o->nxt,
	                            .rtt_us = o->rtt_ms * 1000,
	                            .now_ms = o->now_ms};
	rtt_sample(&o->rtt, in.rtt_us, 1, o->now_ms);
	congestion_acked(&o->c, &in, &o->rtt);
}

/* A round trip in which all is acknowledged; the sender has at most so much to send. */
static void sender_round(struct sender *o, uint32_t bytes_an_ack, uint32_t max)
{
	sender_fill(o, max);
	uint32_t flight = o->nxt - o->una, acks = flight / bytes_an_ack;
	for (uint32_t left = flight, bytes; left > 0; left -= bytes) {
		bytes = left < bytes_an_ack ? left : bytes_an_ack;
		sender_acked(o, bytes);
		sender_fill(o, max);
		o->now_ms += acks && left / bytes_an_ack % (acks / o->rtt_ms + 1) == 0;
	}
	o->now_ms += acks < o->rtt_ms ? o->rtt_ms - acks : 0;
}

/* In congestion avoidance, with a window. */
static struct sender avoiding(const struct congestion_ops *ops, uint32_t window)
{
	struct sender o = sender_of(ops);
	sender_fill(&o, UINT32_MAX);
	o.c.window = 2 * window;
	o.nxt = o.una + 2 * window;
	congestion_reduce(&o.c, 2 * window, o.now_ms);
	o.c.ssthresh = window;
	congestion_recovered(&o.c, o.now_ms);
	assert_int_equal(o.c.window, window);
	return o;
}

/* ---- RFC 6928, 5681: the beginning ----------------------------------------------------------- */

static void test_initial_window(void **state) /* RFC 6928, 2 */
{
	(void)state;
	assert_int_equal(congestion_initial(536), 5360);
	assert_int_equal(congestion_initial(1460), 14600);
	assert_int_equal(congestion_initial(1500), 14600);
	assert_int_equal(congestion_initial(8960), 17920);
	for (unsigned n = 0; n < ALL; n++) {
		struct sender o = sender_of(all[n]);
		assert_int_equal(o.c.window, 10 * MSS);
		assert_true(congestion_slow_start(&o.c));
		congestion_mss(&o.c, 536); /* known after the handshake */
		assert_int_equal(o.c.window, 5360);
		sender_round(&o, 536, UINT32_MAX);
		uint32_t window = o.c.window;
		congestion_mss(&o.c, 500);
		assert_int_equal(o.c.window, window);
	}
}

static void test_slow_start(void **state) /* RFC 5681, 3.1; RFC 3465, 2.2 */
{
	(void)state;
	for (unsigned n = 0; n < ALL; n++)
		for (uint32_t an_ack = MSS / 4; an_ack <= 2 * MSS; an_ack *= 2) {
			struct sender o = sender_of(all[n]);
			sender_round(&o, an_ack, UINT32_MAX); /* twice in each round trip */
			assert_int_equal(o.c.window, 20 * MSS);
			sender_round(&o, an_ack, UINT32_MAX);
			assert_int_equal(o.c.window, 40 * MSS);
		}
}

static void test_slow_start_limit(void **state) /* RFC 3465, 2.3: 2 segments for one ACK */
{
	struct sender o = sender_of(&congestion_newreno);
	(void)state;
	sender_fill(&o, UINT32_MAX);
	sender_acked(&o, 8 * MSS);
	assert_int_equal(o.c.window, 12 * MSS);
	/* and one after a time-out */
	congestion_timed_out(&o.c, 40 * MSS, false, o.now_ms);
	o.nxt = o.una + 20 * MSS;
	sender_acked(&o, 8 * MSS);
	assert_int_equal(o.c.window, 2 * MSS);
	/* RFC 9406, 4.3: 8 */
	o = sender_of(&congestion_cubic);
	sender_fill(&o, UINT32_MAX);
	sender_acked(&o, 10 * MSS);
	assert_int_equal(o.c.window, 18 * MSS);
}

static void test_slow_start_ends(void **state) /* RFC 5681, 3.1 */
{
	struct sender o = sender_of(&congestion_newreno);
	(void)state;
	o.c.ssthresh = 11500;
	sender_fill(&o, UINT32_MAX);
	sender_acked(&o, MSS);
	assert_int_equal(o.c.window, 11000);
	sender_acked(&o, MSS); /* 500 to ssthresh, and 500 count for congestion avoidance */
	assert_int_equal(o.c.window, 11500);
	assert_int_equal(o.c.counted, 500);
	assert_false(congestion_slow_start(&o.c));
}

/* ---- NewReno --------------------------------------------------------------------------------- */

static void test_newreno_avoidance(void **state) /* RFC 5681, 3.1; RFC 3465, 2.1 */
{
	(void)state;
	for (uint32_t an_ack = 100; an_ack <= 4 * MSS; an_ack *= 2) {
		struct sender o = avoiding(&congestion_newreno, 50 * MSS);
		for (unsigned n = 1; n <= 20; n++) {
			sender_round(&o, an_ack, UINT32_MAX);
			/* a segment in each round trip */
			assert_in_range(o.c.window, (50 + n - 1) * MSS, (50 + n) * MSS);
		}
	}
}

static void test_newreno_rest_counts(void **state) /* RFC 3465, 2.1 */
{
	struct sender o = avoiding(&congestion_newreno, 10 * MSS);
	(void)state;
	for (unsigned n = 0; n < 3; n++) {
		sender_fill(&o, UINT32_MAX);
		sender_acked(&o, 7 * MSS);
		assert_int_equal(o.c.window, (10 + n) * MSS); /* 7, 14 of 10, 4 + 7 of 11 */
	}
}

static void test_newreno_one_ack_of_much(void **state) /* RFC 3465, 2.1 */
{
	struct sender o = avoiding(&congestion_newreno, 10 * MSS);
	(void)state;
	sender_fill(&o, UINT32_MAX);
	sender_acked(&o, 60 * MSS);
	assert_int_equal(o.c.window, 11 * MSS);
	sender_fill(&o, UINT32_MAX);
	sender_acked(&o, MSS);
	assert_int_equal(o.c.window, 11 * MSS);
}

static void test_newreno_reduction(void **state) /* RFC 5681, 3.1, equation 4 */
{
	struct sender o = avoiding(&congestion_newreno, 50 * MSS);
	(void)state;
	congestion_reduce(&o.c, 40 * MSS, o.now_ms); /* half of what is under way */
	assert_int_equal(o.c.ssthresh, 20 * MSS);
	congestion_recovered(&o.c, o.now_ms);
	assert_int_equal(o.c.window, 20 * MSS);
	congestion_reduce(&o.c, 3 * MSS, o.now_ms);
	assert_int_equal(o.c.ssthresh, 2 * MSS); /* at least two */
	/* what was SACKed in an earlier recovery is under way no more */
	congestion_recovered(&o.c, o.now_ms);
	o.c.window = 30 * MSS;
	congestion_reduce(&o.c, 100 * MSS, o.now_ms);
	assert_int_equal(o.c.ssthresh, 15 * MSS);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void test_time_out(void **state) /* RFC 5681, 3.1 */
{
	(void)state;
	for (unsigned n = 0; n < ALL; n++) {
		struct sender o = avoiding(all[n], 50 * MSS);
		congestion_timed_out(&o.c, 40 * MSS, false, o.now_ms);
		uint32_t ssthresh = o.c.ssthresh;
		assert_int_equal(ssthresh, n == 0 ? 20 * MSS : 28 * MSS);
		assert_int_equal(o.c.window, MSS);
		/* the same segment once more: ssthresh stays */
		congestion_timed_out(&o.c, MSS, true, o.now_ms);
		assert_int_equal(o.c.ssthresh, ssthresh);
		o.nxt = o.una + MSS;
		for (unsigned round = 0; round < 4; round++)
			sender_round(&o, MSS, UINT32_MAX); /* 2, 4, 8, 16 */
		assert_int_equal(o.c.window, 16 * MSS);
		sender_round(&o, MSS, UINT32_MAX);
		assert_in_range(o.c.window, ssthresh, ssthresh + 2 * MSS);
	}
}

static void test_undo(void **state) /* RFC 5682, 4; RFC 9438, 4.9 */
{
	(void)state;
	for (unsigned n = 0; n < ALL; n++) {
		struct sender o = avoiding(all[n], 50 * MSS);
		sender_round(&o, MSS, UINT32_MAX);
		uint32_t window = o.c.window, ssthresh = o.c.ssthresh;
		congestion_timed_out(&o.c, window, false, o.now_ms);
		congestion_undo(&o.c);
		assert_int_equal(o.c.window, window);
		assert_int_equal(o.c.ssthresh, ssthresh);
		congestion_reduce(&o.c, window, o.now_ms);
		congestion_timed_out(&o.c, window, true, o.now_ms);
		congestion_undo(&o.c);
		assert_int_equal(o.c.window, window);
		congestion_undo(&o.c); /* there is nothing more to undo */
		assert_int_equal(o.c.window, window);
		/* A reduction in slow start that was in vain: slow start goes on. */
		o = sender_of(all[n]);
		sender_round(&o, MSS, UINT32_MAX);
		congestion_reduce(&o.c, o.c.window, o.now_ms);
		congestion_recovered(&o.c, o.now_ms);
		congestion_undo(&o.c);
		assert_int_equal(o.c.ssthresh, CONGESTION_NEVER);
		assert_int_equal(o.c.window, 20 * MSS);
		sender_round(&o, MSS, UINT32_MAX);
		assert_int_equal(o.c.window, 40 * MSS);
	}
}

/* RFC 5681 4.1: idle means nothing in flight. A recovery longer than an RTO is not idle. */
static void test_recovery_is_not_idle(void **state)
{
	(void)state;
	for (unsigned n = 0; n < ALL; n++) {
		struct sender o = avoiding(all[n], 50 * MSS);
		congestion_reduce(&o.c, 50 * MSS, o.now_ms);
		o.now_ms += 3000;
		congestion_recovered(&o.c, o.now_ms);
		uint32_t window = o.c.window;
		assert_int_equal(window, o.c.ssthresh);
		o.now_ms += 100;
		congestion_idle(&o.c, (uint32_t)o.now_ms - o.c.seen_ms, 1000);
		assert_int_equal(o.c.window, window);
		o.now_ms += 1000;
		congestion_idle(&o.c, (uint32_t)o.now_ms - o.c.seen_ms, 1000);
		assert_int_equal(o.c.window, window / 2);
	}
}

static void test_unused(void **state) /* RFC 9438, 5.8; RFC 2861, 3 */
{
	(void)state;
	for (unsigned n = 0; n < ALL; n++) {
		struct sender o = avoiding(all[n], 50 * MSS);
		sender_round(&o, MSS, 20 * MSS);
		sender_round(&o, MSS, 20 * MSS);
		uint32_t window = o.c.window;
		sender_round(&o, MSS, 20 * MSS);
		sender_round(&o, MSS, 20 * MSS);
		assert_int_equal(o.c.window, window); /* not longer than the time-out */
		/* CUBIC has not counted the time: it grows from where it was, not at once. */
		struct sender other = o;
		sender_round(&other, MSS, UINT32_MAX);
		assert_in_range(other.c.window, window, window + 3 * MSS);
		sender_round(&o, MSS, 20 * MSS);
		sender_round(&o, MSS, 20 * MSS);
		/* halfway, and then slow start to twice what is used */
		assert_in_range(o.c.window, window - (window - 20 * MSS) / 2, 41 * MSS);
		assert_in_range(o.c.ssthresh, 50 * MSS, 52 * MSS);
		for (unsigned round = 0; round < 100; round++)
			sender_round(&o, MSS, 20 * MSS);
		assert_in_range(o.c.window, 20 * MSS, 42 * MSS); /* slow start, as below */
		assert_in_range(o.c.ssthresh, 50 * MSS, 52 * MSS);
		/* slow start: twice what is used is the end */
		o = sender_of(all[n]);
		for (unsigned round = 0; round < 20; round++)
			sender_round(&o, MSS, 12 * MSS);
		assert_in_range(o.c.window, 20 * MSS, 26 * MSS);
	}
}

static void test_idle(void **state) /* RFC 5681, 4.1; RFC 2861, 3 */
{
	(void)state;
	for (unsigned n = 0; n < ALL; n++) {
		struct sender o = avoiding(all[n], 80 * MSS);
		congestion_idle(&o.c, 300, 300);
		assert_int_equal(o.c.window, 80 * MSS); /* not longer than the time-out */
		congestion_idle(&o.c, 301, 300);
		assert_int_equal(o.c.window, 40 * MSS);
		assert_int_equal(o.c.ssthresh, 80 * MSS);
		assert_true(congestion_slow_start(&o.c));
		congestion_idle(&o.c, 100000, 300);
		assert_int_equal(o.c.window, 10 * MSS);
		o.c.window = 4 * MSS; /* no reason to grow */
		congestion_idle(&o.c, 100000, 300);
		assert_int_equal(o.c.window, 4 * MSS);
	}
}

static void test_bounds(void **state) /* RFC 7323, 2.3 */
{
	(void)state;
	for (unsigned n = 0; n < ALL; n++) {
		struct sender o = sender_of(all[n]);
		for (unsigned round = 0; round < 40; round++)
			sender_round(&o, o.c.window / 8 + 1, UINT32_MAX);
		assert_true(o.c.window <= CONGESTION_MAX);
		struct sender p = avoiding(all[n], CONGESTION_MAX / 2);
		for (unsigned round = 0; round < 1000; round++)
			sender_round(&p, p.c.window / 8, UINT32_MAX);
		assert_true(p.c.window <= CONGESTION_MAX);
	}
}

/* Whatever happens, the window stays between a segment and the largest, and ssthresh above two. */
static void test_random(void **state)
{
	(void)state;
	for (unsigned n = 0; n < ALL; n++) {
		struct sender o = sender_of(all[n]);
		for (unsigned step = 0; step < 300000; step++) {
			uint32_t flight = o.nxt - o.una;
			o.now_ms += random_below(20);
			switch (random_below(200)) {
			case 0:
				congestion_reduce(&o.c, flight, o.now_ms);
				break;
			case 1:
				congestion_recovered(&o.c, o.now_ms);
				break;
			case 2:
				congestion_timed_out(&o.c, flight, random_below(2), o.now_ms);
				break;
			case 3:
				congestion_undo(&o.c);
				break;
			case 4:
				congestion_idle(&o.c, random_below(3000), 1 + random_below(500));
				break;
			case 5:
				congestion_mss(&o.c, (uint16_t)(500 + random_below(500)));
				break;
			default:
				sender_fill(&o,
				            random_below(4) ? UINT32_MAX : random_below(100000));
				o.rtt_ms = 1 + random_below(300);
				sender_acked(&o, random_below(o.nxt - o.una + 1));
			}
			assert_in_range(o.c.window, 500, CONGESTION_MAX);
			assert_true(o.c.ssthresh >= 1000);
		}
	}
}

/* ---- RFC 9406 -------------------------------------------------------------------------------- */

/* A round as HyStart++ counts it, of one round-trip time. Returns by what the window grew, in
 * percent. */
static uint32_t hystart_round(struct sender *o, uint32_t rtt_ms)
{
	uint32_t round = o->c.round, window = o->c.window;
	o->rtt_ms = rtt_ms;
	while (o->c.round == round) {
		sender_fill(o, UINT32_MAX);
		sender_acked(o, MSS);
	}
	return (uint32_t)((uint64_t)(o->c.window - window) * 100 / window);
}

static void test_hystart(void **state) /* RFC 9406, 4.2 */
{
	struct sender o = sender_of(&congestion_cubic);
	(void)state;
	for (unsigned n = 0; n < 4; n++)
		hystart_round(&o, 100);
	assert_in_range(hystart_round(&o, 112), 90, 101); /* an eighth more is 112.5 */
	assert_in_range(hystart_round(&o, 126), 25,
	                40); /* 8 samples at full speed, then a quarter */
	for (unsigned n = 0; n < 4; n++) {
		assert_int_equal(o.c.ssthresh, CONGESTION_NEVER);
		assert_true(congestion_slow_start(&o.c));
		assert_in_range(hystart_round(&o, 130), 23, 26);
	}
	assert_false(congestion_slow_start(&o.c)); /* after 5 rounds of it */
	assert_in_range(hystart_round(&o, 130), 0, 2);
}

static void test_hystart_resumes(void **state) /* RFC 9406, 4.2: it was jitter */
{
	struct sender o = sender_of(&congestion_cubic);
	(void)state;
	for (unsigned n = 0; n < 4; n++)
		hystart_round(&o, 100);
	hystart_round(&o, 130);
	assert_true(o.c.hystart.baseline_us != 0);
	hystart_round(&o, 125);
	assert_int_equal(o.c.hystart.baseline_us, 0);
	assert_in_range(hystart_round(&o, 125), 90, 101);
	assert_int_equal(o.c.ssthresh, CONGESTION_NEVER);
}

static void test_hystart_thresholds(void **state) /* RFC 9406, 4.2: 4 ms to 16 ms */
{
	static const uint32_t cases[][3] = {{10, 13, 0},   {10, 14, 1}, {400, 415, 0},
	                                    {400, 416, 1}, {80, 89, 0}, {80, 90, 1}};
	(void)state;
	for (unsigned n = 0; n < sizeof(cases) / sizeof(*cases); n++) {
		struct sender o = sender_of(&congestion_cubic);
		for (unsigned round = 0; round < 4; round++)
			hystart_round(&o, cases[n][0]);
		hystart_round(&o, cases[n][1]);
		assert_int_equal(o.c.hystart.baseline_us != 0, cases[n][2]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_initial_window),
	        cmocka_unit_test(test_slow_start),
	        cmocka_unit_test(test_slow_start_limit),
	        cmocka_unit_test(test_slow_start_ends),
	        cmocka_unit_test(test_newreno_avoidance),
	        cmocka_unit_test(test_newreno_rest_counts),
	        cmocka_unit_test(test_newreno_one_ack_of_much),
	        cmocka_unit_test(test_newreno_reduction),
	        cmocka_unit_test(test_time_out),
	        cmocka_unit_test(test_undo),
	        cmocka_unit_test(test_unused),
	        cmocka_unit_test(test_recovery_is_not_idle),
	        cmocka_unit_test(test_idle),
	        cmocka_unit_test(test_bounds),
	        cmocka_unit_test(test_random),
	        cmocka_unit_test(test_hystart),
	        cmocka_unit_test(test_hystart_resumes),
	        cmocka_unit_test(test_hystart_thresholds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
