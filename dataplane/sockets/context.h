// SPDX-License-Identifier: Apache-2.0
/*
 * A context: one thread's stack, descriptors, and who looks at them.
 *
 *   epoll instance ──▶ watches ◀── socket ──▶ connection or listener of the stack
 *         └─ ready ─────┘
 *
 * Descriptors and watches are entries of two arrays, named by index; free ones are chained.
 */
#ifndef CONTEXT_H
#define CONTEXT_H

#include <netinet/in.h>

#include <shares.h>
#include <sy_hook_agent.h>
#include <sy_socket_option.h>
#include <sy_stack.h>

#include "sy_tcp.h"

#define NO_WATCH      UINT32_MAX
#define CONTEXTS_MOST 64 /* of a library; bits of a word in desk.c */

/* What moves packets for a context, and its time. */
struct context_driver {
	/* Gives the stack packets and the time, calls context_events(), and sends. True: packets
	 * came. */
	bool (*turn)(void *d);
	/* As sy_tcp_sleep() and sy_tcp_awake(); wait does it all, at most so long: 0 or -EINTR. */
	uint64_t (*sleep)(void *d);
	void (*awake)(void *d);
	int (*wait)(void *d, uint64_t most_ns, const sigset_t *mask);
	uint64_t (*now)(void *d);   /* of the last turn: the time of calls */
	uint64_t (*clock)(void *d); /* right now */
	int (*fd)(void *d);
	/* Any thread: ends a sleep. */
	void (*wake)(void *d);
	/* Packets that it missed, or could not send. NULL: there are none. */
	void (*lost)(void *d, struct sy_hook_tally *out);
};

enum kind { KIND_FREE, KIND_SOCKET, KIND_EPOLL };

enum phase {
	PHASE_NEW, /* perhaps bound */
	PHASE_LISTENING,
	PHASE_CONNECTING, /* connect() has not told the end yet */
	PHASE_CONNECTED,  /* or was so */
};

enum { SHUT_READ = 1, SHUT_WRITE = 2 };

struct descriptor {
	uint8_t kind;
	uint8_t phase; /* of a socket, from here on */
	uint8_t shut;  /* what the application has shut down */
	bool v6;
	bool bound;       /* in the context's list; an accepted one is not */
	bool chosen;      /* its port was not the application's wish */
	bool urgent;      /* there was urgent data */
	bool lent;        /* what was unread is a request on a desk */
	uint32_t next;    /* free ones; bound ones */
	uint32_t watches; /* the first on it */
	union {
		struct {
			sy_stack_id id;
			struct sy_stack_endpoint local, peer;
			struct sy_socket_options options;
			uint32_t partial; /* bytes that were lent, and are no whole request */
		};
		struct instance *instance; /* of epoll */
	};
};
_Static_assert(sizeof(struct descriptor) <= 192, "three cache lines");

struct watch {
	int fd, epfd;
	uint32_t next;                  /* on the same descriptor; free ones */
	uint32_t all_before, all_after; /* of the same epoll instance */
	uint32_t ready_before, ready_after;
	bool ready, disabled; /* ready: in the list; disabled: EPOLLONESHOT */
	uint8_t level;        /* of the list */
	uint32_t events;
	uint64_t data;
};

/* An epoll instance. */
struct instance {
	uint32_t all; /* its watches */
	struct {
		uint32_t first, last, count;
	} ready[SY_PRIORITIES]; /* those that may be ready, by level */
	unsigned levels;        /* bit n: level n has some */
	struct shares shares;
	struct sy_tcp_desk *desk[SY_PRIORITIES]; /* where a level's requests go; NULL: nowhere */
};

struct sy_tcp_context {
	struct sy_stack *stack;
	const struct context_driver *driver;
	void *ctx; /* the driver's */
	unsigned number;
	const struct sy_stack_endpoint *address; /* that the stack has; ports are 0 */
	unsigned addresses;
	const char *congestion;
	uint16_t port_first, port_last; /* ephemeral */

