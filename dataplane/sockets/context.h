// SPDX-License-Identifier: Apache-2.0
/*
 * A context: one thread's stack, descriptors and epoll watches.
 *
 *   epoll instance ──▶ watches ◀── socket ──▶ connection or listener of the stack
 *         └─ ready ─────┘
 *
 * Descriptors and watches are entries of two arrays, referenced by index; free ones are linked.
 */
#ifndef CONTEXT_H
#define CONTEXT_H

#include <netinet/in.h>

#include <level_share.h>
#include <sy_hook_agent.h>
#include <sy_socket_option.h>
#include <sy_stack.h>

#include "sy_tcp.h"

#define NO_WATCH     UINT32_MAX
#define MAX_CONTEXTS 64 /* per library; bits of a word in work_queue.c */

/* Packet I/O and time of a context. */
struct context_driver {
	/* One poll iteration: passes packets and the time to the stack, calls context_events(),
	 * transmits. Returns true if packets arrived. */
	bool (*poll)(void *d);
	/* As sy_tcp_sleep() and sy_tcp_awake(); wait combines them, for at most max_ns. Returns 0
	 * or -EINTR. */
	uint64_t (*sleep)(void *d);
	void (*awake)(void *d);
	int (*wait)(void *d, uint64_t max_ns, const sigset_t *mask);
	uint64_t (*now)(void *d);   /* of the last poll iteration: the time of calls */
	uint64_t (*clock)(void *d); /* current time */
	int (*fd)(void *d);
	/* Ends a sleep. Any thread may call it. */
	void (*wake)(void *d);
	/* Reports lost packets. May be NULL. */
	void (*lost)(void *d, struct sy_hook_tally *out);
};

enum kind { KIND_FREE, KIND_SOCKET, KIND_EPOLL };

enum phase {
	PHASE_NEW, /* perhaps bound */
	PHASE_LISTENING,
	PHASE_CONNECTING, /* connect() has not returned the result yet */
	PHASE_CONNECTED,  /* or was connected */
};

enum { SHUT_READ = 1, SHUT_WRITE = 2 };

struct descriptor {
	uint8_t kind;
	uint8_t phase; /* this and the following: sockets only */
	uint8_t shut;  /* by the application */
	bool v6;
	bool bound;       /* in the context's list; accepted ones are not */
	bool chosen;      /* the context allocated its port */
	bool urgent;      /* urgent data arrived */
	bool lent;        /* its unread data is a lent request */
	uint32_t next;    /* in the free list or the list of bound sockets */
	uint32_t watches; /* first watch on it */
	union {
		struct {
			sy_stack_id id;
			struct sy_stack_endpoint local, peer;
			struct sy_socket_options options;
			uint32_t partial; /* bytes of the last, incomplete request */
		};
		struct instance *instance; /* of epoll */
	};
};
_Static_assert(sizeof(struct descriptor) <= 192, "three cache lines");

struct watch {
	int fd, epfd;
	uint32_t next;                  /* on the same descriptor; free list */
	uint32_t all_before, all_after; /* of the same epoll instance */
	uint32_t ready_before, ready_after;
	bool ready, disabled; /* ready: in the list; disabled: by EPOLLONESHOT */
	uint8_t level;        /* of the list */
	uint32_t events;
	uint64_t data;
};

/* An epoll instance. */
struct instance {
	uint32_t all; /* its watches */
	struct {
		uint32_t first, last, count;
	} ready[SY_PRIORITIES]; /* possibly ready ones, by level */
	unsigned levels;        /* bit n: level n is not empty */
	struct shares shares;
	struct sy_tcp_queue *queue[SY_PRIORITIES]; /* per level; NULL: none */
};

struct sy_tcp_context {
	struct sy_stack *stack;
	const struct context_driver *driver;
	void *ctx; /* of the driver */
	unsigned number;
	const struct sy_stack_endpoint *address; /* of the stack; ports are 0 */
	unsigned addresses;
	const char *congestion;
	uint16_t port_first, port_last; /* ephemeral */

	struct descriptor *descriptor;
	uint32_t descriptors, fresh, free; /* total; first never used; free list by `next` */
	uint32_t bound;                    /* list of bound sockets */
	uint32_t port_cursor;
	struct watch *watch;
	uint32_t watches, watch_fresh, watch_free;
	uint64_t news, news_seen;    /* news_seen: as of the last sy_tcp_wait() */
	struct lender *lender;       /* lend.c; NULL: nothing lent yet */
	bool answers_pending;        /* a lent socket had an event other than readability */
	struct sy_hook_agent *agent; /* NULL: no control of hooks */
	int agent_socket;
};

