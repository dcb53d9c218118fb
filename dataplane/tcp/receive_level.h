// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that the driver has received and nobody has looked at, by level:
 *
 *     level 0   ▢▢                 taken first
 *     …
 *     level 4   ▢▢▢▢▢
 *     level 7   ▢▢▢▢▢▢▢▢▢          dropped first, the last one
 *
 * Along a flow, the levels of what waits never get more urgent: whoever comes behind with a more
 * urgent one takes the others up with it. As levels are taken strictly in their order, and each in
 * its own, each flow's packets are taken in the order in which they came.
 *
 * What they hold is the driver's buffers, so these are counted: a packet that a port has joined has
 * dozens.
 */
#ifndef RECEIVE_LEVEL_H
#define RECEIVE_LEVEL_H

#include <rte_mbuf.h>

#include <sy_base.h>
#include <sy_hook_program.h>

#define WAITING_NONE UINT32_MAX

/* One that waits: 32 bytes. */
struct waiting {
	struct rte_mbuf *packet;
	uint32_t flow;
	uint32_t before, after;           /* in its level; after: in the list of free ones */
	uint32_t flow_before, flow_after; /* in its bucket of flows, in the order of arrival */
	uint16_t level;
	uint16_t buffers; /* of the packet */
};

struct receive_levels {
	struct waiting *cell;
	uint32_t *last_of_flow; /* buckets: the cell that came last */
	uint32_t most, mask, free, count;
	uint32_t buffers; /* of all that wait; `most` at most */
	uint32_t used;    /* bit n: level n has packets */
	struct {
		uint32_t first, last, count;
	} level[SY_PRIORITIES];
	uint64_t taken[SY_PRIORITIES], dropped[SY_PRIORITIES], risen;
};

/* Room for so many buffers. Returns 0 or -ENOMEM. */
int receive_levels_init(struct receive_levels *r, uint32_t most);
/* Frees all that waits. */
void receive_levels_close(struct receive_levels *r);

/* The packet of a flow (a hash, which may be another's too: then both keep one order) waits: NULL.
 * Else there is no room. Returns itself, which is dropped; or the last one of the lowest level,
 * which is dropped for it: then it is added again. */
struct rte_mbuf *receive_level_add(struct receive_levels *r, struct rte_mbuf *m, uint32_t flow,
                                   unsigned level);
/* The most urgent one, of the level that receive_level_next() says; there is one. */
struct rte_mbuf *receive_level_take(struct receive_levels *r);

/* The level of the next one; SY_PRIORITIES: none waits. */
static inline unsigned receive_level_next(const struct receive_levels *r)
{
	return r->used ? (unsigned)__builtin_ctz(r->used) : SY_PRIORITIES;
}

#endif
