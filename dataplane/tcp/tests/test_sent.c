// SPDX-License-Identifier: Apache-2.0
/* What was sent, lost, sent again and acknowledged: each rule, and all together against a model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define CHECK(condition) assert_true(condition)
#include "random.h"
#include "sent_model.h"

#define MS     UINT64_C(1000000)
#define MSS    1000
#define ISS    (UINT32_MAX - 5000) /* numbers wrap around soon */
#define RTT_MS 100

/* A sender, whose segments are numbered from 1 and have MSS bytes. */
struct sender {
	struct sent s;
	struct pool pool;
	struct sent_range cells[4 * SENT_RANGES];
	struct rtt rtt;
	struct sent_news news;
	uint64_t now, look;
};

static struct sender sender;

static uint32_t segment(unsigned n)
{
	return ISS + MSS * (n - 1);
}

/* Has sent `count` segments, 1 ms apart, with a round trip of 100 ms known. */
static struct sender *sender_new(unsigned count)
{
	struct sender *o = &sender;
	*o = (struct sender){.now = 1000 * MS};
	pool_init(&o->pool, o->cells, sizeof(*o->cells), 4 * SENT_RANGES);
	sent_init(&o->s, ISS);
	rtt_init(&o->rtt);
	rtt_sample(&o->rtt, RTT_MS * 1000, 1, 0);
	for (unsigned n = 0; n < count; n++, o->now += MS)
		assert_true(sent_add(&o->s, &o->pool, MSS, o->now));
	return o;
}

static void sender_ack(struct sender *o, const struct sent_ack *in)
{
	struct sent_ack ack = *in;
	ack.now_ns = o->now;
	ack.mss = MSS;
	sent_acked(&o->s, &o->pool, &o->rtt, &ack, &o->news);
}

/* An ACK up to before segment `ack`, and a block of segments from..to - 1. */
static void sender_sack(struct sender *o, unsigned ack, unsigned from, unsigned to)
{
	struct sent_ack in = {.ack = segment(ack), .count = from < to};
	in.blocks[0] = (struct sack_block){segment(from), segment(to)};
	sender_ack(o, &in);
}

static uint32_t sender_detect(struct sender *o, bool recovering)
{
	return sent_detect(&o->s, &o->pool, &o->rtt, MSS, recovering, o->now, &o->look);
}

static unsigned lost_first(struct sender *o)
{
	uint32_t from, to;
	return sent_next_lost(&o->s, &o->pool, &from, &to) ? (from - ISS) / MSS + 1 : 0;
}

static void sender_again(struct sender *o, unsigned n)
{
	sent_again(&o->s, &o->pool, segment(n), segment(n + 1), o->now);
}

/* ---- RFC 6675, 2018: the scoreboard ---------------------------------------------------------- */

static void test_cumulative(void **state) /* RFC 9293, 3.10.7.4; RFC 6298, 3 */
{
	struct sender *o = sender_new(10);
	(void)state;
	assert_int_equal(sent_in_flight(&o->s), 10 * MSS);
	o->now = 1100 * MS;
	struct sent_ack in = {.ack = segment(3) + 400};
	sender_ack(o, &in);
	assert_int_equal(o->news.acked, 2400);
	assert_int_equal(o->news.delivered, 2400);
	assert_int_equal(o->news.rtt_us, 100000);  /* of the first */
	assert_int_equal(o->news.least_us, 98000); /* of the third */
	assert_int_equal(sent_in_flight(&o->s), 7600);
	sender_ack(o, &in); /* the same again means nothing */
	assert_int_equal(o->news.acked, 0);
	assert_int_equal(o->news.delivered, 0);
	assert_int_equal(o->news.rtt_us, 0);
	in.ack = segment(11) + 1; /* beyond what was sent */
	sender_ack(o, &in);
	assert_int_equal(o->news.acked, 0);
	sender_sack(o, 11, 0, 0);
	assert_int_equal(o->pool.taken, 0);
}

