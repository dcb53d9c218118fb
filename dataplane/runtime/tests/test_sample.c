// SPDX-License-Identifier: Apache-2.0
/* Samples of packets: none without a request, the requested share of them, their contents, and
 * their bounds. The test's thread is the worker too, and moves its clock. */
#include "runtime_fixture.h"

#include "sy_sample.h"

#define SECOND UINT64_C(1000000000)
#define LENGTH 200

static struct ring_port port;

/* Drops packets that begin with an odd byte, and sends the others to nowhere. */
static void stage_divide(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		b->next[i] = SY_NEXT_PENDING;
		if (sy_frame(b->mbuf[i])[0] & 1)
			sy_packet_drop(w, b->mbuf[i], SY_DROP_NO_SERVICE);
		else
			rte_pktmbuf_free(b->mbuf[i]);
	}
}

static const struct sy_stage pipeline[] = {{"divide", stage_divide}, {NULL, NULL}};

static void clock_set(struct sy_runtime *rt, uint64_t now_ns)
{
	struct sy_worker *w = &rt->worker[0];
	w->private->clock = (struct worker_clock){.ns = now_ns};
	w->private->round_cycles = UINT64_MAX;
	w->now_ns = now_ns;
	sample_round(w);
}

/* The worker gets n frames; byte[0] of each is `first`, the others count. */
static void inject(struct sy_runtime *rt, unsigned n, uint8_t first, uint16_t length)
{
	while (n) {
		unsigned burst = n < SY_BURST ? n : SY_BURST;
		for (unsigned i = 0; i < burst; i++) {
			struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);
			assert_non_null(m);
			uint8_t *frame = (uint8_t *)rte_pktmbuf_append(m, length);
			for (unsigned at = 0; at < length; at++)
				frame[at] = (uint8_t)(at ? at : first);
			assert_int_equal(rte_ring_enqueue(port.rx, m), 0);
		}
		worker_poll(&rt->worker[0]);
		n -= burst;
	}
}

/* Dequeues all samples; out: the last of them. */
static unsigned take(struct sy_runtime *rt, struct sy_sample *out)
{
	unsigned count = 0;
	while (sy_samples_dequeue(rt, 0, out, 1))
		count++;
	return count;
}

static void test_none_unasked(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_sample one;
	clock_set(rt, SECOND);
	inject(rt, 1000, 1, LENGTH);
	assert_int_equal(take(rt, &one), 0);
	sy_samples_want(rt, SY_SAMPLE_RECEIVED, 1, 3 * SECOND);
	clock_set(rt, 2 * SECOND);
	inject(rt, 10, 1, LENGTH);
	assert_int_equal(take(rt, &one), 10);
	clock_set(rt, 3 * SECOND); /* the request was not renewed */
	inject(rt, 10, 1, LENGTH);
	assert_int_equal(take(rt, &one), 0);
}

static void test_contents(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_sample one;
	sy_samples_want(rt, SY_SAMPLE_RECEIVED, 1, 9 * SECOND);
	sy_samples_want(rt, SY_SAMPLE_DROPPED, 1, 9 * SECOND);
	clock_set(rt, SECOND);
	inject(rt, 1, 2, LENGTH);
	assert_int_equal(take(rt, &one), 1);
	assert_int_equal(one.drop, SY_DROP_NONE);
	assert_int_equal(one.one_in, 1);
	assert_int_equal(one.length, LENGTH);
	assert_int_equal(one.port, 0);
	assert_int_equal(one.header_length, SY_SAMPLE_HEADER);
	assert_int_equal(one.header[0], 2);
	assert_int_equal(one.header[127], 127);
	inject(rt, 1, 3, 60); /* a packet that is dropped, and shorter than a sample's header */
	assert_int_equal(take(rt, &one), 2);
	assert_int_equal(one.drop, SY_DROP_NO_SERVICE);
	assert_int_equal(one.length, 60);
	assert_int_equal(one.header_length, 60);
	assert_int_equal(one.header[59], 59);
}

/* One of N within what chance allows, whatever N has to do with the length of bursts. */
static void test_share(void **state)
{
	static const uint32_t gap[] = {2, 7, 64, 100, 1000};
	struct sy_runtime *rt = *state;
	struct sy_sample one;
	for (unsigned i = 0; i < SY_ARRAY_LEN(gap); i++) {
		unsigned count = 0, pieces = 400;
		sy_samples_want(rt, SY_SAMPLE_RECEIVED, gap[i], 9 * SECOND);
		clock_set(rt, SECOND + i);
		for (unsigned n = 0; n < pieces; n++) {
			inject(rt, gap[i] < 500 ? gap[i] : 500, 0, 60);
			count += take(rt, &one);
		}
		unsigned expected = pieces * (gap[i] < 500 ? gap[i] : 500) / gap[i];
		assert_in_range(count, expected * 2 / 3, expected * 4 / 3);
	}
}

/* The rate of drop samples and the places are bounded; what did not fit is counted. */
static void test_bounds(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_sample one;
	struct sy_sample_counts before = sy_samples_count(rt), now;
	sy_samples_want(rt, SY_SAMPLE_DROPPED, 1, 9 * SECOND);
	clock_set(rt, 5 * SECOND);
	inject(rt, 3000, 1, 60);
	now = sy_samples_count(rt);
	assert_int_equal(now.enqueued - before.enqueued, SY_SAMPLE_DROPS);
	assert_int_equal(now.lost - before.lost, 3000 - SY_SAMPLE_DROPS);
	clock_set(rt, 6 * SECOND);
	inject(rt, 100, 1, 60); /* a new second, but not so many places are left */
	assert_int_equal(sy_samples_count(rt).enqueued - before.enqueued, SY_SAMPLE_PLACES);
	assert_int_equal(take(rt, &one), SY_SAMPLE_PLACES);
	inject(rt, 100, 1, 60);
	assert_int_equal(take(rt, &one), 100);
}

static int setup(void **state)
{
	struct sy_runtime_options o;
	options_init(&o, 1);
	port = ring_port_add(&o, "samples");
	o.pipeline = pipeline;
	*state = runtime_open(&o);
	return 0;
}

/* Before each test: sampling is off. */
static int quiet(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_sample one;
	sy_samples_want(rt, SY_SAMPLE_RECEIVED, 0, 0);
	sy_samples_want(rt, SY_SAMPLE_DROPPED, 0, 0);
	clock_set(rt, SECOND / 2);
	take(rt, &one);
	return 0;
}

static int teardown(void **state)
{
	struct sy_runtime *rt = *state;
	assert_int_equal(rte_mempool_in_use_count(rt->pool), 0);
	sy_runtime_close(rt);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(test_none_unasked, quiet),
	        cmocka_unit_test_setup(test_contents, quiet),
	        cmocka_unit_test_setup(test_share, quiet),
	        cmocka_unit_test_setup(test_bounds, quiet),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
