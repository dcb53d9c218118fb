// SPDX-License-Identifier: Apache-2.0
/* Rebuilds ICMP errors: for packets in a tunnel, or in the other address family. */
#include "icmp.h"
#include "quote.h"

#define HEADERS_DIFFER 20 /* bytes by which the IPv6 header is longer */
#define IPV4_MORE      0x2000
#define IPV6_MTU_MIN   1280
#define POINTER_NONE   0xff

struct message {
	uint8_t type, code;
	uint32_t rest; /* host order */
	bool silent;   /* send no error */
};

static const struct message silence = {.silent = true};

/* The MTU for packets of the receiver's family (RFC 7915 4.2, 5.2). IPv6 senders get at least 1280:
 * they discard less (RFC 8201 4). An IPv6 quote has at least that: sy_packet_parse_quote(). */
static struct message too_big(const struct sy_quote *q, bool v4)
{
	/* An IPv6 fragment has an additional header of 8 bytes. */
	uint32_t longer = HEADERS_DIFFER + (q->fragment != SY_FRAGMENT_NONE ? 8 : 0);
	uint32_t mtu = q->mtu;

	if (v4 && !q->v4)
		mtu -= longer;
	else if (!v4 && q->v4)
		mtu = mtu + HEADERS_DIFFER > IPV6_MTU_MIN ? mtu + HEADERS_DIFFER : IPV6_MTU_MIN;
	return (struct message){.type = v4 ? ICMP_UNREACHABLE : ICMPV6_TOO_BIG,
	                        .code = v4 ? ICMP_CODE_FRAGMENTATION_NEEDED : 0,
	                        .rest = mtu};
}

/* The sender does not know the tunnel: report only that its packet was too big or did not arrive.
 * Parameter problems concern the tunnel header, which we made. */
static struct message message_tunnel(const struct sy_quote *q, bool v4)
{
	switch (q->kind) {
	case SY_QUOTE_TOO_BIG:
		return too_big(q, v4);
	case SY_QUOTE_UNREACHABLE:
	case SY_QUOTE_TIME_EXCEEDED:
		return (struct message){.type = v4 ? ICMP_UNREACHABLE : ICMPV6_UNREACHABLE,
		                        .code = v4 ? ICMP_CODE_HOST : ICMPV6_CODE_ADDRESS};
	default:
		return silence;
	}
}

/* RFC 7915 4.2, figure 3: the same field in an IPv6 header. */
static uint8_t pointer_4to6(uint8_t at)
{
	static const uint8_t map[20] = {0,
	                                1,
	                                4,
	                                4,
	                                POINTER_NONE,
	                                POINTER_NONE,
	                                POINTER_NONE,
	                                POINTER_NONE,
	                                7,
	                                6,
	                                POINTER_NONE,
	                                POINTER_NONE,
	                                8,
	                                8,
	                                8,
	                                8,
	                                24,
	                                24,
	                                24,
	                                24};
	return at < sizeof(map) ? map[at] : POINTER_NONE;
}

/* RFC 7915 5.2, figure 6: the same field in an IPv4 header. */
static uint8_t pointer_6to4(uint32_t at)
{
	static const uint8_t map[8] = {0, 1, POINTER_NONE, POINTER_NONE, 2, 2, 9, 8};
	if (at < sizeof(map))
		return map[at];
	return at < 24 ? 12 : at < 40 ? 16 : POINTER_NONE;
}

static struct message unreachable_4to6(uint8_t code)
{
	static const struct message no_route = {ICMPV6_UNREACHABLE, ICMPV6_CODE_NO_ROUTE, 0, false};
	static const struct message prohibited = {ICMPV6_UNREACHABLE, ICMPV6_CODE_PROHIBITED, 0,
	                                          false};
	switch (code) {
	case ICMP_CODE_PROTOCOL: /* "unrecognized next header", in the seventh byte */
		return (struct message){ICMPV6_PARAMETER_PROBLEM, 1, 6, false};
	case ICMP_CODE_PORT:
		return (struct message){ICMPV6_UNREACHABLE, ICMPV6_CODE_PORT, 0, false};
	case 0:
	case ICMP_CODE_HOST:
	case 5:
	case 6:
	case 7:
	case 8:
	case 11:
	case 12:
		return no_route;
	case 9:
	case 10:
	case ICMP_CODE_PROHIBITED:
	case 15:
		return prohibited;
	default:
		return silence;
	}
}

