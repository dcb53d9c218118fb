// SPDX-License-Identifier: Apache-2.0
#include "pseudo.h"

#define TTL_DEFAULT    64   /* RFC 1700's default */
#define TOS_CONTROL    0xc0 /* "internetwork control", asked of errors by RFC 1812 4.3.2.5 */
#define IPV4_DF        0x4000
#define IPV4_ERROR_MAX 576  /* RFC 1812 4.3.2.3: bytes of IP packet */
#define IPV6_ERROR_MAX 1280 /* RFC 4443 2.4(c) */
#define IPV6_VERSION   0x60000000

enum {
	ICMP_ECHO_REPLY = 0,
	ICMP_UNREACHABLE = 3,
	ICMP_SOURCE_QUENCH = 4,
	ICMP_REDIRECT = 5,
	ICMP_TIME_EXCEEDED = 11,
	ICMP_PARAMETER_PROBLEM = 12,
	ICMP_CODE_FRAGMENTATION_NEEDED = 4,
};

enum {
	ICMPV6_TOO_BIG = 2,
	ICMPV6_TIME_EXCEEDED = 3,
	ICMPV6_ERROR_LAST = 127,
	ICMPV6_ECHO_REPLY = 129,
	ICMPV6_REDIRECT = 137,
};

static void eth_swap(struct sy_eth *eth)
{
	struct sy_eth old = *eth;

	memcpy(eth->dst, old.src, sizeof(eth->dst));
	memcpy(eth->src, old.dst, sizeof(eth->src));
}

static void ipv4_checksum_set(struct sy_ipv4 *ip)
{
	ip->checksum = 0;
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip)));
}

void sy_packet_echo_reply(uint8_t *frame, const struct sy_view *v)
{
	struct sy_icmp *icmp = (struct sy_icmp *)(frame + v->l4);
	uint16_t old, new;

	eth_swap((struct sy_eth *)frame);
	memcpy(&old, icmp, sizeof(old));
	if (v->v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + v->l3);
		uint32_t src = ip->src;
		ip->src = ip->dst;
		ip->dst = src;
		ip->ttl = TTL_DEFAULT;
		ipv4_checksum_set(ip);
		icmp->type = ICMP_ECHO_REPLY;
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)(frame + v->l3);
		memcpy(ip->src, v->tuple.dst.b, sizeof(ip->src));
		memcpy(ip->dst, v->tuple.src.b, sizeof(ip->dst));
		ip->hop_limit = TTL_DEFAULT;
		icmp->type = ICMPV6_ECHO_REPLY;
	}
	memcpy(&new, icmp, sizeof(new));
	icmp->checksum = sy_csum_apply(icmp->checksum, sy_csum_delta(old, new));
	/* A reply of nothing but zeros sums to +0, for which eqn. 3 gives the checksum of -0;
	 * 0xffff verifies in both cases. */
	if (icmp->checksum == 0)
		icmp->checksum = 0xffff;
}

/* RFC 1812 4.3.2.7, RFC 4443 2.4(e). What else these forbid, sources that name no single host and
 * later fragments, does not get past the parser. */
static bool error_allowed(const struct sy_eth *eth, const struct sy_view *v)
{
	const struct sy_addr *dst = &v->tuple.dst;

	if (eth->dst[0] & 1) /* link-layer multicast or broadcast */
		return false;
	if (v->v4) {
		if (dst->b[12] >> 4 == 14 || dst->w[3] == UINT32_MAX)
			return false;
		if (v->proto != SY_PROTO_ICMP)
			return true;
		switch (v->icmp_type) {
		case ICMP_UNREACHABLE:
		case ICMP_SOURCE_QUENCH:
		case ICMP_REDIRECT:
		case ICMP_TIME_EXCEEDED:
		case ICMP_PARAMETER_PROBLEM:
			return false;
		default:
			return true;
		}
	}
	if (dst->b[0] == 0xff)
		return false;
	return v->proto != SY_PROTO_ICMPV6 ||
	       (v->icmp_type > ICMPV6_ERROR_LAST && v->icmp_type != ICMPV6_REDIRECT);
}

/* len: ICMP header and quotation. */
static void error_ip_fill(uint8_t *l3, const struct sy_view *v, const struct sy_addr *source,
                          uint16_t len)
{
	if (v->v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)l3;
		/* An atomic datagram (RFC 6864): its id may be anything. */
		*ip = (struct sy_ipv4){
		        .version_ihl = 0x45,
		        .tos = TOS_CONTROL,
		        .total_length = htons((uint16_t)(sizeof(*ip) + len)),
		        .fragment = htons(IPV4_DF),
		        .ttl = TTL_DEFAULT,
		        .proto = SY_PROTO_ICMP,
		        .src = source->w[3],
		        .dst = v->tuple.src.w[3],
		};
		ipv4_checksum_set(ip);
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)l3;
		*ip = (struct sy_ipv6){
		        .version_class_flow = htonl(IPV6_VERSION),
		        .payload_length = htons(len),
		        .next_header = SY_PROTO_ICMPV6,
		        .hop_limit = TTL_DEFAULT,
		};
		memcpy(ip->src, source->b, sizeof(ip->src));
		memcpy(ip->dst, v->tuple.src.b, sizeof(ip->dst));
	}
}

static struct sy_icmp error_icmp(bool v4, enum sy_icmp_error kind, uint16_t mtu)
{
	struct sy_icmp icmp = {0};

	if (kind == SY_ICMP_TOO_BIG) {
		icmp.type = v4 ? ICMP_UNREACHABLE : ICMPV6_TOO_BIG;
		icmp.code = v4 ? ICMP_CODE_FRAGMENTATION_NEEDED : 0;
		icmp.rest = htonl(mtu);
	} else {
		icmp.type = v4 ? ICMP_TIME_EXCEEDED : ICMPV6_TIME_EXCEEDED;
	}
	return icmp;
}

uint32_t sy_packet_icmp_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                              const struct sy_view *v, enum sy_icmp_error kind,
                              const struct sy_addr *source, uint16_t mtu)
{
	uint32_t ip_len = v->v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
	uint32_t quote_max =
	        (v->v4 ? IPV4_ERROR_MAX : IPV6_ERROR_MAX) - ip_len - sizeof(struct sy_icmp);
	uint32_t quote = v->frame_len - v->l3;
	uint32_t l4 = SY_ETH_LEN + ip_len;
	struct sy_icmp *icmp = (struct sy_icmp *)(out + l4);
	uint64_t sum = 0;
	uint16_t len;

	if (quote > quote_max)
		quote = quote_max;
	len = (uint16_t)(sizeof(*icmp) + quote);
	if (cap < l4 + len || sy_addr_is_v4(source) != (v->v4 != 0) ||
	    !error_allowed((const struct sy_eth *)frame, v))
		return 0;
	memcpy(out, frame, SY_ETH_LEN);
	eth_swap((struct sy_eth *)out);
	error_ip_fill(out + SY_ETH_LEN, v, source, len);
	*icmp = error_icmp(v->v4, kind, mtu);
	memcpy(icmp + 1, frame + v->l3, quote);
	if (!v->v4)
		sum = pseudo_sum(source, &v->tuple.src, SY_PROTO_ICMPV6, len);
	icmp->checksum = (uint16_t)~sy_csum_fold(sum + sy_csum_sum(icmp, len));
	return l4 + len;
}
