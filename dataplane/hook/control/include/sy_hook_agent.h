/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook agent: a stack's end of the control of hooks (docs/design/0046-hook-control.md). The stack's
 * thread looks at each turn whether there are orders, which costs one load, and carries them out.
 * So a table of hooks stays its thread's own.
 *
 *   `steelyard hook` ─▶ registry ── order, over a socket ──▶ agent ─▶ sy_hooks
 *                        ◀──────── answer ─────────────┘    └─▶ placed()
 */
#ifndef SY_HOOK_AGENT_H
#define SY_HOOK_AGENT_H

#include <sy_hook.h>

#define SY_HOOK_PLACES 32 /* of all hooks of a stack */

/* Where a hook is asked. */
struct sy_hook_place {
	struct sy_addr addr; /* of a listener; all zero: each of this port */
	uint16_t port;       /* host order; 0: the stack's own hook */
};

/* A connection, or a listener, of a stack. */
#define SY_HOOK_CONNECTIONS 64 /* of one answer */
struct sy_hook_connection {
	struct sy_addr local, peer;     /* all zero: any */
	uint16_t local_port, peer_port; /* host order; 0: any */
	uint8_t state;                  /* sy_hook_registry_owner.state has its name */
	bool only_v6;                   /* of a listener at all addresses: not of IPv4 */
	uint32_t unread;                /* bytes; of a listener: connections that wait for accept */
	uint32_t unsent; /* bytes that are not acknowledged; of a listener: its backlog */
	uint32_t rtt_us, window, retransmitted; /* window: of congestion, bytes */
	uint64_t sent, received;                /* bytes of payload */
};

/* What comes from the registry: the socket, and a page that tells when to read it. -1: nothing. */
struct sy_hook_channel {
	int socket, doorbell;
};

struct sy_hook_agent;

/* What a stack has counted. */
#define SY_HOOK_COUNTS 96
struct sy_hook_tally {
	uint64_t dropped[SY_PRIORITIES]; /* packets that came, by level: too many waited */
	uint64_t missed;                 /* packets that came while the receive ring was full */
	uint64_t unsent;      /* packets: the transmit queue was full, or the link took them not */
	uint64_t unreachable; /* packets: there was no way, or the neighbour did not answer in time
	                       */
	uint64_t count[SY_HOOK_COUNTS]; /* sy_hook_registry_owner.number says what each is */
};

/* What the stack's owner does. */
struct sy_hook_agent_owner {
	/* Its table, which is not needed before somebody orders something. NULL: no memory. */
	struct sy_hooks *(*hooks)(void *ctx);
	/* The stack's own hooks, or those of listeners, are other ones from now on: it asks
	 * sy_hook_agent_find() for each. */
	void (*placed)(void *ctx);
	void *ctx;
	/* Does somebody listen there now? port: host order; addr all zero: at any address. NULL: it
	 * is not known. */
	bool (*listens)(void *ctx, const struct sy_addr *addr, uint16_t port);
	/* What it has counted; what it does not know stays 0. NULL: nothing is known. */
	void (*tally)(void *ctx, struct sy_hook_tally *out);
	/* Its connections, up to `most` of them; returns how many. *at begins at 0, and is 0 again
	 * when all have been given. NULL: it has none to show. */
	unsigned (*connections)(void *ctx, uint32_t *at, struct sy_hook_connection *out,
	                        unsigned most);
};

/* The socket stays open as long as the agent; the doorbell may be closed. Both are the caller's.
 * Returns 0, -ENOMEM, or what mapping the page gives. */
int sy_hook_agent_open(const struct sy_hook_agent_owner *owner,
                       const struct sy_hook_channel *channel, struct sy_hook_agent **out);
void sy_hook_agent_close(struct sy_hook_agent *agent);

/* The number of the hook of this kind that is to be asked at a listener; addr NULL: the stack's own
 * one. SY_HOOK_NONE: none was ordered. port: host order. */
unsigned sy_hook_agent_find(const struct sy_hook_agent *agent, enum sy_hook_kind kind,
                            const struct sy_addr *addr, uint16_t port);
/* Whether somebody ever ordered such a place: until then, what the application has set stays. */
bool sy_hook_agent_overrides(const struct sy_hook_agent *agent, enum sy_hook_kind kind,
                             bool listener);

/* Carries orders out, if there are some. */
void sy_hook_agent_execute(struct sy_hook_agent *agent);

struct sy_hook_doorbell {
	const volatile uint32_t *rung; /* how often, by the registry */
	uint32_t seen;
};
/* The agent begins with it. */
static inline void sy_hook_agent_poll(struct sy_hook_agent *agent)
{
	const struct sy_hook_doorbell *doorbell = (const struct sy_hook_doorbell *)agent;
	if (SY_UNLIKELY(doorbell->seen != __atomic_load_n(doorbell->rung, __ATOMIC_ACQUIRE)))
		sy_hook_agent_execute(agent);
}

#endif
