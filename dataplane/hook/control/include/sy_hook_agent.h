/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook agent: executes changes of hooks on a stack's thread (docs/design/0046-hook-control.md). The
 * thread checks for orders once per poll iteration, which costs one load. So a table of hooks is
 * accessed by its thread only.
 *
 *   `steelyard hook` ─▶ registry ── order, over a socket ──▶ agent ─▶ sy_hooks
 *                         ◀──────── answer ─────────────┘    └─▶ placed()
 */
#ifndef SY_HOOK_AGENT_H
#define SY_HOOK_AGENT_H

#include <sy_hook.h>

#define SY_HOOK_PLACES 32 /* summed over all hooks of a stack */

/* Where a hook runs. */
struct sy_hook_place {
	struct sy_addr addr; /* of a listener; all zero: all listeners on this port */
	uint16_t port;       /* host order; 0: the stack's default hook */
};

/* A connection or listener of a stack. */
#define SY_HOOK_CONNECTIONS 64 /* per answer */
struct sy_hook_connection {
	struct sy_addr local, peer;     /* all zero: any */
	uint16_t local_port, peer_port; /* host order; 0: any */
	uint8_t state;                  /* index into sy_hook_registry_owner.state */
	bool only_v6;                   /* a wildcard listener that accepts no IPv4 */
	uint32_t unread;                /* bytes; listener: connections in the accept queue */
	uint32_t unsent;                /* unacknowledged bytes; listener: its backlog */
	uint32_t rtt_us, window, retransmitted; /* window: congestion window, bytes */
	uint64_t sent, received;                /* payload bytes */
};

/* The registry's descriptors for an agent: the socket, and the page with the doorbell. -1: none. */
struct sy_hook_channel {
	int socket, doorbell;
};

struct sy_hook_agent;

/* Counters of a stack. */
#define SY_HOOK_COUNTS 96
struct sy_hook_tally {
	uint64_t dropped[SY_PRIORITIES]; /* received packets dropped by a full priority queue, by
	                                    level */
	uint64_t missed;                 /* packets lost because the receive ring was full */
	/* Packets not sent: the transmit queue was full or the link did not accept them. */
	uint64_t unsent;
	/* Packets without a route, or whose neighbour did not resolve in time. */
	uint64_t unreachable;
	uint64_t count[SY_HOOK_COUNTS]; /* defined by sy_hook_registry_owner.number */
};

/* Callbacks of the stack's owner. */
struct sy_hook_agent_owner {
	/* Returns the table of hooks, created at the first order; NULL: no memory. */
	struct sy_hooks *(*hooks)(void *ctx);
	/* Notifies that the places of hooks changed: the owner calls sy_hook_agent_find() for the
	 * stack and each listener. */
	void (*placed)(void *ctx);
	void *ctx;
	/* Returns true if a listener exists at port (host order) and addr (all zero: any). May be
	 * NULL. */
	bool (*listens)(void *ctx, const struct sy_addr *addr, uint16_t port);
	/* Fills in the counters that the owner has. May be NULL. */
	void (*tally)(void *ctx, struct sy_hook_tally *out);
	/* Fills up to `max` connections and returns their number. *at is the cursor: 0 at the start
	 * and after the last one. May be NULL. */
	unsigned (*connections)(void *ctx, uint32_t *at, struct sy_hook_connection *out,
	                        unsigned max);
};

/* The caller keeps the socket open while the agent exists; it may close the doorbell's descriptor.
 * Fails with -ENOMEM or the error of mmap(). */
int sy_hook_agent_open(const struct sy_hook_agent_owner *owner,
                       const struct sy_hook_channel *channel, struct sy_hook_agent **out);
void sy_hook_agent_close(struct sy_hook_agent *agent);

/* Returns the number of the hook ordered for a listener (port: host order), or for the stack if
 * addr is NULL. SY_HOOK_NONE: none. */
unsigned sy_hook_agent_find(const struct sy_hook_agent *agent, enum sy_hook_kind kind,
                            const struct sy_addr *addr, uint16_t port);
/* Returns true once an operator has placed a hook of this kind; until then, the application's hooks
 * apply. */
bool sy_hook_agent_overrides(const struct sy_hook_agent *agent, enum sy_hook_kind kind,
                             bool listener);

/* Executes pending orders. */
void sy_hook_agent_execute(struct sy_hook_agent *agent);

struct sy_hook_doorbell {
	const volatile uint32_t *rings; /* incremented by the registry */
	uint32_t seen;
};
/* First member of the agent. */
static inline void sy_hook_agent_poll(struct sy_hook_agent *agent)
{
	const struct sy_hook_doorbell *doorbell = (const struct sy_hook_doorbell *)agent;
	if (SY_UNLIKELY(doorbell->seen != __atomic_load_n(doorbell->rings, __ATOMIC_ACQUIRE)))
		sy_hook_agent_execute(agent);
}

#endif
