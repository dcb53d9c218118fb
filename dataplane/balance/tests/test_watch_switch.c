// SPDX-License-Identifier: Apache-2.0
/* When `syn_defence: auto` switches: rates by second, and the changes expected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "watch.h"

#define SECOND   UINT64_C(1000000000)
#define SAMPLES  4 /* a second */
#define CAPACITY 1000000u

/* What happens in each second. */
struct traffic_kind {
	unsigned begun, established, answered, returned, half_open;
};

struct service_seen {
	struct watch_switch s;
	struct watch_counts counts;
	uint64_t now_ns;
	unsigned capacity, workers;
	unsigned on, off; /* changes */
};

static struct service_seen service_begin(void)
{
	struct service_seen v = {.now_ns = SECOND, .capacity = CAPACITY, .workers = 1};
	const struct watch_sample sample = {v.now_ns, SECOND, CAPACITY, 1};
	assert_int_equal(watch_switch_update(&v.s, &v.counts, &sample), WATCH_STAYS);
	return v;
}

static bool sample_once(struct service_seen *v, const struct traffic_kind *t)
{
	v->now_ns += SECOND / SAMPLES;
	v->counts.begun += t->begun / SAMPLES;
	v->counts.established += t->established / SAMPLES;
	v->counts.answered += t->answered / SAMPLES;
	v->counts.returned += t->returned / SAMPLES;
	v->counts.half_open = t->half_open;
	const struct watch_sample sample = {v->now_ns, SECOND / SAMPLES, v->capacity, v->workers};
	enum watch_change change = watch_switch_update(&v->s, &v->counts, &sample);
	v->on += change == WATCH_ON;
	v->off += change == WATCH_OFF;
	return v->s.on;
}

/* Is it on after so many seconds of this? */
static bool pass(struct service_seen *v, const struct traffic_kind *t, unsigned seconds)
{
	for (unsigned i = 0; i < seconds * SAMPLES; i++)
		sample_once(v, t);
	return v->s.on;
}

/* As it is without the defence, and with it. */
static const struct traffic_kind calm = {.begun = 100, .established = 100, .half_open = 5};
static const struct traffic_kind flood = {.begun = 2100, .established = 100, .half_open = 20000};
static const struct traffic_kind met = {
        .begun = 100, .established = 100, .answered = 2100, .returned = 100, .half_open = 5};
static const struct traffic_kind calm_met = {
        .begun = 100, .established = 100, .answered = 100, .returned = 100, .half_open = 5};

static void test_a_flood_switches_it_on_and_its_end_off(void **state)
{
	struct service_seen v = service_begin();
	(void)state;
	assert_false(pass(&v, &calm, 60));
	for (unsigned i = 0; i < SAMPLES - 1; i++)
		assert_false(sample_once(&v, &flood));
	assert_true(sample_once(&v, &flood)); /* a second */
	assert_int_equal(v.s.reason, WATCH_UNFINISHED);
	assert_true(pass(&v, &met, 1000)); /* what it answers counts */
	assert_true(pass(&v, &calm_met, 9));
	assert_false(pass(&v, &calm_met, 1));
	assert_false(pass(&v, &calm, 100));
	assert_int_equal(v.on, 1);
	assert_int_equal(v.off, 1);
}

static void test_pauses_do_not_switch_it_off(void **state)
{
	struct service_seen v = service_begin();
	(void)state;
	assert_true(pass(&v, &flood, 1));
	for (unsigned i = 0; i < 20; i++) {
		assert_true(pass(&v, &met, 1));
		assert_true(pass(&v, &calm_met, 9));
	}
}

/* A flood that is too small to switch it on keeps it on. */
static void test_hysteresis(void **state)
{
	const struct traffic_kind small = {.begun = 600, .established = 100, .half_open = 5000};
	const struct traffic_kind small_met = {
	        .begun = 100, .established = 100, .answered = 600, .returned = 100, .half_open = 5};
	const struct traffic_kind tiny_met = {
	        .begun = 100, .established = 100, .answered = 200, .returned = 100, .half_open = 5};
	struct service_seen v = service_begin();
	(void)state;
	assert_false(pass(&v, &small, 100));
	assert_true(pass(&v, &flood, 1));
	assert_true(pass(&v, &small_met, 100));
	assert_true(pass(&v, &tiny_met, 9));
	assert_false(pass(&v, &tiny_met, 1));
	assert_false(pass(&v, &small, 100));
	assert_int_equal(v.on, 1);
}

