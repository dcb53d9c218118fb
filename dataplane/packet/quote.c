// SPDX-License-Identifier: Apache-2.0
/* Reads the packet that an ICMP error quotes, and translates errors in place. */
#include "quote.h"
#include "extension.h"
#include "icmp.h"

#define TCP_CSUM_END 18 /* bytes of TCP header up to its checksum */
#define L4_CHANGED   18 /* bytes of a quoted transport header that may change; later ones stay */
#define IPV4_MORE    0x2000
#define IPV4_OFFSET  0x1fff

/* The least MTU of a path, which every link has: RFC 791 3.2, RFC 8200 5. */
static uint16_t min_mtu(bool v4)
{
	return v4 ? 68 : 1280;
}

/* RFC 1191 7.1: the likely MTU if a router reports none. */
static uint16_t mtu_guess(uint16_t ip_len)
{
	static const uint16_t plateaus[] = {32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296};

	for (size_t i = 0; i < SY_ARRAY_LEN(plateaus); i++)
		if (plateaus[i] < ip_len)
			return plateaus[i];
	return 68;
}

static bool is_echo(const struct sy_quote *q, const uint8_t *l4)
{
	return q->v4 ? l4[0] == ICMP_ECHO || l4[0] == ICMP_ECHO_REPLY
	             : l4[0] == ICMPV6_ECHO || l4[0] == ICMPV6_ECHO_REPLY;
}

/* Reads the quoted transport header, up to `end`; family, protocol and offset are in *q. */
static enum sy_drop quoted_l4(const uint8_t *frame, uint32_t end, struct sy_quote *q)
{
	uint8_t icmp = q->v4 ? SY_PROTO_ICMP : SY_PROTO_ICMPV6;
	const uint8_t *l4 = frame + q->l4;

	if (end < q->l4 || end - q->l4 < QUOTE_MIN)
		return SY_DROP_TRUNCATED;
	q->l4_len = (uint16_t)(end - q->l4);
	q->tuple.proto = q->proto;
	switch (q->proto) {
	case SY_PROTO_TCP:
	case SY_PROTO_UDP:
		if (q->fragment == SY_FRAGMENT_LATER)
			return SY_DROP_NONE;
		memcpy(&q->tuple.sport, l4, sizeof(q->tuple.sport));
		memcpy(&q->tuple.dport, l4 + 2, sizeof(q->tuple.dport));
		return SY_DROP_NONE;
	case SY_PROTO_IPV4:
	case SY_PROTO_IPV6:
		return SY_DROP_NONE;
	default:
		if (q->proto != icmp)
			return SY_DROP_UNKNOWN_PROTOCOL;
		if (q->fragment != SY_FRAGMENT_LATER && is_echo(q, l4))
			memcpy(&q->tuple.sport, l4 + 4, sizeof(q->tuple.sport));
		return SY_DROP_NONE;
	}
}

static enum sy_fragment fragment_of(bool offset, bool more)
{
	if (offset)
		return SY_FRAGMENT_LATER;
	return more ? SY_FRAGMENT_FIRST : SY_FRAGMENT_NONE;
}

static enum sy_drop quoted_ipv4(const uint8_t *frame, uint32_t end, struct sy_quote *q)
{
	const struct sy_ipv4 *ip = (const struct sy_ipv4 *)(frame + q->l3);
	unsigned header_len, fragment;

	if (end - q->l3 < sizeof(*ip))
		return SY_DROP_TRUNCATED;
	header_len = (ip->version_ihl & 0xf) << 2;
	q->ip_len = ntohs(ip->total_length);
	if (ip->version_ihl >> 4 != 4 || header_len < sizeof(*ip) || q->ip_len < header_len)
		return SY_DROP_BAD_IP_HEADER;
	fragment = ntohs(ip->fragment);
	q->fragment = fragment_of(fragment & IPV4_OFFSET, fragment & IPV4_MORE);
	q->l4 = (uint16_t)(q->l3 + header_len);
	q->proto = ip->proto;
	q->tuple.src = sy_addr_v4(ip->src);
	q->tuple.dst = sy_addr_v4(ip->dst);
	/* Some quotes are padded (RFC 4884 5.1). */
	return quoted_l4(frame, end < q->l3 + (uint32_t)q->ip_len ? end : q->l3 + q->ip_len, q);
}

static enum sy_drop quoted_ipv6(const uint8_t *frame, uint32_t end, struct sy_quote *q)
{
	const struct sy_ipv6 *ip = (const struct sy_ipv6 *)(frame + q->l3);
	struct extensions e;
	uint32_t ip_len, packet_end;

