// SPDX-License-Identifier: Apache-2.0
/* The two ends of connections, as the ports of a balancer that runs in one process: rx() returns
 * what an end sends next, and tx() passes the balancer's output to the other end. There is no
 * driver, no ring and no second core. The ends' own time is measured (`cycles`) and can be
 * subtracted.
 *
 *     client ── port HARNESS_WAN ── balancer ── port HARNESS_LAN ── server */
#ifndef BENCH_ENDPOINTS_H
#define BENCH_ENDPOINTS_H

#include "../dataplane/balance/tests/harness.h"
#include "connections.h"

/* Steps in the order in which they were made. */
struct step_ring {
	struct connection_step *step;
	uint64_t mask, read, write;
};

/* Packet buffers that a port has consumed and returns next, instead of those of the pool. */
struct spares {
	unsigned count;
	struct rte_mbuf *m[4 * SY_BURST];
};

static inline struct rte_mbuf *spares_get(struct spares *s, struct rte_mempool *pool)
{
	if (!s->count)
		return rte_pktmbuf_alloc(pool);
	struct rte_mbuf *m = s->m[--s->count];
	rte_pktmbuf_reset(m);
	return m;
}

static inline void spares_put(struct spares *s, struct rte_mbuf *m)
{
	if (s->count < SY_ARRAY_LEN(s->m))
		s->m[s->count++] = m;
	else
		rte_pktmbuf_free(m);
}

static inline void spares_free(struct spares *s)
{
	while (s->count)
		rte_pktmbuf_free(s->m[--s->count]);
}

struct endpoints {
	struct harness *harness;
	struct connections connections;
	struct step_ring steps[2]; /* by enum connection_side: the sender */
	uint64_t concurrent;       /* connections at a time; 0: no new ones start */
	uint64_t max_begun;        /* connections in all, to limit their rate; UINT64_MAX: any */
	uint64_t cycles;           /* of rx() and tx() */
	uint64_t call_cycles;      /* longer calls were interrupted and are not counted */
	uint64_t packets;          /* returned by rx() */
	bool check;                /* check each frame's checksums: slow */
	uint64_t wrong;            /* frames with wrong checksums */
	struct spares spares;
	const struct port_ops *device[HARNESS_PORTS]; /* the devices that were replaced */
	struct port_ops ops[HARNESS_PORTS];
};

/* By port: MAC addresses of the routers in front of the clients and the servers. */
extern const uint8_t endpoints_mac[HARNESS_PORTS][6];

/* The n-th address from one of this family (4 or 6) on. */
struct sy_addr endpoints_addr(unsigned family, const char *v4, const char *v6, unsigned n);

/* Replaces an open harness's devices; one at a time per process. Fills in the connections' MAC
 * addresses. False: no memory for this many connections. */
bool endpoints_open(struct endpoints *e, struct harness *r, struct connections_options connections,
                    uint64_t concurrent);
void endpoints_close(struct endpoints *e);

#endif