/* Half-open sessions that fill the table count at once, and at a low rate. */
static void test_a_share_of_the_table(void **state)
{
	const struct traffic_kind slow = {.begun = 300, .established = 100, .half_open = 2000};
	const struct traffic_kind over = {.begun = 100, .established = 100, .half_open = 2000};
	struct service_seen v = service_begin();
	(void)state;
	assert_false(pass(&v, &slow, 60)); /* of a large table */
	v.capacity = 16384;
	assert_false(pass(&v, &over, 60)); /* they are from before */
	assert_true(sample_once(&v, &slow));
	assert_int_equal(v.s.reason, WATCH_SHARE);
}

/* However many clients, and however far away. */
static void test_a_crowd_is_no_flood(void **state)
{
	struct service_seen v = service_begin();
	(void)state;
	for (unsigned rate = 1000; rate < 2000000; rate *= 4) {
		const struct traffic_kind crowd = {
		        .begun = rate, .established = rate, .half_open = rate / 5};
		assert_false(pass(&v, &crowd, 600));
	}
	assert_int_equal(v.on, 0);
}

/* ACKs can be forged as well: so many that the rate alone counts. But not for long, if what the
 * defence answers comes back. */
static void test_an_unusual_rate(void **state)
{
	const struct traffic_kind usual = {.begun = 1000, .established = 1000, .half_open = 10};
	const struct traffic_kind max = {.begun = 19000, .established = 19000, .half_open = 10};
	const struct traffic_kind more = {.begun = 50000, .established = 50000, .half_open = 10};
	const struct traffic_kind forged = {
	        .begun = 1000, .established = 1000, .answered = 49000, .returned = 1000};
	const struct traffic_kind real = {
	        .begun = 50000, .established = 50000, .answered = 50000, .returned = 50000};
	struct service_seen v = service_begin();
	(void)state;
	assert_false(pass(&v, &more, 9)); /* after a start, everything is usual */
	v = service_begin();
	assert_false(pass(&v, &usual, 60));
	assert_false(pass(&v, &max, 2)); /* too few */
	v.workers = 3;
	assert_false(pass(&v, &more, 2)); /* for three workers, too */
	v.workers = 1;
	assert_false(pass(&v, &usual, 1000));
	assert_true(pass(&v, &more, 1));
	assert_int_equal(v.s.reason, WATCH_RATE);
	assert_true(pass(&v, &forged, 100));
	assert_false(pass(&v, &real, 10));
	v = service_begin();
	assert_false(pass(&v, &usual, 60));
	assert_true(pass(&v, &more, 1));
	assert_false(pass(&v, &real, 10));
	assert_false(pass(&v, &more, 3600)); /* it is usual now */
	assert_int_equal(v.on, 1);
}

/* The servers do not answer: the defence cannot help, and is tried less and less often. */
static void test_vain_switches_become_rare(void **state)
{
	const struct traffic_kind silent = {.begun = 5000, .established = 0, .half_open = 50000};
	const struct traffic_kind silent_met = {.begun = 5000,
	                                        .established = 0,
	                                        .answered = 5000,
	                                        .returned = 5000,
	                                        .half_open = 50000};
	struct service_seen v = service_begin();
	unsigned wait = 1;
	(void)state;
	for (unsigned n = 0; n < 10; n++) {
		assert_false(pass(&v, &silent, wait - 1));
		assert_true(pass(&v, &silent, 1));
		assert_true(pass(&v, &silent_met, 9));
		assert_false(pass(&v, &silent_met, 1));
		wait = wait < 64 ? 2 * wait : 64;
	}
	assert_false(pass(&v, &calm, 60)); /* forgotten */
	assert_true(pass(&v, &flood, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_a_flood_switches_it_on_and_its_end_off),
	        cmocka_unit_test(test_pauses_do_not_switch_it_off),
	        cmocka_unit_test(test_hysteresis),
	        cmocka_unit_test(test_a_share_of_the_table),
	        cmocka_unit_test(test_a_crowd_is_no_flood),
	        cmocka_unit_test(test_an_unusual_rate),
	        cmocka_unit_test(test_vain_switches_become_rare),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
