// SPDX-License-Identifier: Apache-2.0
/* One direction of a link in virtual time: delay, rate and queue. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#include "direction_rig.h"
#include "packets.h"

/* ---- delay ----------------------------------------------------------------------------------- */

static void test_plain_link_delivers_at_once(void **state)
{
	struct rig *r = rig_open("");
	rig_send_many(r, 100, 10);
	assert_int_equal(r->count, 100);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(r->number[i], i);
		assert_int_equal(r->time[i], 5 * NS + 10 * (i + 1));
	}
	rig_close(r);
}

static void test_packets_are_late_by_the_delay(void **state)
{
	struct rig *r = rig_open("delay 20ms");
	rig_send_many(r, 100, 10);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(r->number[i], i);
		assert_int_equal(r->time[i], 5 * NS + 10 * (i + 1) + 20 * MS);
	}
	assert_int_equal(r->d.counts.way_max, 100);
	rig_close(r);
}

/* Within its limits, spread over them, and in order or not. */
static void check_jitter(const char *text, bool ordered)
{
	struct rig *r = rig_open(text);
	double sum = 0;
	unsigned overtaken = 0;
	rig_send_many(r, 10000, ordered ? 100 * MS : 1 * MS);
	assert_int_equal(r->count, 10000);
	for (unsigned i = 0; i < r->count; i++) {
		uint64_t sent = 5 * NS + (ordered ? 100 : 1) * MS * (r->number[i] + 1);
		uint64_t delay = r->time[i] - sent;
		assert_in_range(delay, 10 * MS, 30 * MS);
		sum += (double)delay / MS;
		overtaken += i && r->number[i] < r->number[i - 1];
	}
	assert_true(fabs(sum / 10000 - 20) < 0.3); /* five deviations of a uniform one */
	assert_int_equal(overtaken > 0, !ordered);
	rig_close(r);
}

static void test_jitter_stays_within_its_limits(void **state)
{
	check_jitter("delay 10ms jitter 20ms", true);
	check_jitter("delay 10ms jitter 20ms distribution normal", true);
	check_jitter("delay 10ms jitter 20ms order free", false);
	check_jitter("delay 10ms jitter 20ms distribution normal order free", false);
}

/* With "order keep", packets in close succession wait for each other. */
static void test_kept_order_delays_later_packets(void **state)
{
	struct rig *r = rig_open("delay 10ms jitter 20ms");
	rig_send_many(r, 10000, 1000);
	for (unsigned i = 0; i < r->count; i++)
		assert_int_equal(r->number[i], i);
	rig_close(r);
}

/* A shorter delay is for later packets, which then overtake. */
static void test_new_delay_applies_to_later_packets(void **state)
{
	struct rig *r = rig_open("delay 20ms");
	struct params p = r->d.params;
	rig_send(r, 0);
	p.delay = 5 * MS;
	direction_set(&r->d, &p);
	rig_send(r, 1);
	rig_run(r, UINT64_MAX);
	assert_int_equal(r->number[0], 1);
	assert_int_equal(r->time[0], 5 * NS + 5 * MS);
	assert_int_equal(r->time[1], 5 * NS + 20 * MS);
	rig_close(r);
}

static void test_hurry_delivers_all_packets_now(void **state)
{
	struct rig *r = rig_open("delay 1000s rate 8000bit reorder 20% reorder_distance 3");
	for (unsigned i = 0; i < 100; i++)
		rig_send(r, i);
	assert_int_equal(direction_on_the_way(&r->d), 100);
	direction_hurry(&r->d, r->now);
	rig_run(r, r->now);
	assert_int_equal(r->count, 100);
	assert_int_equal(r->now, 5 * NS);
	/* The transmitter is free again. */
	rig_send(r, 100);
	rig_run(r, UINT64_MAX);
	uint64_t min = 5 * NS + 1 * NS + 1000 * NS; /* or it waits for others */
	assert_in_range(r->time[100], min, min + 10 * MS);
	rig_close(r);
}

/* ---- rate and queue -------------------------------------------------------------------------- */

/* 8 Mbit/s are one frame of 1000 bytes a millisecond. */
static void test_rate_spaces_packets(void **state)
{
	struct rig *r = rig_open("rate 8mbit delay 3ms");
	rig_send_many(r, 100, 1000);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(r->time[i], 5 * NS + 1000 + (i + 1) * MS + 3 * MS);
	/* Slower than the rate: the transmitter waits for packets, and saves nothing up. */
	r->count = 0;
	uint64_t begin = r->now;
	rig_send_many(r, 10, 5 * MS);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(r->time[i], begin + (5 * (i + 1) + 1 + 3) * MS);
	rig_close(r);
}

