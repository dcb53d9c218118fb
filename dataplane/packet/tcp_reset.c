// SPDX-License-Identifier: Apache-2.0
/* Builds TCP resets, probes and SYNs for the balancer. */
#include <sy_tcp_segment.h>

#include "icmp.h"

/* Builds a segment without data, with window 0. */
static uint32_t control_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t, uint32_t seq,
                             uint32_t ack, uint8_t flags)
{
	const struct sy_tcp_segment s = {.seq = seq, .ack = ack, .flags = flags};

	if (cap >= SY_ETH_LEN)
		*(struct sy_eth *)out = (struct sy_eth){.type = 0};
	return sy_tcp_segment_make(out, cap, t, &s);
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

uint32_t sy_tcp_syn_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t,
                         const struct sy_tcp_segment *s)
{
	if (cap >= SY_ETH_LEN)
		*(struct sy_eth *)out = (struct sy_eth){.type = 0};
	return sy_tcp_segment_make(out, cap, t, s);
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
