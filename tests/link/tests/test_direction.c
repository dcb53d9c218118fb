// SPDX-License-Identifier: Apache-2.0
/* One direction in virtual time: what comes out, and when, of what went in. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#include "direction.h"
#include "packets.h"

#define MS     1000000ull
#define NS     1000000000ull
#define PLACES 20000u
#define DF     0x4000u

/* Both directions, and what came out of the first one: packets carry their number. */
struct rig {
	struct pool pool;
	struct direction d, back;
	uint64_t now, count;
	uint32_t number[PLACES];
	uint64_t time[PLACES];
};

static struct rig *rig_open(const char *text)
{
	struct rig *r = calloc(1, sizeof(*r));
	char error[PARAMS_ERROR], *copy = strdup(text);
	struct params p;
	params_default(&p);
	assert_int_equal(pool_open(&r->pool, PLACES, ROOM), 0);
	assert_int_equal(direction_open(&r->d, &r->pool, &r->back), 0);
	assert_int_equal(direction_open(&r->back, &r->pool, &r->d), 0);
	if (params_read(&p, copy, error))
		fail_msg("%s", error);
	free(copy);
	direction_set(&r->d, &p);
	direction_seed(&r->d, 1);
	r->now = 5 * NS;
	return r;
}

/* Takes out what is due, up to a time; UINT64_MAX: all. Each packet leaves when it is due. */
static void rig_run(struct rig *r, uint64_t until)
{
	for (uint64_t next; (next = direction_next(&r->d)) <= until && next != UINT64_MAX;) {
		r->now = next > r->now ? next : r->now;
		direction_advance(&r->d, r->now);
		for (uint32_t i; (i = direction_take(&r->d, r->now)) != STORE_NONE;) {
			memcpy(&r->number[r->count], pool_bytes(&r->pool, i) + 40, 4);
			r->time[r->count++] = r->now;
			direction_delivered(&r->d, i);
		}
	}
	if (until != UINT64_MAX)
		r->now = until;
}

/* Everything that went in has come out, or is counted. */
static void rig_close(struct rig *r)
{
	const struct direction_counts *c = &r->d.counts;
	uint64_t dropped = 0;
	rig_run(r, UINT64_MAX);
	for (unsigned i = 0; i < DROP_COUNT; i++)
		dropped += c->drop[i];
	assert_int_equal(c->arrived + c->duplicated + c->fragments,
	                 c->delivered + dropped + c->fragmented);
	assert_int_equal(direction_on_the_way(&r->d), 0);
	assert_int_equal(r->pool.used, direction_on_the_way(&r->back));
	direction_close(&r->d);
	direction_close(&r->back);
	pool_close(&r->pool);
	free(r);
}

static void rig_send_as(struct rig *r, uint32_t number, unsigned length, unsigned flags)
{
	uint32_t i = pool_take(&r->pool);
	assert_int_not_equal(i, STORE_NONE);
	uint8_t *bytes = pool_bytes(&r->pool, i);
	r->pool.packet[i].length = packet_v4(bytes, length, flags, 0);
	memcpy(bytes + 40, &number, 4);
	r->pool.packet[i].arrived = r->now;
	direction_arrive(&r->d, i);
}

static void rig_send(struct rig *r, uint32_t number)
{
	rig_send_as(r, number, 986, DF); /* a frame of 1000 bytes */
}

/* So many packets, one each `gap` ns; then all arrive. */
static void rig_send_many(struct rig *r, unsigned count, uint64_t gap)
{
	for (unsigned i = 0; i < count; i++) {
		rig_run(r, r->now + gap);
		rig_send(r, i);
	}
	rig_run(r, UINT64_MAX);
}

/* ---- delay ----------------------------------------------------------------------------------- */

static void test_nothing(void **state)
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

static void test_delay(void **state)
{
	struct rig *r = rig_open("delay 20ms");
	rig_send_many(r, 100, 10);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(r->number[i], i);
		assert_int_equal(r->time[i], 5 * NS + 10 * (i + 1) + 20 * MS);
	}
	assert_int_equal(r->d.counts.way_most, 100);
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

static void test_jitter(void **state)
{
	check_jitter("delay 10ms jitter 20ms", true);
	check_jitter("delay 10ms jitter 20ms distribution normal", true);
	check_jitter("delay 10ms jitter 20ms order free", false);
	check_jitter("delay 10ms jitter 20ms distribution normal order free", false);
}

/* With "order keep" packets that come close together wait for each other. */
static void test_order(void **state)
{
	struct rig *r = rig_open("delay 10ms jitter 20ms");
	rig_send_many(r, 10000, 1000);
	for (unsigned i = 0; i < r->count; i++)
		assert_int_equal(r->number[i], i);
	rig_close(r);
}

/* A shorter delay is for later packets, which then overtake. */
static void test_change(void **state)
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

static void test_hurry(void **state)
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
	uint64_t least = 5 * NS + 1 * NS + 1000 * NS; /* or it waits for others */
	assert_in_range(r->time[100], least, least + 10 * MS);
	rig_close(r);
}

/* ---- rate and queue -------------------------------------------------------------------------- */

/* 8 Mbit/s are one frame of 1000 bytes a millisecond. */
static void test_rate(void **state)
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