struct context_options {
	struct sy_stack *stack;
	const struct context_driver *driver;
	void *ctx;
	const struct sy_stack_endpoint *address;
	unsigned addresses;
	uint32_t descriptors;
	const char *congestion;
	uint16_t port_first, port_last; /* not 0 */
	unsigned number;
};

/* The caller keeps owning the stack. Returns NULL if there is no memory. */
struct sy_tcp_context *context_create(const struct context_options *o);
void context_destroy(struct sy_tcp_context *c);
/* Closes all descriptors. */
void context_close_all(struct sy_tcp_context *c);
/* Call in each poll iteration: converts the stack's events to readiness of descriptors. */
void context_events(struct sy_tcp_context *c);

static inline uint64_t context_now(const struct sy_tcp_context *c)
{
	return c->driver->now(c->ctx);
}

/* Polls until check() returns a value other than 0, or the time is over. */
int context_until(struct sy_tcp_context *c, int timeout_ms, const sigset_t *mask,
                  int (*check)(struct sy_tcp_context *c, void *arg), void *arg);

/* ---- descriptors (context.c) ----------------------------------------------------------------- */

/* Fails with -EMFILE. */
int descriptor_alloc(struct sy_tcp_context *c, enum kind kind);
void descriptor_free(struct sy_tcp_context *c, int fd);
/* Returns NULL if there is none. */
struct descriptor *descriptor_of(const struct sy_tcp_context *c, int fd);
/* The same for a socket; *rc: -EBADF or -ENOTSOCK. */
struct descriptor *socket_of(const struct sy_tcp_context *c, int fd, int *rc);
/* Notifies the watches: the descriptor's readiness may have changed. */
void descriptor_news(struct sy_tcp_context *c, struct descriptor *d);

static inline int descriptor_number(const struct sy_tcp_context *c, const struct descriptor *d)
{
	return (int)(d - c->descriptor);
}

/* ---- epoll.c --------------------------------------------------------------------------------- */

void watch_ready(struct sy_tcp_context *c, uint32_t watch);
/* The priority level of its unread data may have changed: moves its watches to the ready list of
 * that level. */
void watches_update_level(struct sy_tcp_context *c, struct descriptor *d);
/* Removes the watches on a closing descriptor, and those of an epoll instance. */
void watches_drop(struct sy_tcp_context *c, struct descriptor *d);
uint32_t epoll_ready(struct sy_tcp_context *c, struct descriptor *d);

/* ---- lend.c ---------------------------------------------------------------------------------- */

/* Lends the unread data. Fails with -EAGAIN if there is no new data, -ENOBUFS without capacity, or
 * like a read. */
int request_lend(struct sy_tcp_context *c, struct descriptor *d, epoll_data_t data,
                 struct sy_tcp_queue *queue);
/* Processes completed requests and sends responses. Returns false if there was nothing to do. */
bool requests_complete(struct sy_tcp_context *c);
/* Returns true if a request is completed or a full queue has space. Any thread may call it. */
bool requests_are_completed(const struct sy_tcp_context *c);
void lender_free(struct sy_tcp_context *c);

/* ---- context_agent.c ------------------------------------------------------------------------- */

/* Connects to the registry of hooks. Takes ownership of the descriptors. */
int context_agent_open(struct sy_tcp_context *c, const struct sy_hook_channel *channel);
void context_agent_close(struct sy_tcp_context *c);
/* Applies the hook ordered for a listener. */
void context_listens(struct sy_tcp_context *c, const struct descriptor *d);

/* ---- socket.c, socket_address.c, context_option.c -------------------------------------------- */

/* Returns the connection's state; CLOSED without one. */
enum sy_stack_state socket_state(struct sy_tcp_context *c, const struct descriptor *d);
uint32_t socket_ready(struct sy_tcp_context *c, struct descriptor *d);
/* The receive buffer is full. */
bool socket_is_full(struct sy_tcp_context *c, const struct descriptor *d);

/* Fails with -EINVAL, or -EAFNOSUPPORT for this family. */
int address_read(bool v6, const struct sockaddr *addr, socklen_t len,
                 struct sy_stack_endpoint *out);
/* Like getsockname(): truncated to *len, which is set to the full length. */
void address_write(bool v6, const struct sy_stack_endpoint *e, struct sockaddr *addr,
                   socklen_t *len);
bool address_is_any(const struct sy_addr *a);
/* Returns the stack's wildcard: IPv4's, or the dual-stack one. */
struct sy_addr address_any(bool v6);

/* Passes the socket's options to its connection or listener. */
void options_apply(struct sy_tcp_context *c, const struct descriptor *d);

#endif