	if (end - q->l3 < sizeof(*ip))
		return SY_DROP_TRUNCATED;
	ip_len = (uint32_t)(sizeof(*ip) + ntohs(ip->payload_length));
	memcpy(q->tuple.src.b, ip->src, sizeof(ip->src));
	memcpy(q->tuple.dst.b, ip->dst, sizeof(ip->dst));
	if (ntohl(ip->version_class_flow) >> 28 != 6 || ip_len > UINT16_MAX ||
	    sy_addr_is_v4(&q->tuple.src) || sy_addr_is_v4(&q->tuple.dst))
		return SY_DROP_BAD_IP_HEADER;
	q->ip_len = (uint16_t)ip_len;
	packet_end = end < q->l3 + ip_len ? end : q->l3 + ip_len;
	q->l4 = (uint16_t)(q->l3 + sizeof(*ip));
	e = extensions_skip(frame + q->l4, packet_end - q->l4, ip->next_header);
	if (e.fragment != UINT16_MAX) {
		const uint8_t *ext = frame + q->l4 + e.fragment;
		q->fragment = fragment_of(ext[2] | (ext[3] & 0xf8), ext[3] & 1);
	}
	q->l4 = (uint16_t)(q->l4 + e.len);
	q->proto = e.next;
	return quoted_l4(frame, packet_end, q);
}

static enum sy_drop quoted_ip(const uint8_t *frame, uint32_t end, struct sy_quote *q)
{
	return q->v4 ? quoted_ipv4(frame, end, q) : quoted_ipv6(frame, end, q);
}

/* False: not an error, or one that is not forwarded. */
static bool kind_find(const struct sy_icmp *icmp, bool v4, uint8_t *kind)
{
	if (v4) {
		switch (icmp->type) {
		case ICMP_UNREACHABLE:
			*kind = icmp->code == ICMP_CODE_FRAGMENTATION_NEEDED ? SY_QUOTE_TOO_BIG
			                                                     : SY_QUOTE_UNREACHABLE;
			return true;
		case ICMP_TIME_EXCEEDED:
			*kind = SY_QUOTE_TIME_EXCEEDED;
			return true;
		case ICMP_PARAMETER_PROBLEM:
			*kind = SY_QUOTE_PARAMETER_PROBLEM;
			return true;
		default:
			return false;
		}
	}
	switch (icmp->type) {
	case ICMPV6_UNREACHABLE:
		*kind = SY_QUOTE_UNREACHABLE;
		return true;
	case ICMPV6_TOO_BIG:
		*kind = SY_QUOTE_TOO_BIG;
		return true;
	case ICMPV6_TIME_EXCEEDED:
		*kind = SY_QUOTE_TIME_EXCEEDED;
		return true;
	case ICMPV6_PARAMETER_PROBLEM:
		*kind = SY_QUOTE_PARAMETER_PROBLEM;
		return true;
	default:
		return false;
	}
}

/* End of the quote. RFC 4884: if a length is given, the quote ends before the extensions. The
 * length is in ICMP's sixth byte in units of 4 bytes, in ICMPv6's fifth in units of 8. */
static uint32_t quote_end(const uint8_t *icmp, const struct sy_view *v, const struct sy_quote *q)
{
	uint32_t len = 0, begin = v->l4 + (uint32_t)sizeof(struct sy_icmp);

	if (v->v4)
		len = icmp[5] * 4u;
	else if (q->kind == SY_QUOTE_UNREACHABLE || q->kind == SY_QUOTE_TIME_EXCEEDED)
		len = icmp[4] * 8u;
	return len > 0 && begin + len < v->frame_len ? begin + len : v->frame_len;
}

enum sy_drop sy_packet_parse_quote(const uint8_t *frame, const struct sy_view *v,
                                   struct sy_quote *q)
{
	const struct sy_icmp *icmp = (const struct sy_icmp *)(frame + v->l4);
	enum sy_drop drop;

	memset(q, 0, sizeof(*q));
	if (v->proto != (v->v4 ? SY_PROTO_ICMP : SY_PROTO_ICMPV6) ||
	    v->fragment != SY_FRAGMENT_NONE || !kind_find(icmp, v->v4, &q->kind))
		return SY_DROP_ICMP_UNHANDLED;
	q->v4 = v->v4;
	q->l3 = (uint16_t)(v->l4 + sizeof(*icmp));
	drop = quoted_ip(frame, quote_end((const uint8_t *)icmp, v, q), q);
	if (drop == SY_DROP_NONE && q->kind == SY_QUOTE_TOO_BIG) {
		uint32_t mtu = ntohl(icmp->rest);
		if (v->v4)
			mtu &= UINT16_MAX;
		q->mtu = mtu < UINT16_MAX ? (uint16_t)mtu : UINT16_MAX;
		if (v->v4 && mtu == 0)
			q->mtu = mtu_guess(q->ip_len);
		/* RFC 8201 4: discard it. Receivers raise such IPv4 MTUs at best. */
		if (q->mtu < min_mtu(v->v4))
			return SY_DROP_BAD_PATH_MTU;
	}
	return drop;
}

enum sy_drop sy_packet_parse_tunnelled(const uint8_t *frame, const struct sy_quote *q,
                                       struct sy_quote *inner)
{
	uint16_t overhead = q->l4 - q->l3;
	enum sy_drop drop;

