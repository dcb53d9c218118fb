// SPDX-License-Identifier: Apache-2.0
/* The parts that need no packets: frames, rates, the search, percentiles. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "frames.h"
#include "generator_pace.h"
#include "histogram.h"
#include "search.h"

/* ---- frames ---------------------------------------------------------------------------------- */

static const unsigned sizes[] = {64, 80, 128, 999, 1518};

/* The checksum over what a receiver sums; 0xffff if it is right. */
static uint16_t udp_sum(const struct frame_template *t, const uint8_t *frame)
{
	unsigned width = t->six ? 16 : 4, length = t->length - t->udp;
	uint64_t sum = sy_csum_sum(frame + t->src + 4 - width, 2 * width) +
	               sy_csum_sum(frame + t->udp, length) + __builtin_bswap16((uint16_t)length) +
	               __builtin_bswap16(17);
	return sy_csum_fold(sum);
}

static void each_template(void (*check)(const struct frame_template *t, enum frame_way way))
{
	struct frame_template t;
	for (unsigned six = 0; six < 2; six++)
		for (unsigned i = 0; i < SY_ARRAY_LEN(sizes); i++)
			for (unsigned way = 0; way < FRAME_WAYS; way++) {
				if (sizes[i] < FRAME_MIN(six))
					continue;
				assert_int_equal(
				        frame_template_make(&t, six ? 6 : 4, way, sizes[i], false),
				        0);
				assert_int_equal(t.length, sizes[i] - FRAME_FCS);
				check(&t, way);
			}
}

static struct frame_fields fields_of(const struct frame_template *t, enum frame_way way,
                                     uint32_t flow)
{
	const struct frame_reply reply = {.server = flow % FRAME_SERVERS,
	                                  .local = flow % FRAME_LOCALS,
	                                  .port = (uint16_t)(1024 + flow % 60000)};
	struct frame_fields f =
	        way == FRAME_IN ? frame_of_client(t, flow) : frame_of_server(t, flow, reply);
	f.stamp = UINT64_C(0x9e3779b97f4a7c15) * flow;
	return f;
}

static void check_sums_and_fields(const struct frame_template *t, enum frame_way way)
{
	uint8_t frame[FRAME_MAX];
	memcpy(frame, t->bytes, t->length);
	/* One buffer for all flows: no field of an earlier flow may be left. */
	for (uint32_t flow = 0; flow < 3000; flow += 7) {
		struct frame_fields f = fields_of(t, way, flow * 12345), back;
		frame_write(t, frame, &f);
		assert_int_equal(udp_sum(t, frame), 0xffff);
		if (!t->six)
			assert_int_equal(sy_csum_fold(sy_csum_sum(frame + 14, 20)), 0xffff);
		assert_true(frame_read(frame, t->length, &back));
		assert_memory_equal(&f, &back, sizeof(f));
		assert_false(frame_read(frame, t->udp + 21, &back));
	}
	frame[t->udp + 20] ^= 1;
	struct frame_fields back;
	assert_false(frame_read(frame, t->length, &back));
}

static void frames_are_whole(void **state)
{
	each_template(check_sums_and_fields);
}

static void flows_have_tuples_of_their_own(void **state)
{
	struct frame_template t;
	assert_int_equal(frame_template_make(&t, 4, FRAME_IN, 64, false), 0);
	uint64_t last = 0;
	for (uint32_t flow = 0; flow < 5 * CLIENT_PORTS; flow++) {
		struct frame_fields f = frame_of_client(&t, flow);
		uint64_t tuple = (uint64_t)f.src << 16 | f.sport;
		assert_true(tuple > last);
		last = tuple;
	}
}

static void bad_sizes_are_refused(void **state)
{
	struct frame_template t;
	assert_true(frame_template_make(&t, 4, FRAME_IN, 63, false) < 0);
	assert_true(frame_template_make(&t, 6, FRAME_IN, 79, false) < 0);
	assert_true(frame_template_make(&t, 4, FRAME_IN, 1519, false) < 0);
	assert_true(frame_template_make(&t, 5, FRAME_IN, 100, false) < 0);
}

/* ---- rates ----------------------------------------------------------------------------------- */

static void pace_gives_what_is_due(void **state)
{
	struct pace p = pace_begin(1000, 0.25, 64);
	uint64_t taken = 0;
	for (uint64_t now = 1000; now <= 101000; now += 37) {
		uint32_t n = pace_take(&p, now, 32);
		assert_true(n <= 32);
		taken += n;
		assert_true(taken <= (now - 1000) / 4);
		assert_true(taken + 1 > (now - 1000) / 4);
	}
	assert_int_equal(p.forgiven, 0);
}