static struct message message_4to6(const struct sy_icmp *icmp, const struct sy_quote *q)
{
	switch (q->kind) {
	case SY_QUOTE_TOO_BIG:
		return too_big(q, false);
	case SY_QUOTE_UNREACHABLE:
		return unreachable_4to6(icmp->code);
	case SY_QUOTE_TIME_EXCEEDED:
		return (struct message){ICMPV6_TIME_EXCEEDED, icmp->code, 0, false};
	default: {
		uint8_t pointer = pointer_4to6((uint8_t)(ntohl(icmp->rest) >> 24));
		if ((icmp->code != 0 && icmp->code != 2) || pointer == POINTER_NONE)
			return silence;
		return (struct message){ICMPV6_PARAMETER_PROBLEM, 0, pointer, false};
	}
	}
}

static struct message message_6to4(const struct sy_icmp *icmp, const struct sy_quote *q)
{
	static const uint8_t unreachable[] = {ICMP_CODE_HOST, 10, ICMP_CODE_HOST, ICMP_CODE_HOST,
	                                      ICMP_CODE_PORT};
	uint8_t pointer;

	switch (q->kind) {
	case SY_QUOTE_TOO_BIG:
		return too_big(q, true);
	case SY_QUOTE_UNREACHABLE:
		if (icmp->code >= sizeof(unreachable))
			return silence;
		return (struct message){ICMP_UNREACHABLE, unreachable[icmp->code], 0, false};
	case SY_QUOTE_TIME_EXCEEDED:
		return (struct message){ICMP_TIME_EXCEEDED, icmp->code, 0, false};
	default:
		if (icmp->code == 1)
			return (struct message){ICMP_UNREACHABLE, ICMP_CODE_PROTOCOL, 0, false};
		pointer = pointer_6to4(ntohl(icmp->rest));
		if (icmp->code != 0 || pointer == POINTER_NONE)
			return silence;
		return (struct message){ICMP_PARAMETER_PROBLEM, 0, (uint32_t)pointer << 24, false};
	}
}

static struct message message_find(const uint8_t *frame, const struct sy_view *v,
                                   const struct sy_quote *q, bool v4)
{
	const struct sy_icmp *icmp = (const struct sy_icmp *)(frame + v->l4);

	if (q->tunnelled)
		return message_tunnel(q, v4);
	if (v4 != (q->v4 != 0))
		return v4 ? message_6to4(icmp, q) : message_4to6(icmp, q);
	if (q->kind == SY_QUOTE_TOO_BIG)
		return too_big(q, v4);
	struct message same = {.type = icmp->type, .code = icmp->code};
	/* For other kinds `rest` is unused, or is RFC 4884's length of data that is left out. */
	if (q->kind == SY_QUOTE_PARAMETER_PROBLEM)
		same.rest = ntohl(icmp->rest) & (v4 ? 0xff000000 : UINT32_MAX);
	return same;
}

