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

struct endpoints {
	struct harness *harness;
	struct connections connections;
	struct step_ring steps[2]; /* by enum connection_side: the sender */
	uint64_t concurrent;       /* connections at a time; 0: no new ones start */
	uint64_t begun_most;       /* no more than these begin at all: for a rate; UINT64_MAX */
	uint64_t cycles;           /* of rx() and tx() */
	uint64_t call_cycles;      /* longer calls were interrupted and are not counted */
	uint64_t packets;          /* returned by rx() */
	bool check;                /* check each frame's checksums: slow */
	uint64_t wrong;            /* frames with wrong checksums */
	unsigned spares;
	struct rte_mbuf *spare[4 * SY_BURST];
	const struct port_ops *device[HARNESS_PORTS]; /* the devices that were replaced */
	struct port_ops ops[HARNESS_PORTS];
};

/* By port: MAC addresses of the routers in front of the clients and the servers. */
extern const uint8_t endpoints_mac[HARNESS_PORTS][6];

/* Replaces an open harness's devices; one at a time per process. Fills in the connections' MAC
 * addresses. False: no memory for this many connections. */
bool endpoints_open(struct endpoints *e, struct harness *r, struct connections_options connections,
                    uint64_t concurrent);
void endpoints_close(struct endpoints *e);

#endif
