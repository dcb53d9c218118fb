// SPDX-License-Identifier: Apache-2.0
/* Parsed segments, and segments to build. */
#ifndef SEGMENT_H
#define SEGMENT_H

#include <rte_mbuf.h>

#include <sy_tcp_segment.h>

#include "sack.h"

/* ECN flags of the TCP header (RFC 3168 6.1) and of the IP header (5). */
enum { TCP_ECE = 64, TCP_CWR = 128 };
enum { IP_ECN = 3, IP_ECT0 = 2, IP_CE = 3 };

/* A received segment, in host order. */
struct segment {
	const struct sy_view *view;
	struct rte_mbuf *packet; /* NULL once queued */
	uint32_t seq, ack;
	uint32_t len;    /* of the payload */
	uint16_t window; /* as in the header */
	uint16_t urgent;
	uint16_t data; /* offset of the payload in the frame */
	uint16_t size; /* payload per original packet before LRO; 0: unknown */
	uint8_t flags; /* SY_TCP_*, TCP_ECE, TCP_CWR */
	uint8_t ecn;   /* of the IP header */
	uint8_t dscp;  /* likewise */
	bool unscaled; /* the window is not scaled, like a SYN's */
	uint8_t blocks;
	struct sy_tcp_options options;
	struct sy_tcp_block block[SY_TCP_BLOCKS_MAX];
};

void segment_read(struct segment *seg, struct rte_mbuf *m, const struct sy_view *v);

/* Length in sequence space: payload, SYN and FIN (RFC 9293 3.4). */
static inline uint32_t segment_span(const struct segment *seg)
{
	return seg->len + !!(seg->flags & SY_TCP_SYN) + !!(seg->flags & SY_TCP_FIN);
}

/* A segment to build. */
struct segment_plan {
	const struct sy_tuple *from_peer; /* tuple of the peer's segments */
	uint32_t seq, ack;
	uint32_t len; /* of the payload */
	uint16_t window, urgent;
	uint16_t piece;     /* TSO: size of pieces; 0: no TSO */
	uint8_t flags, tos; /* tos: with ECN */
	bool fragile;       /* DF is not set */
	uint8_t blocks;
	struct sy_tcp_options options;
	struct sack_block block[SACK_BLOCKS];
};

/* Returns the length of its options. */
unsigned segment_options_len(const struct segment_plan *plan);
/* Builds the headers. The caller writes plan->len bytes to *payload, then calls segment_finish().
 * NULL: no buffer. */
struct rte_mbuf *segment_make(struct rte_mempool *pool, const struct segment_plan *plan,
                              uint8_t **payload);
/* The same for TSO: a chain with space for plan->len bytes. NULL: too few buffers. */
struct rte_mbuf *segment_make_large(struct rte_mempool *pool, const struct segment_plan *plan);
/* Completes the checksum, or leaves it to the port. The plan must be unchanged. */
void segment_finish(struct rte_mbuf *m, const struct segment_plan *plan, bool offload);
/* Sets all fields that TSO requires. */
void segment_finish_large(struct rte_mbuf *m, const struct segment_plan *plan);
/* Returns the max payload of a large segment in this many buffers (0: unlimited). */
uint32_t segment_max_large(struct rte_mempool *pool, unsigned buffers);
/* Builds the reset for a segment without connection, which must not be a reset itself (RFC
 * 9293 3.10.7.1). NULL: no buffer. */
struct rte_mbuf *segment_refuse(struct rte_mempool *pool, const struct segment *seg, bool offload);

/* Header length of a built segment; number of packets it becomes on the wire. */
static inline uint32_t segment_headers(const struct rte_mbuf *m)
{
	return (uint32_t)(m->l2_len + m->l3_len + m->l4_len);
}

static inline uint32_t segment_pieces(const struct rte_mbuf *m)
{
	return SY_UNLIKELY(m->ol_flags & RTE_MBUF_F_TX_TCP_SEG)
	               ? (m->pkt_len - segment_headers(m) + m->tso_segsz - 1) / m->tso_segsz
	               : 1;
}

#endif
