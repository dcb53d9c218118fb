// SPDX-License-Identifier: Apache-2.0
/* A shaped port whose interface is deleted and returns with fewer queues: its tree goes to a worker
 * that has one, with all that waits. No worker runs by itself. */
#include <stdlib.h>

#include <rte_byteorder.h>

#include <sy_shaping.h>

#include "runtime_fixture.h"

#define PORT    1 /* so its tree is worker 1's */
#define WORKERS 2
#define PACKETS 20

struct frame {
	struct sy_eth eth;
	struct sy_ipv4 ip;
	uint32_t number;
} __attribute__((packed));

static struct ring_port ring[WORKERS];
static struct port_ops ops;
static uint32_t sent, received;
static struct sy_worker *silent; /* answers no call once the port has its device again */

static void stage_route(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		const struct frame *f = (const struct frame *)sy_frame(b->mbuf[i]);
		struct sy_addr dst = sy_addr_v4(f->ip.dst);
		b->path[i] = sy_path_lookup(w->rt, &dst);
		b->flow[i] = 0;
		b->next[i] = SY_NEXT_TRANSMIT;
	}
}

static const struct sy_stage pipeline[] = {
        {"route", stage_route}, {"transmit", sy_transmit_stage}, {NULL, NULL}};

static void shape(struct sy_runtime *rt, uint64_t rate)
{
	struct sy_shape_branch all = {.weight = 1, .class = SY_SHAPE_BY_DSCP};
	struct sy_shape_config c = {.rate = rate, .burst = 4096, .tenant = &all, .service = &all};
	struct sy_error err;
	c.classes = c.tenants = c.services = 1;
	c.class[0] = (struct sy_shape_class){.name = "default", .weight = 1, .queue = 1000};
	if (sy_port_shape(rt, PORT, &c, calloc(1, sizeof(uint16_t)), 1, &err) < 0)
		fail_msg("%s", err.text);
}

static void turns(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < 2 * WORKERS; i++)
		worker_poll(&rt->worker[i % WORKERS]);
}

/* Packets that worker 0 receives. */
static void inject(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < PACKETS; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);
		struct frame f = {.eth.type = rte_cpu_to_be_16(SY_ETH_IPV4),
		                  .ip.version_ihl = 0x45,
		                  .number = sent++};
		assert_non_null(m);
		f.ip.dst = addr("10.0.0.9").w[3];
		memcpy(rte_pktmbuf_append(m, 1000), &f, sizeof(f));
		assert_int_equal(rte_ring_enqueue(ring[0].rx, m), 0);
	}
	turns(rt);
}

/* Collects what has arrived, in order. */
static void receive(void)
{
	struct rte_mbuf *m;
	while (!rte_ring_dequeue(ring[0].tx, (void **)&m)) {
		assert_int_equal(((const struct frame *)sy_frame(m))->number, received++);
		rte_pktmbuf_free(m);
	}
}

static void await_all(struct sy_runtime *rt)
{
	const uint64_t deadline = sy_clock_ns() + WAIT_NS;
	for (; received < sent; receive()) {
		assert_true(sy_clock_ns() < deadline);
		turns(rt);
	}
}

static void device_lose(struct port *p)
{
}

static int device_reattach(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
                           bool *up, struct sy_error *err)
{
	p->queues = 1;
	*up = true;
	if (silent)
		silent->private->running = true;
	return 0;
}

/* The interface is deleted while packets wait, and another one of its name is there at once. */
static struct port *lose(struct sy_runtime *rt)
{
	struct port *p = rt->port[PORT];
	shape(rt, 8000);
	assert_int_equal(sy_port_shape_worker(rt, PORT), 1);
	inject(rt);
	assert_true(sy_shape_waiting(p->shaping.tree) > PACKETS / 2);
	ops = port_ethdev_ops;
	ops.lose = device_lose;
	ops.reattach = device_reattach;
	p->ops = &ops;
	strcpy(p->name, "lo");
	port_lose(rt, p);
	p->ifindex = 1;
	return p;
}

