// SPDX-License-Identifier: Apache-2.0
/*
 * A port's offloads in software: segmentation (TSO), joining of consecutive packets (LRO), and
 * splitting packets into several buffers.
 */
#ifndef TCP_TESTS_LARGE_H
#define TCP_TESTS_LARGE_H

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>

#include <sy_packet.h>

#define LARGE_PIECES 64 /* per packet */
#define LARGE_JOINED 60000

#ifndef CHECK
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)
#endif

/* ---- sums ------------------------------------------------------------------------------------ */

/* The lengths in the headers of a packet in one buffer, its IP header's sum and TCP's. */
static inline void large_finish(struct rte_mbuf *m, unsigned l3_len)
{
	uint8_t *l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, SY_ETH_LEN);
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(l3 + l3_len);
	uint16_t len = (uint16_t)(m->pkt_len - SY_ETH_LEN - l3_len);

	tcp->cksum = 0;
	if (l3[0] >> 4 == 4) {
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)l3;
		ip->total_length = htons((uint16_t)(len + l3_len));
		ip->hdr_checksum = 0;
		ip->hdr_checksum = rte_ipv4_cksum(ip);
		tcp->cksum = m->nb_segs == 1 ? rte_ipv4_udptcp_cksum(ip, tcp) : 0;
	} else {
		struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)l3;
		ip->payload_len = htons(len);
		tcp->cksum = m->nb_segs == 1 ? rte_ipv6_udptcp_cksum(ip, tcp) : 0;
	}
}

/* ---- cutting --------------------------------------------------------------------------------- */

/* Checks the fields that DPDK requires with RTE_MBUF_F_TX_TCP_SEG. */
static inline void large_check(const struct rte_mbuf *m)
{
	const uint8_t *l3 = rte_pktmbuf_mtod_offset(m, const uint8_t *, m->l2_len);
	const struct rte_tcp_hdr *tcp = (const struct rte_tcp_hdr *)(l3 + m->l3_len);
	unsigned headers = m->l2_len + m->l3_len + m->l4_len, segs = 0, bytes = 0;
	bool v4 = m->ol_flags & RTE_MBUF_F_TX_IPV4;

	CHECK(rte_validate_tx_offload(m) == 0);
	CHECK(m->l2_len == SY_ETH_LEN && m->l3_len == (v4 ? 20 : 40) && m->data_len >= headers);
	CHECK(m->l4_len == tcp->data_off / 16 * 4u);
	for (const struct rte_mbuf *b = m; b; b = b->next, segs++) {
		CHECK(b->data_len > 0 && b->data_off + b->data_len <= b->buf_len);
		bytes += b->data_len;
		/* net_tap needs even lengths. */
		CHECK(!b->next || (b->data_len - (b == m ? headers : 0)) % 2 == 0);
	}
	CHECK(segs == m->nb_segs && bytes == m->pkt_len);
	CHECK(m->tso_segsz % 2 == 0 && m->pkt_len - headers > m->tso_segsz);
	CHECK(!(tcp->tcp_flags &
	        (RTE_TCP_SYN_FLAG | RTE_TCP_RST_FLAG | RTE_TCP_URG_FLAG | RTE_TCP_CWR_FLAG)));
	if (v4) {
		const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)l3;
		CHECK(l3[0] == 0x45 && ntohs(ip->total_length) == m->pkt_len - SY_ETH_LEN);
		CHECK(ip->fragment_offset & htons(RTE_IPV4_HDR_DF_FLAG));
		CHECK(ip->hdr_checksum == 0 &&
		      tcp->cksum == rte_ipv4_phdr_cksum(ip, RTE_MBUF_F_TX_TCP_SEG));
	} else {
		const struct rte_ipv6_hdr *ip = (const struct rte_ipv6_hdr *)l3;
		CHECK(l3[0] >> 4 == 6 && ntohs(ip->payload_len) == m->pkt_len - SY_ETH_LEN - 40);
		CHECK(tcp->cksum == rte_ipv6_phdr_cksum(ip, RTE_MBUF_F_TX_TCP_SEG));
	}
}

/* One piece, from `at` on in the payload. */
static inline struct rte_mbuf *large_piece(const struct rte_mbuf *m, uint32_t at, uint32_t len,
                                           bool last)
{
	unsigned headers = m->l2_len + m->l3_len + m->l4_len;
	struct rte_mbuf *out = rte_pktmbuf_alloc(m->pool);

	CHECK(out);
	uint8_t *frame = (uint8_t *)rte_pktmbuf_append(out, (uint16_t)(headers + len));
	CHECK(frame);
	memcpy(frame, rte_pktmbuf_mtod(m, const uint8_t *), headers);
	const void *bytes = rte_pktmbuf_read(m, headers + at, len, frame + headers);
	if (bytes != frame + headers)
		memcpy(frame + headers, bytes, len);
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(frame + SY_ETH_LEN + m->l3_len);
	tcp->sent_seq = htonl(ntohl(tcp->sent_seq) + at);
	if (!last)
		tcp->tcp_flags &= (uint8_t) ~(RTE_TCP_FIN_FLAG | RTE_TCP_PSH_FLAG);
	out->hash.usr = m->hash.usr;
	large_finish(out, (unsigned)m->l3_len);
	return out;
}

