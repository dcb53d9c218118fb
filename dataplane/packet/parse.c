// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <sy_packet.h>

/* Extension headers by number (IANA); the fragment header is told apart from the rest. */
enum {
	EXT_HOP_BY_HOP = 0,
	EXT_ROUTING = 43,
	EXT_FRAGMENT = 44,
	EXT_ESP = 50,
	EXT_AUTHENTICATION = 51,
	EXT_DESTINATION = 60,
	EXT_MOBILITY = 135,
	EXT_HIP = 139,
	EXT_SHIM6 = 140,
};

#define IPV4_MORE_OR_OFFSET 0x3fff /* "more fragments" and the offset, host order */

static enum sy_drop parse_tcp(const uint8_t *l4, struct sy_view *v)
{
	const struct sy_tcp *tcp = (const struct sy_tcp *)l4;
	unsigned header_len;

	if (SY_UNLIKELY(v->l4_len < sizeof(*tcp)))
		return SY_DROP_BAD_L4_HEADER;
	header_len = tcp->offset >> 4 << 2;
	if (SY_UNLIKELY(header_len < sizeof(*tcp) || header_len > v->l4_len))
		return SY_DROP_BAD_L4_HEADER;
	v->tuple.sport = tcp->sport;
	v->tuple.dport = tcp->dport;
	v->tcp_flags = tcp->flags;
	if (SY_UNLIKELY((tcp->flags & SY_TCP_SYN && tcp->flags & (SY_TCP_FIN | SY_TCP_RST)) ||
	                (tcp->flags & SY_TCP_CONTROL) == 0))
		return SY_DROP_BAD_TCP_FLAGS;
	return SY_DROP_NONE;
}

static enum sy_drop parse_udp(const uint8_t *l4, struct sy_view *v)
{
	const struct sy_udp *udp = (const struct sy_udp *)l4;

	if (SY_UNLIKELY(v->l4_len < sizeof(*udp) || ntohs(udp->length) < sizeof(*udp) ||
	                ntohs(udp->length) > v->l4_len))
		return SY_DROP_BAD_L4_HEADER;
	v->tuple.sport = udp->sport;
	v->tuple.dport = udp->dport;
	return SY_DROP_NONE;
}

static enum sy_drop parse_icmp(const uint8_t *l4, struct sy_view *v)
{
	const struct sy_icmp *icmp = (const struct sy_icmp *)l4;

	if (SY_UNLIKELY(v->l4_len < sizeof(*icmp)))
		return SY_DROP_BAD_L4_HEADER;
	v->icmp_type = icmp->type;
	v->icmp_code = icmp->code;
	return SY_DROP_NONE;
}

/* The rest, once the IP header has been read. icmp: this family's ICMP number. */
static enum sy_drop parse_l4(const uint8_t *frame, struct sy_view *v, uint8_t proto, uint8_t icmp)
{
	if (SY_UNLIKELY(sy_addr_is_bogus_source(&v->tuple.src)))
		return SY_DROP_BAD_SOURCE;
	if (SY_UNLIKELY(sy_addr_equal(&v->tuple.src, &v->tuple.dst)))
		return SY_DROP_LAND;
	v->proto = proto;
	v->tuple.proto = proto;
	if (SY_LIKELY(proto == SY_PROTO_TCP))
		return parse_tcp(frame + v->l4, v);
	if (SY_LIKELY(proto == SY_PROTO_UDP))
		return parse_udp(frame + v->l4, v);
	if (proto == icmp)
		return parse_icmp(frame + v->l4, v);
	return SY_DROP_UNKNOWN_PROTOCOL;
}

static uint16_t ipv4_header_sum(const struct sy_ipv4 *ip)
{
	uint32_t w[5];

	memcpy(w, ip, sizeof(w));
	return sy_csum_fold((uint64_t)w[0] + w[1] + w[2] + w[3] + w[4]);
}

/* len: from the IP header on. */
static enum sy_drop parse_ipv4(const uint8_t *frame, uint32_t len, struct sy_view *v)
{
	const struct sy_ipv4 *ip = (const struct sy_ipv4 *)(frame + SY_ETH_LEN);
	unsigned header_len, total_len;