static void test_pipe(void **state) /* RFC 6675, 4, SetPipe() */
{
	struct sender *o = sender_new(10);
	(void)state;
	o->now = 1105 * MS;
	sender_sack(o, 1, 3, 6);
	assert_int_equal(o->news.sacked, 3 * MSS);
	assert_int_equal(o->news.delivered, 3 * MSS);
	assert_int_equal(sent_in_flight(&o->s), 7 * MSS);
	assert_int_equal(sender_detect(o, false), 2 * MSS); /* 1 and 2 */
	assert_int_equal(sent_in_flight(&o->s), 5 * MSS);
	sender_again(o, 1);
	assert_int_equal(sent_in_flight(&o->s), 6 * MSS);
	assert_int_equal(lost_first(o), 2);
	sender_sack(o, 1, 3, 6); /* told again: nothing new */
	assert_int_equal(o->news.delivered, 0);
	sender_sack(o, 6, 0, 0);
	assert_int_equal(o->news.acked, 5 * MSS);
	assert_int_equal(o->news.delivered, 2 * MSS);
	assert_int_equal(sent_in_flight(&o->s), 5 * MSS);
}

static void test_blocks_that_cannot_be(void **state) /* RFC 2018, 5 */
{
	struct sender *o = sender_new(4);
	struct sent_ack in = {.ack = segment(2), .count = 4};
	(void)state;
	in.blocks[0] = (struct sack_block){segment(4), segment(6)};    /* beyond SND.NXT */
	in.blocks[1] = (struct sack_block){segment(4), segment(4)};    /* empty */
	in.blocks[2] = (struct sack_block){segment(4), segment(3)};    /* backwards */
	in.blocks[3] = (struct sack_block){ISS - 3 * MSS, segment(1)}; /* long ago */
	sender_ack(o, &in);
	assert_int_equal(o->news.sacked, 0);
	assert_int_equal(o->s.ranges, 3);
}

static void test_forgotten(void **state) /* RFC 2018, 8 */
{
	struct sender *o = sender_new(5);
	(void)state;
	sender_sack(o, 1, 2, 4);
	o->now += 1000 * MS;
	/* The first time: what was SACKed is not sent again. */
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now);
	assert_int_equal(o->s.lost, 3 * MSS);
	assert_int_equal(o->s.sacked, 2 * MSS);
	sender_again(o, 1);
	/* Once more: the peer may have dropped it. */
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, true, o->now);
	assert_int_equal(o->s.lost, 5 * MSS);
	assert_int_equal(o->s.sacked, 0);
	assert_int_equal(lost_first(o), 1);
}

static void test_dropped_by_the_peer(void **state) /* RFC 2018, 8: the left edge, SACKed or not */
{
	struct sender *o = sender_new(5);
	(void)state;
	sender_sack(o, 1, 2, 4);
	sender_sack(o, 2, 0, 0); /* and 2 and 3 were dropped */
	o->now += 1000 * MS;
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now);
	assert_int_equal(lost_first(o), 2);
	assert_int_equal(o->s.lost, 4 * MSS);
}

static void test_karn(void **state) /* RFC 6298, 3 */
{
	struct sender *o = sender_new(3);
	(void)state;
	o->now += 200 * MS;
	sender_again(o, 1);
	o->now += 50 * MS;
	sender_sack(o, 2, 0, 0);
	assert_int_equal(o->news.acked, MSS);
	assert_int_equal(o->news.rtt_us, 0);
	assert_int_equal(o->news.least_us, 0);
}

/* ---- RFC 8985 -------------------------------------------------------------------------------- */

static void test_rack_by_time(void **state) /* RFC 8985, 6.2, step 5, without a window: step 4 */
{
	struct sender *o = sender_new(10);
	(void)state;
	o->now = 1105 * MS;
	sender_sack(o, 1, 6, 7); /* sent at 1005: rtt 100 ms */
	/* One segment is no evidence: min_RTT / 4 is given to the others. */
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
	sender_again(o, 1); /* and again lost */
	o->now += MS;
	assert_true(sent_add(&o->s, &o->pool, MSS, o->now)); /* 6 */
	assert_int_equal(sender_detect(o, true), 0);
	o->now += 100 * MS;
	sender_sack(o, 1, 2, 7); /* 6 arrived, sent after the retransmission */
	assert_int_equal(sender_detect(o, true), MSS);
	assert_int_equal(lost_first(o), 1);
}

