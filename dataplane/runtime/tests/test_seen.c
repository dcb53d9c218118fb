// SPDX-License-Identifier: Apache-2.0
/* Until when a worker has processed all packets, including steered ones: a timeout must not expire
 * while a packet is in a ring. No worker runs by itself. */
#include "runtime_fixture.h"

#define WORKERS 2
#define SECOND  UINT64_C(1000000000)

static struct ring_port ring[WORKERS];
static struct sy_runtime *rt;
static uint64_t seen_ns; /* in the last burst of its own queue */
static unsigned handed;

static void stage_look(struct sy_worker *w, struct sy_burst *b)
{
	if (!b->steered)
		seen_ns = sy_worker_seen_ns(w);
	for (unsigned i = 0; i < b->count; i++) {
		handed += b->steered;
		rte_pktmbuf_free(b->mbuf[i]);
		b->next[i] = SY_NEXT_PENDING;
	}
}

static const struct sy_stage pipeline[] = {{"look", stage_look}, {NULL, NULL}};

static void pass(uint64_t ns)
{
	struct sy_worker *w = &rt->worker[0];

	w->private->clock = (struct worker_clock){.ns = w->now_ns + ns};
	w->private->round_cycles = UINT64_MAX; /* no rounds */
	w->now_ns += ns;
}

static struct rte_mbuf *packet(void)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);

	assert_non_null(m);
	memset(rte_pktmbuf_append(m, 60), 0, 60);
	return m;
}

static void steer_out(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packet();
		assert_int_equal(ring_enqueue(rt->worker[0].private->flow_in[1], &m, 1), 1);
	}
}

/* A poll in which its own queue has a packet too. */
static void turn(void)
{
	assert_int_equal(rte_ring_enqueue(ring[0].rx, packet()), 0);
	worker_poll(&rt->worker[0]);
}

static void test_what_lies_in_a_ring_is_not_seen(void **state)
{
	struct sy_worker *w = &rt->worker[0];
	uint64_t before;

	turn();
	before = w->now_ns;
	assert_int_equal(sy_worker_seen_ns(w), before);
	pass(SECOND);
	steer_out(3);
	handed = 0;
	turn();
	assert_int_equal(seen_ns, before); /* its own burst came first */
	assert_int_equal(handed, 3);
	assert_int_equal(sy_worker_seen_ns(w), w->now_ns);
}

/* more than a poll dequeues: the next ones do */
static void test_a_ring_that_is_long(void **state)
{
	struct sy_worker *w = &rt->worker[0];
	const unsigned max = RING_BURSTS * SY_BURST;
	uint64_t before = w->now_ns;

	pass(SECOND);
	steer_out(2 * max + 5);
	handed = 0;
	for (unsigned i = 1; i <= 2; i++) {
		turn();
		assert_int_equal(handed, i * max);
		assert_int_equal(sy_worker_seen_ns(w), before);
	}
	turn();
	assert_int_equal(handed, 2 * max + 5);
	assert_int_equal(sy_worker_seen_ns(w), w->now_ns);
}

/* It is never empty, and yet what was in it is seen. */
static void test_a_ring_that_never_ends(void **state)
{
	struct sy_worker *w = &rt->worker[0];
	const unsigned max = RING_BURSTS * SY_BURST;
	unsigned turns = 0;
	uint64_t began;

	pass(SECOND);
	began = w->now_ns;
	steer_out(WORKER_FLOW_RING - max);
	while (sy_worker_seen_ns(w) < began) {
		assert_true(turns++ <= WORKER_FLOW_RING / max + 1);
		turn();
		pass(SECOND / 1000);
		steer_out(max);
	}
	assert_true(turns >= WORKER_FLOW_RING / max);
	while (ring_count(w->private->flow_in[1]))
		turn();
	turn(); /* the last one may have left something */
	assert_int_equal(sy_worker_seen_ns(w), w->now_ns);
}

static int setup(void **state)
{
	struct sy_runtime_options o;

	options_init(&o, WORKERS);
	ring_port_add_queues(&o, "seen", ring, WORKERS);
	o.pipeline = pipeline;
	rt = runtime_open(&o);
	pass(SECOND);
	return 0;
}

static int teardown(void **state)
{
	sy_runtime_close(rt);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_what_lies_in_a_ring_is_not_seen),
	        cmocka_unit_test(test_a_ring_that_is_long),
	        cmocka_unit_test(test_a_ring_that_never_ends),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
