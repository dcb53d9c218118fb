// SPDX-License-Identifier: Apache-2.0
/* A shaped port over rings: owners of its queues, changes while packets wait, the end. */
#include <stdio.h>
#include <stdlib.h>

#include <rte_byteorder.h>

#include <sy_shaping.h>

#include "runtime_fixture.h"

#define FLOWS    16
#define SERVICES 4

struct frame {
	struct sy_eth eth;
	struct sy_ipv4 ip;
	uint32_t flow, number;
	uint8_t padding[22];
} __attribute__((packed));

#define QUEUES 3

static struct ring_port port, wide[QUEUES];
static uint32_t next_in[FLOWS], next_out[FLOWS], sent, received, refused[SERVICES];

/* The slot's owner sends; flows belong to services. */
static void stage_route(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		const struct frame *f = (const struct frame *)sy_frame(b->mbuf[i]);
		struct sy_addr dst = sy_addr_v4(f->ip.dst);
		b->slot[i] = (uint8_t)f->flow;
		if (sy_slot_worker(w->rt, b->slot[i]) != w->id) {
			sy_burst_steer(w, b, i);
			continue;
		}
		sy_packet_set_service(b->mbuf[i], f->flow % SERVICES);
		b->path[i] = sy_path_lookup(w->rt, &dst);
		b->flow[i] = f->flow;
		b->next[i] = SY_NEXT_TRANSMIT;
	}
}

static void note_refused(struct sy_worker *w, uint32_t service, enum sy_drop reason)
{
	(void)w;
	assert_int_equal(reason, SY_DROP_SHAPING_FULL);
	__atomic_fetch_add(&refused[service], 1, __ATOMIC_RELAXED);
}

static const struct sy_stage pipeline[] = {
        {"route", stage_route}, {"transmit", sy_transmit_stage}, {NULL, NULL}};

static void inject(struct sy_runtime *rt, unsigned flow)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);
	struct frame f = {.eth.type = rte_cpu_to_be_16(SY_ETH_IPV4),
	                  .ip.version_ihl = 0x45,
	                  .flow = flow,
	                  .number = next_in[flow]++};
	assert_non_null(m);
	sy_packet_set_service(m, 12345); /* what an earlier packet left */
	f.ip.dst = addr("10.0.0.9").w[3];
	memcpy(rte_pktmbuf_append(m, 1000), &f, sizeof(f));
	struct rte_ring *rx = wide[0].rx ? wide[flow / SERVICES % QUEUES].rx : port.rx;
	assert_int_equal(rte_ring_enqueue(rx, m), 0);
	sent++;
}

/* Collects what has arrived; each flow is in order. Frames without bytes are device_fill()'s. */
static void receive(void)
{
	struct rte_mbuf *m;
	while (!rte_ring_dequeue(port.tx, (void **)&m)) {
		const struct frame *f = (const struct frame *)sy_frame(m);
		if (m->pkt_len > 0) {
			assert_int_equal(f->number, next_out[f->flow]++);
			received++;
		}
		rte_pktmbuf_free(m);
	}
}

static struct sy_shape_config *config(uint64_t rate)
{
	static struct sy_shape_branch tenant[1], service[3];
	static struct sy_shape_config c;
	c = (struct sy_shape_config){
	        .rate = rate, .burst = 4096, .tenant = tenant, .service = service};
	c.classes = c.tenants = 1;
	c.services = 3;
	c.class[0] = (struct sy_shape_class){.name = "default", .weight = 1, .queue = 4000};
	tenant[0] = (struct sy_shape_branch){.weight = 1, .class = SY_SHAPE_BY_DSCP};
	for (unsigned i = 0; i < 3; i++) {
		service[i] = (struct sy_shape_branch){.weight = 1, .class = SY_SHAPE_BY_DSCP};
		snprintf(service[i].name, sizeof(service[i].name), "%u", i);
	}
	return &c;
}

static void shape(struct sy_runtime *rt, const struct sy_shape_config *c)
{
	uint16_t *branch = calloc(SERVICES, sizeof(*branch));
	struct sy_error err = {0};
	branch[1] = 1;
	branch[2] = 2;
	if (sy_port_shape(rt, 0, c, branch, SERVICES, &err) < 0)
		fail_msg("%s", err.text);
}

