// SPDX-License-Identifier: Apache-2.0
/*
 * ICMP errors. Only those that quote a sequence number in flight are accepted (RFC 5927 4.1). A
 * path MTU applies at once; others are soft errors, reported if the connection times out (RFC
 * 1122 4.2.3.9). As on Linux, any of them ends a connection that is being opened (RFC 5461 4.1):
 * the program may have another address to try.
 */
#include <arpa/inet.h>
#include <errno.h>

#include "icmp_error.h"
#include "path_probe.h"
#include "stack.h"

/* Returns the errno for a "destination unreachable". */
static int error_of(const struct sy_view *v)
{
	static const uint16_t of4[16] = {ENETUNREACH,  EHOSTUNREACH, ENOPROTOOPT,  ECONNREFUSED,
	                                 EMSGSIZE,     EOPNOTSUPP,   ENETUNREACH,  EHOSTDOWN,
	                                 ENONET,       ENETUNREACH,  EHOSTUNREACH, ENETUNREACH,
	                                 EHOSTUNREACH, EHOSTUNREACH, EHOSTUNREACH, EHOSTUNREACH};
	static const uint16_t of6[8] = {ENETUNREACH,  EACCES, EHOSTUNREACH, EHOSTUNREACH,
	                                ECONNREFUSED, EACCES, EACCES,       EHOSTUNREACH};

	if (v->v4)
		return v->icmp_code < 16 ? of4[v->icmp_code] : EHOSTUNREACH;
	return v->icmp_code < 8 ? of6[v->icmp_code] : EHOSTUNREACH;
}

static void too_big(struct sy_stack *s, struct connection *c, const struct sy_quote *q)
{
	if (q->ip_len >
	    path_mtu_largest(&c->path_mtu)) { /* RFC 5927 7.2: larger than any packet sent */
		s->counters.icmp_ignored++;
		return;
	}
	s->counters.icmp_accepted++;
	if (!path_mtu_too_big(&c->path_mtu, q->ip_len, q->mtu, time_ms64(s)))
		return;
	path_probe_forget(c);
	connection_update_mss(c);
	s->counters.too_big++;
	/* RFC 1191 6.4: the oversized packets are lost, without congestion. */
	sent_timed_out(&flight_of(s, c)->sent, &s->sent, &c->rtt, c->mss, true, s->now_ns);
	connection_schedule(s, c);
}

/* RFC 5927 4.1. */
static bool is_under_way(const struct connection *c, uint32_t seq)
{
	return seq - c->snd_una < c->snd_nxt - c->snd_una;
}

static void error_report(struct sy_stack *s, struct connection *c, int error)
{
	if (c->state == SY_STACK_SYN_SENT) {
		connection_end(s, c, error);
		return;
	}
	c->error = (uint16_t)error;
	c->flags |= C_SOFT_ERROR;
}

void icmp_error_arrive(struct sy_stack *s, const uint8_t *frame, const struct sy_view *v)
{
	struct sy_quote q;
	struct connection *c = NULL;
	uint32_t seq;

	if (sy_packet_parse_quote(frame, v, &q) == SY_DROP_NONE && q.proto == SY_PROTO_TCP) {
		const struct sy_tuple from_peer = {q.tuple.dst, q.tuple.src, q.tuple.dport,
		                                   q.tuple.sport, SY_PROTO_TCP};
		c = connection_find(s, &from_peer);
		memcpy(&seq, frame + q.l4 + offsetof(struct sy_tcp, seq), sizeof(seq));
		seq = ntohl(seq);
	}
	if (!c || !is_under_way(c, seq)) {
		s->counters.icmp_ignored++;
		return;
	}
	if (q.kind == SY_QUOTE_TOO_BIG) {
		too_big(s, c, &q);
		return;
	}
	s->counters.icmp_accepted++;
	error_report(s, c,
	             q.kind == SY_QUOTE_UNREACHABLE         ? error_of(v)
	             : q.kind == SY_QUOTE_PARAMETER_PROBLEM ? EPROTO
	                                                    : EHOSTUNREACH);
}

void sy_stack_unreachable(struct sy_stack *s, const struct rte_mbuf *packet, uint64_t now_ns)
{
	const uint8_t *frame = rte_pktmbuf_mtod(packet, const uint8_t *);
	struct sy_view v;
	struct connection *c;
	uint32_t seq;

	stack_time(s, now_ns);
	if (sy_packet_parse(frame, packet->data_len, &v) != SY_DROP_NONE)
		return;
	memcpy(&seq, frame + v.l4 + offsetof(struct sy_tcp, seq), sizeof(seq));
	const struct sy_tuple from_peer = {v.tuple.dst, v.tuple.src, v.tuple.dport, v.tuple.sport,
	                                   SY_PROTO_TCP};
	c = connection_find(s, &from_peer);
	if (c && is_under_way(c, ntohl(seq)))
		error_report(s, c, EHOSTUNREACH);
}
