// SPDX-License-Identifier: Apache-2.0
/* Shaping is switched off while the port gets more than a poll dequeues, or more than the device
 * accepts. No worker runs by itself, and the tests set the time. */
#include <stdlib.h>

#include <sy_shaping.h>

#include "runtime_fixture.h"

#define END_NS UINT64_C(100000000) /* how long refused packets stay pending */
#define TURN   (4 * SY_BURST)      /* packets that a poll dequeues, if no other comes */
#define LOAD   (TURN + SY_BURST)   /* packets that arrive between two polls */
#define TURNS  50

static struct ring_port ring;
static uint32_t sent, received;

static void shape(struct sy_runtime *rt)
{
	struct sy_shape_branch tenant = {.weight = 1}, service = {.weight = 1};
	struct sy_shape_config c = {.rate = 8000,
	                            .burst = 4096,
	                            .tenant = &tenant,
	                            .service = &service,
	                            .classes = 1,
	                            .tenants = 1,
	                            .services = 1};
	struct sy_error err = {0};
	c.class[0] = (struct sy_shape_class){.weight = 1, .queue = 4000};
	if (sy_port_shape(rt, 0, &c, calloc(1, sizeof(uint16_t)), 1, &err) < 0)
		fail_msg("%s", err.text);
}

/* As at the end of a poll that has received n packets. */
static void turn(struct sy_runtime *rt, unsigned n)
{
	struct sy_worker *w = &rt->worker[0];
	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);
		assert_non_null(m);
		m->port = 0;
		sy_packet_set_service(m, 0);
		memcpy(rte_pktmbuf_append(m, 1000), &sent, sizeof(sent));
		sent++;
		sy_transmit_ready(w, m);
	}
	transmit_flush(w);
	shaping_poll(w);
}

/* Collects what has arrived, in order. Frames without bytes are device_fill()'s. */
static void receive(void)
{
	struct rte_mbuf *m;
	while (!rte_ring_dequeue(ring.tx, (void **)&m)) {
		uint32_t number;
		memcpy(&number, sy_frame(m), sizeof(number));
		if (m->pkt_len > 0)
			assert_int_equal(number, received++);
		rte_pktmbuf_free(m);
	}
}

/* The device accepts nothing more until receive(). */
static void device_fill(struct sy_runtime *rt)
{
	while (rte_ring_free_count(ring.tx) > 0) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);
		assert_non_null(m);
		assert_int_equal(rte_ring_enqueue(ring.tx, m), 0);
	}
}

static unsigned waiting(const struct sy_runtime *rt)
{
	const struct shaping *s = &rt->port[0]->shaping;
	return sy_shape_waiting(s->tree) + s->pending;
}

static uint64_t tx_failed(const struct sy_runtime *rt)
{
	struct sy_port_stats stats;
	sy_port_get_stats(rt, 0, &stats);
	return stats.tx_failed;
}

static void unshape(struct sy_runtime *rt)
{
	struct sy_error err;
	assert_int_equal(sy_port_unshape(rt, 0, &err), 0);
	assert_null(sy_port_shape_get(rt, 0));
}

/* The loop frees the tree, and each worker sends by itself again. */
static void assert_ended(struct sy_runtime *rt)
{
	assert_int_equal(rt->port[0]->shaper, 0);
	shaping_tick(rt);
	assert_null(rt->port[0]->shaping.tree);
	assert_true(rt->worker[0].queues_suffice);
}

/* The device accepts all, but more arrives than a poll dequeues. Nothing is lost, and no poll
 * dequeues everything. */
static void test_load(void **state)
{
	struct sy_runtime *rt = *state;
	shape(rt);
	for (unsigned i = 0; i < 4; i++)
		turn(rt, TURN);
	receive();
	unshape(rt);
	const unsigned before = waiting(rt);
	assert_true(before > 3 * TURN);
	turn(rt, 0);
	assert_int_equal(waiting(rt), before - TURN);
	turn(rt, LOAD);
	assert_in_range(waiting(rt), 1, before - TURN - 1);
	receive();
	for (unsigned i = 0; i < TURNS && rt->port[0]->shaper != 0; i++, receive())
		turn(rt, LOAD);
	assert_ended(rt);
	assert_int_equal(received, sent);
	assert_int_equal(tx_failed(rt), 0);
}

/* The device is full for less than the time: waiting packets remain, and do not count as failed. */
static void test_full(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_worker *w = &rt->worker[0];
	const uint64_t failed = tx_failed(rt), full = drops(rt, SY_DROP_TX_FULL);
	shape(rt);
	turn(rt, TURN);
	device_fill(rt);
	unshape(rt);
	for (unsigned i = 0; i < 9; i++, w->now_ns += END_NS / 10) {
		turn(rt, 1);
		unshape(rt); /* again: the time has begun */
	}
	assert_true(waiting(rt) > SY_BURST);
	receive();
	for (unsigned i = 0; i < TURNS && rt->port[0]->shaper != 0; i++)
		turn(rt, 0);
	receive();
	assert_ended(rt);
	assert_int_equal(received, sent);
	assert_int_equal(drops(rt, SY_DROP_TX_FULL), full);
	assert_int_equal(tx_failed(rt), failed);
}

/* The device accepts nothing, and more arrives: after the time refused packets are dropped. */
static void test_overload(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_worker *w = &rt->worker[0];
	const uint64_t failed = tx_failed(rt), full = drops(rt, SY_DROP_TX_FULL);
	shape(rt);
	turn(rt, TURN);
	receive();
	const unsigned before = received;
	device_fill(rt);
	unshape(rt);
	w->now_ns += END_NS - 1;
	turn(rt, LOAD);
	unshape(rt); /* again: the time does not begin anew */
	assert_int_equal(waiting(rt), sent - before);
	w->now_ns++;
	for (unsigned i = 0; i < TURNS && rt->port[0]->shaper != 0; i++)
		turn(rt, LOAD);
	assert_ended(rt);
	assert_int_equal(drops(rt, SY_DROP_TX_FULL) - full, sent - before);
	assert_int_equal(tx_failed(rt) - failed, sent - before);
	for (unsigned i = 1; i < SY_DROP_COUNT; i++)
		assert_true(i == SY_DROP_TX_FULL || drops(rt, i) == 0);
	receive();
}

static int setup(void **state)
{
	static const struct sy_stage pipeline[] = {{NULL, NULL}};
	struct sy_runtime_options o;
	options_init(&o, 1);
	ring = ring_port_add(&o, "end");
	o.pipeline = pipeline;
	struct sy_runtime *rt = *state = runtime_open(&o);
	rt->worker[0].now_ns = sy_clock_ns();
	return 0;
}

/* No buffer is lost. */
static int teardown(void **state)
{
	struct sy_runtime *rt = *state;
	assert_int_equal(rte_mempool_in_use_count(rt->pool), 0);
	sy_runtime_close(rt);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_load), cmocka_unit_test(test_full),
	                                   cmocka_unit_test(test_overload)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
