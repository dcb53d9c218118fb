// SPDX-License-Identifier: Apache-2.0
/*
 * Two contexts in one process with a link between them, in virtual time: whoever runs one of them
 * runs both, and waiting lets the time go on to what is due.
 */
#ifndef LINK_H
#define LINK_H

#include "context.h"

#define LINK_V4(side) ((side) ? "10.0.0.2" : "10.0.0.1")
#define LINK_V6(side) ((side) ? "2001:db8::2" : "2001:db8::1")

struct link {
	struct link_side {
		struct link *link;
		struct sy_stack *stack;
		struct sy_tcp_context *context;
		struct sy_stack_endpoint address[2];
		unsigned woken; /* how often, by other threads */
	} side[2];
	uint64_t now;
	uint64_t packets;
	bool cut; /* packets are lost */
	/* Changes a packet on its way. May replace it; NULL: none. */
	struct rte_mbuf *(*change)(struct link *l, unsigned from, struct rte_mbuf *m);
};

/* Options: NULL, or what the stacks shall have beyond their pool and connections. */
void link_open(struct link *l, const struct sy_stack_options *options, uint32_t descriptors);
/* Checks that nothing is left: no packet, no connection. */
void link_close(struct link *l);
/* Lets so much time pass. */
void link_pass(struct link *l, uint64_t ns);
/* Memory that both stacks hold for bytes. */
uint64_t link_held(const struct link *l);

#endif
