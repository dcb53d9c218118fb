// SPDX-License-Identifier: Apache-2.0
/* Packets as seen from outside: this parser shares no code with the balancer's. */
#ifndef SIGHT_H
#define SIGHT_H

#include <rte_mbuf.h>

#include <sy_packet.h>

/* The payload, which identifies the flow. */
struct mark {
	uint32_t flow, serial, zero[2];
};

struct sight {
	struct sy_tuple tuple;
	struct mark mark;
	unsigned port;
	/* TCP flags */
	uint8_t flags;
	uint32_t seq, ack;
	unsigned payload; /* bytes */
};

/* Parses a packet that the balancer sent by s->port. Returns NULL, or what is wrong with it. */
const char *sight_read(const struct rte_mbuf *m, struct sight *s);
/* Returns whether the balancer originated the packet, which then has no mark: probes and resets
 * without data, and ICMP errors. */
bool frame_is_originated(const struct rte_mbuf *m);

#endif
