// SPDX-License-Identifier: Apache-2.0
/* Listeners, half-open connections and accept queues; SYN cookies under a flood (RFC 4987 3.6). */
#ifndef LISTENER_H
#define LISTENER_H

#include "list.h"
#include "segment.h"
#include "sy_stack.h"

/* Options that connections inherit from their listener. */
struct listener_options {
	uint16_t keepalive_s, keepalive_interval_s;
	uint32_t user_timeout_ms;
	uint32_t send_limit, receive_limit; /* 0: not set */
	uint32_t flags;                     /* C_NO_DELAY etc. */
	uint32_t max_pace;
	uint16_t mss;
	uint8_t keepalive_probes, tos;
	uint8_t hook; /* segment hook; SY_HOOK_NONE: the stack's */
	uint8_t band; /* enum band */
};

struct listener {
	struct sy_stack_endpoint local; /* all zero or 0.0.0.0: wildcard */
	bool used;
	bool has_news; /* in the queue of listeners with an event */
	bool only_v6;  /* the wildcard accepts IPv6 only */
	bool retired;  /* sy_stack_retire(): accepts no SYNs */
	bool shared;   /* sy_stack_listen_shared() */
	uint16_t generation;
	uint16_t next;      /* of the same bucket of ports, or free: its index + 1; 0: none */
	uint16_t next_news; /* the next listener with an event, in the same way */
	unsigned backlog;
	uint64_t cookie;
	struct listener_options options;
	struct list half, ready;
};

/* All listeners of a stack. */
struct listener_table {
	struct listener *slot; /* those below `fresh` have been used */
	uint16_t *bucket;      /* first listener by port: its index + 1; 0: none */
	uint32_t mask;         /* of buckets */
	uint32_t fresh, count;
	uint16_t free;                  /* the first free one, as in a bucket */
	uint16_t first_news, last_news; /* listeners with an event */
};

struct sy_stack;
struct connection;

/* Returns the most specific listener of a segment's destination; of those that share it, the one
 * that a hash of the source chooses; a retired one if there is no other; or NULL. */
struct listener *listener_find(struct sy_stack *s, const struct sy_tuple *t);
struct listener *listener_of(struct sy_stack *s, sy_stack_id id);
/* Has such a listener been retired? */
bool listener_is_retired(const struct sy_stack *s, const struct sy_addr *addr, uint16_t port);
sy_stack_id listener_id(const struct sy_stack *s, const struct listener *l);

/* Processes a segment that matches a listener but no connection (RFC 9293 3.10.7.2). Returns the
 * connection created from a cookie, which then gets the segment; otherwise NULL. */
struct connection *listener_arrive(struct sy_stack *s, struct listener *l,
                                   const struct segment *seg);
/* A SYN replaces a connection in TIME-WAIT (RFC 6191). Returns the new connection, or NULL if there
 * is no slot and the old one stays. */
struct connection *listener_replace(struct sy_stack *s, struct listener *l, struct connection *old,
                                    const struct segment *seg);
/* Moves an established connection to the accept queue. Returns false if the queue is full. */
bool listener_complete(struct sy_stack *s, struct connection *c);
/* Removes a connection that ends before accept(). */
void listener_forget(struct sy_stack *s, struct connection *c);
/* Allocates a listener and adds it to its port's bucket. NULL: no slot. */
struct listener *listener_add(struct sy_stack *s, const struct sy_stack_endpoint *local);
/* Returns whether there is a listener at this address and port that cannot share it with the new
 * one. */
bool listener_conflicts(const struct sy_stack *s, const struct sy_stack_endpoint *local,
                        bool shared);
/* Removes the first listener that has queued connections to report. NULL: none. */
struct listener *listener_next_news(struct sy_stack *s);
void listener_close(struct sy_stack *s, struct listener *l);

#endif