	if (SY_UNLIKELY(len < sizeof(*ip)))
		return SY_DROP_TRUNCATED;
	header_len = (ip->version_ihl & 0xf) << 2;
	total_len = ntohs(ip->total_length);
	if (SY_UNLIKELY(ip->version_ihl >> 4 != 4 || header_len < sizeof(*ip) ||
	                total_len < header_len))
		return SY_DROP_BAD_IP_HEADER;
	if (SY_UNLIKELY(total_len > len))
		return SY_DROP_TRUNCATED;
	if (SY_UNLIKELY(header_len > sizeof(*ip)))
		return SY_DROP_IP_OPTIONS;
	if (SY_UNLIKELY(ipv4_header_sum(ip) != 0xffff))
		return SY_DROP_BAD_IP_CHECKSUM;
	v->v4 = 1;
	v->frame_len = (uint16_t)(SY_ETH_LEN + total_len);
	v->l4 = SY_ETH_LEN + sizeof(*ip);
	v->l4_len = (uint16_t)(total_len - sizeof(*ip));
	v->tuple.src = sy_addr_v4(ip->src);
	v->tuple.dst = sy_addr_v4(ip->dst);
	if (SY_UNLIKELY(ip->fragment & htons(IPV4_MORE_OR_OFFSET)))
		return SY_DROP_FRAGMENT;
	return parse_l4(frame, v, ip->proto, SY_PROTO_ICMP);
}

static bool is_extension_header(uint8_t number)
{
	switch (number) {
	case EXT_HOP_BY_HOP:
	case EXT_ROUTING:
	case EXT_ESP:
	case EXT_AUTHENTICATION:
	case EXT_DESTINATION:
	case EXT_MOBILITY:
	case EXT_HIP:
	case EXT_SHIM6:
		return true;
	default:
		return false;
	}
}

static enum sy_drop parse_ipv6(const uint8_t *frame, uint32_t len, struct sy_view *v)
{
	const struct sy_ipv6 *ip = (const struct sy_ipv6 *)(frame + SY_ETH_LEN);
	unsigned payload_len;
	enum sy_drop drop;

	if (SY_UNLIKELY(len < sizeof(*ip)))
		return SY_DROP_TRUNCATED;
	if (SY_UNLIKELY((ntohl(ip->version_class_flow) >> 28) != 6))
		return SY_DROP_BAD_IP_HEADER;
	payload_len = ntohs(ip->payload_length);
	if (SY_UNLIKELY(payload_len > len - sizeof(*ip)))
		return SY_DROP_TRUNCATED;
	v->frame_len = (uint16_t)(SY_ETH_LEN + sizeof(*ip) + payload_len);
	v->l4 = SY_ETH_LEN + sizeof(*ip);
	v->l4_len = (uint16_t)payload_len;
	memcpy(v->tuple.src.b, ip->src, sizeof(ip->src));
	memcpy(v->tuple.dst.b, ip->dst, sizeof(ip->dst));
	/* On the wire a mapped address is forged, and would pass for IPv4 from here on. */
	if (SY_UNLIKELY(sy_addr_is_v4(&v->tuple.src)))
		return SY_DROP_BAD_SOURCE;
	if (SY_UNLIKELY(sy_addr_is_v4(&v->tuple.dst)))
		return SY_DROP_BAD_IP_HEADER;
	if (SY_UNLIKELY(ip->next_header == EXT_FRAGMENT))
		return SY_DROP_FRAGMENT;
	drop = parse_l4(frame, v, ip->next_header, SY_PROTO_ICMPV6);
	if (SY_UNLIKELY(drop == SY_DROP_UNKNOWN_PROTOCOL && is_extension_header(ip->next_header)))
		return SY_DROP_EXTENSION_HEADER;
	return drop;
}

enum sy_drop sy_packet_parse(const uint8_t *frame, uint32_t len, struct sy_view *v)
{
	const struct sy_eth *eth = (const struct sy_eth *)frame;

	memset(v, 0, sizeof(*v));
	if (SY_UNLIKELY(len < SY_ETH_LEN))
		return SY_DROP_TRUNCATED;
	/* The view's lengths are 16 bits wide; what claims to be longer is cut, so truncated. */
	if (SY_UNLIKELY(len > UINT16_MAX))
		len = UINT16_MAX;
	v->l3 = SY_ETH_LEN;
	if (SY_LIKELY(eth->type == htons(SY_ETH_IPV4)))
		return parse_ipv4(frame, len - SY_ETH_LEN, v);
	if (SY_LIKELY(eth->type == htons(SY_ETH_IPV6)))
		return parse_ipv6(frame, len - SY_ETH_LEN, v);
	return SY_DROP_NOT_IP;
}