static void test_rack_reordering(void **state) /* RFC 8985, 6.2, step 3 */
{
	struct sender *o = sender_new(10);
	(void)state;
	o->now = 1105 * MS;
	sender_sack(o, 1, 5, 6);
	assert_false(o->s.reordered);
	sender_sack(o, 1, 3, 4); /* never sent again, and after a later one */
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
	assert_int_equal(o->news.sacked, 2 * MSS);
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

/* A D-SACK of the last segment before `ack`. */
static void sender_dsack(struct sender *o, unsigned ack)
{
	sender_sack(o, ack, ack - 1, ack);
	assert_true(o->news.dsack);
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
	sender_sack(o, 1, 3, 4); /* SACKs: RACK takes care */
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
		sent_again(&o->s, &o->pool, from, to, o->now);
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
	assert_false(o->s.probing || o->news.probe_lost);
}

static void test_probe_twice(void **state) /* RFC 8985, 7.4.2: the D-SACK of the probe */
{
	struct sender *o = sender_probing(true);
	(void)state;
	sender_sack(o, 5, 0, 0); /* the originals */
	assert_true(o->s.probing);
	sender_dsack(o, 5);
	assert_false(o->s.probing || o->news.probe_lost);
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
	assert_false(o->s.probing || o->news.probe_lost);
}

static void
test_probe_mends(void **state) /* RFC 8985, 7.4.2: one loss, which congestion control hears of */
{
	struct sender *o = sender_probing(true);
	(void)state;
	sender_sack(o, 5, 0, 0);
	assert_true(o->s.probing);
	assert_true(sent_add(&o->s, &o->pool, MSS, o->now));
	o->now += 100 * MS;
	sender_sack(o, 6, 0, 0);
	assert_true(o->news.probe_lost);
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
	sender_sack(o, 3, 0, 0);
	assert_true(o->news.rtt_us > 0); /* of 2, which was sent once */
	assert_true(sent_probe_wait(&o->s, &o->rtt, MSS, 0) > 0);
}

/* ---- in vain --------------------------------------------------------------------------------- */

static void test_dsack_undoes(void **state) /* RFC 3708, RFC 2883, 5 */
{
	struct sender *o = sender_new(6);
	(void)state;
	o->now = 1110 * MS;
	sender_again(o, 1);
	sender_again(o, 2);
	sender_sack(o, 7, 1, 2);
	assert_true(o->news.dsack);
	assert_false(o->news.undone);
	sender_sack(o, 7, 2, 3);
	assert_true(o->news.undone);
	sender_sack(o, 7, 2, 3); /* nothing is left */
	assert_false(o->news.undone);
	/* of what was sent before the recovery: nothing to undo */
	o = sender_new(6);
	sender_sack(o, 3, 0, 0);
	sender_again(o, 3);
	sender_sack(o, 3, 1, 2);
	assert_true(o->news.dsack);
	assert_false(o->news.undone);
}

static void test_dsack_within_the_second(void **state) /* RFC 2883, 4 */
{
	struct sender *o = sender_new(9);
	struct sent_ack in = {.ack = ISS, .count = 2};
	(void)state;
	in.blocks[0] = (struct sack_block){segment(4), segment(5)};
	in.blocks[1] = (struct sack_block){segment(4), segment(7)};
	sender_ack(o, &in);
	assert_true(o->news.dsack);
	assert_int_equal(o->news.sacked, 3 * MSS);
	in.blocks[1] = (struct sack_block){segment(6), segment(7)};
	sender_ack(o, &in);
	assert_false(o->news.dsack);
}

static void test_eifel(void **state) /* RFC 3522, 3.2 */
{
	for (unsigned late = 0; late < 2; late++) {
		struct sender *o = sender_new(3);
		o->now = 1500 * MS;
		sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now);
		sender_again(o, 1);
		o->now += 100 * MS;
		struct sent_ack in = {.ack = segment(2), .echo_ns = (late ? 1501 : 1001) * MS};
		sender_ack(o, &in);
		assert_int_equal(o->news.spurious, !late);
	}
	(void)state;
}

static void test_f_rto(void **state) /* RFC 5682, 3.1 */
{
	struct sender *o = sender_new(5);
	(void)state;
	o->now = 1500 * MS;
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now);
	sender_again(o, 1);
	o->now += 20 * MS;
	sender_sack(o, 2, 0, 0); /* of which one, nobody knows */
	assert_false(o->news.original);
	sender_sack(o, 3, 0, 0); /* this was not sent again */
	assert_true(o->news.original);
	o = sender_new(5);
	o->now = 1500 * MS;
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now);
	assert_true(sent_add(&o->s, &o->pool, MSS, o->now)); /* 6: after the time-out */
	sender_sack(o, 1, 6, 7);
	assert_false(o->news.original);
}

