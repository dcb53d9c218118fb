// SPDX-License-Identifier: Apache-2.0
/* sy_packet_parse(): checks a frame that is not plain (sy_plain.h) and fills its view, for
 * classify. */
#include <arpa/inet.h>

#include "extension.h"

/* IPv4 options (RFC 791 3.1). */
enum { OPTION_END = 0, OPTION_NOP = 1, OPTION_LSRR = 131, OPTION_SSRR = 137 };

/* The path of plain packets is inlined into one function; unusual packets leave it by calls. */
#define HOT  inline __attribute__((always_inline))
#define COLD __attribute__((noinline, cold))

#define IPV4_MORE      0x2000 /* of the fragment field, host order */
#define IPV4_OFFSET    0x1fff
#define VLANS_MAX      2
#define DATAGRAM_MAX   65535
#define TCP_FLAGS_UNIT 8 /* the fragment offset that is inside a TCP header */

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

	if (SY_UNLIKELY(v->l4_len < sizeof(*udp) || ntohs(udp->length) < sizeof(*udp)))
		return SY_DROP_BAD_L4_HEADER;
	/* A first fragment has only the start of the datagram. */
	if (SY_UNLIKELY(ntohs(udp->length) > v->l4_len && v->fragment == SY_FRAGMENT_NONE))
		return SY_DROP_BAD_L4_HEADER;
	v->tuple.sport = udp->sport;
	v->tuple.dport = udp->dport;
	return SY_DROP_NONE;
}

static bool icmp_is_echo(bool v4, uint8_t type)
{
	return v4 ? type == 8 || type == 0 : type == 128 || type == 129;
}

static enum sy_drop parse_icmp(const uint8_t *l4, struct sy_view *v)
{
	const struct sy_icmp *icmp = (const struct sy_icmp *)l4;

	if (SY_UNLIKELY(v->l4_len < sizeof(*icmp)))
		return SY_DROP_BAD_L4_HEADER;
	v->icmp_type = icmp->type;
	v->icmp_code = icmp->code;
	if (icmp_is_echo(v->v4, icmp->type))
		memcpy(&v->icmp_id, &icmp->rest, sizeof(v->icmp_id));
	return SY_DROP_NONE;
}

