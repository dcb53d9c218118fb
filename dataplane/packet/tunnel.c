// SPDX-License-Identifier: Apache-2.0
/* Puts packets into IPIP tunnels. */
#include "icmp.h"
#include "move.h"

#define FLOW_LABEL_MASK 0xfffff
#define IPV6_MTU_MIN    1280

/* Must routers not fragment the outer packet? RFC 2003 3.1 for inner IPv4, RFC 4213 3.2.2 for inner
 * IPv6. */
static bool outer_df(const uint8_t *l3, const struct sy_view *v)
{
	if (v->v4)
		return ((const struct sy_ipv4 *)l3)->fragment & htons(IPV4_DF);
	return v->frame_len - v->l3 > IPV6_MTU_MIN;
}

static uint8_t inner_class(const uint8_t *l3, const struct sy_view *v)
{
	return v->v4 ? ((const struct sy_ipv4 *)l3)->tos
	             : (uint8_t)(ntohl(((const struct sy_ipv6 *)l3)->version_class_flow) >> 20);
}

uint8_t *sy_packet_encapsulate(uint8_t *frame, const struct sy_view *v, const struct sy_addr *src,
                               const struct sy_addr *dst, uint16_t id, uint32_t flow)
{
	uint8_t *l3 = frame + v->l3, *at;
	uint8_t proto = v->v4 ? SY_PROTO_IPV4 : SY_PROTO_IPV6;
	uint16_t overhead = sy_tunnel_overhead(dst), len = v->frame_len - v->l3;

	if ((uint32_t)v->frame_len + overhead > UINT16_MAX)
		return NULL;
	sy_packet_hop(frame, v);
	at = frame_head_move(frame, l3 - overhead, sy_addr_is_v4(dst));
	if (sy_addr_is_v4(dst)) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(l3 - overhead);
		*ip = (struct sy_ipv4){
		        .version_ihl = 0x45,
		        .tos = inner_class(l3, v),
		        .total_length = htons((uint16_t)(len + overhead)),
		        .id = htons(id),
		        .fragment = htons(outer_df(l3, v) ? IPV4_DF : 0),
		        .ttl = ICMP_TTL,
		        .proto = proto,
		        .src = src->w[3],
		        .dst = dst->w[3],
		};
		ipv4_checksum_set(ip);
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)(l3 - overhead);
		*ip = (struct sy_ipv6){
		        .version_class_flow =
		                htonl(IPV6_VERSION | (uint32_t)inner_class(l3, v) << 20 |
		                      (flow & FLOW_LABEL_MASK)),
		        .payload_length = htons(len),
		        .next_header = proto,
		        .hop_limit = ICMP_TTL,
		};
		memcpy(ip->src, src->b, sizeof(ip->src));
		memcpy(ip->dst, dst->b, sizeof(ip->dst));
	}
	return at;
}
