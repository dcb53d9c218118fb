// SPDX-License-Identifier: Apache-2.0
/*
 * DARC behind the stack, a baseline (cores.h): requests are typed when their bytes have arrived,
 * wait in a queue of their type, and go to a free worker, one at a time.
 *
 *     sy_tcp_epoll_lend() ─▶ desk ─▶ queue of its type ─ cores_pick() ─▶ darc_take()
 *
 * All calls come from the context's thread, which plays all workers.
 */
#ifndef PRIORITY_DARC_H
#define PRIORITY_DARC_H

#include <sy_tcp.h>

struct darc_setup {
	unsigned workers; /* at most CORES_MOST */
	unsigned types;   /* at most TYPES_MOST */
	unsigned window;  /* requests after which workers are reserved anew */
	/* The type of a request; other than 0 to types - 1: unknown. */
	unsigned (*type_of)(const struct iovec *v, int count);
	/* Of each type: a lower one comes first, whatever its service time. NULL: by service time
	 * alone. */
	const uint8_t *level;
};

struct darc;

/* Returns 0 or -ENOMEM. */
int darc_open(const struct darc_setup *setup, struct darc **out);
/* Returns waiting requests unused. No worker may have one. */
void darc_close(struct darc *d);
/* The desk that an epoll instance lends the requests of all levels to. */
struct sy_tcp_desk *darc_desk(const struct darc *d);
/* The next request of a worker. NULL: it has one, or none is for it. */
struct sy_tcp_request *darc_take(struct darc *d, unsigned worker);
/* The worker has called sy_tcp_request_give(), and is free. */
void darc_served(struct darc *d, unsigned worker);

#endif