/* The rate is never exceeded between any two moments. */
static void test_rounding_never_exceeds_the_rate(void **state)
{
	struct rig *r = rig_open("rate 999999937bit overhead 24");
	rig_send_many(r, 900, 1);
	double min = 1024 * 8 / 0.999999937;
	for (unsigned i = 1; i < 900; i++)
		assert_true((double)(r->time[i] - r->time[0]) >= min * i);
	assert_true((double)(r->time[899] - r->time[0]) < (min + 1) * 899);
	rig_close(r);
}

/* A new rate applies to queued packets; the transmitter finishes its current packet. */
static void test_new_rate_applies_to_queued_packets(void **state)
{
	struct rig *r = rig_open("rate 8kbit");
	struct params p = r->d.params;
	rig_send(r, 0);
	rig_send(r, 1);
	p.rate = 8000000;
	direction_set(&r->d, &p);
	rig_run(r, UINT64_MAX);
	assert_int_equal(r->time[0], 5 * NS + 1 * NS);
	assert_int_equal(r->time[1], 5 * NS + 1 * NS + 1 * MS);
	rig_close(r);
}

static void test_full_queue_drops_arrivals(void **state)
{
	/* The first is being sent, ten wait. */
	struct rig *r = rig_open("rate 8mbit queue_packets 10");
	rig_send_many(r, 50, 0);
	assert_int_equal(r->count, 11);
	assert_int_equal(r->d.counts.drop[DROP_TAIL], 39);
	rig_close(r);
	r = rig_open("rate 8mbit queue_packets 0 queue_bytes 4999");
	rig_send_many(r, 50, 0);
	assert_int_equal(r->count, 1 + 4);
	assert_int_equal(r->d.counts.drop[DROP_TAIL], 45);
	rig_close(r);
	/* One packet per millisecond is exactly the rate: no packet is lost. */
	r = rig_open("rate 8mbit queue_packets 1");
	rig_send_many(r, 500, 1 * MS);
	assert_int_equal(r->count, 500);
	rig_close(r);
}

/* ECT is marked from the threshold on, everything else dropped. */
static void test_ecn_is_marked_above_the_threshold(void **state)
{
	struct rig *r = rig_open("rate 8mbit red_min 3000 red_max 3000 ecn on");
	for (unsigned i = 0; i < 10; i++) {
		uint32_t place = pool_take(&r->pool);
		uint8_t *bytes = pool_bytes(&r->pool, place);
		r->pool.packet[place].length = packet_v4(bytes, 986, 0, 0);
		r->pool.packet[place].arrived = r->now;
		bytes[ETHERNET + 1] = i % 2 ? 2 : 0;
		direction_arrive(&r->d, place);
	}
	/* 0 is sent, 1 to 3 wait: from there on 5, 7 and 9 are marked. */
	assert_int_equal(r->d.counts.marked, 3);
	assert_int_equal(r->d.counts.drop[DROP_RED], 3);
	rig_close(r);
}

/* Between the thresholds the probability grows: measured with a queue of constant length. */
static void test_early_drops_grow_between_thresholds(void **state)
{
	struct rig *r = rig_open("rate 8mbit red_min 2000 red_max 22000 red_probability 50% "
	                         "queue_packets 0");
	rig_send_many(r, 12, 0);
	uint64_t before = r->d.counts.drop[DROP_RED];
	assert_true(before < 12);
	rig_run(r, UINT64_MAX);
	/* 12 packets wait, 12000 bytes: a quarter of the arrivals is dropped. */
	unsigned lost = 0, tried = 4000;
	for (unsigned i = 0; i < tried; i++) {
		rig_run(r, r->now + 100 * MS);
		uint64_t had = r->d.counts.drop[DROP_RED];
		while (r->d.queue.packets < 12)
			rig_send(r, i);
		had = r->d.counts.drop[DROP_RED];
		rig_send(r, i);
		lost += r->d.counts.drop[DROP_RED] > had;
		rig_run(r, UINT64_MAX);
		r->count = 0;
	}
	assert_true(fabs(lost - tried * 0.25) < 5 * sqrt(tried * 0.25 * 0.75));
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_plain_link_delivers_at_once),
	        cmocka_unit_test(test_packets_are_late_by_the_delay),
	        cmocka_unit_test(test_jitter_stays_within_its_limits),
	        cmocka_unit_test(test_kept_order_delays_later_packets),
	        cmocka_unit_test(test_new_delay_applies_to_later_packets),
	        cmocka_unit_test(test_hurry_delivers_all_packets_now),
	        cmocka_unit_test(test_rate_spaces_packets),
	        cmocka_unit_test(test_rounding_never_exceeds_the_rate),
	        cmocka_unit_test(test_new_rate_applies_to_queued_packets),
	        cmocka_unit_test(test_full_queue_drops_arrivals),
	        cmocka_unit_test(test_ecn_is_marked_above_the_threshold),
	        cmocka_unit_test(test_early_drops_grow_between_thresholds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
