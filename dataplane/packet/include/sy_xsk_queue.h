// SPDX-License-Identifier: Apache-2.0
/*
 * The rings of an AF_XDP socket whose UMEM is the whole packet pool. A packet that one socket
 * receives leaves by another without a copy in this process.
 *
 *   mempool object:  | header | struct rte_mbuf | data room …                     |
 *   UMEM chunk:                                 | 256 (XDP_PACKET_HEADROOM) frame |
 *                                               ↑ chunk address = buf_addr − start of the pool
 *
 * Chunks are unaligned: the kernel accepts any address, returns it with the frame's offset in the
 * upper 16 bits, and never writes to the struct before the data room.
 *
 * One thread at a time uses a queue; only sy_xsk_kick_tx() may run beside it. System calls are
 * parameters, as in sy_xsk.h.
 */
#ifndef SY_XSK_QUEUE_H
#define SY_XSK_QUEUE_H

#include <stdbool.h>

#include <rte_mbuf.h>
#include <xdp/xsk.h>

#include <sy_xsk.h>

#define SY_XSK_BATCH     64
#define SY_XSK_FILL_PART 8 /* reception refills a ring that misses more than this part of it */

struct sy_xsk_queue {
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons rx, completion;
	char *base; /* of the UMEM */
	struct rte_mempool *pool;
	int fd;
	uint16_t mark;         /* m->port of buffers in the fill ring */
	unsigned fill_missing; /* free slots of the fill ring */
	unsigned tx_pending;   /* frames that the kernel has not completed */
};

static inline uint64_t sy_xsk_chunk(const struct sy_xsk_queue *q, const struct rte_mbuf *m)
{
	return (uint64_t)((char *)m->buf_addr - q->base);
}

static inline struct rte_mbuf *sy_xsk_mbuf(const struct sy_xsk_queue *q, uint64_t address)
{
	char *data_room = q->base + xsk_umem__extract_addr(address);

	return (struct rte_mbuf *)(data_room - sizeof(struct rte_mbuf));
}

/* ---- receive --------------------------------------------------------------------------------- */

/* Fills the fill ring as far as the pool has buffers. Returns true if it added any. */
static inline bool sy_xsk_fill(struct sy_xsk_queue *q)
{
	struct rte_mbuf *m[SY_XSK_BATCH];
	uint32_t at;
	bool some = false;

	while (q->fill_missing) {
		unsigned n = q->fill_missing < SY_XSK_BATCH ? q->fill_missing : SY_XSK_BATCH;
		if (rte_pktmbuf_alloc_bulk(q->pool, m, n))
			break; /* the next poll iteration retries */
		if (xsk_ring_prod__reserve(&q->fill, n, &at) != n) {
			rte_pktmbuf_free_bulk(m, n);
			break;
		}
		for (unsigned i = 0; i < n; i++) {
			m[i]->port = q->mark;
			*xsk_ring_prod__fill_addr(&q->fill, at + i) = sy_xsk_chunk(q, m[i]);
		}
		xsk_ring_prod__submit(&q->fill, n);
		q->fill_missing -= n;
		some = true;
	}
	return some;
}