static unsigned waiting(const struct sy_runtime *rt)
{
	return sy_shape_waiting(sy_port_shape_get(rt, 0));
}

static void await_waiting(struct sy_runtime *rt, unsigned packets)
{
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	while (waiting(rt) + received + rte_ring_count(port.tx) < packets)
		runtime_poll(rt, deadline);
}

/* No more than the rate and a burst leave, in order, by whichever worker the packets came; and all
 * leave. */
static void test_rate(void **state)
{
	struct sy_runtime *rt = *state;
	uint64_t deadline = sy_clock_ns() + WAIT_NS, begin = sy_clock_ns();
	shape(rt, config(80000000)); /* 10 kB a ms */
	for (unsigned i = 0; i < 608; i++)
		inject(rt, i % FLOWS);
	while (received < sent) {
		receive();
		uint64_t passed = sy_clock_ns() - begin;
		assert_true(received * UINT64_C(1000) <= passed / 100 + 4096 + 1000);
		runtime_poll(rt, deadline);
	}
	const struct sy_shape *s = sy_port_shape_get(rt, 0);
	/* Flows modulo 4: services 0 and 3 are number 0. */
	assert_int_equal(sy_shape_read(s, 0, 0).sent, 304);
	assert_int_equal(sy_shape_read(s, 1, 0).sent, 152);
	assert_int_equal(sy_shape_read(s, 2, 0).sent, 152);
	for (unsigned i = 1; i < SY_DROP_COUNT; i++)
		assert_int_equal(drops(rt, i), 0);
}

/* A service moves to another branch. */
static void test_service(void **state)
{
	struct sy_runtime *rt = *state;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	const struct sy_shape *s = sy_port_shape_get(rt, 0);
	const uint64_t before = sy_shape_read(s, 2, 0).sent;
	sy_port_shape_service(rt, 0, 3, 2);
	inject(rt, 3);
	while (received < sent) {
		receive();
		runtime_poll(rt, deadline);
	}
	assert_int_equal(sy_shape_read(s, 2, 0).sent, before + 1);
}

static void test_change(void **state)
{
	struct sy_runtime *rt = *state;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	shape(rt, config(100000)); /* a packet needs 80 ms */
	for (unsigned i = 0; i < 400; i++)
		inject(rt, i % FLOWS);
	await_waiting(rt, sent);
	assert_true(waiting(rt) > 100);
	shape(rt, config(200000));
	shape(rt, config(400000000));
	while (received < sent) {
		receive();
		runtime_poll(rt, deadline);
	}
	assert_int_equal(drops(rt, SY_DROP_SHAPING_FULL), 0);
}

static void test_full(void **state)
{
	struct sy_runtime *rt = *state;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	struct sy_shape_config *c = config(8000);
	c->class[0].queue = 10;
	shape(rt, c);
	for (unsigned i = 0; i < 400; i++)
		inject(rt, 1);
	while (received + rte_ring_count(port.tx) + waiting(rt) + drops(rt, SY_DROP_SHAPING_FULL) <
	       sent)
		runtime_poll(rt, deadline);
	assert_true(drops(rt, SY_DROP_SHAPING_FULL) > 300);
	assert_int_equal(sy_shape_read(sy_port_shape_get(rt, 0), 1, 0).full,
	                 drops(rt, SY_DROP_SHAPING_FULL));
	assert_int_equal(refused[1], drops(rt, SY_DROP_SHAPING_FULL));
	for (unsigned i = 0; i < 100; i++) /* of no service: they count for none */
		inject(rt, 12);
	while (received + rte_ring_count(port.tx) + waiting(rt) + drops(rt, SY_DROP_SHAPING_FULL) <
	       sent)
		runtime_poll(rt, deadline);
	assert_true(refused[1] < drops(rt, SY_DROP_SHAPING_FULL));
	assert_int_equal(refused[0] + refused[2] + refused[3], 0);
	/* Packets were lost: from here on, another flow. */
}

