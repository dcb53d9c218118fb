// SPDX-License-Identifier: Apache-2.0
/* Parses and builds segments: RFC 9293 3.1, options of RFC 7323 and RFC 2018. */
#include <arpa/inet.h>

#include <sy_pseudo.h>

#include "segment.h"

#define TTL           64
#define IPV4_DF       0x4000
#define LARGE_BUFFERS 64    /* per large segment */
#define MAX_DATAGRAM  65535 /* with headers and Ethernet's: the limit of struct sy_view and IP */
#define HEADERS_MAX   (SY_ETH_LEN + 40 + 60)

enum {
	KIND_NOP = 1,
	KIND_SACK = 5,
	KIND_TIMESTAMPS = 8,
};

/* ---- parsing --------------------------------------------------------------------------------- */

static uint32_t number_at(const uint8_t *at)
{
	uint32_t number;
	memcpy(&number, at, sizeof(number));
	return ntohl(number);
}

/* Fast path: no options, or timestamps alone at the usual position. */
static bool options_usual(struct segment *seg, const uint8_t *tcp, unsigned header)
{
	static const uint8_t usual[4] = {KIND_NOP, KIND_NOP, KIND_TIMESTAMPS, 10};

	if (header == sizeof(struct sy_tcp)) {
		seg->options = (struct sy_tcp_options){.scale = SY_TCP_NO_SCALE};
		return true;
	}
	tcp += sizeof(struct sy_tcp);
	if (header != sizeof(struct sy_tcp) + 12 || memcmp(tcp, usual, sizeof(usual)) != 0)
		return false;
	seg->options = (struct sy_tcp_options){.scale = SY_TCP_NO_SCALE,
	                                       .timestamps = true,
	                                       .time = number_at(tcp + 4),
	                                       .echo = number_at(tcp + 8)};
	return true;
}

void segment_read(struct segment *seg, struct rte_mbuf *m, const struct sy_view *v)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	const struct sy_tcp *tcp = sy_packet_tcp(frame, v);
	unsigned header = tcp->offset >> 4 << 2;

	*seg = (struct segment){
	        .view = v,
	        .packet = m,
	        .seq = ntohl(tcp->seq),
	        .ack = ntohl(tcp->ack),
	        .len = v->l4_len - header,
	        .window = ntohs(tcp->window),
	        .urgent = ntohs(tcp->urgent),
	        .data = (uint16_t)(v->l4 + header),
	        .size = m->ol_flags & RTE_MBUF_F_RX_LRO ? m->tso_segsz : 0,
	        .flags = tcp->flags,
	};
	if (seg->size == 0 && SY_LIKELY(m->nb_segs == 1))
		seg->size = (uint16_t)seg->len;
	const uint8_t *l3 = frame + v->l3;
	const uint8_t tos = (uint8_t)(v->v4 ? l3[1] : l3[0] << 4 | l3[1] >> 4);
	seg->ecn = tos & IP_ECN;
	seg->dscp = tos >> 2;
	if (!options_usual(seg, (const uint8_t *)tcp, header)) {
		sy_tcp_options_read(frame, v, &seg->options);
		seg->blocks = (uint8_t)sy_tcp_blocks_read(frame, v, seg->block);
	}
}

/* ---- building -------------------------------------------------------------------------------- */

static uint8_t *number_put(uint8_t *at, uint32_t number)
{
	number = htonl(number);
	memcpy(at, &number, sizeof(number));
	return at + sizeof(number);
}

unsigned segment_options_len(const struct segment_plan *plan)
{
	const struct sy_tcp_options *o = &plan->options;
	unsigned len = o->timestamps ? 12 : 0;

	if (plan->flags & SY_TCP_SYN)
		len += (o->mss ? 4 : 0) + (o->sack && !o->timestamps ? 4 : 0) +
		       (o->scale != SY_TCP_NO_SCALE ? 4 : 0);
	return len + (plan->blocks ? 4 + 8u * plan->blocks : 0);
}

/*
 * Computes checksums from the values, not from the written headers: a wide load of bytes from
 * several narrow stores cannot be forwarded and would wait until the store buffer has drained, with
 * stores into packets that another core owned last.
 */
static inline uint64_t pseudo_sum(const struct sy_tuple *t, unsigned len)
{
	return sy_pseudo_sum(&t->src, &t->dst, SY_PROTO_TCP, (uint16_t)len);
}

static uint64_t options_unusual_put(uint8_t *at, const struct segment_plan *plan)
{
	const uint8_t *begin = at;

	at += sy_tcp_options_put(at, &plan->options, plan->flags & SY_TCP_SYN);
	if (plan->blocks) {
		const uint8_t head[4] = {KIND_NOP, KIND_NOP, KIND_SACK,
		                         (uint8_t)(2 + 8 * plan->blocks)};
		memcpy(at, head, sizeof(head));
		at += sizeof(head);
	}
	for (unsigned i = 0; i < plan->blocks; i++)
		at = number_put(number_put(at, plan->block[i].from), plan->block[i].to);
	return sy_csum_sum(begin, (size_t)(at - begin));
}

