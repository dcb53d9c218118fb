// SPDX-License-Identifier: Apache-2.0
/* Rewrites packets in place that are not plain; sy_plain.h does it for plain ones. */
#include <arpa/inet.h>

#include "fragment.h"

static uint32_t addrs_sum(const struct sy_tuple *t)
{
	return sy_csum_addr(&t->src) + sy_csum_addr(&t->dst);
}

void sy_rewrite_prepare(const struct sy_tuple *from, const struct sy_tuple *to,
                        struct sy_rewrite *out)
{
	uint32_t old = addrs_sum(from), new = addrs_sum(to);

	out->src = to->src;
	out->dst = to->dst;
	out->sport = to->sport;
	out->dport = to->dport;
	out->l3_delta = sy_addr_is_v4(&to->src) ? sy_csum_delta(old, new) : 0;
	out->l4_delta = sy_csum_delta(old + from->sport + from->dport, new + to->sport + to->dport);
}

#define ECN_MASK 3u

void sy_packet_set_dscp(uint8_t *frame, uint8_t dscp)
{
	if (((const struct sy_eth *)frame)->type == htons(SY_ETH_IPV4)) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + SY_ETH_LEN);
		uint8_t tos = (uint8_t)(dscp << 2 | (ip->tos & ECN_MASK));
		/* The word is the first one's, whose other byte stays. */
		ip->checksum =
		        sy_csum_apply(ip->checksum, sy_csum_delta(htons(ip->tos), htons(tos)));
		ip->tos = tos;
		return;
	}
	struct sy_ipv6 *ip = (struct sy_ipv6 *)(frame + SY_ETH_LEN);
	ip->version_class_flow =
	        (ip->version_class_flow & ~htonl(0x3fu << 22)) | htonl((uint32_t)dscp << 22);
}

static void rewrite_ipv4(struct sy_ipv4 *ip, const struct sy_rewrite *r)
{
	/* TTL − 1 subtracts 0x0100 from its word: in ones' complement, add the complement. */
	uint16_t ttl_delta = (uint16_t)~htons(0x0100);

	ip->src = r->src.w[3];
	ip->dst = r->dst.w[3];
	ip->ttl--;
	ip->checksum = sy_csum_apply(ip->checksum, sy_csum_fold((uint64_t)r->l3_delta + ttl_delta));
}

static void rewrite_ipv6(struct sy_ipv6 *ip, const struct sy_rewrite *r)
{
	memcpy(ip->src, r->src.b, sizeof(ip->src));
	memcpy(ip->dst, r->dst.b, sizeof(ip->dst));
	ip->hop_limit--;
}

static void rewrite_l3(uint8_t *l3, const struct sy_view *v, const struct sy_rewrite *r)
{
	if (v->v4)
		rewrite_ipv4((struct sy_ipv4 *)l3, r);
	else
		rewrite_ipv6((struct sy_ipv6 *)l3, r);
}

void sy_packet_rewrite(uint8_t *frame, const struct sy_view *v, const struct sy_rewrite *r)
{
	uint8_t *l4 = frame + v->l4;

	rewrite_l3(frame + v->l3, v, r);
	if (SY_UNLIKELY(v->fragment != SY_FRAGMENT_NONE)) {
		if (!sy_addr_equal(&r->src, &v->tuple.src))
			fragment_renumber(frame, v);
		if (!sy_view_has_l4(v))
			return;
	}
	if (v->proto == SY_PROTO_TCP) {
		struct sy_tcp *tcp = (struct sy_tcp *)l4;
		tcp->sport = r->sport;
		tcp->dport = r->dport;
		tcp->checksum = sy_csum_apply(tcp->checksum, r->l4_delta);
	} else if (v->proto == SY_PROTO_UDP) {
		struct sy_udp *udp = (struct sy_udp *)l4;
		udp->sport = r->sport;
		udp->dport = r->dport;
		if (udp->checksum != 0) {
			uint16_t checksum = sy_csum_apply(udp->checksum, r->l4_delta);
			udp->checksum = checksum ? checksum : 0xffff;
		}
	}
}

void sy_packet_rewrite_echo(uint8_t *frame, const struct sy_view *v, const struct sy_rewrite *r)
{
	struct sy_icmp *icmp = (struct sy_icmp *)(frame + v->l4);
	const struct sy_tuple from = {
	        .src = v->tuple.src, .dst = v->tuple.dst, .sport = v->icmp_id};
	const struct sy_tuple to = {.src = r->src, .dst = r->dst, .sport = r->sport};
	struct sy_rewrite all;

	sy_rewrite_prepare(&from, &to, &all);
	rewrite_l3(frame + v->l3, v, &all);
	if (!sy_view_has_l4(v))
		return;
	memcpy(&icmp->rest, &r->sport, sizeof(r->sport));
	/* Only ICMPv6 has a pseudo header. */
	icmp->checksum = sy_csum_apply(icmp->checksum,
	                               v->v4 ? sy_csum_delta(from.sport, to.sport) : all.l4_delta);
	if (icmp->checksum == 0) /* a message of zeros only; see sy_packet_echo_reply() */
		icmp->checksum = 0xffff;
}

void sy_packet_hop(uint8_t *frame, const struct sy_view *v)
{
	struct sy_rewrite r = {.src = v->tuple.src, .dst = v->tuple.dst};

	rewrite_l3(frame + v->l3, v, &r);
}
