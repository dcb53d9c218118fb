// SPDX-License-Identifier: Apache-2.0
/* One direction of a link in virtual time: losses, duplicates, reordering, MTU and memory. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#include "direction_rig.h"
#include "packets.h"

/* ---- chance ---------------------------------------------------------------------------------- */

static void check_share(uint64_t hits, double draws, double share)
{
	if (fabs((double)hits - draws * share) > 5 * sqrt(draws * share * (1 - share)))
		fail_msg("%lu of %.0f, not %g", hits, draws, share);
}

static void test_losses_have_their_probability(void **state)
{
	struct rig *r = rig_open("loss 3%");
	rig_send_many(r, CAPACITY - 1, 100);
	check_share(r->d.counts.drop[DROP_LOSS], CAPACITY - 1, 0.03);
	assert_int_equal(r->count + r->d.counts.drop[DROP_LOSS], CAPACITY - 1);
	rig_close(r);
}

/* The same packets have the same fate, whatever else the link does to them; another seed has
 * another one. */
static void test_seed_determines_fates(void **state)
{
	static const char *const texts[] = {"loss 3%", "loss 3%",
	                                    "loss 3% delay 9ms jitter 5ms duplicate 7% order free"};
	uint8_t lost[4][1000];
	for (unsigned i = 0; i < 4; i++) {
		struct rig *r = rig_open(texts[i % 3]);
		if (i == 3)
			direction_seed(&r->d, 2);
		memset(lost[i], 1, sizeof(lost[i]));
		rig_send_many(r, 1000, 100);
		for (unsigned k = 0; k < r->count; k++)
			if (r->number[k] < 1000)
				lost[i][r->number[k]] = 0;
		rig_close(r);
	}
	assert_memory_equal(lost[0], lost[1], sizeof(lost[0]));
	assert_memory_equal(lost[0], lost[2], sizeof(lost[0]));
	assert_memory_not_equal(lost[0], lost[3], sizeof(lost[0]));
}

/* Gilbert-Elliott: the share of bad time, of losses in it, and the mean length of a burst. */
static void test_bursts_have_their_share_and_length(void **state)
{
	struct rig *r = rig_open("burst_enter 1% burst_leave 20% burst_loss 100%");
	rig_send_many(r, CAPACITY - 1, 100);
	const struct direction_counts *c = &r->d.counts;
	double lost = (double)c->drop[DROP_BURST], bursts = (double)c->bursts;
	assert_int_equal(c->drop[DROP_LOSS], 0);
	/* 1 of 100 + 5 packets begins a burst of 5. */
	check_share(c->bursts, CAPACITY, 1.0 / 105);
	assert_true(fabs(lost / bursts - 5) < 5 * sqrt(20 / bursts));
	/* They are in a row: as many gaps in the numbers as bursts, but for some that touch. */
	unsigned gaps = 0;
	for (unsigned i = 1; i < r->count; i++)
		gaps += r->number[i] != r->number[i - 1] + 1;
	assert_in_range(gaps, c->bursts - 1, c->bursts);
	rig_close(r);
}

static void test_duplicates_follow_their_originals(void **state)
{
	struct rig *r = rig_open("duplicate 5% delay 2ms");
	rig_send_many(r, 10000, 100);
	unsigned twice = 0;
	for (unsigned i = 1; i < r->count; i++) {
		twice += r->number[i] == r->number[i - 1];
		assert_true(r->number[i] - r->number[i - 1] <= 1);
	}
	assert_int_equal(twice, r->d.counts.duplicated);
	check_share(twice, 10000, 0.05);
	rig_close(r);
}

/* By distance: so many packets overtake it, no more and no fewer. */
static void test_reordered_packets_wait_for_their_distance(void **state)
{
	struct rig *r = rig_open("reorder 2% reorder_distance 3 reorder_delay 1s delay 1ms");
	rig_send_many(r, 10000, 100);
	assert_int_equal(r->count, 10000);
	unsigned late = 0;
	for (unsigned i = 0; i < r->count; i++) {
		unsigned passed = 0;
		for (unsigned k = i < 20 ? 0 : i - 20; k < i; k++)
			passed += r->number[k] > r->number[i];
		/* Some of those that overtake it are reordered as well. */
		if (passed) {
			assert_in_range(passed, 3, 6);
			late++;
		}
	}
	/* The last ones have no followers. */
	assert_in_range(late, r->d.counts.reordered - 2, r->d.counts.reordered);
	check_share(r->d.counts.reordered, 10000, 0.02);
	rig_close(r);
}

