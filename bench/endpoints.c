// SPDX-License-Identifier: Apache-2.0
#include "endpoints.h"

#include <stdlib.h>

#include <rte_cycles.h>

/* Connections that a burst starts while the target number is not reached: few, so that they spread
 * over all stages. */
#define RAMP 8
/* Microseconds. A longer call was interrupted and is not counted; a burst takes three. */
#define CALL_US 30

const uint8_t endpoints_mac[HARNESS_PORTS][6] = {{2, 0, 0, 0, 1, 1}, {2, 0, 0, 0, 1, 2}};

_Static_assert((int)HARNESS_WAN == (int)CONNECTION_CLIENT &&
                       (int)HARNESS_LAN == (int)CONNECTION_SERVER,
               "a port's number is its end's");

/* A port's operations take no context argument; a process has one harness. */
static struct endpoints *endpoints;

/* ---- steps ----------------------------------------------------------------------------------- */

static bool step_ring_open(struct step_ring *w, uint64_t capacity)
{
	uint64_t size = 1;
	while (size < capacity)
		size *= 2;
	*w = (struct step_ring){malloc(size * sizeof(struct connection_step)), size - 1, 0, 0};
	if (!w->step)
		return false;
	memset(w->step, 0, size * sizeof(struct connection_step)); /* touches the memory */
	return true;
}

static inline void step_ring_put(struct step_ring *w, const struct connection_step *step,
                                 unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		w->step[w->write++ & w->mask] = step[i];
}

static inline bool may_begin(const struct endpoints *e)
{
	return e->connections.begun < e->max_begun &&
	       e->connections.begun - e->connections.completed < e->concurrent;
}

static void connection_begin(struct endpoints *e)
{
	struct connection_step w;
	connections_begin(&e->connections, e->connections.begun, &w);
	step_ring_put(&e->steps[CONNECTION_CLIENT], &w, 1);
}

/* ---- the ports ------------------------------------------------------------------------------- */

static inline void endpoints_count(struct endpoints *e, uint64_t start)
{
	uint64_t cycles = rte_rdtsc() - start;
	if (SY_LIKELY(cycles < e->call_cycles))
		e->cycles += cycles;
}

static unsigned endpoints_rx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct endpoints *e = endpoints;
	struct step_ring *w = &e->steps[p->id];
	uint64_t start = rte_rdtsc();
	if (p->id == HARNESS_WAN)
		for (unsigned i = 0; i < RAMP && may_begin(e); i++)
			connection_begin(e);
	if (n > w->write - w->read)
		n = (unsigned)(w->write - w->read);
	for (unsigned i = 0; i < n; i++) {
		m[i] = spares_get(&e->spares, e->harness->rt->pool);
		if (!m[i]) {
			n = i;
			break;
		}
		uint8_t *frame = rte_pktmbuf_mtod(m[i], uint8_t *);
		m[i]->data_len = (uint16_t)connections_answer(&e->connections,
		                                              &w->step[w->read++ & w->mask], frame);
		m[i]->pkt_len = m[i]->data_len;
	}
	e->packets += n;
	endpoints_count(e, start);
	return n;
}

static unsigned endpoints_tx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct endpoints *e = endpoints;
	uint64_t start = rte_rdtsc(), completed = e->connections.completed;
	for (unsigned i = 0; i < n; i++) {
		struct connection_step next[2];
		const uint8_t *frame = rte_pktmbuf_mtod(m[i], const uint8_t *);
		if (e->check)
			e->wrong += !connections_check(frame, m[i]->data_len);
		step_ring_put(&e->steps[p->id], next,
		              connections_receive(&e->connections,
		                                  p->id == HARNESS_WAN ? CONNECTION_CLIENT
		                                                       : CONNECTION_SERVER,
		                                  frame, m[i]->data_len, next));
		spares_put(&e->spares, m[i]);
	}
	for (; completed < e->connections.completed && may_begin(e); completed++)
		connection_begin(e);
	endpoints_count(e, start);
	return n;
}

static bool endpoints_is_pending(struct port *p, unsigned queue)
{
	return endpoints->steps[p->id].read != endpoints->steps[p->id].write;
}

/* ---- replacing the harness's ports ----------------------------------------------------------- */

struct sy_addr endpoints_addr(unsigned family, const char *v4, const char *v6, unsigned n)
{
	struct sy_addr a = harness_addr(family == 4 ? v4 : v6);
	a.w[3] = htonl(ntohl(a.w[3]) + n);
	return a;
}

bool endpoints_open(struct endpoints *e, struct harness *r, struct connections_options connections,
                    uint64_t concurrent)
{
	*e = (struct endpoints){.harness = r,
	                        .concurrent = concurrent,
	                        .max_begun = UINT64_MAX,
	                        .call_cycles = rte_get_tsc_hz() / 1000000 * CALL_US};
	for (unsigned i = 0; i < HARNESS_PORTS; i++) {
		memcpy(connections.own_mac[i], endpoints_mac[i], 6);
		memcpy(connections.gate_mac[i], harness_mac[i], 6);
	}
	connections_init(&e->connections, &connections);
	/* Each connection has at most two steps in flight. */
	if (!step_ring_open(&e->steps[0], 2 * concurrent) ||
	    !step_ring_open(&e->steps[1], 2 * concurrent))
		return false;
	endpoints = e;
	for (unsigned i = 0; i < HARNESS_PORTS; i++) {
		struct port *port = r->rt->port[i];
		e->device[i] = port->ops;
		e->ops[i] = *port->ops;
		e->ops[i].rx = endpoints_rx;
		e->ops[i].tx = endpoints_tx;
		e->ops[i].is_pending = endpoints_is_pending;
		port->ops = &e->ops[i];
	}
	return true;
}

void endpoints_close(struct endpoints *e)
{
	for (unsigned i = 0; i < HARNESS_PORTS && e->device[i]; i++)
		e->harness->rt->port[i]->ops = e->device[i];
	spares_free(&e->spares);
	free(e->steps[0].step);
	free(e->steps[1].step);
	*e = (struct endpoints){0};
}
