// SPDX-License-Identifier: Apache-2.0
/*
 * Data that arrived out of order: what lies beyond RCV.NXT, and the SACK blocks that tell of it
 * (RFC 2018, 2883).
 *
 *     next      block              block
 *      │   gap ┌───────┬─────┐ gap ┌────┐        sorted, with gaps between blocks and none in one
 *      ▼       │ piece │piece│     │piece           a piece is a part of a segment's buffer
 *
 * A segment fills gaps only: bytes that are there already win, so nobody can change what was
 * acknowledged. A segment over several gaps becomes several pieces of one buffer. Costs O(blocks),
 * whose number is bounded; O(1) where the segment belongs to the last one.
 *
 * Sequence numbers that are given lie within 2^30 of `next`, which is RCV.NXT: no window is larger.
 */
#ifndef TCP_ARRIVED_H
#define TCP_ARRIVED_H

#include <stdbool.h>
#include <stddef.h>

#include "pool.h"
#include "sack.h"

#define ARRIVED_BLOCKS 256 /* of a connection */

struct arrived_piece {
	uint32_t next; /* in the block */
	uint32_t from, to;
	uint32_t origin; /* the sequence number of the buffer's first byte */
	void *buffer;    /* opaque */
};

struct arrived_block {
	uint32_t next;
	uint32_t from, to;
	uint32_t first, last; /* pieces */
	uint32_t touched;     /* arrived.touches, when a segment touched it last */
};

/* A cell of the pool. */
union arrived_cell {
	struct pool_cell cell;
	struct arrived_piece piece;
	struct arrived_block block;
};
_Static_assert(sizeof(union arrived_cell) == 24, "two cells for a segment out of order");

/* Zeroed before the first use. */
struct arrived {
	uint32_t first, last; /* blocks; 0: there are none */
	uint32_t blocks, pieces;
	uint32_t touches;
	struct sack_block duplicate; /* to be told once (RFC 2883, 4); empty: none */
};
_Static_assert(sizeof(struct arrived) == 28, "a part of a connection's 512 bytes");

struct arrived_news {
	uint32_t kept;  /* pieces of the buffer: it is referred to so many times. 0: free it */
	bool duplicate; /* a part was there already: acknowledge at once */
	bool refused;   /* a part has no room; the peer will send it again */
};

/* What of a buffer counts. */
struct arrived_cut {
	uint32_t skip, length; /* bytes */
};

/* Data from..to arrived; the buffer's first byte is that of `from`. */
struct arrived_news arrived_add(struct arrived *a, struct pool *p, uint32_t next, uint32_t from,
                                uint32_t to, void *buffer);

/* Data came a second time that is not in here any more. arrived_add() notes this by itself. */
static inline void arrived_duplicate(struct arrived *a, uint32_t from, uint32_t to)
{
	a->duplicate = (struct sack_block){from, to};
}

/* Removes the next piece that begins at or before `next`, and returns its buffer; NULL: there is a
 * gap. A length of 0: all of it was before. */
void *arrived_take(struct arrived *a, struct pool *p, uint32_t next, struct arrived_cut *cut);

/* Removes a piece of the last block: the memory is needed, or the connection ends. NULL: there is
 * none. The peer may have been told that it is here; RFC 2018, 8, allows it. */
void *arrived_drop(struct arrived *a, struct pool *p);

/* The blocks for an ACK, at most `most`; returns how many. The D-SACK block comes first, and is
 * told once; then the blocks that were touched last (RFC 2018, 4; RFC 2883, 4). */
unsigned arrived_blocks(struct arrived *a, const struct pool *p, struct sack_block *out,
                        unsigned most);

#endif
