// SPDX-License-Identifier: Apache-2.0
/* Listeners: who may connect, what is half open, what waits for being accepted. Under a flood of
 * SYNs, cookies (RFC 4987 3.6). */
#ifndef LISTENER_H
#define LISTENER_H

#include "list.h"
#include "segment.h"
#include "sy_stack.h"

/* Options that connections get from their listener. */
struct connection_wishes {
	uint16_t keepalive_s, keepalive_interval_s;
	uint32_t user_timeout_ms;
	uint32_t send_limit, receive_limit; /* 0: none */
	uint32_t flags;                     /* C_NO_DELAY and the like */
	uint32_t pace_most;
	uint16_t mss;
	uint8_t keepalive_probes, tos;
	uint8_t hook; /* for segments; SY_HOOK_NONE: the stack's */
	uint8_t band; /* enum band */
};

struct listener {
	struct sy_stack_endpoint local; /* all zero or IPv4's any: wildcards */
	bool used, told; /* told: the application knows of the connections that wait */
	bool only_v6;    /* the wildcard of both is that of IPv6 */
	bool retired;    /* sy_stack_retire(): no SYNs any more */
	uint16_t generation;
	unsigned backlog;
	uint64_t cookie;
	struct connection_wishes wishes;
	struct list half, ready;
};

struct sy_stack;
struct connection;

/* The listener of a local address and port, the most specific one; a retired one if there is no
 * other. NULL: none. */
struct listener *listener_find(struct sy_stack *s, const struct sy_addr *addr, uint16_t port);
struct listener *listener_of(struct sy_stack *s, sy_stack_id id);
/* Has such a listener been retired? */
bool listener_is_retired(const struct sy_stack *s, const struct sy_addr *addr, uint16_t port);
sy_stack_id listener_id(const struct sy_stack *s, const struct listener *l);

/* A segment for a listener and no connection (RFC 9293 3.10.7.2). The connection that it has made
 * from a cookie, which the segment goes to; else NULL. */
struct connection *listener_arrive(struct sy_stack *s, struct listener *l,
                                   const struct segment *seg);
/* A SYN takes the place of a connection in TIME-WAIT (RFC 6191), which ends. Returns the new one,
 * or NULL: it finds no place, and the old one stays. */
struct connection *listener_replace(struct sy_stack *s, struct listener *l, struct connection *old,
                                    const struct segment *seg);
/* A half-open connection is established: it waits for being accepted. False: the queue is full. */
bool listener_complete(struct sy_stack *s, struct connection *c);
/* A connection of a listener ends before it was accepted. */
void listener_forget(struct sy_stack *s, struct connection *c);
void listener_close(struct sy_stack *s, struct listener *l);

#endif
