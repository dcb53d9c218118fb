// SPDX-License-Identifier: Apache-2.0
/* Builds ICMP errors and echo replies for the balancer. */
#include "icmp.h"

#define TOS_CONTROL 0xc0 /* "internetwork control", which RFC 1812 4.3.2.5 requires for errors */

static void eth_swap(struct sy_eth *eth)
{
	struct sy_eth old = *eth;

	memcpy(eth->dst, old.src, sizeof(eth->dst));
	memcpy(eth->src, old.dst, sizeof(eth->src));
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
		ip->ttl = ICMP_TTL;
		ipv4_checksum_set(ip);
		icmp->type = ICMP_ECHO_REPLY;
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)(frame + v->l3);
		memcpy(ip->src, v->tuple.dst.b, sizeof(ip->src));
		memcpy(ip->dst, v->tuple.src.b, sizeof(ip->dst));
		ip->hop_limit = ICMP_TTL;
		icmp->type = ICMPV6_ECHO_REPLY;
	}
	memcpy(&new, icmp, sizeof(new));
	icmp->checksum = sy_csum_apply(icmp->checksum, sy_csum_delta(old, new));
	/* A reply of zeros only sums to +0, for which eqn. 3 gives the checksum of -0. 0xffff is
	 * valid in both cases. */
	if (icmp->checksum == 0)
		icmp->checksum = 0xffff;
}

/* RFC 1812 4.3.2.7, RFC 4443 2.4(e). They also forbid errors to sources that are not a single host;
 * the parser drops such packets. */
static bool error_allowed(const struct sy_eth *eth, const struct sy_view *v)
{
	const struct sy_addr *dst = &v->tuple.dst;

	if (!sy_view_has_l4(v))
		return false;
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

uint8_t *icmp_head_fill(uint8_t *frame, const struct sy_addr *src, const struct sy_addr *dst,
                        uint16_t len)
{
	struct sy_eth *eth = (struct sy_eth *)frame;

	if (sy_addr_is_v4(dst)) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(eth + 1);
		eth->type = htons(SY_ETH_IPV4);
		/* An atomic datagram (RFC 6864) may have any id. */
		*ip = (struct sy_ipv4){
		        .version_ihl = 0x45,
		        .tos = TOS_CONTROL,
		        .total_length = htons((uint16_t)(sizeof(*ip) + len)),
		        .fragment = htons(IPV4_DF),
		        .ttl = ICMP_TTL,
		        .proto = SY_PROTO_ICMP,
		        .src = src->w[3],
		        .dst = dst->w[3],
		};
		ipv4_checksum_set(ip);
		return (uint8_t *)(ip + 1);
	}
	struct sy_ipv6 *ip = (struct sy_ipv6 *)(eth + 1);
	eth->type = htons(SY_ETH_IPV6);
	*ip = (struct sy_ipv6){
	        .version_class_flow = htonl(IPV6_VERSION),
	        .payload_length = htons(len),
	        .next_header = SY_PROTO_ICMPV6,
	        .hop_limit = ICMP_TTL,
	};
	memcpy(ip->src, src->b, sizeof(ip->src));
	memcpy(ip->dst, dst->b, sizeof(ip->dst));
	return (uint8_t *)(ip + 1);
}

void icmp_finish(struct sy_icmp *icmp, const struct sy_addr *src, const struct sy_addr *dst,
                 uint16_t len)
{
	uint64_t sum = sy_addr_is_v4(dst) ? 0 : sy_pseudo_sum(src, dst, SY_PROTO_ICMPV6, len);

	icmp->checksum = 0;
	icmp->checksum = (uint16_t)~sy_csum_fold(sum + sy_csum_sum(icmp, len));
}

/* By kind: ICMP type and code, ICMPv6 type and code. */
static const uint8_t error_numbers[][4] = {
        [SY_ICMP_TOO_BIG] = {ICMP_UNREACHABLE, ICMP_CODE_FRAGMENTATION_NEEDED, ICMPV6_TOO_BIG, 0},
        [SY_ICMP_TTL_EXPIRED] = {ICMP_TIME_EXCEEDED, 0, ICMPV6_TIME_EXCEEDED, 0},
        [SY_ICMP_PORT_UNREACHABLE] = {ICMP_UNREACHABLE, ICMP_CODE_PORT, ICMPV6_UNREACHABLE,
                                      ICMPV6_CODE_PORT},
        [SY_ICMP_HOST_UNREACHABLE] = {ICMP_UNREACHABLE, ICMP_CODE_HOST, ICMPV6_UNREACHABLE,
                                      ICMPV6_CODE_ADDRESS},
        [SY_ICMP_PROHIBITED] = {ICMP_UNREACHABLE, ICMP_CODE_PROHIBITED, ICMPV6_UNREACHABLE,
                                ICMPV6_CODE_PROHIBITED},
};

uint32_t sy_packet_icmp_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                              const struct sy_view *v, enum sy_icmp_error kind,
                              const struct sy_addr *source, uint16_t mtu)
{
	uint32_t ip_len = v->v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
	uint32_t quote_max =
	        (v->v4 ? IPV4_ERROR_MAX : IPV6_ERROR_MAX) - ip_len - sizeof(struct sy_icmp);
	uint32_t quote = v->frame_len - v->l3;
	const uint8_t *numbers = error_numbers[kind] + (v->v4 ? 0 : 2);
	struct sy_icmp *icmp;
	uint16_t len;

	if (quote > quote_max)
		quote = quote_max;
	len = (uint16_t)(sizeof(*icmp) + quote);
	if (cap < SY_ETH_LEN + ip_len + len || sy_addr_is_v4(source) != (v->v4 != 0) ||
	    !error_allowed((const struct sy_eth *)frame, v))
		return 0;
	memcpy(out, frame, SY_ETH_LEN);
	eth_swap((struct sy_eth *)out);
	icmp = (struct sy_icmp *)icmp_head_fill(out, source, &v->tuple.src, len);
	*icmp = (struct sy_icmp){.type = numbers[0], .code = numbers[1]};
	if (kind == SY_ICMP_TOO_BIG)
		icmp->rest = htonl(mtu);
	memcpy(icmp + 1, frame + v->l3, quote);
	icmp_finish(icmp, source, &v->tuple.src, len);
	return SY_ETH_LEN + ip_len + len;
}
