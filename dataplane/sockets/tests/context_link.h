// SPDX-License-Identifier: Apache-2.0
/*
 * Two contexts in one process, joined by a link, in virtual time: polling one polls both, and
 * waiting advances the time to the next deadline.
 */
#ifndef CONTEXT_LINK_H
#define CONTEXT_LINK_H

#include "context.h"

#define LINK_V4(side) ((side) ? "10.0.0.2" : "10.0.0.1")
#define LINK_V6(side) ((side) ? "2001:db8::2" : "2001:db8::1")

struct link {
	struct link_side {
		struct link *link;
		struct sy_stack *stack;
		struct sy_tcp_context *context;
		struct sy_stack_endpoint address[2];
		unsigned woken; /* wake-ups by other threads */
	} side[2];
	uint64_t now;
	uint64_t packets;
	bool cut; /* drop all packets */
	/* Modifies a packet in transit. May replace it; NULL: drops it. */
	struct rte_mbuf *(*change)(struct link *l, unsigned from, struct rte_mbuf *m);
};

/* options: NULL, or options of the stacks beyond pool and connections. */
void link_open(struct link *l, const struct sy_stack_options *options, uint32_t descriptors);
/* Checks that no packet or connection leaked. */
void link_close(struct link *l);
/* Advances the time. */
void link_pass(struct link *l, uint64_t ns);
/* Buffer memory of both stacks. */
uint64_t link_held(const struct link *l);

#endif