	struct descriptor *descriptor;
	uint32_t descriptors, fresh, free; /* in all; the first never used; free ones by `next` */
	uint32_t bound;                    /* the first of them */
	uint32_t port_cursor;
	struct watch *watch;
	uint32_t watches, watch_fresh, watch_free;
	uint64_t news, told;         /* told: as of the last sy_tcp_wait() */
	struct lender *lender;       /* lend.c; NULL: nothing was lent yet */
	bool answers_go_on;          /* of a lent socket there is news that is not bytes */
	struct sy_hook_agent *agent; /* NULL: nobody orders hooks */
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

/* The stack stays the caller's. NULL: no memory. */
struct sy_tcp_context *context_create(const struct context_options *o);
void context_destroy(struct sy_tcp_context *c);
/* Closes all descriptors. */
void context_close_all(struct sy_tcp_context *c);
/* In the driver's turn: the stack's events become news of descriptors. */
void context_events(struct sy_tcp_context *c);

static inline uint64_t context_now(const struct sy_tcp_context *c)
{
	return c->driver->now(c->ctx);
}

/* Runs until check() gives something other than 0, or the time is over. */
int context_until(struct sy_tcp_context *c, int timeout_ms, const sigset_t *mask,
                  int (*check)(struct sy_tcp_context *c, void *arg), void *arg);

/* ---- descriptors (context.c) ----------------------------------------------------------------- */

/* -EMFILE: none is free. */
int descriptor_take(struct sy_tcp_context *c, enum kind kind);
void descriptor_give(struct sy_tcp_context *c, int fd);
/* NULL: there is none. */
struct descriptor *descriptor_of(const struct sy_tcp_context *c, int fd);
/* The same of a socket; *rc: -EBADF or -ENOTSOCK. */
struct descriptor *socket_of(const struct sy_tcp_context *c, int fd, int *rc);
/* Its readiness may have changed. */
void descriptor_news(struct sy_tcp_context *c, struct descriptor *d);

static inline int descriptor_number(const struct sy_tcp_context *c, const struct descriptor *d)
{
	return (int)(d - c->descriptor);
}

/* ---- epoll.c --------------------------------------------------------------------------------- */

void watch_ready(struct sy_tcp_context *c, uint32_t watch);
/* Bytes of it were read. */
void watches_level(struct sy_tcp_context *c, struct descriptor *d);
/* Of a descriptor that is closed: those on it and, of an epoll instance, its own. */
void watches_drop(struct sy_tcp_context *c, struct descriptor *d);
uint32_t epoll_ready(struct sy_tcp_context *c, struct descriptor *d);

/* ---- lend.c ---------------------------------------------------------------------------------- */

/* Lends what is unread. 0; -EAGAIN: there is nothing new; -ENOBUFS: no place; or as a read. */
int desk_lend(struct sy_tcp_context *c, struct descriptor *d, epoll_data_t data,
              struct sy_tcp_desk *desk);
/* Takes back what was given, and sends the answers. False: there was nothing to do. */
bool desk_returns(struct sy_tcp_context *c);
/* Is something given back, or has a desk room again? Any thread. */
bool desk_has_returns(const struct sy_tcp_context *c);
void lender_free(struct sy_tcp_context *c);

/* ---- control.c ------------------------------------------------------------------------------- */

/* Hooks may be ordered from now on. Takes the descriptors. */
int context_agent_open(struct sy_tcp_context *c, const struct sy_hook_channel *channel);
void context_agent_close(struct sy_tcp_context *c);
/* A listener gets the hook that was ordered for it. */
void context_listens(struct sy_tcp_context *c, const struct descriptor *d);

/* ---- socket.c, address.c, option.c ----------------------------------------------------------- */

/* The connection's state; CLOSED without one. */
enum sy_stack_state socket_state(struct sy_tcp_context *c, const struct descriptor *d);
uint32_t socket_ready(struct sy_tcp_context *c, struct descriptor *d);
/* Its receive buffer has no room for more until something is read. */
bool socket_is_full(struct sy_tcp_context *c, const struct descriptor *d);

/* 0, or -EINVAL, -EAFNOSUPPORT for a socket of this family. */
int address_read(bool v6, const struct sockaddr *addr, socklen_t len,
                 struct sy_stack_endpoint *out);
/* As getsockname() gives it: cut off at *len, which becomes the length that it has. */
void address_write(bool v6, const struct sy_stack_endpoint *e, struct sockaddr *addr,
                   socklen_t *len);
bool address_is_any(const struct sy_addr *a);
/* The stack's endpoint for a wildcard of a socket: that of IPv4, or that of both families. */
struct sy_addr address_any(bool v6);

/* Passes the socket's options to its connection or listener. */
void options_apply(struct sy_tcp_context *c, const struct descriptor *d);

#endif
