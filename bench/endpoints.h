// SPDX-License-Identifier: Apache-2.0
/*
 * The two ends of connections, as the ports of a balancer that runs in one process: what rx() gives
 * is what an end says next, and tx() lets the other end hear what the balancer made of it. There is
 * no driver, no ring and no second core; what the ends take themselves is known (`cycles`), and can
 * be taken off.
 *
 *     client ── port HARNESS_WAN ── balancer ── port HARNESS_LAN ── server
 */
#ifndef BENCH_ENDS_H
#define BENCH_ENDS_H

#include "../dataplane/balance/tests/harness.h"
#include "connections.h"

/* Words in the order in which they were thought of. */
struct words {
	struct connection_step *word;
	uint64_t mask, read, write;
};

struct endpoints {
	struct harness *harness;
	struct connections connections;
	struct words words[2]; /* by enum connection_side: who says them */
	uint64_t concurrent;   /* connections under way at a time; 0: none begins any more */
	uint64_t cycles;       /* of rx() and tx() */
	uint64_t call_cycles;  /* longer calls are not counted: they were interrupted */
	uint64_t packets;      /* given by rx() */
	bool check;            /* look at each frame's checksums: slow */
	uint64_t wrong;        /* frames of which they were wrong */
	unsigned spares;
	struct rte_mbuf *spare[4 * SY_BURST];
	const struct port_ops *device[HARNESS_PORTS]; /* in whose place we are */
	struct port_ops ops[HARNESS_PORTS];
};

/* MAC addresses of the routers behind which clients and servers are, by port. */
extern const uint8_t endpoints_mac[HARNESS_PORTS][6];

/* Takes the place of an open harness's devices; one at a time in a process. The connections' MAC
 * addresses are filled in. False: no memory for so many connections at a time. */
bool endpoints_open(struct endpoints *e, struct harness *r, struct connections_options connections,
                    uint64_t concurrent);
void endpoints_close(struct endpoints *e);

#endif