/* Without followers it waits for reorder_delay, and so it does with distance 0. */
static void test_reordering_ends_after_its_delay(void **state)
{
	static const char *const texts[] = {"reorder 100% reorder_distance 3 reorder_delay 7ms",
	                                    "reorder 100% reorder_delay 7ms"};
	for (unsigned i = 0; i < 2; i++) {
		struct rig *r = rig_open(texts[i]);
		rig_send(r, 0);
		rig_run(r, UINT64_MAX);
		assert_int_equal(r->time[0], 5 * NS + 7 * MS);
		rig_close(r);
	}
}

/* More packets are reordered than capacity allows: they pass, and none is lost. */
static void test_reordering_beyond_capacity_passes_packets(void **state)
{
	struct rig *r = rig_open("reorder 100% reorder_distance 1000 reorder_delay 1s");
	rig_send_many(r, 600, 1);
	assert_int_equal(r->count, 600);
	assert_int_equal(r->d.counts.reordered, HELD_MAX);
	rig_close(r);
}

/* ARP is late, and nothing else happens to it: it waits for no packet, and has no number. */
static void test_arp_is_only_delayed(void **state)
{
	struct rig *r = rig_open("loss 100% duplicate 100% rate 8kbit queue_packets 1 delay 3ms");
	rig_send(r, 0);
	rig_send(r, 1);
	for (unsigned i = 0; i < 10; i++) {
		uint32_t place = pool_take(&r->pool);
		ethernet(pool_bytes(&r->pool, place), 0x0806);
		r->pool.packet[place].length = 60;
		r->pool.packet[place].arrived = r->now;
		direction_arrive(&r->d, place);
	}
	rig_run(r, 5 * NS + 3 * MS);
	assert_int_equal(r->d.counts.delivered, 10);
	assert_int_equal(r->d.counts.spared, 10);
	assert_int_equal(r->d.counts.transmitted, 1);
	rig_close(r);
}

/* ---- MTU ------------------------------------------------------------------------------------- */

static void test_oversized_packets_are_answered_or_fragmented(void **state)
{
	struct rig *r = rig_open("mtu 1000 delay 1ms");
	rig_send_as(r, 0, 1000, DF);
	rig_send_as(r, 1, 1001, DF);
	assert_int_equal(r->d.counts.drop[DROP_MTU], 1);
	/* The answer is for the sender, at once. */
	assert_int_equal(r->back.counts.answers, 1);
	assert_int_equal(direction_next(&r->back), r->now);
	/* Without DF it is cut. */
	rig_send_as(r, 2, 1500, 0);
	assert_int_equal(r->d.counts.fragmented, 1);
	assert_int_equal(r->d.counts.fragments, 2);
	rig_run(r, UINT64_MAX);
	assert_int_equal(r->count, 3);
	rig_close(r);
}

static void test_silent_mtu_drops_without_answer(void **state)
{
	struct rig *r = rig_open("mtu 1000 too_big silent");
	rig_send_as(r, 0, 1001, DF);
	rig_send_as(r, 1, 900, DF);
	rig_run(r, UINT64_MAX);
	assert_int_equal(r->count, 1);
	assert_int_equal(r->d.counts.drop[DROP_MTU], 1);
	assert_int_equal(r->back.counts.answers, 0);
	rig_close(r);
}

/* Duplicates exhaust the pool: drops are counted, and the rest continues. */
static void test_exhausted_pool_is_counted(void **state)
{
	struct rig *r = rig_open("duplicate 100% delay 1s");
	for (unsigned i = 0; r->pool.used < CAPACITY; i++)
		rig_send(r, i);
	uint64_t refused = r->d.counts.drop[DROP_NO_MEMORY];
	uint32_t one = r->d.wire.entry[0].index;
	heap_take(&r->d.wire);
	direction_delivered(&r->d, one);
	rig_send(r, 0);
	assert_int_equal(r->d.counts.drop[DROP_NO_MEMORY], refused + 1);
	r->count = 0;
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_losses_have_their_probability),
	        cmocka_unit_test(test_seed_determines_fates),
	        cmocka_unit_test(test_bursts_have_their_share_and_length),
	        cmocka_unit_test(test_duplicates_follow_their_originals),
	        cmocka_unit_test(test_reordered_packets_wait_for_their_distance),
	        cmocka_unit_test(test_reordering_ends_after_its_delay),
	        cmocka_unit_test(test_reordering_beyond_capacity_passes_packets),
	        cmocka_unit_test(test_arp_is_only_delayed),
	        cmocka_unit_test(test_oversized_packets_are_answered_or_fragmented),
	        cmocka_unit_test(test_silent_mtu_drops_without_answer),
	        cmocka_unit_test(test_exhausted_pool_is_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
