// SPDX-License-Identifier: Apache-2.0
/* Builds TCP resets and probes, which balance sends. */
#include "icmp.h"

/* Builds a segment without data, with window 0. */
static uint32_t control_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t, uint32_t seq,
                             uint32_t ack, uint8_t flags)
{
	bool v4 = sy_addr_is_v4(&t->dst);
	uint32_t ip_len = v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
	uint32_t len = SY_ETH_LEN + ip_len + (uint32_t)sizeof(struct sy_tcp);
	uint8_t *l3 = out + SY_ETH_LEN;
	struct sy_tcp *tcp = (struct sy_tcp *)(l3 + ip_len);

	if (cap < len)
		return 0;
	*(struct sy_eth *)out = (struct sy_eth){.type = htons(v4 ? SY_ETH_IPV4 : SY_ETH_IPV6)};
	if (v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)l3;
		*ip = (struct sy_ipv4){
		        .version_ihl = 0x45,
		        .total_length = htons(sizeof(*ip) + sizeof(*tcp)),
		        .fragment = htons(IPV4_DF),
		        .ttl = ICMP_TTL,
		        .proto = SY_PROTO_TCP,
		        .src = t->src.w[3],
		        .dst = t->dst.w[3],
		};
		ipv4_checksum_set(ip);
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)l3;
		*ip = (struct sy_ipv6){
		        .version_class_flow = htonl(IPV6_VERSION),
		        .payload_length = htons(sizeof(*tcp)),
		        .next_header = SY_PROTO_TCP,
		        .hop_limit = ICMP_TTL,
		};
		memcpy(ip->src, t->src.b, sizeof(ip->src));
		memcpy(ip->dst, t->dst.b, sizeof(ip->dst));
	}
	*tcp = (struct sy_tcp){
	        .sport = t->sport,
	        .dport = t->dport,
	        .seq = htonl(seq),
	        .ack = htonl(flags & SY_TCP_ACK ? ack : 0),
	        .offset = sizeof(*tcp) / 4 << 4,
	        .flags = flags,
	};
	tcp->checksum =
	        (uint16_t)~sy_csum_fold(pseudo_sum(&t->src, &t->dst, SY_PROTO_TCP, sizeof(*tcp)) +
	                                sy_csum_sum(tcp, sizeof(*tcp)));
	return len;
}

uint32_t sy_tcp_reset_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t, uint32_t seq,
                           uint32_t ack, bool with_ack)
{
	return control_make(out, cap, t, seq, ack, SY_TCP_RST | (with_ack ? SY_TCP_ACK : 0));
}

uint32_t sy_tcp_probe_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t, uint32_t seq,
                           uint32_t ack)
{
	return control_make(out, cap, t, seq, ack, SY_TCP_ACK);
}

uint32_t sy_tcp_reset_answer(uint8_t *out, uint32_t cap, const uint8_t *frame,
                             const struct sy_view *v)
{
	const struct sy_tcp *tcp = (const struct sy_tcp *)(frame + v->l4);
	const struct sy_tuple back = {.src = v->tuple.dst,
	                              .dst = v->tuple.src,
	                              .sport = v->tuple.dport,
	                              .dport = v->tuple.sport,
	                              .proto = SY_PROTO_TCP};
	uint32_t seq = 0, ack = 0, len;

	if (v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE ||
	    v->tcp_flags & SY_TCP_RST)
		return 0;
	if (v->tcp_flags & SY_TCP_ACK) {
		seq = ntohl(tcp->ack);
	} else { /* the sequence numbers of the segment, SYN and FIN included */
		ack = ntohl(tcp->seq) + v->l4_len - (tcp->offset >> 4) * 4u +
		      !!(v->tcp_flags & SY_TCP_SYN) + !!(v->tcp_flags & SY_TCP_FIN);
	}
	len = sy_tcp_reset_make(out, cap, &back, seq, ack, !(v->tcp_flags & SY_TCP_ACK));
	if (len > 0) {
		memcpy(out, frame + sizeof(((struct sy_eth *)0)->dst), 6);
		memcpy(out + 6, frame, 6);
	}
	return len;
}