/* ---- peers without SACK ---------------------------------------------------------------------- */

static void test_without_sack(void **state) /* RFC 5681, 3.2; RFC 6582, 3.2 */
{
	struct sender *o = sender_new(10);
	(void)state;
	o->now = 1110 * MS;
	for (unsigned n = 0; n < 3; n++)
		sent_duplicate(&o->s, MSS);
	assert_int_equal(sent_in_flight(&o->s), 7 * MSS);
	assert_int_equal(sent_first_lost(&o->s, &o->pool, MSS), MSS);
	assert_int_equal(sent_in_flight(&o->s), 6 * MSS);
	sender_again(o, 1);
	for (unsigned n = 0; n < 20; n++)
		sent_duplicate(&o->s, MSS); /* more than there can be */
	assert_int_equal(sent_in_flight(&o->s), MSS);
	o->now += 100 * MS;
	sender_sack(o, 4, 0, 0); /* a partial ACK: 1, and 2 and 3, which were guessed */
	assert_int_equal(o->news.acked, 3 * MSS);
	assert_int_equal(o->news.delivered, MSS);
	assert_int_equal(sent_first_lost(&o->s, &o->pool, MSS), MSS);
	assert_int_equal(lost_first(o), 4);
	sender_again(o, 4);
	sender_sack(o, 11, 0, 0);
	assert_int_equal(sent_in_flight(&o->s), 0);
	assert_int_equal(o->s.guessed, 0);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* A large window is some ranges: what is sent within 1/128 of a round trip is one. */
static void test_joined(void **state)
{
	struct sender *o = sender_new(1);
	(void)state;
	o->now = 1100 * MS;
	sender_sack(o, 2, 0, 0);
	for (unsigned n = 0; n < 50000; n++, o->now += 2000) /* within one round trip */
		assert_true(sent_add(&o->s, &o->pool, MSS, o->now));
	assert_in_range(o->s.ranges, 100, 130);
}

/* A peer that SACKs every second byte, and takes it back. */
static void test_hostile(void **state)
{
	struct sender *o = sender_new(200);
	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		for (uint32_t n = 1; n < 2000; n++) {
			struct sent_ack in = {.ack = ISS, .count = 4};
			for (unsigned i = 0; i < 4; i++) {
				uint32_t at = ISS + (n * 7919 + i * 50021) % 199999;
				in.blocks[i] = (struct sack_block){at, at + 1};
			}
			sender_ack(o, &in);
			assert_true(o->s.ranges <= SENT_RANGES);
		}
		sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, true, o->now);
		uint32_t from, to;
		while (sent_next_lost(&o->s, &o->pool, &from, &to))
			sent_again(&o->s, &o->pool, from, to - from > 300 ? from + 300 : to,
			           o->now);
		assert_true(o->s.ranges <= SENT_RANGES + SENT_RANGES_AGAIN);
		o->now += 500 * MS;
		sent_add(&o->s, &o->pool, MSS, o->now);
	}
	struct sent_ack in = {.ack = o->s.nxt};
	sender_ack(o, &in);
	assert_int_equal(o->pool.taken, 0);
}

/* With few cells: nothing is lost or counted twice, and all can still be sent and acknowledged. */
static void test_few_cells(void **state)
{
	struct sender *o = sender_new(0);
	uint64_t added = 0, acked = 0, refused = 0;
	(void)state;
	pool_init(&o->pool, o->cells, sizeof(*o->cells), 8);
	for (unsigned step = 0; step < 300000; step++, o->now += random_below(2) * MS) {
		uint32_t all = o->s.nxt - o->s.una, from, to;
		struct sent_ack in = {.ack = o->s.una};
		switch (random_below(6)) {
		case 0:
		case 1:
			if (all >= 20 * MSS)
				break;
			if (sent_add(&o->s, &o->pool, MSS, o->now))
				added += MSS;
			else
				refused++;
			break;
		case 2:
			in.ack += random_below(random_below(9) ? 1 : all + 1);
			in.count = 1;
			in.blocks[0].from = in.ack + random_below(all + 1);
			in.blocks[0].to = in.blocks[0].from + random_below(3000);
			sender_ack(o, &in);
			acked += o->news.acked;
			break;
		case 3:
			sender_detect(o, random_below(2));
			break;
		case 4:
			if (sent_next_lost(&o->s, &o->pool, &from, &to))
				sent_again(&o->s, &o->pool, from,
				           from + 1 + random_below(to - from), o->now);
			break;
		default:
			if (random_below(20) == 0)
				sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, random_below(2),
				               o->now);
		}
		uint32_t sacked = 0, lost = 0, at = o->s.una;
		for (uint32_t n = o->s.first; n; n = o->cells[n].next) {
			const struct sent_range *r = &o->cells[n];
			assert_int_equal(r->from, at);
			at = r->to;
			sacked += r->marks & SENT_SACKED ? r->to - r->from : 0;
			lost += r->marks & SENT_LOST ? r->to - r->from : 0;
		}
		assert_int_equal(at, o->s.nxt);
		assert_int_equal(sacked, o->s.sacked);
		assert_int_equal(lost, o->s.lost);
		assert_int_equal(o->pool.taken, o->s.ranges);
	}
	assert_true(refused > 100);
	assert_int_equal(added - acked, o->s.nxt - o->s.una);
	sent_clear(&o->s, &o->pool);
	assert_int_equal(o->pool.taken, 0);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static uint32_t some(struct model *m)
{
	return m->una + random_below(m->nxt - m->una + 1);
}