	*inner = (struct sy_quote){.kind = q->kind, .l3 = q->l4, .tunnelled = 1};
	if (q->proto != SY_PROTO_IPV4 && q->proto != SY_PROTO_IPV6)
		return SY_DROP_UNKNOWN_PROTOCOL;
	if (q->fragment == SY_FRAGMENT_LATER)
		return SY_DROP_TRUNCATED;
	inner->v4 = q->proto == SY_PROTO_IPV4;
	drop = quoted_ip(frame, q->l4 + (uint32_t)q->l4_len, inner);
	/* Packets of that size and below are fragmented in the tunnel. */
	inner->mtu = q->mtu > overhead ? q->mtu - overhead : 0;
	if (q->kind == SY_QUOTE_TOO_BIG && inner->mtu < min_mtu(inner->v4))
		inner->mtu = min_mtu(inner->v4);
	return drop;
}

/* ---- translation in place -------------------------------------------------------------------- */

void quote_rewrite_l4(uint8_t *l4, const struct sy_quote *q, const struct sy_rewrite *r)
{
	if (q->fragment == SY_FRAGMENT_LATER)
		return;
	if (q->proto == SY_PROTO_TCP) {
		struct sy_tcp *tcp = (struct sy_tcp *)l4;
		tcp->sport = r->sport;
		tcp->dport = r->dport;
		if (q->l4_len >= TCP_CSUM_END)
			tcp->checksum = sy_csum_apply(tcp->checksum, r->l4_delta);
	} else if (q->proto == SY_PROTO_UDP) {
		struct sy_udp *udp = (struct sy_udp *)l4;
		udp->sport = r->sport;
		udp->dport = r->dport;
		if (udp->checksum != 0) {
			uint16_t checksum = sy_csum_apply(udp->checksum, r->l4_delta);
			udp->checksum = checksum ? checksum : 0xffff;
		}
	} else if (q->proto == SY_PROTO_ICMP || q->proto == SY_PROTO_ICMPV6) {
		struct sy_icmp *icmp = (struct sy_icmp *)l4;
		uint16_t delta = q->v4 ? sy_csum_delta(q->tuple.sport, r->sport) : r->l4_delta;
		icmp->checksum = sy_csum_apply(icmp->checksum, delta);
		if (is_echo(q, l4))
			memcpy(&icmp->rest, &r->sport, sizeof(r->sport));
	}
}

void quote_rewrite_l3(uint8_t *l3, const struct sy_quote *q, const struct sy_rewrite *r)
{
	if (q->v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)l3;
		ip->src = r->src.w[3];
		ip->dst = r->dst.w[3];
		ip->checksum = sy_csum_apply(ip->checksum, r->l3_delta);
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)l3;
		memcpy(ip->src, r->src.b, sizeof(ip->src));
		memcpy(ip->dst, r->dst.b, sizeof(ip->dst));
	}
}

void sy_packet_shift_quote(uint8_t *frame, const struct sy_view *v, const struct sy_quote *q,
                           uint32_t by)
{
	struct sy_icmp *icmp = (struct sy_icmp *)(frame + v->l4);
	struct sy_tcp *tcp = (struct sy_tcp *)(frame + q->l4);
	uint32_t changing = q->l4_len < L4_CHANGED ? q->l4_len : L4_CHANGED;
	uint32_t seq = htonl(ntohl(tcp->seq) + by), old;
	uint16_t delta;

	if (q->proto != SY_PROTO_TCP || q->fragment == SY_FRAGMENT_LATER)
		return;
	old = sy_csum_fold(sy_csum_sum(tcp, changing));
	if (q->l4_len >= TCP_CSUM_END)
		tcp->checksum = sy_csum_apply(
		        tcp->checksum, sy_csum_delta((tcp->seq & UINT16_MAX) + (tcp->seq >> 16),
		                                     (seq & UINT16_MAX) + (seq >> 16)));
	tcp->seq = seq;
	delta = sy_csum_delta(old, sy_csum_fold(sy_csum_sum(tcp, changing)));
	icmp->checksum = sy_csum_apply(icmp->checksum, delta);
}

void sy_packet_translate_error(uint8_t *frame, const struct sy_view *v, const struct sy_quote *q,
                               const struct sy_rewrite *quoted, const struct sy_addr *src)
{
	struct sy_icmp *icmp = (struct sy_icmp *)(frame + v->l4);
	const struct sy_tuple to = {.src = *src, .dst = quoted->src};
	uint8_t *l3 = frame + q->l3;
	uint32_t changing = q->l4 - q->l3 + (q->l4_len < L4_CHANGED ? q->l4_len : L4_CHANGED);
	struct sy_rewrite outer;
	uint32_t old, new;

	old = sy_csum_fold(sy_csum_sum(l3, changing));
	quote_rewrite_l3(l3, q, quoted);
	quote_rewrite_l4(frame + q->l4, q, quoted);
	new = sy_csum_fold(sy_csum_sum(l3, changing));
	if (!v->v4) { /* ICMPv6's pseudo header */
		old += sy_csum_addr(&v->tuple.src) + sy_csum_addr(&v->tuple.dst);
		new += sy_csum_addr(&to.src) + sy_csum_addr(&to.dst);
	}
	icmp->checksum = sy_csum_apply(icmp->checksum, sy_csum_delta(old, new));
	sy_rewrite_prepare(&v->tuple, &to, &outer);
	sy_packet_rewrite(frame, v, &outer);
}