static void pace_forgives_what_it_missed(void **state)
{
	struct pace p = pace_begin(0, 1, 64);
	assert_int_equal(pace_take(&p, 1000, 32), 32);
	assert_int_equal(p.forgiven, 1000 - 64);
	assert_int_equal(pace_take(&p, 1000, 32), 32);
	assert_int_equal(pace_take(&p, 1000, 32), 0);
	assert_int_equal(pace_take(&p, 1010, 32), 10);
	assert_int_equal(p.done, 1010);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* A device that loses no packet up to a rate, and all beyond it. */
struct device {
	double holds;
	unsigned trials, hiccup; /* hiccup: the trial that fails without a reason; 0: none */
	unsigned give_up;        /* the trial that ends the search; 0: none */
};

static double device_try(void *ctx, double rate)
{
	struct device *d = ctx;
	if (++d->trials == d->give_up)
		return -1;
	if (d->trials == d->hiccup)
		return 0.5;
	return rate > d->holds ? (rate - d->holds) / rate : 0;
}

static void search_finds_the_rate(void **state)
{
	const struct search s = {.ceiling = 10, .resolution = 0.001, .tries = 1};
	for (double holds = 0.05; holds < 10; holds += 0.37) {
		struct device d = {.holds = holds};
		double found = search_rate(&s, device_try, &d);
		assert_true(found <= holds && found > holds - 0.01 - 1e-9);
		assert_true(d.trials <= 12);
	}
}

static void search_begins_at_the_ceiling(void **state)
{
	const struct search s = {.ceiling = 10, .resolution = 0.01, .tries = 2};
	struct device d = {.holds = 11}, nothing = {.holds = 0};
	assert_true(search_rate(&s, device_try, &d) == 10);
	assert_int_equal(d.trials, 1);
	assert_true(search_rate(&s, device_try, &nothing) == 0);
}

static void search_allows_a_share(void **state)
{
	const struct search s = {.ceiling = 10, .loss = 0.2, .resolution = 0.001, .tries = 1};
	struct device d = {.holds = 4};
	assert_true(fabs(search_rate(&s, device_try, &d) - 5) < 0.011);
}

static void search_forgives_a_hiccup(void **state)
{
	struct search s = {.ceiling = 10, .resolution = 0.001, .tries = 2};
	struct device d = {.holds = 7, .hiccup = 4};
	assert_true(search_rate(&s, device_try, &d) > 6.98);
	s.tries = 1;
	d = (struct device){.holds = 7, .hiccup = 4};
	assert_true(search_rate(&s, device_try, &d) < 6.98);
}

static void search_can_be_given_up(void **state)
{
	const struct search s = {.ceiling = 10, .resolution = 0.001, .tries = 2};
	struct device d = {.holds = 7, .give_up = 5};
	assert_true(search_rate(&s, device_try, &d) < 0);
	assert_int_equal(d.trials, 5);
}

/* ---- percentiles ----------------------------------------------------------------------------- */

static void percentiles_are_near(void **state)
{
	struct histogram *h = calloc(1, sizeof(*h));
	assert_non_null(h);
	assert_int_equal(histogram_at(h, 0.5), 0);
	for (uint64_t v = 1; v <= 100000; v++)
		histogram_add(h, v);
	const double shares[] = {0.00005, 0.001, 0.01, 0.5, 0.9, 0.99, 0.999, 1};
	for (unsigned i = 0; i < SY_ARRAY_LEN(shares); i++) {
		double exact = ceil(shares[i] * 100000),
		       reported = (double)histogram_at(h, shares[i]);
		assert_true(reported >= exact && reported <= exact * (1 + 1.0 / HISTOGRAM_PARTS));
	}
	assert_int_equal(h->largest, 100000);
	free(h);
}

static void any_value_finds_a_bucket(void **state)
{
	struct histogram *h = calloc(1, sizeof(*h));
	assert_non_null(h);
	for (unsigned shift = 0; shift < 64; shift++) {
		uint64_t v = UINT64_C(1) << shift;
		memset(h, 0, sizeof(*h));
		histogram_add(h, v);
		assert_int_equal(histogram_at(h, 1),
		                 v < UINT64_C(1) << 40 ? v : (UINT64_C(1) << 40) - 1);
	}
	histogram_add(h, UINT64_MAX);
	free(h);
}

/* Two halves together are the whole. */
static void histograms_add_up(void **state)
{
	struct histogram *half[2] = {calloc(1, sizeof(struct histogram)),
	                             calloc(1, sizeof(struct histogram))};
	struct histogram *whole = calloc(1, sizeof(*whole));
	double sum = 0;
	for (uint64_t i = 1; i <= 100000; i++) {
		uint64_t v = i * i % 7777777;
		histogram_add(half[i % 2], v);
		histogram_add(whole, v);
		sum += (double)v;
	}
	histogram_merge(half[0], half[1]);
	assert_memory_equal(half[0], whole, sizeof(*whole));
	assert_true(fabs(histogram_mean(whole) * 100000 / sum - 1) < 0.008);
	free(half[0]);
	free(half[1]);
	free(whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(frames_are_whole),
	        cmocka_unit_test(flows_have_tuples_of_their_own),
	        cmocka_unit_test(bad_sizes_are_refused),
	        cmocka_unit_test(pace_gives_what_is_due),
	        cmocka_unit_test(pace_forgives_what_it_missed),
	        cmocka_unit_test(search_finds_the_rate),
	        cmocka_unit_test(search_begins_at_the_ceiling),
	        cmocka_unit_test(search_allows_a_share),
	        cmocka_unit_test(search_forgives_a_hiccup),
	        cmocka_unit_test(search_can_be_given_up),
	        cmocka_unit_test(percentiles_are_near),
	        cmocka_unit_test(any_value_finds_a_bucket),
	        cmocka_unit_test(histograms_add_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
