// SPDX-License-Identifier: Apache-2.0
#include "chain.h"

#include <arpa/inet.h>

#include <sy_pseudo.h>

#define MAX_IPV4_HEADER 60 /* header length */
#define IPV6_LEN        40
#define MAX_TCP_HEADER  60

static void buffer_skip(struct rte_mbuf *m, uint32_t bytes)
{
	m->data_off = (uint16_t)(m->data_off + bytes);
	m->data_len = (uint16_t)(m->data_len - bytes);
}

/* Makes the first `len` bytes, or all, contiguous in the first buffer. */
static bool chain_pull(struct rte_mbuf *m, uint32_t len)
{
	if (len > m->pkt_len)
		len = m->pkt_len;
	while (m->data_len < len) {
		struct rte_mbuf *next = m->next;
		uint32_t piece = len - m->data_len;
		if (!next)
			return false;
		if (piece > next->data_len)
			piece = next->data_len;
		if (piece > rte_pktmbuf_tailroom(m))
			return false;
		memcpy(rte_pktmbuf_mtod_offset(m, uint8_t *, m->data_len),
		       rte_pktmbuf_mtod(next, const uint8_t *), piece);
		m->data_len = (uint16_t)(m->data_len + piece);
		buffer_skip(next, piece);
		if (next->data_len > 0)
			continue;
		m->next = next->next;
		m->nb_segs--;
		rte_pktmbuf_free_seg(next);
	}
	return true;
}

/* TCP directly follows the IP header. LRO joins only such packets. */
static bool is_plain(const struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *), *l3 = frame + SY_ETH_LEN;
	uint16_t type = ((const struct sy_eth *)frame)->type;

	if (m->data_len < SY_ETH_LEN + IPV6_LEN)
		return false;
	return (type == htons(SY_ETH_IPV4) && l3[9] == SY_PROTO_TCP) ||
	       (type == htons(SY_ETH_IPV6) && l3[6] == SY_PROTO_TCP);
}

bool chain_parse(struct rte_mbuf *m, struct sy_view *v)
{
	if (!chain_pull(m, SY_ETH_LEN + MAX_IPV4_HEADER + MAX_TCP_HEADER))
		return false;
	if (!is_plain(m) && rte_pktmbuf_linearize(m))
		return false;
	return sy_packet_parse(rte_pktmbuf_mtod(m, const uint8_t *), m->pkt_len, v) == SY_DROP_NONE;
}

enum sy_csum_state chain_check(const struct rte_mbuf *m, const struct sy_view *v)
{
	uint32_t skip = v->l4, left = v->l4_len;
	uint64_t pseudo = sy_pseudo_sum(&v->tuple.src, &v->tuple.dst, SY_PROTO_TCP, v->l4_len);
	uint64_t sum = pseudo;
	uint16_t checksum = rte_pktmbuf_mtod_offset(m, const struct sy_tcp *, v->l4)->checksum;
	bool odd = false;

	for (; m && left > 0; m = m->next) {
		uint32_t len = m->data_len - skip < left ? m->data_len - skip : left;
		uint16_t part = sy_csum_fold(
		        sy_csum_sum(rte_pktmbuf_mtod_offset(m, const uint8_t *, skip), len));
		sum += odd ? (uint16_t)(part << 8 | part >> 8) : part;
		odd ^= len & 1;
		left -= len;
		skip = 0;
	}
	if (left > 0)
		return SY_CSUM_BAD;
	if (sy_csum_fold(sum) == 0xffff)
		return SY_CSUM_OK;
	return checksum == sy_csum_fold(pseudo) ? SY_CSUM_UNFINISHED : SY_CSUM_BAD;
}

struct rte_mbuf *chain_trim(struct rte_mbuf *m, uint32_t offset, uint32_t len)
{
	struct rte_mbuf *last, *next;

	while (offset >= m->data_len) {
		offset -= m->data_len;
		next = m->next;
		rte_pktmbuf_free_seg(m);
		m = next;
	}
	buffer_skip(m, offset);
	for (last = m; len > last->data_len; last = last->next) {
		len -= last->data_len;
		while (last->next->data_len == 0) { /* unusual, but tolerated */
			next = last->next;
			last->next = next->next;
			rte_pktmbuf_free_seg(next);
		}
	}
	last->data_len = (uint16_t)len;
	for (next = last->next, last->next = NULL; next; next = last) {
		last = next->next;
		rte_pktmbuf_free_seg(next);
	}
	return m;
}

struct rte_mbuf *chain_part(struct rte_mbuf *m)
{
	struct rte_mbuf *rest = m->next;

	m->next = NULL;
	m->nb_segs = 1;
	m->pkt_len = m->data_len;
	return rest;
}