/* Writes options and returns their checksum. */
static inline __attribute__((always_inline)) uint64_t options_put(uint8_t *at,
                                                                  const struct segment_plan *plan)
{
	const struct sy_tcp_options *o = &plan->options;
	const uint32_t head = KIND_NOP << 24 | KIND_NOP << 16 | KIND_TIMESTAMPS << 8 | 10;

	if (plan->flags & SY_TCP_SYN || plan->blocks)
		return options_unusual_put(at, plan);
	if (!o->timestamps)
		return 0;
	number_put(number_put(number_put(at, head), o->time), o->echo);
	return (uint64_t)htonl(head) + htonl(o->time) + htonl(o->echo);
}

static inline __attribute__((always_inline)) void
ip_put(uint8_t *l3, const struct segment_plan *plan, uint16_t l4_len)
{
	const struct sy_tuple *t = plan->from_peer;

	if (sy_addr_is_v4(&t->src)) {
		uint16_t len = htons((uint16_t)(sizeof(struct sy_ipv4) + l4_len));
		uint16_t fragment = plan->fragile ? 0 : htons(IPV4_DF);
		uint64_t sum = sy_pseudo_addr(&t->src) + sy_pseudo_addr(&t->dst) +
		               htons((uint16_t)(0x4500 | plan->tos)) + len + fragment +
		               htons(TTL << 8 | SY_PROTO_TCP);

		*(struct sy_ipv4 *)l3 = (struct sy_ipv4){
		        .version_ihl = 0x45,
		        .tos = plan->tos,
		        .total_length = len,
		        .fragment = fragment,
		        .ttl = TTL,
		        .proto = SY_PROTO_TCP,
		        .checksum = (uint16_t)~sy_csum_fold(sum),
		        .src = t->dst.w[3],
		        .dst = t->src.w[3],
		};
		return;
	}
	struct sy_ipv6 *ip = (struct sy_ipv6 *)l3;
	*ip = (struct sy_ipv6){
	        .version_class_flow = htonl(6u << 28 | (uint32_t)plan->tos << 20),
	        .payload_length = htons(l4_len),
	        .next_header = SY_PROTO_TCP,
	        .hop_limit = TTL,
	};
	memcpy(ip->src, t->dst.b, sizeof(ip->src));
	memcpy(ip->dst, t->src.b, sizeof(ip->dst));
}

/* Header lengths. */
struct lengths {
	bool v4;
	unsigned l3, tcp, all; /* all: with the Ethernet header */
};

static inline struct lengths lengths_of(const struct segment_plan *plan)
{
	struct lengths l = {.v4 = sy_addr_is_v4(&plan->from_peer->src)};

	l.l3 = l.v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
	l.tcp = (unsigned)sizeof(struct sy_tcp) + segment_options_len(plan);
	l.all = SY_ETH_LEN + l.l3 + l.tcp;
	return l;
}

/* Writes the headers. Inline: runs for each segment. */
static inline __attribute__((always_inline)) void
headers_put(struct rte_mbuf *m, const struct segment_plan *plan, struct lengths l)
{
	const struct sy_tuple *t = plan->from_peer;
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);

	*(struct sy_eth *)frame = (struct sy_eth){.type = htons(l.v4 ? SY_ETH_IPV4 : SY_ETH_IPV6)};
	ip_put(frame + SY_ETH_LEN, plan, (uint16_t)(l.tcp + plan->len));
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + SY_ETH_LEN + l.l3);
	const struct sy_tcp header = {
	        .sport = t->dport,
	        .dport = t->sport,
	        .seq = htonl(plan->seq),
	        .ack = htonl(plan->flags & SY_TCP_ACK ? plan->ack : 0),
	        .offset = (uint8_t)(l.tcp / 4 << 4),
	        .flags = plan->flags,
	        .window = htons(plan->window),
	        .urgent = htons(plan->urgent),
	};
	uint64_t sum = pseudo_sum(t, l.tcp + plan->len) + header.sport + header.dport + header.seq +
	               header.ack + htons((uint16_t)(header.offset << 8 | header.flags)) +
	               header.window + header.urgent + options_put((uint8_t *)(tcp + 1), plan);
	*tcp = header;
	tcp->checksum = sy_csum_fold(sum); /* segment_finish() adds the payload */
	m->hash.usr = t->sport | (uint32_t)t->dport << 16;
	m->l2_len = SY_ETH_LEN;
	m->l3_len = l.l3;
	m->l4_len = l.tcp;
}

