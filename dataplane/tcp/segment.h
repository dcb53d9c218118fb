// SPDX-License-Identifier: Apache-2.0
/* Segments: read into a struct, and made from one. */
#ifndef SEGMENT_H
#define SEGMENT_H

#include <rte_mbuf.h>

#include <sy_packet.h>

#include "sack.h"

/* Flags of ECN in the TCP header (RFC 3168 6.1), and of the IP header (5). */
enum { TCP_ECE = 64, TCP_CWR = 128 };
enum { IP_ECN = 3, IP_ECT0 = 2, IP_CE = 3 };

/* A segment that has arrived. Host order. */
struct segment {
	const struct sy_view *view;
	struct rte_mbuf *packet; /* NULL once somebody keeps it */
	uint32_t seq, ack;
	uint32_t len;    /* of the payload */
	uint16_t window; /* as in the header */
	uint16_t urgent;
	uint16_t data; /* the payload's offset in the frame */
	uint16_t size; /* of the payload that came in one packet: the port may have joined several;
	                  0: unknown */
	uint8_t flags; /* SY_TCP_*, TCP_ECE, TCP_CWR */
	uint8_t ecn;   /* of the IP header */
	uint8_t dscp;  /* likewise */
	bool unscaled; /* its window is that of a SYN */
	uint8_t blocks;
	struct sy_tcp_options options;
	struct sy_tcp_block block[SY_TCP_BLOCKS_MAX];
};

void segment_read(struct segment *seg, struct rte_mbuf *m, const struct sy_view *v);

/* The sequence numbers that it takes: payload, SYN and FIN (RFC 9293 3.4). */
static inline uint32_t segment_span(const struct segment *seg)
{
	return seg->len + !!(seg->flags & SY_TCP_SYN) + !!(seg->flags & SY_TCP_FIN);
}

/* A segment to be made. */
struct segment_plan {
	const struct sy_tuple *from_peer; /* the tuple of the peer's segments */
	uint32_t seq, ack;
	uint32_t len; /* of the payload */
	uint16_t window, urgent;
	uint16_t piece;     /* the port cuts the payload into pieces of this size (TSO); 0: not */
	uint8_t flags, tos; /* tos: with ECN */
	bool fragile;       /* routers may fragment it */
	uint8_t blocks;
	struct sy_tcp_options options;
	struct sack_block block[SACK_BLOCKS];
};

/* The bytes of options that it will have. */
unsigned segment_options_len(const struct segment_plan *plan);
/* Makes its headers; *payload is where the caller puts plan->len bytes before segment_finish().
 * NULL: no buffer. */
struct rte_mbuf *segment_make(struct rte_mempool *pool, const struct segment_plan *plan,
                              uint8_t **payload);
/* The same of one that the port cuts: a chain of buffers, with room for plan->len bytes behind the
 * headers of the first. NULL: there are not enough buffers. */
struct rte_mbuf *segment_make_large(struct rte_mempool *pool, const struct segment_plan *plan);
/* Adds the payload to the checksum; or lets the port compute it. The plan: as it was made. */
void segment_finish(struct rte_mbuf *m, const struct segment_plan *plan, bool offload);
/* All that a port which cuts it expects. */
void segment_finish_large(struct rte_mbuf *m, const struct segment_plan *plan);
/* The payload of a large segment, at most, in so many buffers of the pool (0: any number). */
uint32_t segment_large_most(struct rte_mempool *pool, unsigned buffers);
/* The reset that answers a segment without a connection, which is none itself (RFC 9293 3.10.7.1).
 * NULL: no buffer. */
struct rte_mbuf *segment_refuse(struct rte_mempool *pool, const struct segment *seg, bool offload);

/* Headers of a segment that was made, and how many packets become of it on the wire. */
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
