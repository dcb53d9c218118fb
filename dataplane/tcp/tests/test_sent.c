// SPDX-License-Identifier: Apache-2.0
/* Sent, lost, retransmitted and acknowledged data: each rule, and random sequences against a model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define CHECK(condition) assert_true(condition)
#include "random.h"
#include "sender.h"
#include "sent_model.h"

/* ---- RFC 6675, 2018: the scoreboard ---------------------------------------------------------- */

static void test_cumulative(void **state) /* RFC 9293, 3.10.7.4; RFC 6298, 3 */
{
	struct sender *o = sender_new(10);
	(void)state;
	assert_int_equal(sent_in_flight(&o->s), 10 * MSS);
	o->now = 1100 * MS;
	struct sent_ack in = {.ack = segment(3) + 400};
	sender_ack(o, &in);
	assert_int_equal(o->outcome.acked, 2400);
	assert_int_equal(o->outcome.delivered, 2400);
	assert_int_equal(o->outcome.rtt_us, 100000); /* of the first */
	assert_int_equal(o->outcome.min_us, 98000);  /* of the third */
	assert_int_equal(sent_in_flight(&o->s), 7600);
	sender_ack(o, &in); /* a repeated ACK has no effect */
	assert_int_equal(o->outcome.acked, 0);
	assert_int_equal(o->outcome.delivered, 0);
	assert_int_equal(o->outcome.rtt_us, 0);
	in.ack = segment(11) + 1; /* beyond what was sent */
	sender_ack(o, &in);
	assert_int_equal(o->outcome.acked, 0);
	sender_sack(o, 11, 0, 0);
	assert_int_equal(o->pool.taken, 0);
}

static void test_pipe(void **state) /* RFC 6675, 4, SetPipe() */
{
	struct sender *o = sender_new(10);
	(void)state;
	o->now = 1105 * MS;
	sender_sack(o, 1, 3, 6);
	assert_int_equal(o->outcome.sacked, 3 * MSS);
	assert_int_equal(o->outcome.delivered, 3 * MSS);
	assert_int_equal(sent_in_flight(&o->s), 7 * MSS);
	assert_int_equal(sender_detect(o, false), 2 * MSS); /* 1 and 2 */
	assert_int_equal(sent_in_flight(&o->s), 5 * MSS);
	sender_again(o, 1);
	assert_int_equal(sent_in_flight(&o->s), 6 * MSS);
	assert_int_equal(lost_first(o), 2);
	sender_sack(o, 1, 3, 6); /* reported again: no effect */
	assert_int_equal(o->outcome.delivered, 0);
	sender_sack(o, 6, 0, 0);
	assert_int_equal(o->outcome.acked, 5 * MSS);
	assert_int_equal(o->outcome.delivered, 2 * MSS);
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
	assert_int_equal(o->outcome.sacked, 0);
	assert_int_equal(o->s.ranges, 3);
}

static void test_forgotten(void **state) /* RFC 2018, 8 */
{
	struct sender *o = sender_new(5);
	(void)state;
	sender_sack(o, 1, 2, 4);
	o->now += 1000 * MS;
	/* First RTO: SACKed data is not retransmitted. */
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

static void test_reneging(void **state) /* RFC 2018, 8: the left edge, SACKed or not */
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
	assert_int_equal(o->outcome.acked, MSS);
	assert_int_equal(o->outcome.rtt_us, 0);
	assert_int_equal(o->outcome.min_us, 0);
}

static void test_sacked_after_a_time_out(void **state) /* RFC 6298, 3 */
{
	struct sender *o = sender_new(3);
	(void)state;
	o->now += 10000 * MS;
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now);
	sender_sack(o, 1, 3, 4); /* at an unknown time */
	assert_int_equal(o->outcome.sacked, MSS);
	assert_int_equal(o->outcome.rtt_us, 0);
	assert_int_equal(o->outcome.min_us, 0);
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
	assert_true(o->outcome.dsack);
	assert_false(o->outcome.undone);
	sender_sack(o, 7, 2, 3);
	assert_true(o->outcome.undone);
	sender_sack(o, 7, 2, 3); /* nothing is left */
	assert_false(o->outcome.undone);
	/* of what was sent before the recovery: nothing to undo */
	o = sender_new(6);
	sender_sack(o, 3, 0, 0);
	sender_again(o, 3);
	sender_sack(o, 3, 1, 2);
	assert_true(o->outcome.dsack);
	assert_false(o->outcome.undone);
}

static void test_dsack_within_the_second(void **state) /* RFC 2883, 4 */
{
	struct sender *o = sender_new(9);
	struct sent_ack in = {.ack = ISS, .count = 2};
	(void)state;
	in.blocks[0] = (struct sack_block){segment(4), segment(5)};
	in.blocks[1] = (struct sack_block){segment(4), segment(7)};
	sender_ack(o, &in);
	assert_true(o->outcome.dsack);
	assert_int_equal(o->outcome.sacked, 3 * MSS);
	in.blocks[1] = (struct sack_block){segment(6), segment(7)};
	sender_ack(o, &in);
	assert_false(o->outcome.dsack);
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
		assert_int_equal(o->outcome.spurious, !late);
	}
	(void)state;
}

/* Retransmissions of an earlier recovery are no evidence. */
static void test_eifel_of_another_recovery(void **state) /* RFC 3522, 3.2 */
{
	struct sender *o = sender_new(3);
	(void)state;
	o->now = 1500 * MS;
	sender_again(o, 1);
	sent_recovered(&o->s);
	o->now += 50 * MS;
	sender_again(o, 2);
	o->now += 50 * MS;
	struct sent_ack in = {.ack = segment(2), .echo_ns = 1501 * MS};
	sender_ack(o, &in);
	assert_false(o->outcome.spurious);
}