/* Returns what the port sends: the packet, or up to LARGE_PIECES pieces. */
static inline unsigned large_cut(struct rte_mbuf *m, struct rte_mbuf **out)
{
	unsigned headers = m->l2_len + m->l3_len + m->l4_len, count = 0;

	if (!(m->ol_flags & RTE_MBUF_F_TX_TCP_SEG)) {
		out[0] = m;
		return 1;
	}
	large_check(m);
	for (uint32_t at = 0, all = m->pkt_len - headers; at < all; at += m->tso_segsz) {
		uint32_t len = all - at < m->tso_segsz ? all - at : m->tso_segsz;
		CHECK(count < LARGE_PIECES);
		out[count++] = large_piece(m, at, len, at + len == all);
	}
	rte_pktmbuf_free(m);
	return count;
}

/* ---- joining --------------------------------------------------------------------------------- */

static inline struct rte_tcp_hdr *large_tcp(struct rte_mbuf *m, unsigned *l3_len)
{
	uint8_t *l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, SY_ETH_LEN);

	*l3_len = l3[0] >> 4 == 4 ? 20 : 40;
	return (struct rte_tcp_hdr *)(l3 + *l3_len);
}

/* Data with ACK, and perhaps PSH, without options or with timestamps alone; in one buffer. */
static inline bool large_is_plain(struct rte_mbuf *m)
{
	const uint8_t *l3 = rte_pktmbuf_mtod_offset(m, const uint8_t *, SY_ETH_LEN);
	unsigned l3_len;
	const struct rte_tcp_hdr *tcp = large_tcp(m, &l3_len);
	unsigned header = tcp->data_off / 16 * 4u;

	return m->nb_segs == 1 && (l3[0] == 0x45 ? l3[9] : l3[6]) == SY_PROTO_TCP &&
	       (tcp->tcp_flags & ~RTE_TCP_PSH_FLAG) == RTE_TCP_ACK_FLAG &&
	       (header == 20 || (header == 32 && memcmp(tcp + 1, "\1\1\10\12", 4) == 0)) &&
	       m->pkt_len > SY_ETH_LEN + l3_len + header;
}

static inline uint32_t large_payload(struct rte_mbuf *m)
{
	unsigned l3_len;
	const struct rte_tcp_hdr *tcp = large_tcp(m, &l3_len);
	return m->pkt_len - SY_ETH_LEN - l3_len - tcp->data_off / 16 * 4u;
}

/* Returns true if `next` continues m. */
static inline bool large_follows(struct rte_mbuf *m, struct rte_mbuf *next)
{
	unsigned l3_len, next_len;
	struct rte_tcp_hdr *a = large_tcp(m, &l3_len), *b = large_tcp(next, &next_len);
	const uint8_t *l3 = rte_pktmbuf_mtod_offset(m, const uint8_t *, SY_ETH_LEN);
	const uint8_t *other = rte_pktmbuf_mtod_offset(next, const uint8_t *, SY_ETH_LEN);

	return l3_len == next_len && memcmp(a, b, 4) == 0 && a->data_off == b->data_off &&
	       memcmp(l3, other, 2) == 0 && /* version, class */
	       memcmp(l3 + (l3_len == 20 ? 12 : 8), other + (l3_len == 20 ? 12 : 8),
	              l3_len == 20 ? 8 : 32) == 0 &&
	       ntohl(a->sent_seq) + large_payload(m) == ntohl(b->sent_seq) &&
	       !(a->tcp_flags & RTE_TCP_PSH_FLAG) && m->pkt_len + next->pkt_len < LARGE_JOINED &&
	       (int32_t)(ntohl(b->recv_ack) - ntohl(a->recv_ack)) >= 0;
}

/* The later packet's headers apply, as with NICs. */
static inline void large_append(struct rte_mbuf *m, struct rte_mbuf *next)
{
	unsigned l3_len;
	struct rte_tcp_hdr *a = large_tcp(m, &l3_len), *b = large_tcp(next, &l3_len);
	unsigned header = a->data_off / 16 * 4u;

	if (!(m->ol_flags & RTE_MBUF_F_RX_LRO))
		m->tso_segsz = (uint16_t)large_payload(m);
	a->recv_ack = b->recv_ack;
	a->rx_win = b->rx_win;
	a->tcp_flags |= b->tcp_flags;
	memcpy(a + 1, b + 1, header - 20);
	rte_pktmbuf_adj(next, (uint16_t)(SY_ETH_LEN + l3_len + header));
	CHECK(rte_pktmbuf_chain(m, next) == 0);
	m->ol_flags |= RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	large_finish(m, l3_len);
}

/* Joins consecutive packets. Returns how many are left. */
static inline unsigned large_join(struct rte_mbuf **m, unsigned count)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *last = kept > 0 ? m[kept - 1] : NULL;
		bool joins = last && large_is_plain(m[i]) &&
		             (last->nb_segs > 1 || large_is_plain(last)) &&
		             large_follows(last, m[i]);
		if (joins)
			large_append(last, m[i]);
		else
			m[kept++] = m[i];
	}
	return kept;
}

/* Splits the first buffer after `at` bytes. */
static inline void large_split(struct rte_mbuf *m, uint16_t at)
{
	struct rte_mbuf *rest;

	if (at == 0 || at >= m->data_len)
		return;
	rest = rte_pktmbuf_alloc(m->pool);
	CHECK(rest);
	uint16_t len = (uint16_t)(m->data_len - at);
	memcpy(rte_pktmbuf_append(rest, len), rte_pktmbuf_mtod_offset(m, uint8_t *, at), len);
	rest->next = m->next;
	m->next = rest;
	m->nb_segs++;
	m->data_len = at;
}

#endif