/* Parses the transport header after the IP header was read. icmp: this family's ICMP number. */
static HOT enum sy_drop parse_l4(const uint8_t *frame, struct sy_view *v, uint8_t proto,
                                 uint8_t icmp)
{
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

/* ---- fragments ------------------------------------------------------------------------------- */

/* offset in bytes. v->l4 and l4_len describe the fragment's part of the datagram. */
static COLD enum sy_drop fragment_note(struct sy_view *v, uint32_t id, unsigned offset, bool more)
{
	unsigned header_len = v->v4 ? v->l4 - v->l3 : 0;

	v->fragment_id = id;
	v->fragment_offset = (uint16_t)offset;
	if (offset == 0)
		v->fragment = SY_FRAGMENT_FIRST;
	else
		v->fragment = more ? SY_FRAGMENT_LATER : SY_FRAGMENT_LAST;
	if (v->l4_len == 0 || (more && v->l4_len % 8 != 0) ||
	    offset + v->l4_len + header_len > DATAGRAM_MAX)
		return SY_DROP_BAD_FRAGMENT;
	return SY_DROP_NONE;
}

/* Does the first fragment lack a part of the transport header? RFC 1858 asks filters to drop such
 * fragments, RFC 7112 forbids IPv6 senders to make them. */
static bool fragment_is_tiny(const uint8_t *l4, const struct sy_view *v, uint8_t proto)
{
	if (proto != SY_PROTO_TCP)
		return v->l4_len < sizeof(struct sy_udp);
	return v->l4_len < sizeof(struct sy_tcp) ||
	       v->l4_len < ((const struct sy_tcp *)l4)->offset >> 4 << 2;
}

static COLD enum sy_drop parse_fragment(const uint8_t *frame, struct sy_view *v, uint8_t proto,
                                        uint8_t icmp)
{
	if (v->fragment == SY_FRAGMENT_FIRST)
		return fragment_is_tiny(frame + v->l4, v, proto) ? SY_DROP_TINY_FRAGMENT
		                                                 : parse_l4(frame, v, proto, icmp);
	v->proto = proto;
	v->tuple.proto = proto;
	/* Its bytes would replace the flags of the first fragment (RFC 3128). */
	if (proto == SY_PROTO_TCP && v->fragment_offset <= TCP_FLAGS_UNIT)
		return SY_DROP_TINY_FRAGMENT;
	if (proto != SY_PROTO_TCP && proto != SY_PROTO_UDP && proto != icmp &&
	    (v->v4 || proto != EXT_DESTINATION))
		return SY_DROP_UNKNOWN_PROTOCOL;
	return SY_DROP_NONE;
}

/* ---- IPv4 ------------------------------------------------------------------------------------ */

static uint16_t ipv4_header_sum(const struct sy_ipv4 *ip)
{
	uint32_t w[5];

	memcpy(w, ip, sizeof(w));
	return sy_csum_fold((uint64_t)w[0] + w[1] + w[2] + w[3] + w[4]);
}

/* Continues after length and checksum were found right. */
static HOT enum sy_drop ipv4_read(const uint8_t *frame, struct sy_view *v, unsigned header_len,
                                  unsigned total_len)
{
	const struct sy_ipv4 *ip = (const struct sy_ipv4 *)(frame + v->l3);
	unsigned fragment;
	enum sy_drop drop;

	v->v4 = 1;
	v->frame_len = (uint16_t)(v->l3 + total_len);
	v->l4 = (uint16_t)(v->l3 + header_len);
	v->l4_len = (uint16_t)(total_len - header_len);
	v->tuple.src = sy_addr_v4(ip->src);
	v->tuple.dst = sy_addr_v4(ip->dst);
	/* Reads the header, because the store to the view's copy may not have completed. */
	if (SY_UNLIKELY(sy_ipv4_is_bogus_source(ip->src)))
		return SY_DROP_BAD_SOURCE;
	if (SY_UNLIKELY(ip->src == ip->dst))
		return SY_DROP_LAND;
	if (SY_LIKELY(!(ip->fragment & htons(IPV4_MORE | IPV4_OFFSET))))
		return parse_l4(frame, v, ip->proto, SY_PROTO_ICMP);
	fragment = ntohs(ip->fragment);
	drop = fragment_note(v, ntohs(ip->id), (fragment & IPV4_OFFSET) * 8, fragment & IPV4_MORE);
	return drop != SY_DROP_NONE ? drop : parse_fragment(frame, v, ip->proto, SY_PROTO_ICMP);
}

static COLD enum sy_drop parse_options(const uint8_t *frame, struct sy_view *v, unsigned header_len,
                                       unsigned total_len)
{
	const uint8_t *header = frame + v->l3;
	unsigned at, len;

	if (sy_csum_fold(sy_csum_sum(header, header_len)) != 0xffff)
		return SY_DROP_BAD_IP_CHECKSUM;
	for (at = sizeof(struct sy_ipv4); at < header_len && header[at] != OPTION_END; at += len) {
		len = 1;
		if (header[at] == OPTION_NOP)
			continue;
		if (at + 1 == header_len)
			return SY_DROP_IP_OPTIONS;
		len = header[at + 1];
		if (len < 2 || len > header_len - at)
			return SY_DROP_IP_OPTIONS;
		if (header[at] == OPTION_LSRR || header[at] == OPTION_SSRR)
			return SY_DROP_SOURCE_ROUTE;
	}
	return ipv4_read(frame, v, header_len, total_len);
}

/* l3: offset of the IP header, as in v->l3; len: bytes from there on. */
static HOT enum sy_drop parse_ipv4(const uint8_t *frame, uint32_t l3, uint32_t len,
                                   struct sy_view *v)
{
	const struct sy_ipv4 *ip = (const struct sy_ipv4 *)(frame + l3);
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
		return parse_options(frame, v, header_len, total_len);
	if (SY_UNLIKELY(ipv4_header_sum(ip) != 0xffff))
		return SY_DROP_BAD_IP_CHECKSUM;
	return ipv4_read(frame, v, sizeof(*ip), total_len);
}

/* ---- IPv6 ------------------------------------------------------------------------------------ */

/* Parses from v->l4 on; next: type of the header there. */
static COLD enum sy_drop parse_extensions(const uint8_t *frame, struct sy_view *v, uint8_t next)
{
	bool fragmented = false;

	for (unsigned n = 0; n < EXT_MAX; n++) {
		const uint8_t *ext = frame + v->l4;
		unsigned len = EXT_UNIT, field;
		enum sy_drop drop;

		switch (next) {
		case EXT_HOP_BY_HOP:
			if (n != 0) /* RFC 8200 4.1: before all others */
				return SY_DROP_EXTENSION_HEADER;
			break;
		case EXT_DESTINATION:
		case EXT_ROUTING:
			break;
		case EXT_FRAGMENT:
			if (fragmented)
				return SY_DROP_EXTENSION_HEADER;
			break;
		case EXT_ESP:
		case EXT_AUTHENTICATION:
			return SY_DROP_UNKNOWN_PROTOCOL;
		case EXT_MOBILITY:
		case EXT_HIP:
		case EXT_SHIM6:
			return SY_DROP_EXTENSION_HEADER;
		default:
			return v->fragment == SY_FRAGMENT_NONE
			               ? parse_l4(frame, v, next, SY_PROTO_ICMPV6)
			               : parse_fragment(frame, v, next, SY_PROTO_ICMPV6);
		}
		if (v->l4_len >= EXT_UNIT && next != EXT_FRAGMENT)
			len = (ext[1] + 1u) * EXT_UNIT;
		if (len > v->l4_len)
			return v->fragment == SY_FRAGMENT_FIRST ? SY_DROP_TINY_FRAGMENT
			                                        : SY_DROP_EXTENSION_HEADER;
		/* With segments left, the pseudo header has another destination. */
		if (next == EXT_ROUTING && (ext[2] == 0 || ext[3] != 0))
			return SY_DROP_ROUTING_HEADER;
		v->l4 = (uint16_t)(v->l4 + len);
		v->l4_len = (uint16_t)(v->l4_len - len);
		if (next == EXT_FRAGMENT) {
			uint32_t id;
			fragmented = true;
			field = (unsigned)ext[2] << 8 | ext[3];
			memcpy(&id, ext + 4, sizeof(id));
			/* Offset 0 and no "more": not a fragment despite the header (RFC 6946). */
			if (field & (0xfff8 | 1)) {
				drop = fragment_note(v, ntohl(id), field & 0xfff8, field & 1);
				if (drop != SY_DROP_NONE)
					return drop;
				if (v->fragment != SY_FRAGMENT_FIRST)
					return parse_fragment(frame, v, ext[0], SY_PROTO_ICMPV6);
			}
		}
		next = ext[0];
	}
	return SY_DROP_EXTENSION_HEADER;
}

static bool is_extension_header(uint8_t number)
{
	switch (number) {
	case EXT_HOP_BY_HOP:
	case EXT_ROUTING:
	case EXT_FRAGMENT:
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

static HOT enum sy_drop parse_ipv6(const uint8_t *frame, uint32_t l3, uint32_t len,
                                   struct sy_view *v)
{
	const struct sy_ipv6 *ip = (const struct sy_ipv6 *)(frame + l3);
	unsigned payload_len;
	enum sy_drop drop;

	if (SY_UNLIKELY(len < sizeof(*ip)))
		return SY_DROP_TRUNCATED;
	if (SY_UNLIKELY((ntohl(ip->version_class_flow) >> 28) != 6))
		return SY_DROP_BAD_IP_HEADER;
	payload_len = ntohs(ip->payload_length);
	if (SY_UNLIKELY(payload_len > len - sizeof(*ip)))
		return SY_DROP_TRUNCATED;
	v->frame_len = (uint16_t)(l3 + sizeof(*ip) + payload_len);
	v->l4 = (uint16_t)(l3 + sizeof(*ip));
	v->l4_len = (uint16_t)payload_len;
	memcpy(v->tuple.src.b, ip->src, sizeof(ip->src));
	memcpy(v->tuple.dst.b, ip->dst, sizeof(ip->dst));
	/* A mapped address on the wire is forged, and later code would take it for IPv4. */
	if (SY_UNLIKELY(sy_addr_is_v4(&v->tuple.src) || sy_addr_is_bogus_source(&v->tuple.src)))
		return SY_DROP_BAD_SOURCE;
	if (SY_UNLIKELY(sy_addr_is_v4(&v->tuple.dst)))
		return SY_DROP_BAD_IP_HEADER;
	if (SY_UNLIKELY(sy_addr_equal(&v->tuple.src, &v->tuple.dst)))
		return SY_DROP_LAND;
	drop = parse_l4(frame, v, ip->next_header, SY_PROTO_ICMPV6);
	if (SY_UNLIKELY(drop == SY_DROP_UNKNOWN_PROTOCOL && is_extension_header(ip->next_header)))
		return parse_extensions(frame, v, ip->next_header);
	return drop;
}

/* ---- Ethernet -------------------------------------------------------------------------------- */

static bool is_tag(uint16_t type)
{
	return type == htons(SY_ETH_VLAN) || type == htons(SY_ETH_QINQ);
}

static COLD enum sy_drop parse_tagged(const uint8_t *frame, uint32_t len, struct sy_view *v)
{
	uint16_t type;

	for (;;) {
		if (len < v->l3)
			return SY_DROP_TRUNCATED;
		memcpy(&type, frame + v->l3 - sizeof(type), sizeof(type));
		if (!is_tag(type))
			break;
		if (v->vlans == VLANS_MAX)
			return SY_DROP_VLAN;
		v->vlans++;
		v->l3 += SY_VLAN_LEN;
	}
	if (type == htons(SY_ETH_IPV4))
		return parse_ipv4(frame, v->l3, len - v->l3, v);
	if (type == htons(SY_ETH_IPV6))
		return parse_ipv6(frame, v->l3, len - v->l3, v);
	return SY_DROP_NOT_IP;
}

enum sy_drop sy_packet_parse(const uint8_t *frame, uint32_t len, struct sy_view *v)
{
	const struct sy_eth *eth = (const struct sy_eth *)frame;

	memset(v, 0, sizeof(*v));
	if (SY_UNLIKELY(len < SY_ETH_LEN))
		return SY_DROP_TRUNCATED;
	/* The view's lengths have 16 bits: the rest of a longer frame is ignored. */
	if (SY_UNLIKELY(len > UINT16_MAX))
		len = UINT16_MAX;
	v->l3 = SY_ETH_LEN;
	if (SY_LIKELY(eth->type == htons(SY_ETH_IPV4)))
		return parse_ipv4(frame, SY_ETH_LEN, len - SY_ETH_LEN, v);
	if (SY_LIKELY(eth->type == htons(SY_ETH_IPV6)))
		return parse_ipv6(frame, SY_ETH_LEN, len - SY_ETH_LEN, v);
	return is_tag(eth->type) ? parse_tagged(frame, len, v) : SY_DROP_NOT_IP;
}