/* Another attempt to take the port. */
static void retry(struct sy_runtime *rt)
{
	rt->port[PORT]->retry_ns = 0;
	ports_tick(rt);
	shaping_tick(rt);
}

static void retry_without(struct sy_runtime *rt, unsigned worker)
{
	silent = &rt->worker[worker];
	retry(rt);
	silent->private->running = false;
	silent = NULL;
}

static void test_fewer_queues(void **state)
{
	struct sy_runtime *rt = *state;
	const struct port *p = lose(rt);
	retry(rt);
	assert_true(p->up);
	assert_int_equal(sy_port_shape_worker(rt, PORT), 0);
	assert_int_equal(rt->worker[1].private->shaped, 0);
	inject(rt);
	shape(rt, 400000000);
	await_all(rt);
}

/* Neither the present owner of the tree answers, nor then the future one. */
static void test_no_answer(void **state)
{
	struct sy_runtime *rt = *state;
	const struct port *p = lose(rt);
	retry_without(rt, 1);
	assert_false(p->up);
	assert_int_equal(p->shaper, 2);
	retry_without(rt, 0);
	assert_false(p->up);
	assert_int_equal(p->shaper, 0);
	assert_non_null(sy_port_shape_get(rt, PORT));
	retry(rt);
	assert_true(p->up);
	assert_int_equal(sy_port_shape_worker(rt, PORT), 0);
	inject(rt);
	shape(rt, 400000000);
	await_all(rt);
}

/* While the tree has no owner, shaping is switched off. */
static void test_unshape_meanwhile(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_error err;
	const struct port *p = lose(rt);
	retry_without(rt, 0);
	assert_int_equal(p->shaper, 0);
	assert_int_equal(sy_port_unshape(rt, PORT, &err), 0);
	assert_null(sy_port_shape_get(rt, PORT));
	retry(rt);
	await_all(rt);
	turns(rt);
	shaping_tick(rt);
	assert_null(p->shaping.tree);
	inject(rt);
	await_all(rt);
}

/* The same with a change, and the process ends. */
static void test_change_meanwhile(void **state)
{
	struct sy_runtime *rt = *state;
	const struct port *p = lose(rt);
	retry_without(rt, 0);
	shape(rt, 16000);
	assert_int_equal(p->shaper, 1);
	retry(rt);
	assert_true(p->up);
	inject(rt);
	sy_runtime_quiesce(rt);
	receive();
	assert_int_equal(received, sent);
}

static int setup(void **state)
{
	static unsigned made;
	static struct sy_static_neigh neigh = {.mac = {2, 0, 0, 0, 0, 9}};
	static struct sy_static_route route = {.prefix_len = 24};
	struct sy_runtime_options o;
	char name[16];
	sent = received = 0;
	options_init(&o, WORKERS);
	snprintf(name, sizeof(name), "other%u", made);
	ring_port_add(&o, name);
	snprintf(name, sizeof(name), "again%u", made++);
	ring_port_add_narrow(&o, name, ring, WORKERS);
	neigh.addr = addr("10.0.0.9");
	route.prefix = addr("10.0.0.0");
	memcpy(neigh.port, o.port[PORT].name, sizeof(neigh.port));
	memcpy(route.port, o.port[PORT].name, sizeof(route.port));
	o.neigh = &neigh;
	o.route = &route;
	o.neighs = o.routes = 1;
	o.pipeline = pipeline;
	*state = runtime_open(&o);
	return 0;
}

/* No buffer is lost. */
static int teardown(void **state)
{
	struct sy_runtime *rt = *state;
	steer_close(rt);
	shaping_close(rt->port[PORT]);
	assert_int_equal(rte_mempool_in_use_count(rt->pool), 0);
	rt->port[PORT]->ops = &port_ethdev_ops;
	sy_runtime_close(rt);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_fewer_queues, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_no_answer, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_unshape_meanwhile, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_change_meanwhile, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