/* What waits leaves at once. */
static void test_unshape(void **state)
{
	struct sy_runtime *rt = *state;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	struct sy_error err;
	const uint64_t lost = drops(rt, SY_DROP_SHAPING_FULL);
	shape(rt, config(8000));
	for (unsigned i = 0; i < 200; i++)
		inject(rt, 2);
	while (received + rte_ring_count(port.tx) + waiting(rt) + lost < sent)
		runtime_poll(rt, deadline);
	assert_true(waiting(rt) > 100);
	assert_int_equal(sy_port_unshape(rt, 0, &err), 0);
	assert_null(sy_port_shape_get(rt, 0));
	next_out[1] = next_in[1] - 10; /* those that were not refused: the last ones in the queue */
	for (unsigned i = 0; i < 200; i++)
		inject(rt, 2);
	struct rte_mbuf *m;
	while (received + lost < sent) {
		while (!rte_ring_dequeue(port.tx, (void **)&m)) {
			const struct frame *f = (const struct frame *)sy_frame(m);
			if (f->flow == 2)
				assert_int_equal(f->number, next_out[2]++);
			rte_pktmbuf_free(m);
			received++;
		}
		runtime_poll(rt, deadline);
	}
	while (rt->port[0]->shaping.tree) /* the loop frees it */
		runtime_poll(rt, deadline);
}

/* The device accepts nothing more until receive(). */
static void device_fill(struct sy_runtime *rt)
{
	struct rte_mbuf *m;
	while (rte_ring_free_count(port.tx) > 0) {
		m = rte_pktmbuf_alloc(rt->pool);
		assert_non_null(m);
		assert_int_equal(rte_ring_enqueue(port.tx, m), 0);
	}
}

static uint64_t tx_failed(const struct sy_runtime *rt)
{
	struct sy_port_stats stats;
	sy_port_get_stats(rt, 0, &stats);
	return stats.tx_failed;
}

/* Of each two tries, the device refuses one. */
static unsigned reluctant_tx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	static unsigned tries;
	return tries++ % 2 ? port_ethdev_ops.tx(p, queue, m, n) : 0;
}

static unsigned sending;

static unsigned sending_many(struct port *p, unsigned queue)
{
	return sending;
}

/* What waits and what the device still has are never more than there is for both. */
static void test_room(void **state)
{
	struct sy_runtime *rt = *state;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	const uint64_t full = drops(rt, SY_DROP_SHAPING_FULL);
	const unsigned before = received;
	struct port_ops slow = port_ethdev_ops;
	slow.sending = sending_many;
	sending = sy_port_shape_capacity(rt, 0) - 1000;
	rt->port[0]->ops = &slow;
	shape(rt, config(8000));
	for (unsigned i = 1; i <= 2000; i++) {
		inject(rt, 7);
		while (i % 100 == 0 && received + rte_ring_count(port.tx) + waiting(rt) +
		                                       drops(rt, SY_DROP_SHAPING_FULL) <
		                               before + i + full)
			runtime_poll(rt, deadline);
	}
	assert_in_range(waiting(rt), 100, 1000);
	shape(rt, config(400000000));
	while (received + drops(rt, SY_DROP_SHAPING_FULL) < before + 2000 + full) {
		struct rte_mbuf *m;
		while (!rte_ring_dequeue(port.tx, (void **)&m)) {
			rte_pktmbuf_free(m);
			received++;
		}
		runtime_poll(rt, deadline);
	}
	rt->port[0]->ops = &port_ethdev_ops;
}

/* At the end of a process what waits is sent, by a device that is slow. */
static void test_quiesce(void **state)
{
	struct sy_runtime *rt = *state;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	const unsigned before = received;
	struct rte_mbuf *m;
	shape(rt, config(8000));
	for (unsigned i = 0; i < 200; i++)
		inject(rt, 5);
	while (received + rte_ring_count(port.tx) + waiting(rt) < before + 200)
		runtime_poll(rt, deadline);
	struct port_ops slow = port_ethdev_ops;
	slow.tx = reluctant_tx;
	rt->port[0]->ops = &slow;
	sy_runtime_quiesce(rt);
	rt->port[0]->ops = &port_ethdev_ops;
	while (!rte_ring_dequeue(port.tx, (void **)&m)) {
		rte_pktmbuf_free(m);
		received++;
	}
	assert_int_equal(received, before + 200);
}

