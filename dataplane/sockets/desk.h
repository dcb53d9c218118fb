// SPDX-License-Identifier: Apache-2.0
/* Requests that are lent to other threads: what their owner and desks have in common. */
#ifndef DESK_H
#define DESK_H

#include "context.h"

#define PIECES 32 /* packets that a request has room for at first */

struct request {
	struct sy_tcp_request r; /* first: what the taker sees */
	struct sy_tcp_context *owner;
	int fd;
	sy_stack_id id;
	int pieces; /* that there is room for */
	struct iovec *v;
	struct rte_mbuf **held;
	uint8_t *room;
	size_t room_size;
	size_t used, answer; /* as given back */
	size_t sent;         /* of the answer */
	struct request *next;
	/* A copy: the hook goes on with the connection's while this is away, and the connection may
	 * end. */
	_Alignas(16) uint8_t own[SY_CACHE_LINE];
};

/* ---- lend.c ---------------------------------------------------------------------------------- */

/* A desk that was full has room again. Any thread. */
void lender_room(struct sy_tcp_context *c);

/* ---- desk.c ---------------------------------------------------------------------------------- */

/* For at least so many requests; freed by free(). NULL: no memory. */
struct rte_ring *ring_make(unsigned least, unsigned flags);
bool desk_is_full(const struct sy_tcp_desk *desk);
/* True: it is full, and the context has news once it is not. False: it has room by now. */
bool desk_await(struct sy_tcp_desk *desk, struct sy_tcp_context *c);
/* Lays it on a desk. False: it is full; then its owner has news once it is not. */
bool desk_lay(struct sy_tcp_desk *desk, struct request *r);

#endif
