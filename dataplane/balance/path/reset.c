// SPDX-License-Identifier: Apache-2.0
/* Resets and probes sent to one end in the name of the other
 * (docs/design/0011-tcp-lifecycle.md). */
#include <arpa/inet.h>

#include <sy_tcp_segment.h>

#include "forward.h"
#include "originated.h"
#include "reset.h"

bool segment_is_allowed(struct sy_worker *w, enum originated_class class, const struct sy_addr *to)
{
	if (originated_charge(w, class, to))
		return true;
	SY_COUNT(w->counters.drop[SY_DROP_RESET_RATE], 1);
	return false;
}

static bool challenge_is_allowed(struct sy_worker *w)
{
	return segment_is_allowed(w, ORIGINATED_CHALLENGE, NULL);
}

static const struct session_cold *session_cold_of(const struct sy_balance *b,
                                                  const struct session *s)
{
	return session_cold_beside(b->table[sy_slot_of(&s->client, s->client_port)], s);
}

static uint64_t session_hash(const struct sy_balance *b, const struct session *s)
{
	const struct sy_tuple t =
	        session_client_tuple(s, session_cold_of(b, s), &b->endpoint[s->server]);
	return sy_hash_tuple(&b->key, &t);
}

/* The tuple of a segment from one end to the other. A one-way server gets the client's own
 * packets. */
static struct sy_tuple segment_tuple(const struct sy_balance *b, const struct session *s,
                                     enum session_direction to)
{
	const struct endpoint *e = &b->endpoint[s->server];
	const struct session_cold *cold = session_cold_of(b, s);
	struct sy_tuple t = session_client_tuple(s, cold, e);
	if (to == SESSION_SERVER && endpoint_is_one_way(e))
		return t;
	if (to == SESSION_SERVER)
		t = session_server_tuple(b, s, cold, e);
	return (struct sy_tuple){t.dst, t.src, t.dport, t.sport, t.proto};
}

/* Sends a probe or reset to one side in the name of the other. */
static void segment_send(struct sy_worker *w, struct session *s, enum session_direction to,
                         bool reset, uint32_t seq, uint32_t ack)
{
	struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	const struct sy_tuple t = segment_tuple(b, s, to);
	uint32_t flow = (uint32_t)(session_hash(b, s) >> 32);
	uint16_t path = forward_path(w, s, !to);
	struct rte_mbuf *m = originated_alloc(w);
	struct sy_view v;
	if (!m)
		return;
	uint32_t space = rte_pktmbuf_tailroom(m);
	uint32_t len = reset ? sy_tcp_reset_make(sy_frame(m), space, &t, seq, ack, false)
	                     : sy_tcp_probe_make(sy_frame(m), space, &t, seq, ack);
	rte_pktmbuf_append(m, (uint16_t)len);
	if (to == SESSION_SERVER && e->mode == MODE_IPIP &&
	    (sy_packet_parse(sy_frame(m), len, &v) != SY_DROP_NONE ||
	     !forward_tunnel(w, m, &v, s, e, flow))) {
		sy_packet_drop(w, m, SY_DROP_NO_BUFFER);
		return;
	}
	sy_transmit_path(w, m, path, to == SESSION_SERVER && e->mode == MODE_DR ? &e->addr : NULL,
	                 flow);
}

/* Peers see numbers derived from this secret: it must not reveal the tables' hash key. */
static uint64_t probe_secret(const struct sy_balance *b, const struct session *s)
{
	return sy_hash_mix(session_hash(b, s) ^ b->key.k[5], b->key.k[2]);
}

void probe_send(struct sy_worker *w, struct session *s, enum session_direction to)
{
	/* Almost always outside the window, and different next time. */
	uint32_t seq = (uint32_t)sy_hash_mix(w->tsc ^ 0x9e3779b97f4a7c15, probe_secret(w->app, s));
	segment_send(w, s, to, false, seq, reset_secret(w->app, s));
}

void reset_server(struct sy_worker *w, struct session *s, uint32_t seq)
{
	segment_send(w, s, SESSION_SERVER, true, seq, 0);
}

void reset_client(struct sy_worker *w, struct session *s, uint32_t seq)
{
	segment_send(w, s, SESSION_CLIENT, true, seq, 0);
}

void reset_refused(struct sy_worker *w, const struct rte_mbuf *in, const struct sy_tuple *t,
                   uint32_t seq)
{
	struct rte_mbuf *out =
	        segment_is_allowed(w, ORIGINATED_RESET, &t->dst) ? originated_alloc(w) : NULL;
	if (!out)
		return;
	uint8_t *frame = sy_frame(out);
	uint32_t len = sy_tcp_reset_make(frame, rte_pktmbuf_tailroom(out), t, seq, 0, false);
	memcpy(frame, rte_pktmbuf_mtod(in, const uint8_t *) + 6, 6);
	originated_send(w, out, len, in->port);
}

uint32_t reset_secret(const struct sy_balance *b, const struct session *s)
{
	return (uint32_t)(probe_secret(b, s) >> 32);
}

void reset_time_wait(struct sy_worker *w, struct session *s, const struct session_cold *cold)
{
	const struct sy_balance *b = w->app;
	const uint8_t mode = b->endpoint[s->server].mode;
	/* In the other modes the tuple is the client's own, which no other client uses. */
	if (s->state != SESSION_TIME_WAIT || !(s->flags & SESSION_SERVER_FIRST) ||
	    (mode != MODE_FNAT && mode != MODE_SNAT))
		return;
	/* Without a timestamp: such a reset is accepted (RFC 7323 5.2). */
	reset_server(w, s, cold->fin_seq[SESSION_CLIENT] + session_shift(s, cold));
}

void challenge_send(struct sy_worker *w, struct session *s, enum session_direction from)
{
	if (!challenge_is_allowed(w))
		return;
	s->state = from == SESSION_CLIENT ? SESSION_RESET_BY_CLIENT : SESSION_RESET_BY_SERVER;
	probe_send(w, s, from);
}

void challenge_repeat(struct sy_worker *w, struct session *s)
{
	if (challenge_is_allowed(w))
		probe_send(w, s, session_challenged_side(s));
}

bool reset_answer(struct sy_worker *w, const struct sy_burst *burst, unsigned i)
{
	struct rte_mbuf *in = burst->mbuf[i], *out = originated_alloc(w);
	return out && originated_send(w, out,
	                              sy_tcp_reset_answer(sy_frame(out), rte_pktmbuf_tailroom(out),
	                                                  sy_frame(in), &burst->view[i]),
	                              in->port);
}

void reset_unknown(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	const struct sy_view *v = &burst->view[i];
	if (v->proto == SY_PROTO_TCP && !(v->tcp_flags & SY_TCP_RST) &&
	    sy_packet_check_l4(sy_frame(burst->mbuf[i]), v) == SY_CSUM_OK &&
	    segment_is_allowed(w, ORIGINATED_RESET, &v->tuple.src))
		reset_answer(w, burst, i);
}