/* A full device is not waited for. What it refuses is counted. */
static void test_quiesce_full(void **state)
{
	struct sy_runtime *rt = *state;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	shape(rt, config(8000));
	for (unsigned i = 0; i < 200; i++)
		inject(rt, 5);
	while (rte_ring_count(port.tx) + waiting(rt) < 200)
		runtime_poll(rt, deadline);
	device_fill(rt);
	sy_runtime_quiesce(rt);
	receive();
	assert_int_equal(drops(rt, SY_DROP_TX_FULL), 200 - received);
	assert_int_equal(tx_failed(rt), 200 - received);
}

static void wide_receive(void)
{
	struct rte_mbuf *m;
	for (unsigned q = 0; q < QUEUES; q++) {
		while (!rte_ring_dequeue(wide[q].tx, (void **)&m)) {
			rte_pktmbuf_free(m);
			received++;
		}
	}
}

/* Each worker has a queue of the port, and sends while it is shaped and no longer shaped. */
static void test_toggle(void **state)
{
	struct sy_runtime *rt = *state;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	struct sy_error err;
	for (unsigned turn = 0; turn < 1000; turn++) {
		shape(rt, config(UINT64_C(10000000000)));
		assert_false(SY_READ(rt->worker[0].queues_suffice));
		for (unsigned i = 0; i < 2 * FLOWS; i++)
			inject(rt, i % FLOWS);
		assert_int_equal(sy_port_unshape(rt, 0, &err), 0);
		for (unsigned i = 0; i < 2 * FLOWS; i++)
			inject(rt, i % FLOWS);
		for (wide_receive(); sent - received > 256; wide_receive())
			runtime_poll(rt, deadline);
	}
	for (; received < sent || rt->port[0]->shaping.tree; wide_receive())
		runtime_poll(rt, deadline);
	assert_true(SY_READ(rt->worker[0].queues_suffice));
	sy_runtime_quiesce(rt); /* no worker runs when teardown() frees the rings */
	for (unsigned i = 1; i < SY_DROP_COUNT; i++)
		assert_int_equal(drops(rt, i), 0);
}

/* Worker 1 works in the middle of worker 0's poll. */
static bool interrupted;

static bool interrupt(struct sy_worker *w)
{
	if (w->id == 0 && interrupted) {
		interrupted = false;
		worker_poll(&w->rt->worker[1]);
	}
	return false;
}

/* No worker runs by itself. While the tree of worker 0 ends, worker 1 still passes a packet to it;
 * later ones follow until that has left. */
static void test_order_after(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_worker *w = rt->worker;
	struct sy_error err;
	const unsigned flow = SERVICES; /* received and sent by worker 1 */
	port.tx = wide[0].tx;
	shape(rt, config(UINT64_C(10000000000)));
	assert_int_equal(sy_port_shape_worker(rt, 0), 0);
	assert_int_equal(sy_port_unshape(rt, 0, &err), 0);
	inject(rt, flow);
	interrupted = true;
	worker_poll(&w[0]);
	assert_int_equal(rt->port[0]->shaper, 0); /* it ended, and the packet is under way */
	inject(rt, flow);
	worker_poll(&w[1]);
	receive();
	assert_int_equal(received, 0);
	shaping_tick(rt); /* so worker 1 still owns its sessions */
	assert_non_null(rt->port[0]->shaping.tree);
	assert_false(w[1].queues_suffice);
	worker_poll(&w[0]);
	receive();
	assert_int_equal(received, 2);
	inject(rt, flow);
	worker_poll(&w[1]); /* by its own queue again */
	receive();
	assert_int_equal(received, 3);
	shaping_tick(rt);
	assert_null(rt->port[0]->shaping.tree);
	assert_true(w[1].queues_suffice);
}

