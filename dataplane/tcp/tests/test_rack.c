// SPDX-License-Identifier: Apache-2.0
/* Loss by time and the tail loss probe, rule by rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sender.h"

/* A D-SACK of the last segment before `ack`. */
static void sender_dsack(struct sender *o, unsigned ack)
{
	sender_sack(o, ack, ack - 1, ack);
	assert_true(o->outcome.dsack);
}

/* ---- RFC 8985 -------------------------------------------------------------------------------- */

static void test_rack_by_time(void **state) /* RFC 8985, 6.2, step 5, without a window: step 4 */
{
	struct sender *o = sender_new(10);
	(void)state;
	o->now = 1105 * MS;
	sender_sack(o, 1, 6, 7); /* sent at 1005: rtt 100 ms */
	/* One segment is no evidence: the others get min_RTT / 4. */
	assert_int_equal(sender_detect(o, false), 0);
	assert_int_equal(o->look, 1000 * MS + 100 * MS + 25 * MS);
	o->now = o->look;
	assert_int_equal(sender_detect(o, false), MSS);
	assert_int_equal(lost_first(o), 1);
	assert_int_equal(o->look, 1126 * MS);
	/* In recovery, at once all that was sent before. */
	assert_int_equal(sender_detect(o, true), 4 * MSS);
	assert_int_equal(o->look, 0);
	assert_int_equal(sent_in_flight(&o->s), 4 * MSS); /* 7 to 10 */
}

static void test_rack_duplicates(void **state) /* RFC 8985, 6.2, step 4: DupThresh */
{
	struct sender *o = sender_new(5);
	(void)state;
	o->now = 1102 * MS;
	sender_sack(o, 1, 2, 4);
	assert_int_equal(sender_detect(o, false), 0); /* two */
	o->now = 1104 * MS;
	sender_sack(o, 1, 2, 5);
	assert_int_equal(sender_detect(o, false), MSS); /* three */
}

static void test_rack_lost_retransmission(void **state) /* RFC 8985, 3.1 */
{
	struct sender *o = sender_new(5);
	(void)state;
	o->now = 1104 * MS;
	sender_sack(o, 1, 2, 5);
	sender_detect(o, true);
	sender_again(o, 1); /* lost again */
	o->now += MS;
	assert_true(sent_add(&o->s, &o->pool, MSS, o->now)); /* 6 */
	assert_int_equal(sender_detect(o, true), 0);
	o->now += 100 * MS;
	sender_sack(o, 1, 2, 7); /* 6 arrived, sent after the retransmission */
	assert_int_equal(sender_detect(o, true), MSS);
	assert_int_equal(lost_first(o), 1);
}

/* New data before and after a retransmission, a moment apart: the first says nothing of what left
 * after it. */
static void test_rack_order_of_sending(void **state) /* RFC 8985, 6.2, step 2 */
{
	struct sender *o = sender_new(5);
	(void)state;
	o->now = 1104 * MS;
	sender_sack(o, 1, 2, 5);
	assert_int_equal(sender_detect(o, true), MSS);
	assert_true(sent_add(&o->s, &o->pool, MSS, o->now += 1000)); /* 6 */
	o->now += 1000;
	sender_again(o, 1);
	assert_true(sent_add(&o->s, &o->pool, MSS, o->now += 1000)); /* 7 */
	o->now += 100 * MS;
	sender_sack(o, 1, 2, 7);
	assert_int_equal(sender_detect(o, true), 0);
	sender_sack(o, 1, 2, 8);
	assert_int_equal(sender_detect(o, true), MSS);
}

static void test_rack_reordering(void **state) /* RFC 8985, 6.2, step 3 */
{
	struct sender *o = sender_new(10);
	(void)state;
	o->now = 1105 * MS;
	sender_sack(o, 1, 5, 6);
	assert_false(o->s.reordered);
	sender_sack(o, 1, 3, 4); /* not retransmitted, and after a later one */
	assert_true(o->s.reordered);
	/* Now the window counts, in recovery and after three as well. */
	sender_sack(o, 1, 5, 9);
	assert_int_equal(sender_detect(o, true), 0);
	assert_true(o->look > 0);
	/* of a retransmission it says nothing */
	o = sender_new(3);
	o->now = 1105 * MS;
	sender_sack(o, 1, 2, 4);
	sender_again(o, 1);
	o->now += 100 * MS;
	sender_sack(o, 4, 0, 0);
	assert_false(o->s.reordered);
	/* one ACK has no order */
	o = sender_new(9);
	struct sent_ack in = {.ack = ISS, .count = 2};
	in.blocks[0] = (struct sack_block){segment(7), segment(8)};
	in.blocks[1] = (struct sack_block){segment(3), segment(4)};
	sender_ack(o, &in);
	assert_int_equal(o->outcome.sacked, 2 * MSS);
	assert_false(o->s.reordered);
}