struct rte_mbuf *segment_make(struct rte_mempool *pool, const struct segment_plan *plan,
                              uint8_t **payload)
{
	struct lengths l = lengths_of(plan);
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

	if (!m)
		return NULL;
	uint8_t *frame = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)(l.all + plan->len));
	if (!frame) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	headers_put(m, plan, l);
	if (payload)
		*payload = frame + l.all;
	return m;
}

/* ---- building large segments ----------------------------------------------------------------- */

/* Pieces must begin at even offsets of a buffer: net_tap's software TSO sums the parts of a piece
 * in two buffers as if both had even lengths. */
static uint32_t first_capacity(struct rte_mempool *pool, unsigned headers)
{
	return (rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM - headers) & ~1u;
}

static uint32_t next_capacity(struct rte_mempool *pool)
{
	return rte_pktmbuf_data_room_size(pool) & ~1u;
}

uint32_t segment_max_large(struct rte_mempool *pool, unsigned buffers)
{
	if (buffers == 0 || buffers > LARGE_BUFFERS)
		buffers = LARGE_BUFFERS;
	uint32_t max = first_capacity(pool, HEADERS_MAX) + (buffers - 1) * next_capacity(pool);
	return max < MAX_DATAGRAM - HEADERS_MAX ? max : MAX_DATAGRAM - HEADERS_MAX;
}

struct rte_mbuf *segment_make_large(struct rte_mempool *pool, const struct segment_plan *plan)
{
	struct lengths l = lengths_of(plan);
	uint32_t headers = l.all, first = first_capacity(pool, headers);
	uint32_t space = next_capacity(pool), left = plan->len;
	unsigned count = 1 + (left > first ? (left - first + space - 1) / space : 0);
	struct rte_mbuf *m[LARGE_BUFFERS];

	if (count > LARGE_BUFFERS || rte_pktmbuf_alloc_bulk(pool, m, count))
		return NULL;
	for (unsigned i = 0; i < count; i++) {
		uint32_t max = i == 0 ? first : space, piece = left < max ? left : max;
		m[i]->data_off = i == 0 ? m[i]->data_off : 0;
		m[i]->data_len = (uint16_t)(piece + (i == 0 ? headers : 0));
		m[i]->next = i + 1 < count ? m[i + 1] : NULL;
		left -= piece;
	}
	m[0]->nb_segs = (uint16_t)count;
	m[0]->pkt_len = headers + plan->len;
	headers_put(m[0], plan, l);
	return m[0];
}

/* ---- finishing ------------------------------------------------------------------------------- */

void segment_finish_large(struct rte_mbuf *m, const struct segment_plan *plan)
{
	uint8_t *l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, SY_ETH_LEN);
	struct sy_tcp *tcp = (struct sy_tcp *)(l3 + m->l3_len);
	bool v4 = m->l3_len == sizeof(struct sy_ipv4);

	/* Pseudo-header sum without the length, which differs per piece. */
	tcp->checksum = sy_csum_fold(pseudo_sum(plan->from_peer, 0));
	m->tso_segsz = plan->piece;
	m->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
	if (v4) {
		((struct sy_ipv4 *)l3)->checksum = 0;
		m->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
	} else {
		m->ol_flags |= RTE_MBUF_F_TX_IPV6;
	}
}

void segment_finish(struct rte_mbuf *m, const struct segment_plan *plan, bool offload)
{
	uint8_t *l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, SY_ETH_LEN);
	struct sy_tcp *tcp = (struct sy_tcp *)(l3 + m->l3_len);
	bool v4 = m->l3_len == sizeof(struct sy_ipv4);

	if (offload) {
		tcp->checksum = sy_csum_fold(pseudo_sum(plan->from_peer, m->l4_len + plan->len));
		m->ol_flags |=
		        RTE_MBUF_F_TX_TCP_CKSUM | (v4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6);
		return;
	}
	const uint8_t *payload = (const uint8_t *)tcp + m->l4_len;
	tcp->checksum = (uint16_t)~sy_csum_fold(tcp->checksum + sy_csum_sum(payload, plan->len));
}

struct rte_mbuf *segment_refuse(struct rte_mempool *pool, const struct segment *seg, bool offload)
{
	struct segment_plan plan = {.from_peer = &seg->view->tuple,
	                            .flags = SY_TCP_RST,
	                            .options = {.scale = SY_TCP_NO_SCALE}};
	struct rte_mbuf *m;

	if (seg->flags & SY_TCP_ACK) {
		plan.seq = seg->ack;
	} else {
		plan.ack = seg->seq + segment_span(seg);
		plan.flags |= SY_TCP_ACK;
	}
	m = segment_make(pool, &plan, NULL);
	if (m)
		segment_finish(m, &plan, offload);
	return m;
}
