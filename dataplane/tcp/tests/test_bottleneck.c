// SPDX-License-Identifier: Apache-2.0
/* Connections that share a link use all of it, and each its part. Everything is virtual and seeded:
 * the same numbers in each run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bottleneck.h"

#define MBIT (UINT64_C(1000000) / 8)

static struct bottleneck link_of(uint64_t rate, uint64_t queue)
{
	struct bottleneck b = {.rate = rate, .queue = queue, .window = 2000000};
	bottleneck_init(&b);
	return b;
}

struct result {
	double use, jain; /* of the link's bytes; Jain's index of fairness */
	unsigned timeouts, recoveries, undone;
};

/* Of what has arrived in the last run, which took so long. */
static struct result result_of(const char *name, const struct bottleneck *b, uint64_t ns)
{
	double sum = 0, squares = 0;
	struct result r = {0};
	for (uint32_t n = 0; n < b->flows; n++) {
		const struct flow *f = &b->flow[n];
		double bytes = (double)(f->received - f->received_before);
		sum += bytes;
		squares += bytes * bytes;
		r.timeouts += f->timeouts;
		r.recoveries += f->recoveries;
		r.undone += f->undone;
	}
	r.jain = sum * sum / (b->flows * squares);
	r.use = sum * FRAME / MSS / ((double)b->rate * (double)ns / SECOND);
	printf("%-28s link use %.3f, Jain %.3f, %u recoveries, %u undone, %u time-outs, %.2f %% "
	       "lost\n",
	       name, r.use, r.jain, r.recoveries, r.undone, r.timeouts,
	       100.0 * (double)b->dropped / (double)b->sent);
	return r;
}

/* Runs until slow start is over, and then for a while that counts. */
static struct result run(const char *name, struct bottleneck *b, uint64_t seconds)
{
	bottleneck_run(b, 10 * SECOND);
	bottleneck_run(b, seconds * SECOND);
	struct result r = result_of(name, b, seconds * SECOND);
	bottleneck_end(b);
	return r;
}

static void flows_begin(struct bottleneck *b, unsigned count, const struct congestion_ops *ops,
                        uint64_t delay_ns)
{
	while (count-- > 0)
		flow_begin(b, ops, delay_ns);
}

/* The queue holds what the path holds: 100 Mbit/s, 40 ms. Halving the window leaves the link full.
 */
static void test_one_newreno(void **state) /* RFC 5681, RFC 6937 */
{
	struct bottleneck b = link_of(100 * MBIT, 500000);
	(void)state;
	flow_begin(&b, &congestion_newreno, 40 * MS);
	struct result r = run("one NewReno", &b, 30);
	assert_true(r.use >= 0.98 && r.timeouts == 0 && r.undone == 0);
}

static void test_one_cubic(void **state) /* RFC 9438: with less than half of the queue */
{
	struct bottleneck b = link_of(100 * MBIT, 220000);
	(void)state;
	flow_begin(&b, &congestion_cubic, 40 * MS);
	struct result r = run("one CUBIC, small queue", &b, 30);
	assert_true(r.use >= 0.95 && r.timeouts == 0 && r.undone == 0);
}

static void test_ten(void **state)
{
	const struct congestion_ops *const all[] = {&congestion_newreno, &congestion_cubic};
	(void)state;
	for (unsigned n = 0; n < 2; n++) {
		struct bottleneck b = link_of(100 * MBIT, 250000);
		flows_begin(&b, 10, all[n], 40 * MS);
		struct result r = run(n ? "ten of CUBIC" : "ten of NewReno", &b, 60);
		assert_true(r.use >= 0.95 && r.jain >= 0.95);
		assert_true(r.timeouts <= 10 && r.undone == 0);
	}
}

/* RFC 9438 4.3: where Reno performs well, CUBIC takes an equal share. */
static void test_both_together(void **state)
{
	struct bottleneck b = link_of(50 * MBIT, 125000);
	double sums[2] = {0};
	(void)state;
	flows_begin(&b, 5, &congestion_newreno, 20 * MS);
	flows_begin(&b, 5, &congestion_cubic, 20 * MS);
	struct result r = run("five of each", &b, 60);
	for (unsigned n = 0; n < 10; n++)
		sums[n / 5] += (double)(b.flow[n].received - b.flow[n].received_before);
	printf("%-28s CUBIC / NewReno %.2f\n", "", sums[1] / sums[0]);
	assert_true(r.use >= 0.95);
	assert_true(sums[1] / sums[0] > 0.4 && sums[1] / sums[0] < 2.5);
}

/* RFC 5681 as a function of loss: 1.22 / sqrt(p) segments in a round trip (RFC 9438, 5.1). */
static void check_response(uint32_t loss, bool sack)
{
	struct bottleneck b = link_of(100 * MBIT, 1000000);
	char name[40];
	b.loss = loss;
	b.no_sack = !sack;
	flow_begin(&b, &congestion_newreno, 40 * MS);
	snprintf(name, sizeof(name), "one in %u lost%s", loss, sack ? "" : ", no SACK");
	struct result r = run(name, &b, 60);
	double want = 1.22 * sqrt(loss) * FRAME / 0.040 / (double)b.rate;
	assert_true(r.use > 0.75 * want && r.use < 1.25 * want);
	assert_true(r.undone <= r.timeouts && r.timeouts <= r.recoveries / 10);
}

static void test_response(void **state)
{
	(void)state;
	for (uint32_t loss = 50; loss <= 800; loss *= 4)
		check_response(loss, true);
	check_response(100, false); /* RFC 6582 */
	check_response(1000, false);
}

/* Whatever is lost in both directions, it goes on. */
static void test_heavy_loss(void **state)
{
	(void)state;
	for (uint32_t loss = 4; loss <= 16; loss *= 2) {
		struct bottleneck b = link_of(10 * MBIT, 100000);
		b.loss = b.ack_loss = loss;
		flows_begin(&b, 4, &congestion_cubic, 20 * MS);
		run("much is lost", &b, 60);
		for (unsigned n = 0; n < 4; n++)
			assert_true(b.flow[n].received - b.flow[n].received_before > 10 * MSS);
	}
}

/* Reordering of up to 10 ms, 80 packets: RFC 8985 detects no loss. */
static void test_reordering(void **state)
{
	struct bottleneck b = link_of(100 * MBIT, 500000);
	(void)state;
	b.jitter_ns = 10 * MS;
	flow_begin(&b, &congestion_cubic, 40 * MS);
	struct result r = run("reordered by 10 ms", &b, 60);
	assert_true(r.use >= 0.9 && r.timeouts == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_one_newreno), cmocka_unit_test(test_one_cubic),
	        cmocka_unit_test(test_ten),         cmocka_unit_test(test_both_together),
	        cmocka_unit_test(test_response),    cmocka_unit_test(test_heavy_loss),
	        cmocka_unit_test(test_reordering),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
