// SPDX-License-Identifier: Apache-2.0
/*
 * Queues of received, unprocessed packets, by level:
 *
 *     level 0   ▢▢                 dequeued first
 *     …
 *     level 4   ▢▢▢▢▢
 *     level 7   ▢▢▢▢▢▢▢▢▢          dropped first, from the tail
 *
 * Within a flow, levels of queued packets never become more urgent: a more urgent packet raises
 * those queued before it. As levels are dequeued strictly by priority, and each in FIFO order, each
 * flow's packets stay in order.
 *
 * The limit counts the driver's buffers: an LRO packet has dozens.
 */
#ifndef RECEIVE_LEVEL_H
#define RECEIVE_LEVEL_H

#include <rte_mbuf.h>

#include <sy_base.h>
#include <sy_hook_program.h>

#define WAITING_NONE UINT32_MAX

/* A queued packet: 32 bytes. */
struct waiting {
	struct rte_mbuf *packet;
	uint32_t flow;
	uint32_t before, after;           /* in its level; after: also the free list */
	uint32_t flow_before, flow_after; /* in its flow bucket, in the order of arrival */
	uint16_t level;
	uint16_t buffers; /* of the packet */
};

struct receive_levels {
	struct waiting *cell;
	uint32_t *last_of_flow; /* last cell, per flow bucket */
	uint32_t max, mask, free, count;
	uint32_t buffers; /* queued buffers; at most `max` */
	uint32_t used;    /* bit n: level n is not empty */
	struct {
		uint32_t first, last, count;
	} level[SY_PRIORITIES];
	uint64_t taken[SY_PRIORITIES], dropped[SY_PRIORITIES], risen;
};

/* Allocates queues for `max` buffers. Fails with -ENOMEM. */
int receive_levels_init(struct receive_levels *r, uint32_t max);
/* Frees all queued packets. */
void receive_levels_close(struct receive_levels *r);

/* Queues a packet of a flow, and returns NULL. If the queue is full, returns the packet to drop: m
 * itself, or the last one of the lowest level; then the caller adds m again. Flows with equal
 * hashes share an order. */
struct rte_mbuf *receive_level_add(struct receive_levels *r, struct rte_mbuf *m, uint32_t flow,
                                   unsigned level);
/* Dequeues the first packet of the level that receive_level_next() returns; there is one. */
struct rte_mbuf *receive_level_take(struct receive_levels *r);

/* Returns the level of the next packet; SY_PRIORITIES: none. */
static inline unsigned receive_level_next(const struct receive_levels *r)
{
	return r->used ? (unsigned)__builtin_ctz(r->used) : SY_PRIORITIES;
}

#endif