static void random_ack(struct model *m)
{
	struct sent_ack in = {.ack = m->una, .now_ns = m->now, .mss = MODEL_MSS};
	if (random_below(2))
		in.ack = random_below(8) ? m->una + random_below((m->nxt - m->una) / 4 + 1)
		                         : some(m);
	if (random_below(20) == 0)
		in.ack -= random_below(30); /* an old one */
	in.count = (uint8_t)random_below(5);
	in.pure = random_below(2);
	for (unsigned n = 0; n < in.count; n++) {
		in.blocks[n].from = some(m) - (random_below(10) ? 0 : random_below(40));
		in.blocks[n].to = in.blocks[n].from + random_below(random_below(3) ? 12 : 60);
	}
	if (in.count > 1 && random_below(8) == 0) /* within the second */
		in.blocks[0] = (struct sack_block){in.blocks[1].from, in.blocks[1].to};
	if (random_below(2))
		in.echo_ns = m->now - random_below(200) * MS;
	model_ack(m, &in);
}

static void test_random(void **state)
{
	static struct model m;
	(void)state;
	model_init(&m, UINT32_MAX - 100000);
	for (unsigned step = 0; step < 200000; step++) {
		m.now += random_below(3) ? 0 : random_below(30) * MS / 2;
		unsigned what = random_below(100);
		if (what < 30)
			model_add(&m, 1 + random_below(3 * MODEL_MSS));
		else if (what < 60)
			random_ack(&m);
		else if (what < 80)
			model_detect(&m, random_below(2));
		else if (what < 95)
			model_again_lost(&m);
		else if (what == 95)
			model_time_out(&m, random_below(4) == 0);
		else if (what == 96)
			model_recovered(&m);
		else if (what == 97)
			model_probe(&m, random_below(2));
		model_check(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_cumulative),
	        cmocka_unit_test(test_pipe),
	        cmocka_unit_test(test_blocks_that_cannot_be),
	        cmocka_unit_test(test_forgotten),
	        cmocka_unit_test(test_dropped_by_the_peer),
	        cmocka_unit_test(test_karn),
	        cmocka_unit_test(test_rack_by_time),
	        cmocka_unit_test(test_rack_duplicates),
	        cmocka_unit_test(test_rack_lost_retransmission),
	        cmocka_unit_test(test_rack_reordering),
	        cmocka_unit_test(test_rack_spurious),
	        cmocka_unit_test(test_rack_window),
	        cmocka_unit_test(test_rack_time_out),
	        cmocka_unit_test(test_probe_wait),
	        cmocka_unit_test(test_probe_of_new_data),
	        cmocka_unit_test(test_probe_twice),
	        cmocka_unit_test(test_probe_twice_without_dsack),
	        cmocka_unit_test(test_probe_mends),
	        cmocka_unit_test(test_probe_needs_a_sample),
	        cmocka_unit_test(test_dsack_undoes),
	        cmocka_unit_test(test_dsack_within_the_second),
	        cmocka_unit_test(test_eifel),
	        cmocka_unit_test(test_f_rto),
	        cmocka_unit_test(test_without_sack),
	        cmocka_unit_test(test_joined),
	        cmocka_unit_test(test_hostile),
	        cmocka_unit_test(test_few_cells),
	        cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
