// SPDX-License-Identifier: Apache-2.0
/*
 * Packets from one worker to another: one puts, one takes. Each keeps what it last saw of the
 * other's index beside its own, and looks again only when that says full or empty: what changes
 * hands is the line that says how many there are, once a batch, and those that hold them.
 */
#ifndef RING_H
#define RING_H

#include <rte_mbuf.h>

#include <sy_base.h>

/* Two lines, as processors fetch a line's neighbour with it. */
#define RING_APART __attribute__((aligned(2 * SY_CACHE_LINE)))

struct ring {
	uint32_t mask; /* places - 1, a power of 2 */
	/* The producer's. */
	RING_APART uint32_t head; /* put so far. Reader: consumer, acquire */
	uint32_t tail_seen;
	/* The consumer's. */
	RING_APART uint32_t tail; /* taken so far. Reader: producer, acquire */
	uint32_t left;            /* taken, and forwarded. Reader: producer, acquire */
	uint32_t head_seen;
	RING_APART struct rte_mbuf *place[];
};

/* From EAL's memory; places is a power of 2. NULL: there is none. */
struct ring *ring_open(unsigned places);
/* Frees what is left in it. */
void ring_close(struct ring *r);

/* Any thread. */
static inline unsigned ring_count(const struct ring *r)
{
	return __atomic_load_n(&r->head, __ATOMIC_RELAXED) -
	       __atomic_load_n(&r->tail, __ATOMIC_RELAXED);
}

/* Returns how many there was room for. */
static inline unsigned ring_put(struct ring *r, struct rte_mbuf *const *m, unsigned n)
{
	uint32_t head = r->head, capacity = r->mask + 1 - (head - r->tail_seen);
	if (SY_UNLIKELY(capacity < n)) {
		r->tail_seen = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
		capacity = r->mask + 1 - (head - r->tail_seen);
		n = capacity < n ? capacity : n;
	}
	for (unsigned i = 0; i < n; i++)
		r->place[(head + i) & r->mask] = m[i];
	__atomic_store_n(&r->head, head + n, __ATOMIC_RELEASE);
	return n;
}

/* Takes n at the most; returns how many. */
static inline unsigned ring_take(struct ring *r, struct rte_mbuf **m, unsigned n)
{
	uint32_t tail = r->tail;
	if (r->head_seen - tail < n) {
		r->head_seen = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
		if (r->head_seen - tail < n)
			n = r->head_seen - tail;
	}
	if (!n)
		return 0;
	for (unsigned i = 0; i < n; i++)
		m[i] = r->place[(tail + i) & r->mask];
	__atomic_store_n(&r->tail, tail + n, __ATOMIC_RELEASE);
	return n;
}

#endif