static void test_rack_spurious(void **state) /* RFC 8985, 6.2, step 2 */
{
	struct sender *o = sender_new(3);
	uint64_t rack = o->s.rack_ns;
	(void)state;
	o->now = 1200 * MS;
	sender_again(o, 1);
	o->now += 10 * MS; /* before it can be back: of the original */
	sender_sack(o, 2, 0, 0);
	assert_int_equal(o->s.rack_ns, rack);
	o = sender_new(3);
	o->now = 1200 * MS;
	sender_again(o, 1);
	o->now += 100 * MS; /* late enough, but the timestamp says otherwise */
	struct sent_ack in = {.ack = segment(2), .echo_ns = 1001 * MS};
	sender_ack(o, &in);
	assert_int_equal(o->s.rack_ns, 0);
	sender_again(o, 2);
	in = (struct sent_ack){.ack = segment(3), .echo_ns = o->now + MS};
	o->now += 100 * MS;
	sender_ack(o, &in);
	assert_int_equal(o->s.rack_ns, 1300 * MS);
	assert_int_equal(o->s.rack_us, 100000);
}

static void test_rack_window(void **state) /* RFC 8985, 6.2, step 4: D-SACK, 16 recoveries */
{
	struct sender *o = sender_new(20);
	(void)state;
	o->now = 1105 * MS;
	o->s.reordered = true;
	sender_sack(o, 3, 0, 0);
	sender_dsack(o, 3);
	assert_int_equal(o->s.widened, 2);
	sender_dsack(o, 4); /* in the same round trip */
	assert_int_equal(o->s.widened, 2);
	sender_sack(o, 5, 9, 10); /* the segment before was sent at 1004 */
	sender_detect(o, true);
	assert_int_equal(o->look, 1004 * MS + o->s.rack_us * UINT64_C(1000) + 2 * 25 * MS);
	sender_sack(o, 21, 0, 0);
	assert_true(sent_add(&o->s, &o->pool, MSS, o->now));
	sender_dsack(o, 21);
	assert_int_equal(o->s.widened, 3);
	for (unsigned n = 0; n < 15; n++)
		sent_recovered(&o->s);
	assert_int_equal(o->s.widened, 3);
	sent_recovered(&o->s);
	assert_int_equal(o->s.widened, 1);
}

static void test_rack_time_out(void **state) /* RFC 8985, 6.3: the first, and those long sent */
{
	struct sender *o = sender_new(5);
	(void)state;
	o->now = 1100 * MS;
	sender_sack(o, 2, 0, 0); /* RACK.rtt is 100 ms */
	o->now = 1103 * MS + 1;
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now);
	assert_int_equal(o->s.lost, 3 * MSS); /* 2, 3 and 4, of 2 to 5 */
	o = sender_new(5);
	o->s.rack_us = 500000;
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now);
	assert_int_equal(o->s.lost, MSS);
}

static void test_probe_wait(void **state) /* RFC 8985, 7.2 */
{
	struct sender *o = sender_new(2);
	(void)state;
	assert_int_equal(sent_probe_wait(&o->s, &o->rtt, MSS, 25000), 200 * MS);
	sender_sack(o, 2, 0, 0); /* one segment is left: its ACK may be delayed */
	assert_int_equal(sent_probe_wait(&o->s, &o->rtt, MSS, 25000), 225 * MS);
	rtt_init(&o->rtt);
	assert_int_equal(sent_probe_wait(&o->s, &o->rtt, MSS, 25000), 1000 * MS);
	o = sender_new(4);
	sender_sack(o, 1, 3, 4); /* SACKs: RACK applies */
	assert_int_equal(sent_probe_wait(&o->s, &o->rtt, MSS, 25000), 0);
	o = sender_new(0);
	assert_int_equal(sent_probe_wait(&o->s, &o->rtt, MSS, 25000), 0);
}

static struct sender *sender_probing(bool again)
{
	struct sender *o = sender_new(4);
	uint32_t from, to;
	o->now = 1300 * MS;
	sent_probe_range(&o->s, MSS, &from, &to);
	assert_int_equal(from, segment(4));
	assert_int_equal(to, segment(5));
	if (again)
		sent_retransmitted(&o->s, &o->pool, from, to, o->now);
	else
		assert_true(sent_add(&o->s, &o->pool, MSS, o->now));
	sent_probed(&o->s, again);
	assert_int_equal(sent_probe_wait(&o->s, &o->rtt, MSS, 0), 0); /* 7.3: one at a time */
	o->now = 1400 * MS;
	return o;
}

static void test_probe_of_new_data(void **state) /* RFC 8985, 7.4.2 */
{
	struct sender *o = sender_probing(false);
	(void)state;
	sender_sack(o, 6, 0, 0);
	assert_false(o->s.probing || o->outcome.probe_lost);
}

static void test_probe_twice(void **state) /* RFC 8985, 7.4.2: the D-SACK of the probe */
{
	struct sender *o = sender_probing(true);
	(void)state;
	sender_sack(o, 5, 0, 0); /* the originals */
	assert_true(o->s.probing);
	sender_dsack(o, 5);
	assert_false(o->s.probing || o->outcome.probe_lost);
	assert_int_equal(o->s.widened, 1); /* says nothing of reordering */
}