static void test_f_rto(void **state) /* RFC 5682, 3.1 */
{
	struct sender *o = sender_new(5);
	(void)state;
	o->now = 1500 * MS;
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now);
	sender_again(o, 1);
	o->now += 20 * MS;
	sender_sack(o, 2, 0, 0); /* of an unknown segment */
	assert_false(o->outcome.original);
	sender_sack(o, 3, 0, 0); /* not retransmitted */
	assert_true(o->outcome.original);
	o = sender_new(5);
	o->now = 1500 * MS;
	sent_timed_out(&o->s, &o->pool, &o->rtt, MSS, false, o->now);
	assert_true(sent_add(&o->s, &o->pool, MSS, o->now)); /* 6: after the time-out */
	sender_sack(o, 1, 6, 7);
	assert_false(o->outcome.original);
}

/* ---- peers without SACK ---------------------------------------------------------------------- */

static void test_without_sack(void **state) /* RFC 5681, 3.2; RFC 6582, 3.2 */
{
	struct sender *o = sender_new(10);
	(void)state;
	o->now = 1110 * MS;
	for (unsigned n = 0; n < 3; n++)
		assert_int_equal(sent_duplicate(&o->s, MSS), MSS);
	assert_int_equal(sent_in_flight(&o->s), 7 * MSS);
	assert_int_equal(sent_first_lost(&o->s, &o->pool, MSS), MSS);
	assert_int_equal(sent_in_flight(&o->s), 6 * MSS);
	sender_again(o, 1);
	for (unsigned n = 0; n < 20; n++)
		sent_duplicate(&o->s, MSS); /* more than there can be */
	assert_int_equal(sent_duplicate(&o->s, MSS), 0);
	assert_int_equal(sent_in_flight(&o->s), MSS);
	o->now += 100 * MS;
	sender_sack(o, 4, 0, 0); /* a partial ACK: 1, and 2 and 3, which were guessed */
	assert_int_equal(o->outcome.acked, 3 * MSS);
	assert_int_equal(o->outcome.delivered, MSS);
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

/* Where ranges run out, what is joined brings no sample: its time is that of its end. */
static void test_ambiguous(void **state) /* RFC 6298, 3 */
{
	struct sender *o = sender_new(0);
	(void)state;
	pool_init(&o->pool, o->cells, sizeof(*o->cells), 3);
	for (unsigned n = 0; n < 5; n++, o->now += 50 * MS)
		assert_true(sent_add(&o->s, &o->pool, MSS, o->now));
	assert_int_equal(o->s.ranges, 2);
	sender_sack(o, 2, 0, 0);
	assert_int_equal(o->outcome.rtt_us, 250000);
	sender_sack(o, 6, 0, 0);
	assert_int_equal(o->outcome.delivered, 4 * MSS);
	assert_int_equal(o->outcome.rtt_us, 0);
	assert_int_equal(o->s.rack_us, 250000);
}

/* A peer that SACKs every second byte, and reneges. */
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
			sent_retransmitted(&o->s, &o->pool, from, to - from > 300 ? from + 300 : to,
			                   o->now);
		assert_true(o->s.ranges <= SENT_RANGES + SENT_RANGES_RETRANSMIT);
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
			acked += o->outcome.acked;
			break;
		case 3:
			sender_detect(o, random_below(2));
			break;
		case 4:
			if (sent_next_lost(&o->s, &o->pool, &from, &to))
				sent_retransmitted(&o->s, &o->pool, from,
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

/* Connections with many ranges leave a quarter of the pool to those that have few. */
static void test_shared_pool(void **state)
{
	struct sender *o = sender_new(0);
	struct sent other;

	(void)state;
	pool_init(&o->pool, o->cells, sizeof(*o->cells), 129);
	for (unsigned n = 0; n < 200; n++, o->now += MS)
		assert_true(sent_add(&o->s, &o->pool, MSS, o->now));
	assert_int_equal(pool_left(&o->pool), 129 / 4);
	sender_sack(o, 1, 20, 21);
	assert_int_equal(o->s.sacked, MSS);
	sent_init(&other, 1);
	for (unsigned n = 0; n < SENT_RANGES_RESERVED; n++, o->now += MS)
		assert_true(sent_add(&other, &o->pool, MSS, o->now));
	assert_int_equal(other.ranges, SENT_RANGES_RESERVED);
	sent_clear(&other, &o->pool);
	sent_clear(&o->s, &o->pool);
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
		else if (what == 98)
			model_found(&m);
		else if (what == 97)
			model_probe(&m, random_below(2));
		CHECK(model_agrees(&m));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_cumulative),
	        cmocka_unit_test(test_pipe),
	        cmocka_unit_test(test_blocks_that_cannot_be),
	        cmocka_unit_test(test_forgotten),
	        cmocka_unit_test(test_reneging),
	        cmocka_unit_test(test_karn),
	        cmocka_unit_test(test_sacked_after_a_time_out),
	        cmocka_unit_test(test_dsack_undoes),
	        cmocka_unit_test(test_dsack_within_the_second),
	        cmocka_unit_test(test_eifel),
	        cmocka_unit_test(test_eifel_of_another_recovery),
	        cmocka_unit_test(test_f_rto),
	        cmocka_unit_test(test_without_sack),
	        cmocka_unit_test(test_joined),
	        cmocka_unit_test(test_ambiguous),
	        cmocka_unit_test(test_hostile),
	        cmocka_unit_test(test_few_cells),
	        cmocka_unit_test(test_shared_pool),
	        cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
