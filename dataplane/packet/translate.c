// SPDX-License-Identifier: Apache-2.0
/* Translates headers of one family to the other (RFC 7915). */
#include "extension.h"
#include "icmp.h"
#include "move.h"

#define IPV4_MORE  0x2000
#define FRAGMENTED 1260 /* IPv4 length of a packet of IPv6's least MTU (RFC 7915 5.1) */

static bool l4_translate(uint8_t *frame, const struct sy_view *v, const struct sy_rewrite *r)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + v->l4);
	struct sy_udp *udp = (struct sy_udp *)(frame + v->l4);
	uint16_t len;

	if (!sy_view_has_l4(v))
		return true;
	if (v->proto == SY_PROTO_TCP) {
		tcp->sport = r->sport;
		tcp->dport = r->dport;
		tcp->checksum = sy_csum_apply(tcp->checksum, r->l4_delta);
		return true;
	}
	if (udp->checksum != 0) {
		udp->checksum = sy_csum_apply(udp->checksum, r->l4_delta);
	} else if (v->v4 && v->fragment == SY_FRAGMENT_NONE) {
		udp->sport = r->sport;
		udp->dport = r->dport;
		len = ntohs(udp->length);
		udp->checksum = (uint16_t)~sy_csum_fold(
		        sy_pseudo_sum(&r->src, &r->dst, SY_PROTO_UDP, len) + sy_csum_sum(udp, len));
	} else {
		return false;
	}
	udp->sport = r->sport;
	udp->dport = r->dport;
	if (udp->checksum == 0)
		udp->checksum = 0xffff;
	return true;
}

static void view_translate(struct sy_view *v, const struct sy_rewrite *r)
{
	v->v4 = !v->v4;
	v->tuple.src = r->src;
	v->tuple.dst = r->dst;
	if (sy_view_has_l4(v)) {
		v->tuple.sport = r->sport;
		v->tuple.dport = r->dport;
	}
}

static uint8_t *translate_4to6(uint8_t *frame, struct sy_view *v, const struct sy_rewrite *r)
{
	const struct sy_ipv4 old = *(const struct sy_ipv4 *)(frame + v->l3);
	const struct ipv6_fragment fragment = {
	        .next = v->proto,
	        .place = htons(v->fragment_offset | !!(old.fragment & htons(IPV4_MORE))),
	        .id = htonl(v->fragment_id),
	};
	uint16_t extra = v->fragment != SY_FRAGMENT_NONE ? sizeof(fragment) : 0;
	uint16_t len = sizeof(struct sy_ipv6) + extra;
	uint8_t *at;

	if (SY_ETH_LEN + (uint32_t)len + v->l4_len > UINT16_MAX || !l4_translate(frame, v, r))
		return NULL;
	struct sy_ipv6 *ip = (struct sy_ipv6 *)(frame + v->l4 - len);
	at = frame_head_move(frame, (uint8_t *)ip, false);
	*ip = (struct sy_ipv6){
	        .version_class_flow = htonl(IPV6_VERSION | (uint32_t)old.tos << 20),
	        .payload_length = htons(v->l4_len + extra),
	        .next_header = extra ? EXT_FRAGMENT : v->proto,
	        .hop_limit = old.ttl - 1,
	};
	memcpy(ip->src, r->src.b, sizeof(ip->src));
	memcpy(ip->dst, r->dst.b, sizeof(ip->dst));
	memcpy(ip + 1, &fragment, extra);
	view_translate(v, r);
	view_head_set(v, len);
	return at;
}

static uint8_t *translate_6to4(uint8_t *frame, struct sy_view *v, const struct sy_rewrite *r,
                               uint16_t id)
{
	const struct sy_ipv6 old = *(const struct sy_ipv6 *)(frame + v->l3);
	uint16_t behind = v->l3 + (uint16_t)sizeof(old);
	struct extensions e = extensions_skip(frame + behind, v->l4 - behind, old.next_header);
	uint16_t fragment = htons(IPV4_DF), total = (uint16_t)(sizeof(struct sy_ipv4) + v->l4_len);
	uint8_t *at;

	if (e.fragment != UINT16_MAX) {
		struct ipv6_fragment f;
		memcpy(&f, frame + behind + e.fragment, sizeof(f));
		/* The offsets include headers that the new packet would not have. */
		if (v->fragment != SY_FRAGMENT_NONE && e.fragment + sizeof(f) != e.len)
			return NULL;
		/* IPv4's largest datagram is shorter, as its length includes the header. */
		if (v->fragment_offset + (uint32_t)total > UINT16_MAX)
			return NULL;
		id = (uint16_t)(v->fragment != SY_FRAGMENT_NONE ? v->fragment_id : ntohl(f.id));
		fragment = htons(v->fragment_offset / 8 | (f.place & htons(1) ? IPV4_MORE : 0));
	} else if (total <= FRAGMENTED) {
		fragment = 0;
	}
	if (!l4_translate(frame, v, r))
		return NULL;
	struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + v->l4 - sizeof(*ip));
	at = frame_head_move(frame, (uint8_t *)ip, true);
	*ip = (struct sy_ipv4){
	        .version_ihl = 0x45,
	        .tos = (uint8_t)(ntohl(old.version_class_flow) >> 20),
	        .total_length = htons(total),
	        .id = htons(id),
	        .fragment = fragment,
	        .ttl = old.hop_limit - 1,
	        .proto = v->proto,
	        .src = r->src.w[3],
	        .dst = r->dst.w[3],
	};
	ipv4_checksum_set(ip);
	view_translate(v, r);
	v->fragment_id &= UINT16_MAX;
	view_head_set(v, sizeof(*ip));
	return at;
}

uint8_t *sy_packet_translate(uint8_t *frame, struct sy_view *v, const struct sy_rewrite *r,
                             uint16_t id)
{
	if (v->proto != SY_PROTO_TCP && v->proto != SY_PROTO_UDP)
		return NULL;
	return v->v4 ? translate_4to6(frame, v, r) : translate_6to4(frame, v, r, id);
}
