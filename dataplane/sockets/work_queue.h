// SPDX-License-Identifier: Apache-2.0
/* Requests lent to other threads: common to their owner, work queues and DARC. */
#ifndef WORK_QUEUE_H
#define WORK_QUEUE_H

#include "context.h"

#define PIECES 32 /* initial capacity of a request, packets */

struct request {
	struct sy_tcp_request r; /* must be first: the public part */
	struct sy_tcp_context *owner;
	int fd;
	sy_stack_id id;
	int pieces; /* capacity */
	struct iovec *v;
	struct rte_mbuf **packets;
	uint8_t *buffer;
	size_t buffer_size;
	size_t used, answer; /* as completed */
	size_t sent;         /* of the response */
	struct request *next;
	/* A copy: the hook keeps using the connection's area meanwhile, and the connection may end.
	 */
	_Alignas(16) uint8_t own[SY_CACHE_LINE];
};

/* ---- lend.c ---------------------------------------------------------------------------------- */

/* A full work queue has space again. Any thread may call it. */
void lender_notify(struct sy_tcp_context *c);

/* ---- work_queue.c ---------------------------------------------------------------------------- */

/* For at least `min` requests; freed by free(). Returns NULL if there is no memory. */
struct rte_ring *ring_create(unsigned min, unsigned flags);
bool work_queue_is_full(const struct sy_tcp_queue *queue);
/* Registers for a notification. Returns true if it is full, so that the context will be notified.
 */
bool work_queue_await(struct sy_tcp_queue *queue, struct sy_tcp_context *c);
/* Enqueues a request. Returns false if the queue is full; then the owner is notified when it has
 * space. */
bool work_queue_enqueue(struct sy_tcp_queue *queue, struct request *r);

#endif