static void test_probe_twice_without_dsack(void **state) /* RFC 8985, 7.4.2: a pure duplicate */
{
	struct sender *o = sender_probing(true);
	(void)state;
	sender_sack(o, 5, 0, 0);
	struct sent_ack in = {.ack = segment(5)};
	sender_ack(o, &in); /* with data: not of the probe */
	assert_true(o->s.probing);
	in.pure = true;
	sender_ack(o, &in);
	assert_false(o->s.probing || o->outcome.probe_lost);
}

static void test_probe_repairs_a_loss(void **state) /* RFC 8985, 7.4.2: one loss, a reduction */
{
	struct sender *o = sender_probing(true);
	(void)state;
	sender_sack(o, 5, 0, 0);
	assert_true(o->s.probing);
	assert_true(sent_add(&o->s, &o->pool, MSS, o->now));
	o->now += 100 * MS;
	sender_sack(o, 6, 0, 0);
	assert_true(o->outcome.probe_lost);
	assert_false(o->s.probing);
}

static void test_probe_needs_a_sample(void **state) /* RFC 8985, 7.3 */
{
	struct sender *o = sender_probing(true);
	(void)state;
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now); /* ends the probe */
	sender_again(o, 1);
	assert_false(o->s.probing);
	assert_int_equal(sent_probe_wait(&o->s, &o->rtt, MSS, 0), 0);
	sender_sack(o, 2, 0, 0);
	assert_int_equal(o->outcome.rtt_us, 0);
	sender_sack(o, 3, 0, 0);
	assert_true(o->outcome.rtt_us > 0); /* of 2, which was sent once */
	assert_true(sent_probe_wait(&o->s, &o->rtt, MSS, 0) > 0);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* 600 segments, every second one arrives: all SACKs are applied. */
static struct sender *sender_with_holes(void)
{
	struct sender *o = sender_new(600);
	for (unsigned n = 2; n <= 600; n += 2) {
		struct sent_ack in = {.ack = ISS, .count = 3};
		for (unsigned i = 0; i < 3; i++) {
			unsigned at = n > 2 * i ? n - 2 * i : 2;
			in.blocks[i] = (struct sack_block){segment(at), segment(at + 1)};
		}
		sender_ack(o, &in);
	}
	return o;
}

static void test_holes(void **state) /* RFC 2018, 4 */
{
	struct sender *o = sender_with_holes();
	(void)state;
	assert_int_equal(o->s.sacked, 300 * MSS);
	assert_int_equal(o->s.ranges, 600);
	/* Retransmissions are SACKed from left to right, while others arrive. */
	for (unsigned n = 1; n < 600; n += 2) {
		sender_again(o, n);
		o->now += MS;
		assert_true(sent_add(&o->s, &o->pool, 1, o->now));
	}
	for (unsigned n = 3; n < 600; n += 2) {
		struct sent_ack in = {.ack = ISS, .count = 2};
		in.blocks[0] = (struct sack_block){segment(2), segment(n + 2)};
		in.blocks[1] = (struct sack_block){segment(601) + n / 2, segment(601) + n / 2 + 1};
		sender_ack(o, &in);
	}
	/* but for some of the first of the others, which were too far away at first */
	assert_in_range(o->s.sacked, 599 * MSS + 299 - 10, 599 * MSS + 299);
}

/* A block far from all earlier ones is found after several reports, some ranges nearer each time:
 * none costs more than SENT_STEPS. */
static void test_far_block(void **state)
{
	struct sender *o = sender_with_holes();
	unsigned told = 0;
	(void)state;
	sender_sack(o, 1, 600, 601);
	for (; o->s.sacked == 300 * MSS; told++)
		sender_sack(o, 1, 291, 292);
	assert_in_range(told, 2, 310 / SENT_STEPS + 1);
	assert_int_equal(o->s.sacked, 301 * MSS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_rack_by_time),
	        cmocka_unit_test(test_rack_duplicates),
	        cmocka_unit_test(test_rack_lost_retransmission),
	        cmocka_unit_test(test_rack_order_of_sending),
	        cmocka_unit_test(test_rack_reordering),
	        cmocka_unit_test(test_rack_spurious),
	        cmocka_unit_test(test_rack_window),
	        cmocka_unit_test(test_rack_time_out),
	        cmocka_unit_test(test_probe_wait),
	        cmocka_unit_test(test_probe_of_new_data),
	        cmocka_unit_test(test_probe_twice),
	        cmocka_unit_test(test_probe_twice_without_dsack),
	        cmocka_unit_test(test_probe_repairs_a_loss),
	        cmocka_unit_test(test_probe_needs_a_sample),
	        cmocka_unit_test(test_holes),
	        cmocka_unit_test(test_far_block),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