/* A poll of the owner dequeues many bursts from the others, but not all. */
static void test_ring_bursts(void **state)
{
	struct sy_runtime *rt = *state;
	const unsigned max = RING_BURSTS * SY_BURST, before = received, all = max + 100;
	shape(rt, config(8000));
	for (unsigned i = 0; i < all; i++)
		inject(rt, SERVICES);
	for (unsigned i = 0; i < all / SY_BURST + 1; i++)
		worker_poll(&rt->worker[1]);
	worker_poll(&rt->worker[0]);
	receive();
	assert_int_equal(received - before + waiting(rt), max);
	worker_poll(&rt->worker[0]);
	receive();
	assert_int_equal(received - before + waiting(rt), all);
	sy_runtime_quiesce(rt);
	receive();
	assert_int_equal(received, sent);
}

/* The buffers that are set aside for the event device are not for packets that wait. */
static void test_spare(void **state)
{
	struct sy_runtime_options o;
	unsigned room[2];
	options_init(&o, 1);
	o.mbufs = 0;
	ring_port_add(&o, "spare");
	for (unsigned i = 0; i < 2; i++, o.spare = 4096) {
		struct sy_runtime *rt = runtime_open(&o);
		room[i] = sy_port_shape_capacity(rt, 0);
		sy_runtime_close(rt);
	}
	assert_in_range(room[0], SY_BURST + 1, 10000);
	assert_int_equal(room[1], room[0]);
}

static int setup(void **state, const char *name, unsigned workers, unsigned queues)
{
	struct sy_runtime_options o;
	struct sy_error err;
	memset(next_in, 0, sizeof(next_in));
	memset(next_out, 0, sizeof(next_out));
	memset(refused, 0, sizeof(refused));
	sent = received = 0;
	options_init(&o, workers);
	if (queues == QUEUES && strcmp(name, "narrow") == 0)
		ring_port_add_narrow(&o, name, wide, QUEUES);
	else if (queues == QUEUES)
		ring_port_add_queues(&o, name, wide, QUEUES);
	else
		port = ring_port_add(&o, name);
	options_reach(&o);
	o.pipeline = pipeline;
	o.poll = interrupt;
	o.refused = note_refused;
	struct sy_runtime *rt = runtime_open(&o);
	*state = rt;
	return strcmp(name, "narrow") == 0 ? 0 : sy_runtime_start(rt, &err);
}

static int setup_one(void **state)
{
	return setup(state, "one", 1, 1);
}

static int setup_three(void **state)
{
	return setup(state, "three", 3, 1);
}

static int setup_full(void **state)
{
	return setup(state, "full", 1, 1);
}

static int setup_wide(void **state)
{
	return setup(state, "wide", QUEUES, QUEUES);
}

static int setup_narrow(void **state)
{
	return setup(state, "narrow", QUEUES, QUEUES);
}

/* No buffer is lost. */
static int teardown(void **state)
{
	struct sy_runtime *rt = *state;
	steer_close(rt);
	assert_int_equal(rte_mempool_in_use_count(rt->pool), 0);
	sy_runtime_close(rt);
	return 0;
}

#define TESTS                                                                                      \
	cmocka_unit_test(test_rate), cmocka_unit_test(test_service),                               \
	        cmocka_unit_test(test_change), cmocka_unit_test(test_full),                        \
	        cmocka_unit_test(test_unshape), cmocka_unit_test(test_room),                       \
	        cmocka_unit_test(test_quiesce)

int main(void)
{
	const struct CMUnitTest one_worker[] = {TESTS}, three_workers[] = {TESTS},
	                        full_port[] = {cmocka_unit_test(test_quiesce_full)},
	                        no_port[] = {cmocka_unit_test(test_spare)},
	                        wide_port[] = {cmocka_unit_test(test_toggle)},
	                        narrow_port[] = {cmocka_unit_test(test_order_after),
	                                         cmocka_unit_test(test_ring_bursts)};
	return cmocka_run_group_tests(one_worker, setup_one, teardown) +
	       cmocka_run_group_tests(three_workers, setup_three, teardown) +
	       cmocka_run_group_tests(full_port, setup_full, teardown) +
	       cmocka_run_group_tests(no_port, NULL, NULL) +
	       cmocka_run_group_tests(wide_port, setup_wide, teardown) +
	       cmocka_run_group_tests(narrow_port, setup_narrow, teardown);
}
