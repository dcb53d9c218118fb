// SPDX-License-Identifier: Apache-2.0
/*
 * DARC behind the stack, a baseline (cores.h): requests are classified on arrival, queued by type,
 * and dispatched to a free worker, one at a time.
 *
 *     sy_tcp_epoll_lend() ─▶ queue ─▶ queue of its type ─ cores_pick() ─▶ darc_take()
 *
 * All calls come from the context's thread, which runs all workers.
 */
#ifndef PRIORITY_DARC_H
#define PRIORITY_DARC_H

#include <sy_tcp.h>

struct darc_setup {
	unsigned workers; /* at most CORES_MAX */
	unsigned types;   /* at most TYPES_MAX */
	unsigned window;  /* requests between two reservations */
	/* Returns the type of a request; `types` and above: unknown. */
	unsigned (*type_of)(const struct iovec *v, int count);
	/* Per type: a lower level precedes, regardless of service time. NULL: by service time only.
	 */
	const uint8_t *level;
};

struct darc;

/* Fails with -ENOMEM. */
int darc_open(const struct darc_setup *setup, struct darc **out);
/* Completes queued requests unused. No worker may have one. */
void darc_close(struct darc *d);
/* Returns the queue to which an epoll instance lends the requests of all levels. */
struct sy_tcp_queue *darc_queue(const struct darc *d);
/* Returns the next request of a worker. NULL: it has one, or none is for it. */
struct sy_tcp_request *darc_take(struct darc *d, unsigned worker);
/* The worker has called sy_tcp_request_complete(), and is free. */
void darc_served(struct darc *d, unsigned worker);

#endif