/* A driver that found the fill ring empty has stopped, and continues only after a system call. */
static inline void sy_xsk_kick_rx(struct sy_xsk_queue *q, __typeof__(&recvfrom) recvfrom_call)
{
	if (xsk_ring_prod__needs_wakeup(&q->fill))
		recvfrom_call(q->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

/*
 * Replaces received buffers, before a burst is sent. The pool's cache allocates first what was
 * freed last, so the buffers of the burst, which are in this core's cache, remain for new packets.
 * Where nothing is sent, or much is missing, sy_xsk_receive() fills the ring.
 */
static inline void sy_xsk_refill(struct sy_xsk_queue *q, __typeof__(&recvfrom) recvfrom_call)
{
	if (q->fill_missing && sy_xsk_fill(q))
		sy_xsk_kick_rx(q, recvfrom_call);
}

/* Packets in the receive ring, also those that arrived since the last sy_xsk_receive(). */
static inline unsigned sy_xsk_waiting(const struct sy_xsk_queue *q)
{
	return __atomic_load_n(q->rx.producer, __ATOMIC_RELAXED) - q->rx.cached_cons;
}

/* Fewer than `max` packets: the ring is empty. libxdp reads the producer's index only if it knows
 * of no packet, and would return a part. */
static inline unsigned sy_xsk_receive(struct sy_xsk_queue *q, struct rte_mbuf **m, unsigned max,
                                      __typeof__(&recvfrom) recvfrom_call)
{
	uint32_t at;

	if (q->rx.cached_prod - q->rx.cached_cons < max)
		q->rx.cached_prod = __atomic_load_n(q->rx.producer, __ATOMIC_ACQUIRE);
	unsigned n = xsk_ring_cons__peek(&q->rx, max, &at);
	for (unsigned i = 0; i < n; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&q->rx, at + i);
		m[i] = sy_xsk_mbuf(q, d->addr);
		m[i]->data_off = (uint16_t)xsk_umem__extract_offset(d->addr);
		m[i]->data_len = (uint16_t)d->len;
		m[i]->pkt_len = d->len;
	}
	if (n)
		xsk_ring_cons__release(&q->rx, n);
	q->fill_missing += n;
	bool due = !n || q->fill_missing > q->fill.size / SY_XSK_FILL_PART;
	if ((due && sy_xsk_fill(q)) || n)
		sy_xsk_kick_rx(q, recvfrom_call);
	return n;
}

/* ---- transmit -------------------------------------------------------------------------------- */

/* Frees the buffers of completed frames. */
static inline void sy_xsk_reap(struct sy_xsk_queue *q)
{
	struct rte_mbuf *m[SY_XSK_BATCH];
	uint32_t at;

	while (q->tx_pending) {
		unsigned n = xsk_ring_cons__peek(&q->completion, SY_XSK_BATCH, &at);
		if (!n)
			return;
		for (unsigned i = 0; i < n; i++)
			m[i] = sy_xsk_mbuf(q, *xsk_ring_cons__comp_addr(&q->completion, at + i));
		xsk_ring_cons__release(&q->completion, n);
		q->tx_pending -= n;
		rte_pktmbuf_free_bulk(m, n);
	}
}

/* Frames in the transmit ring that the kernel has not read. */
static inline bool sy_xsk_has_unsent(const struct sy_xsk_queue *q)
{
	return __atomic_load_n(q->tx.consumer, __ATOMIC_RELAXED) != q->tx.cached_prod;
}

/* Has the kernel send: in copy mode, a call sends 32 frames. Frames that it is too busy for stay in
 * the ring. Returns the number of frames that it dropped, because the link has no carrier. */
static inline unsigned sy_xsk_kick_tx(struct sy_xsk_queue *q, unsigned max_calls,
                                      __typeof__(&sendto) sendto_call)
{
	for (unsigned i = 0; i < max_calls && xsk_ring_prod__needs_wakeup(&q->tx); i++) {
		ssize_t rc = sendto_call(q->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
		if (rc < 0 && errno == EBUSY)
			return 1; /* the call ends at the frame that it drops */
		if (rc >= 0 || errno != EAGAIN || !sy_xsk_has_unsent(q))
			return 0;
	}
	return 0;
}

/* Adds frames to the transmit ring, as many as it and the completion ring have slots for; the
 * caller kicks. Returns how many it added. */
static inline unsigned sy_xsk_enqueue(struct sy_xsk_queue *q, struct rte_mbuf **m, unsigned n)
{
	unsigned completions = q->completion.size - q->tx_pending;
	unsigned slots = xsk_prod_nb_free(&q->tx, n);
	uint32_t at;

	n = n < completions ? n : completions;
	n = n < slots ? n : slots;
	if (!n || xsk_ring_prod__reserve(&q->tx, n, &at) != n)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		struct xdp_desc *d = xsk_ring_prod__tx_desc(&q->tx, at + i);
		uint64_t offset = m[i]->data_off;
		d->addr = sy_xsk_chunk(q, m[i]) | offset << XSK_UNALIGNED_BUF_OFFSET_SHIFT;
		d->len = m[i]->pkt_len;
		d->options = 0;
	}
	xsk_ring_prod__submit(&q->tx, n);
	q->tx_pending += n;
	return n;
}

#endif
