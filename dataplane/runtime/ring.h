// SPDX-License-Identifier: Apache-2.0
/*
 * Ring of packets from one worker to another: one producer, one consumer. Each side caches the
 * other side's index and refreshes it only if the cached value says full or empty. So only two
 * kinds of cache lines move between cores: the index line, once a batch, and the lines of packet
 * pointers.
 */
#ifndef RING_H
#define RING_H

#include <rte_mbuf.h>

#include <sy_base.h>

/* Two lines: processors prefetch the adjacent line. */
#define RING_APART __attribute__((aligned(2 * SY_CACHE_LINE)))

struct ring {
	uint32_t mask; /* capacity − 1, a power of 2 minus 1 */
	/* Of the producer. */
	RING_APART uint32_t head; /* enqueued so far. Reader: consumer, acquire */
	uint32_t tail_seen;
	/* Of the consumer. */
	RING_APART uint32_t tail; /* dequeued so far. Reader: producer, acquire */
	uint32_t left;            /* dequeued and forwarded or sent. Reader: producer, acquire */
	uint32_t head_seen;
	RING_APART struct rte_mbuf *slot[];
};

/* Allocates a ring in EAL's memory. slots: a power of 2. Returns NULL without memory. */
struct ring *ring_open(unsigned slots);
/* Frees the packets left in it. */
void ring_close(struct ring *r);

/* Any thread. */
static inline unsigned ring_count(const struct ring *r)
{
	return __atomic_load_n(&r->head, __ATOMIC_RELAXED) -
	       __atomic_load_n(&r->tail, __ATOMIC_RELAXED);
}

/* Any thread. */
static inline bool ring_is_half_full(const struct ring *r)
{
	return ring_count(r) > r->mask / 2;
}

/* Enqueues packets. Returns the number of packets that fitted. */
static inline unsigned ring_enqueue(struct ring *r, struct rte_mbuf *const *m, unsigned n)
{
	uint32_t head = r->head, capacity = r->mask + 1 - (head - r->tail_seen);
	if (SY_UNLIKELY(capacity < n)) {
		r->tail_seen = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
		capacity = r->mask + 1 - (head - r->tail_seen);
		n = capacity < n ? capacity : n;
	}
	for (unsigned i = 0; i < n; i++)
		r->slot[(head + i) & r->mask] = m[i];
	__atomic_store_n(&r->head, head + n, __ATOMIC_RELEASE);
	return n;
}

/* Dequeues at most n packets. Returns how many. */
static inline unsigned ring_dequeue(struct ring *r, struct rte_mbuf **m, unsigned n)
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
		m[i] = r->slot[(tail + i) & r->mask];
	__atomic_store_n(&r->tail, tail + n, __ATOMIC_RELEASE);
	return n;
}

#endif
