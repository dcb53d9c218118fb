// SPDX-License-Identifier: Apache-2.0
/*
 * Out-of-order data beyond RCV.NXT, and the SACK blocks that report it (RFC 2018, 2883).
 *
 *     next      block              block
 *      │   gap ┌───────┬─────┐ gap ┌────┐        sorted; gaps only between blocks
 *      ▼       │ piece │piece│     │piece           a piece is a part of a segment's buffer
 *
 * A segment only fills gaps: existing bytes win, so acknowledged data cannot be overwritten. A
 * segment over several gaps becomes several pieces of one buffer. Costs O(blocks), which is
 * bounded; O(1) if the segment belongs to the last block.
 *
 * All sequence numbers must be within 2^30 of `next`, which is RCV.NXT: no window is larger.
 */
#ifndef TCP_ARRIVED_H
#define TCP_ARRIVED_H

#include <stdbool.h>
#include <stddef.h>

#include "pool.h"
#include "sack.h"

#define ARRIVED_BLOCKS 256 /* per connection */

struct arrived_piece {
	uint32_t next; /* in the block */
	uint32_t from, to;
	uint32_t origin; /* sequence number of the buffer's first byte */
	void *buffer;    /* opaque */
};

struct arrived_block {
	uint32_t next;
	uint32_t from, to;
	uint32_t first, last; /* pieces */
	uint32_t touched;     /* arrived.touches at its last change */
};

/* A cell of the pool. */
union arrived_cell {
	struct pool_cell cell;
	struct arrived_piece piece;
	struct arrived_block block;
};
_Static_assert(sizeof(union arrived_cell) == 24, "two cells for a segment out of order");

/* Zero-initialized. */
struct arrived {
	uint32_t first, last; /* blocks; 0: none */
	uint32_t blocks, pieces;
	uint32_t touches;
	struct sack_block duplicate; /* D-SACK to report once (RFC 2883 4); empty: none */
};
_Static_assert(sizeof(struct arrived) == 28, "a part of a connection's 512 bytes");

struct arrived_news {
	uint32_t kept;  /* pieces that reference the buffer; 0: free it */
	bool duplicate; /* a part was a duplicate: acknowledge immediately */
	bool refused;   /* a part did not fit; the peer will retransmit it */
};

/* The part of a buffer to use. */
struct arrived_cut {
	uint32_t skip, length; /* bytes */
};

/* Adds data [from, to); the buffer begins at `from`. */
struct arrived_news arrived_add(struct arrived *a, struct pool *p, uint32_t next, uint32_t from,
                                uint32_t to, void *buffer);

/* Records a duplicate of data that is no longer stored here. arrived_add() records its own. */
static inline void arrived_duplicate(struct arrived *a, uint32_t from, uint32_t to)
{
	a->duplicate = (struct sack_block){from, to};
}

/* Removes the next piece at or before `next` and returns its buffer; NULL: there is a gap. Length
 * 0: entirely old. */
void *arrived_take(struct arrived *a, struct pool *p, uint32_t next, struct arrived_cut *cut);

/* Removes a piece of the last block, to reclaim memory or at the end. NULL: none. It may have been
 * SACKed: RFC 2018 8 permits reneging. */
void *arrived_drop(struct arrived *a, struct pool *p);

/* Fills up to `max` blocks for an ACK and returns their number: the D-SACK block first, once; then
 * the blocks changed last (RFC 2018 4; RFC 2883 4). */
unsigned arrived_blocks(struct arrived *a, const struct pool *p, struct sack_block *out,
                        unsigned max);

#endif