/* Never more than the rate: any two moments have at most what the transmitter needs for it. */
static void test_rate_rounded(void **state)
{
	struct rig *r = rig_open("rate 999999937bit overhead 24");
	rig_send_many(r, 900, 1);
	double least = 1024 * 8 / 0.999999937;
	for (unsigned i = 1; i < 900; i++)
		assert_true((double)(r->time[i] - r->time[0]) >= least * i);
	assert_true((double)(r->time[899] - r->time[0]) < (least + 1) * 899);
	rig_close(r);
}

/* A change concerns what waits: the transmitter ends the packet that it has begun. */
static void test_rate_change(void **state)
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

static void test_tail(void **state)
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
	/* A packet a millisecond is what it can take: nothing is lost. */
	r = rig_open("rate 8mbit queue_packets 1");
	rig_send_many(r, 500, 1 * MS);
	assert_int_equal(r->count, 500);
	rig_close(r);
}

/* ECT is marked from the threshold on, everything else dropped. */
static void test_ecn(void **state)
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

/* Between the thresholds the share grows: a queue that is held at a length. */
static void test_red(void **state)
{
	struct rig *r = rig_open("rate 8mbit red_min 2000 red_max 22000 red_probability 50% "
	                         "queue_packets 0");
	rig_send_many(r, 12, 0);
	uint64_t before = r->d.counts.drop[DROP_RED];
	assert_true(before < 12);
	rig_run(r, UINT64_MAX);
	/* 12 packets wait, 12000 bytes: a quarter of those that come then. */
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

/* ---- chance ---------------------------------------------------------------------------------- */

static void check_share(uint64_t hits, double draws, double share)
{
	if (fabs((double)hits - draws * share) > 5 * sqrt(draws * share * (1 - share)))
		fail_msg("%lu of %.0f, not %g", hits, draws, share);
}

static void test_loss(void **state)
{
	struct rig *r = rig_open("loss 3%");
	rig_send_many(r, PLACES - 1, 100);
	check_share(r->d.counts.drop[DROP_LOSS], PLACES - 1, 0.03);
	assert_int_equal(r->count + r->d.counts.drop[DROP_LOSS], PLACES - 1);
	rig_close(r);
}

/* The same packets have the same fate, whatever else the link does to them; another seed has
 * another one. */
static void test_repeated(void **state)
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
static void test_bursts(void **state)
{
	struct rig *r = rig_open("burst_enter 1% burst_leave 20% burst_loss 100%");
	rig_send_many(r, PLACES - 1, 100);
	const struct direction_counts *c = &r->d.counts;
	double lost = (double)c->drop[DROP_BURST], bursts = (double)c->bursts;
	assert_int_equal(c->drop[DROP_LOSS], 0);
	/* 1 of 100 + 5 packets begins a burst of 5. */
	check_share(c->bursts, PLACES, 1.0 / 105);
	assert_true(fabs(lost / bursts - 5) < 5 * sqrt(20 / bursts));
	/* They are in a row: as many gaps in the numbers as bursts, but for some that touch. */
	unsigned gaps = 0;
	for (unsigned i = 1; i < r->count; i++)
		gaps += r->number[i] != r->number[i - 1] + 1;
	assert_in_range(gaps, c->bursts - 1, c->bursts);
	rig_close(r);
}

static void test_duplicate(void **state)
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
static void test_distance(void **state)
{
	struct rig *r = rig_open("reorder 2% reorder_distance 3 reorder_delay 1s delay 1ms");
	rig_send_many(r, 10000, 100);
	assert_int_equal(r->count, 10000);
	unsigned late = 0;
	for (unsigned i = 0; i < r->count; i++) {
		unsigned passed = 0;
		for (unsigned k = i < 20 ? 0 : i - 20; k < i; k++)
			passed += r->number[k] > r->number[i];
		/* Of those that overtake it, others are held as well. */
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
static void test_reorder_delay(void **state)
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

/* More are held than there is room for: they pass, and none is lost. */
static void test_held(void **state)
{
	struct rig *r = rig_open("reorder 100% reorder_distance 1000 reorder_delay 1s");
	rig_send_many(r, 600, 1);
	assert_int_equal(r->count, 600);
	assert_int_equal(r->d.counts.reordered, HELD_MOST);
	rig_close(r);
}

/* ARP is late, and nothing else happens to it: it waits for no packet, and has no number. */
static void test_spared(void **state)
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

static void test_mtu(void **state)
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

static void test_black_hole(void **state)
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

/* The pool is used up by copies: it is counted, and the rest goes on. */
static void test_no_memory(void **state)
{
	struct rig *r = rig_open("duplicate 100% delay 1s");
	for (unsigned i = 0; r->pool.used < PLACES; i++)
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
	        cmocka_unit_test(test_nothing),     cmocka_unit_test(test_delay),
	        cmocka_unit_test(test_jitter),      cmocka_unit_test(test_order),
	        cmocka_unit_test(test_change),      cmocka_unit_test(test_hurry),
	        cmocka_unit_test(test_rate),        cmocka_unit_test(test_rate_rounded),
	        cmocka_unit_test(test_rate_change), cmocka_unit_test(test_tail),
	        cmocka_unit_test(test_ecn),         cmocka_unit_test(test_red),
	        cmocka_unit_test(test_loss),        cmocka_unit_test(test_repeated),
	        cmocka_unit_test(test_bursts),      cmocka_unit_test(test_duplicate),
	        cmocka_unit_test(test_distance),    cmocka_unit_test(test_reorder_delay),
	        cmocka_unit_test(test_held),        cmocka_unit_test(test_spared),
	        cmocka_unit_test(test_mtu),         cmocka_unit_test(test_black_hole),
	        cmocka_unit_test(test_no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
