// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include <rte_eth_ring.h>

#include "runtime_fixture.h"

static const struct sy_stage no_stage = {0};

void options_init(struct sy_runtime_options *o, unsigned workers)
{
	sy_slot_init();
	sy_log_set_level(SY_LOG_ERROR);
	*o = (struct sy_runtime_options){
	        .workers = workers, .memory_mb = 256, .mbufs = 8191, .pipeline = &no_stage};
}

struct ring_port ring_port_add(struct sy_runtime_options *o, const char *name)
{
	struct ring_port p;
	ring_port_add_queues(o, name, &p, 1);
	return p;
}

static void port_add(struct sy_runtime_options *o, const char *name, struct ring_port *p,
                     unsigned queues, unsigned tx_rings)
{
	static unsigned made;
	char text[32];
	struct rte_ring *rx[SY_MAX_WORKERS], *tx[SY_MAX_WORKERS];
	struct sy_port_options *port = &o->port[o->ports++];
	struct sy_error err;
	if (eal_start(o, &err))
		fail_msg("%s", err.text);
	for (unsigned q = 0; q < queues; q++) {
		snprintf(text, sizeof(text), "rx%u", made);
		p[q].rx = rx[q] = rte_ring_create(text, 4096, SOCKET_ID_ANY, 0);
		snprintf(text, sizeof(text), "tx%u", made++);
		p[q].tx = tx[q] =
		        q < tx_rings ? rte_ring_create(text, 4096, SOCKET_ID_ANY, 0) : tx[0];
		assert_non_null(rx[q]);
		assert_non_null(tx[q]);
	}
	assert_true(rte_eth_from_rings(name, rx, queues, tx, queues, 0) >= 0);
	*port = (struct sy_port_options){.backend = SY_PORT_ETHDEV, .mac = {2, 0, 0, 0, 0, 1}};
	snprintf(port->name, sizeof(port->name), "net_ring_%s", name);
}

void ring_port_add_queues(struct sy_runtime_options *o, const char *name, struct ring_port *p,
                          unsigned queues)
{
	port_add(o, name, p, queues, queues);
}

void ring_port_add_narrow(struct sy_runtime_options *o, const char *name, struct ring_port *p,
                          unsigned queues)
{
	port_add(o, name, p, queues, 1);
}

void options_reach(struct sy_runtime_options *o)
{
	static struct sy_static_neigh neigh = {.mac = {2, 0, 0, 0, 0, 9}};
	static struct sy_static_route route = {.prefix_len = 24};
	neigh.addr = addr("10.0.0.9");
	route.prefix = addr("10.0.0.0");
	memcpy(neigh.port, o->port[0].name, sizeof(neigh.port));
	memcpy(route.port, o->port[0].name, sizeof(route.port));
	o->neigh = &neigh;
	o->route = &route;
	o->neighs = o->routes = 1;
}

struct sy_runtime *runtime_open(const struct sy_runtime_options *o)
{
	struct sy_runtime *rt;
	struct sy_error err = {0};
	if (sy_runtime_open(o, &rt, &err) || sy_runtime_bind(rt, &err))
		fail_msg("%s", err.text);
	return rt;
}

void runtime_poll(struct sy_runtime *rt, uint64_t deadline)
{
	assert_int_equal(loop_poll(rt->loop, 1), 0);
	workers_answer(rt);
	rcu_poll(rt->rcu);
	assert_true(sy_clock_ns() < deadline);
}

void worker_run(struct sy_worker *w, void (*fn)(struct sy_worker *w, void *ctx), void *ctx)
{
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	int rc;
	do
		rc = sy_worker_call(w, fn, ctx);
	while (rc == -ETIMEDOUT && sy_clock_ns() < deadline);
	assert_int_equal(rc, 0);
}

struct sy_addr addr(const char *text)
{
	struct sy_addr a;
	assert_int_equal(sy_addr_parse(text, &a), 0);
	return a;
}

uint64_t drops(const struct sy_runtime *rt, enum sy_drop reason)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < rt->workers; i++)
		n += SY_READ(rt->worker[i].counters.drop[reason]);
	return n;
}