/* The quoted packet's IP header in the family of r. Returns its length. */
static uint16_t quoted_head(uint8_t *out, const uint8_t *quoted, const struct sy_quote *q,
                            const struct sy_rewrite *r)
{
	uint16_t old_len = q->l4 - q->l3;
	bool v4 = sy_addr_is_v4(&r->src);

	if (v4 == (q->v4 != 0)) {
		memcpy(out, quoted, old_len);
		quote_rewrite_l3(out, q, r);
		return old_len;
	}
	if (v4) {
		const struct sy_ipv6 *from = (const struct sy_ipv6 *)quoted;
		struct sy_ipv4 *ip = (struct sy_ipv4 *)out;
		*ip = (struct sy_ipv4){
		        .version_ihl = 0x45,
		        .tos = (uint8_t)(ntohl(from->version_class_flow) >> 20),
		        .total_length = htons((uint16_t)(q->ip_len - old_len + sizeof(*ip))),
		        .fragment = htons(q->fragment == SY_FRAGMENT_NONE ? IPV4_DF : IPV4_MORE),
		        .ttl = from->hop_limit,
		        .proto = q->proto,
		        .src = r->src.w[3],
		        .dst = r->dst.w[3],
		};
		ipv4_checksum_set(ip);
		return sizeof(*ip);
	}
	const struct sy_ipv4 *from = (const struct sy_ipv4 *)quoted;
	struct sy_ipv6 *ip = (struct sy_ipv6 *)out;
	*ip = (struct sy_ipv6){
	        .version_class_flow = htonl(IPV6_VERSION | (uint32_t)from->tos << 20),
	        .payload_length = htons((uint16_t)(q->ip_len - old_len)),
	        .next_header = q->proto,
	        .hop_limit = from->ttl,
	};
	memcpy(ip->src, r->src.b, sizeof(ip->src));
	memcpy(ip->dst, r->dst.b, sizeof(ip->dst));
	return sizeof(*ip);
}

/* Errors that are not translated. An IPv4 sender must get those about a first fragment, because no
 * IPv6 router fragments it further. Later fragments have no ports, and IPv4 routers do not report
 * fragments as too big. */
static bool fragment_is_lost(const struct sy_quote *q, bool v4)
{
	return q->fragment != SY_FRAGMENT_NONE && (!v4 || q->fragment != SY_FRAGMENT_FIRST);
}

uint32_t sy_packet_rebuild_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                                 const struct sy_view *v, const struct sy_quote *q,
                                 const struct sy_tuple *quoted, const struct sy_addr *src)
{
	bool v4 = sy_addr_is_v4(&quoted->src), other = v4 != (q->v4 != 0);
	uint32_t ip_len = v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
	uint32_t max = v4 ? IPV4_ERROR_MAX : IPV6_ERROR_MAX, head, l4_len, frame_len;
	struct message m = message_find(frame, v, q, v4);
	struct sy_quote cut = *q; /* with the quoted length that fits */
	struct sy_icmp *icmp;
	struct sy_rewrite r;
	uint8_t *at;
	uint16_t len;

	if (m.silent || sy_addr_is_v4(src) != v4 ||
	    (other &&
	     (fragment_is_lost(q, v4) || (q->proto != SY_PROTO_TCP && q->proto != SY_PROTO_UDP))))
		return 0;
	head = other ? ip_len : (uint32_t)(q->l4 - q->l3);
	/* sy_packet_translate() never makes such a long packet. */
	if (other && q->ip_len - (uint32_t)(q->l4 - q->l3) + head > UINT16_MAX)
		return 0;
	if (ip_len + sizeof(*icmp) + head + QUOTE_MIN > max)
		return 0;
	l4_len = max - ip_len - (uint32_t)sizeof(*icmp) - head;
	if (l4_len > q->l4_len)
		l4_len = q->l4_len;
	len = (uint16_t)(sizeof(*icmp) + head + l4_len);
	frame_len = SY_ETH_LEN + ip_len + len;
	if (cap < frame_len)
		return 0;
	memcpy(out, frame, SY_ETH_LEN);
	icmp = (struct sy_icmp *)icmp_head_fill(out, src, &quoted->src, len);
	*icmp = (struct sy_icmp){.type = m.type, .code = m.code, .rest = htonl(m.rest)};
	sy_rewrite_prepare(&q->tuple, quoted, &r);
	at = (uint8_t *)(icmp + 1);
	at += quoted_head(at, frame + q->l3, q, &r);
	memcpy(at, frame + q->l4, l4_len);
	cut.l4_len = (uint16_t)l4_len;
	quote_rewrite_l4(at, &cut, &r);
	icmp_finish(icmp, src, &quoted->src, len);
	return frame_len;
}
