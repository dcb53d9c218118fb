// SPDX-License-Identifier: Apache-2.0
#include "reaction.h"

#include <arpa/inet.h>
#include <string.h>

#include "address_set.h"

/* Makes the segment with which a client or server would answer; false: none. */
static bool tcp_answer(struct fuzz_traffic *w, const struct sy_view *v, const struct sy_tcp *in,
                       struct segment *out, unsigned *payload)
{
	struct rng *d = &w->rng;
	uint32_t len = v->l4_len - (in->offset >> 4) * 4u;
	bool ends = in->flags & (SY_TCP_SYN | SY_TCP_FIN);
	*out = (struct segment){SY_TCP_ACK, ntohl(in->ack), ntohl(in->seq) + len + ends, 0};
	*payload = 0;
	if (in->flags & SY_TCP_RST || rng_percent(d, 8))
		return false;
	if ((in->flags & (SY_TCP_SYN | SY_TCP_ACK)) == SY_TCP_SYN) {
		out->flags = rng_percent(d, 95) ? SY_TCP_SYN | SY_TCP_ACK : SY_TCP_RST | SY_TCP_ACK;
		out->seq = rng_below(d, UINT32_MAX);
		out->mss = 1460;
		return true;
	}
	uint32_t choice = rng_below(d, 100);
	if (choice < 45) {
		out->flags |= SY_TCP_PSH;
		*payload = rng_below(d, 20) ? rng_below(d, 300) : 1380 + rng_below(d, 80);
	} else if (choice < (in->flags & SY_TCP_FIN ? 90u : 60u)) {
		out->flags |= SY_TCP_FIN;
	} else if (choice >= 98) {
		out->flags = SY_TCP_RST;
	}
	return true;
}

/* Returns whether this is the balancer's challenge ACK to an unvalidated client. */
static bool is_challenge(const struct sy_view *v, const struct sy_tcp *in, unsigned port)
{
	return port == HARNESS_WAN && in->flags == SY_TCP_ACK && in->window == UINT16_MAX &&
	       v->l4_len == sizeof(*in);
}

/* A challenged client sends a reset, mostly the right one, and repeats its SYN. */
static void react_to_challenge(struct fuzz_traffic *w, const struct sy_tuple *t, uint32_t number)
{
	struct rng *d = &w->rng;
	struct frame next = {.port = HARNESS_WAN};
	const struct segment proof = {SY_TCP_RST, number ^ rng_percent(d, 10), 0, 0};
	const struct segment syn = {SY_TCP_SYN, rng_below(d, UINT32_MAX), 0, 1460};
	frame_tcp(&next, d, t, &proof, 0);
	fuzz_traffic_send(w, &next);
	fuzz_traffic_remember(w, &next);
	frame_tcp(&next, d, t, &syn, 0);
	*fuzz_traffic_pend(w) = next;
}

/* A DR server's answer bypasses the balancer, which only receives the client's next packet. */
static void react_past_balancer(struct fuzz_traffic *w, const struct sy_view *v)
{
	static const uint8_t flags[] = {SY_TCP_ACK, SY_TCP_ACK | SY_TCP_PSH,
	                                SY_TCP_ACK, SY_TCP_ACK | SY_TCP_FIN,
	                                SY_TCP_RST, SY_TCP_SYN};
	struct rng *d = &w->rng;
	struct frame next = {.port = HARNESS_WAN};
	const struct segment s = {flags[rng_below(d, SY_ARRAY_LEN(flags))],
	                          rng_below(d, UINT32_MAX), 1, 0};
	if (v->proto == SY_PROTO_TCP)
		frame_tcp(&next, d, &v->tuple, &s, rng_below(d, 300));
	else
		frame_udp(&next, d, &v->tuple, rng_below(d, 300));
	*fuzz_traffic_pend(w) = next;
	fuzz_traffic_remember(w, &next);
}

/* A router reports an error about the packet. */
static void react_by_icmp_error(struct fuzz_traffic *w, unsigned port, const uint8_t *frame,
                                const struct sy_view *v)
{
	static const uint8_t type[][2][2] = {{{3, 1}, {1, 3}},
	                                     {{3, 3}, {1, 4}},
	                                     {{3, 4}, {2, 0}},
	                                     {{11, 0}, {3, 0}},
	                                     {{12, 0}, {4, 0}}};
	struct rng *d = &w->rng;
	struct frame error = {.port = (uint8_t)port};
	const struct sy_addr router = harness_addr(v->v4 ? "203.0.113.9" : "2001:db8:99::9");
	unsigned min = v->l4 - v->l3 + 8u, all = v->frame_len - v->l3;
	unsigned quoted = min + rng_below(d, all - min + 1);
	frame_error(&error, d, &router, type[rng_below(d, SY_ARRAY_LEN(type))][!v->v4],
	            rng_below(d, 2000), frame, quoted < 1200 ? quoted : 1200);
	*fuzz_traffic_pend(w) = error;
	fuzz_traffic_remember(w, &error);
}

/* Turns part of the payload into as many options as fit. */
static void fill_header(struct frame *f, unsigned l4)
{
	f->bytes[l4 + 12] = 15 << 4;
	memset(f->bytes + l4 + sizeof(struct sy_tcp), 1, 40);
	frame_fix_l4(f);
}

void react_to(struct fuzz_traffic *w, unsigned port, const uint8_t *frame, const struct sy_view *v)
{
	const struct sy_tuple back = {v->tuple.dst, v->tuple.src, v->tuple.dport, v->tuple.sport,
	                              v->tuple.proto};
	struct frame answer = {.port = (uint8_t)port};
	if ((v->proto == SY_PROTO_TCP || v->proto == SY_PROTO_UDP) && rng_percent(&w->rng, 4))
		react_by_icmp_error(w, port, frame, v);
	if (port == HARNESS_LAN &&
	    address_set_find(inspect_address_set(w->topology.harness.b), &v->tuple.dst) ==
	            ADDRESS_SET_VIP &&
	    (v->proto == SY_PROTO_TCP || v->proto == SY_PROTO_UDP)) {
		if (!rng_percent(&w->rng, 20))
			react_past_balancer(w, v);
		return; /* the server's answer bypasses the balancer */
	}
	if (v->proto == SY_PROTO_TCP) {
		struct segment s;
		unsigned payload;
		const struct sy_tcp *tcp = sy_packet_tcp(frame, v);
		if (is_challenge(v, tcp, port)) {
			react_to_challenge(w, &back, ntohl(tcp->ack));
			return;
		}
		if (!tcp_answer(w, v, tcp, &s, &payload))
			return;
		frame_tcp(&answer, &w->rng, &back, &s, payload);
		if (!s.mss && payload >= 40 && rng_percent(&w->rng, 10))
			fill_header(&answer, SY_ETH_LEN + (v->v4 ? 20 : 40));
	} else if (v->proto == SY_PROTO_UDP) {
		if (rng_percent(&w->rng, 10))
			return;
		frame_udp(&answer, &w->rng, &back, fuzz_traffic_payload(&w->rng, 300));
	} else {
		return;
	}
	if (rng_percent(&w->rng, 50))
		frame_let_fragment(&answer);
	*fuzz_traffic_pend(w) = answer;
	fuzz_traffic_remember(w, &answer);
}
