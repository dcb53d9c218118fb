// SPDX-License-Identifier: Apache-2.0
/*
 * Spliced connections (docs/design/0025-syn-defence.md).
 *
 *     client's numbering     k │ …      k: our cookie, s: the number of the server's SYN
 *     server's numbering     s │ …      the client's own bytes have the same numbers at both ends
 *
 * In SESSION_OPENING the server has the client's SYN. Its SYN-ACK is overwritten by the client's
 * ACK, which passes through the pipeline like any packet of the client; then the queued data
 * follows. Afterwards packets are only converted: splice_convert().
 */
#include "splice_path.h"

#include <arpa/inet.h>

#include "forward.h"
#include "opening_queue.h"
#include "originated.h"
#include "reset.h"
#include "service_drop.h"
#include "tcp_state.h"

void splice_open(struct sy_worker *w, struct sy_burst *burst, unsigned i, uint32_t record,
                 struct splice_opening *opening)
{
	const struct sy_balance *b = w->app;
	struct session *s = session_at(b->table[burst->slot[i]], record);
	s->state = SESSION_OPENING;
	s->flags |= SESSION_SHIFTED;
	if (opening->data)
		opening_queue_add(w, burst->slot[i], record, b->endpoint[s->server].service,
		                  opening->data);
}

void splice_end(struct session_table *t, uint32_t record, const struct endpoint *e)
{
	struct session *s = session_at(t, record);
	struct session_splice *splice = session_splice_of(t, record, e);
	if (!splice)
		return;
	/* in this order: see adopt.c */
	if (!session_is_by_proxy(session_cold_at(t, record)))
		s->flags &= (uint8_t)~SESSION_SHIFTED;
	__atomic_signal_fence(__ATOMIC_RELEASE);
	splice->spliced = SPLICE_IDLE;
}

void splice_convert(struct sy_burst *burst, unsigned i, const struct session *s,
                    const struct session_splice *splice)
{
	const struct sy_view *v = &burst->view[i];
	uint8_t *frame = sy_frame(burst->mbuf[i]);
	uint32_t number = splice_offset(s, splice);
	bool times = splice_begin_of(s)->options & SPLICE_TIMESTAMPS;

	if (burst->direction[i] == SESSION_CLIENT) {
		sy_tcp_shift_ack(frame, v, -number);
		sy_tcp_scale_window(frame, v, splice->to_server);
		if (times)
			sy_tcp_shift_time(frame, v, 0, -splice->time);
	} else {
		sy_tcp_shift_seq(frame, v, -number);
		sy_tcp_scale_window(frame, v, splice->to_client);
		if (times)
			sy_tcp_shift_time(frame, v, splice->time, 0);
	}
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool drop(struct sy_worker *w, struct sy_burst *burst, unsigned i, enum sy_drop reason)
{
	const struct sy_balance *b = w->app;
	session_packet_drop(w, burst, i, session_at(b->table[burst->slot[i]], burst->session[i]),
	                    reason);
	return false;
}

static bool end_by_reset(struct sy_worker *w, const struct sy_burst *burst, unsigned i,
                         struct session *s)
{
	s->state = SESSION_RESET;
	opening_queue_drop(w, burst->slot[i], burst->session[i]);
	return true;
}

/* Verifies the checksum of segments whose fields apply to the whole connection. */
static bool is_sound(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	return sy_packet_check_l4(sy_frame(burst->mbuf[i]), &burst->view[i]) != SY_CSUM_BAD ||
	       drop(w, burst, i, SY_DROP_BAD_L4_CHECKSUM);
}

static bool client_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          struct session *s)
{
	const struct sy_balance *b = w->app;
	const struct splice_begin *begin = splice_begin_of(s);
	const struct sy_view *v = &burst->view[i];
	const struct sy_tcp *tcp = sy_packet_tcp(sy_frame(burst->mbuf[i]), v);
	uint32_t seq = ntohl(tcp->seq);
	uint8_t flags = v->tcp_flags;

	if (flags & SY_TCP_SYN) {
		if (flags & SY_TCP_ACK || seq != begin->number)
			return drop(w, burst, i, SY_DROP_BAD_TCP_STATE);
		if (!is_sound(w, burst, i))
			return false;
		/* Accept our own SYN; replace the client's, which has options that the cookie did
		 * not carry. */
		return splice_syn_write_over(burst, i, begin) || drop(w, burst, i, SY_DROP_OPENING);
	}
	if (flags & SY_TCP_RST) {
		if (seq != begin->number + 1)
			return drop(w, burst, i, SY_DROP_BAD_TCP_STATE);
		return is_sound(w, burst, i) && end_by_reset(w, burst, i, s);
	}
	/* The server has sent nothing yet, so only one acknowledgement is valid. */
	if (!(flags & SY_TCP_ACK) || ntohl(tcp->ack) != begin->cookie + 1)
		return drop(w, burst, i, SY_DROP_BAD_TCP_STATE);
	if (v->l4_len == (tcp->offset >> 4) * 4u && !(flags & SY_TCP_FIN))
		return drop(w, burst, i, SY_DROP_OPENING);
	if (!is_sound(w, burst, i))
		return false;
	burst->next[i] = SY_NEXT_PENDING;
	opening_queue_add(w, burst->slot[i], burst->session[i], b->endpoint[s->server].service,
	                  burst->mbuf[i]);
	return false;
}

/* The shift from windows of one scale to windows of the other. */
static int8_t scale_shift(uint8_t from, uint8_t to)
{
	return (int8_t)((from == SY_TCP_NO_SCALE ? 0 : from) - (to == SY_TCP_NO_SCALE ? 0 : to));
}

/* Overwrites the server's SYN-ACK, packet i, by the client's ACK, and resubmits it to the
 * pipeline. */
static void ack_send(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                     const struct session *s, const struct session_splice *splice,
                     const struct sy_tcp_options *server)
{
	const struct sy_balance *b = w->app;
	const struct splice_begin *begin = splice_begin_of(s);
	const struct session_cold *cold =
	        session_cold_at(b->table[burst->slot[i]], burst->session[i]);
	const struct sy_tuple t = session_client_tuple(s, cold, &b->endpoint[s->server]);
	const struct sy_tcp_segment ack = {
	        .seq = begin->number + 1,
	        .ack = begin->cookie + 1,
	        .flags = SY_TCP_ACK,
	        .window = begin->window,
	        .options = {.timestamps = begin->options & SPLICE_TIMESTAMPS,
	                    .time = begin->time,
	                    .echo = server->time + splice->time},
	};
	struct rte_mbuf *m = burst->mbuf[i];
	if (!splice_syn_write(m, &t, &ack)) {
		session_packet_drop(w, burst, i, s, SY_DROP_OPENING);
		return;
	}
	burst->next[i] = SY_NEXT_PENDING;
	originated_mark(b, m);
	opening_queue_resubmit(w, b->endpoint[s->server].service, m);
}

/* The server refused timestamps, which the client was offered: packets without them would confuse
 * the client (RFC 7323 3.2). Later connections are not offered them. */
static bool refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s)
{
	const struct splice_begin *begin = splice_begin_of(s);
	reset_client(w, s, begin->cookie + 1);
	reset_server(w, s, begin->number + 1);
	end_by_reset(w, burst, i, s);
	return drop(w, burst, i, SY_DROP_OPENING);
}

static void learn(struct sy_worker *w, const struct session *s, uint8_t offered, uint8_t accepted)
{
	const struct sy_balance *b = w->app;
	uint32_t service = b->endpoint[s->server].service;
	if (service != SERVICE_NONE)
		load_learn(&balance_worker_of(w)->load[service], offered, accepted,
		           balance_seconds(w));
}

/* The server's SYN-ACK, packet i. */
static bool server_answers(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                           struct session *s, struct session_splice *splice)
{
	const struct splice_begin *begin = splice_begin_of(s);
	const uint8_t *frame = sy_frame(burst->mbuf[i]);
	const struct sy_view *v = &burst->view[i];
	uint8_t client = begin->scales & 15, announced = begin->scales >> 4;
	struct sy_tcp_options o;

	sy_tcp_options_read(frame, v, &o);
	learn(w, s,
	      (uint8_t)((begin->options & SPLICE_SACK ? REFUSED_SACK : 0) |
	                (begin->options & SPLICE_TIMESTAMPS ? REFUSED_TIMESTAMPS : 0)),
	      (uint8_t)((o.sack ? REFUSED_SACK : 0) | (o.timestamps ? REFUSED_TIMESTAMPS : 0)));
	if (begin->options & SPLICE_TIMESTAMPS && !o.timestamps)
		return refuse(w, burst, i, s);
	splice->time = splice->echo - o.time;
	splice->to_client = scale_shift(o.scale, announced);
	splice->to_server = o.scale == SY_TCP_NO_SCALE ? scale_shift(client, SY_TCP_NO_SCALE) : 0;
	splice_establish(splice, ntohl(sy_packet_tcp(frame, v)->seq));
	__atomic_signal_fence(__ATOMIC_RELEASE);
	s->state = SESSION_ESTABLISHED;
	ack_send(w, burst, i, s, splice, &o);
	opening_queue_release(w, burst->slot[i], burst->session[i]);
	return false;
}

static bool server_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          struct session *s, struct session_splice *splice)
{
	const struct splice_begin *begin = splice_begin_of(s);
	struct sy_balance *b = w->app;
	uint8_t *frame = sy_frame(burst->mbuf[i]);
	const struct sy_view *v = &burst->view[i];
	const struct sy_tcp *tcp = sy_packet_tcp(frame, v);
	bool ours = v->tcp_flags & SY_TCP_ACK && ntohl(tcp->ack) == begin->number + 1;

	/* The segment is answered, or its number, timestamp and scale are stored. */
	if (!is_sound(w, burst, i))
		return false;
	if (sy_packet_is_unfinished(frame, v))
		return drop(w, burst, i, SY_DROP_UNFINISHED_CHECKSUM);
	switch (v->tcp_flags & (SY_TCP_SYN | SY_TCP_RST | SY_TCP_ACK)) {
	case SY_TCP_SYN | SY_TCP_ACK:
		if (ours)
			return server_answers(w, burst, i, s, splice);
		break;
	case SY_TCP_RST | SY_TCP_ACK:
		if (!ours)
			return drop(w, burst, i, SY_DROP_BAD_TCP_STATE);
		sy_tcp_shift_seq(frame, v, begin->cookie + 1 - ntohl(tcp->seq));
		return end_by_reset(w, burst, i, s);
	case SY_TCP_ACK:
		break;
	default:
		return drop(w, burst, i, SY_DROP_BAD_TCP_STATE);
	}
	/* The server remembers an earlier connection of this tuple. Answer as the client would;
	 * then the SYN succeeds (RFC 9293 3.10.7.3). */
	reset_answer(w, burst, i);
	splice_syn_retransmit(w, b->table[burst->slot[i]], burst->session[i]);
	return drop(w, burst, i, SY_DROP_OPENING);
}

bool splice_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	uint32_t record = burst->session[i];
	struct session *s = session_at(t, record);
	struct session_splice *splice = session_splice_of(t, record, &b->endpoint[s->server]);

	if (burst->view[i].fragment != SY_FRAGMENT_NONE || !splice)
		return drop(w, burst, i, SY_DROP_OPENING);
	return burst->direction[i] == SESSION_CLIENT ? client_packet(w, burst, i, s)
	                                             : server_packet(w, burst, i, s, splice);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

/* A server's SYN-ACK, packet i. */
static bool syn_ack(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                    struct session_splice *splice)
{
	const struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	struct session *s = session_at(t, burst->session[i]);
	const uint8_t *frame = sy_frame(burst->mbuf[i]);
	struct sy_tcp_options o;

	uint32_t ack = ntohl(sy_packet_tcp(frame, &burst->view[i])->ack);
	if (ack != splice_begin_of(s)->number + 1) {
		if (splice->spliced != SPLICE_SYN_SEEN ||
		    (ack & SPLICE_SYN_MASK) != splice->syn_number)
			return drop(w, burst, i, SY_DROP_BAD_TCP_STATE);
		splice_end(t, burst->session[i], &b->endpoint[s->server]);
		tcp_state_restart(s);
		return true;
	}
	sy_tcp_options_read(frame, &burst->view[i], &o);
	ack_send(w, burst, i, s, splice, &o);
	return false;
}

bool splice_syn_received(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                         struct session_splice *splice)
{
	const struct sy_view *v = &burst->view[i];
	bool answer = v->tcp_flags & SY_TCP_ACK;
	if (burst->direction[i] == SESSION_SERVER)
		return !answer || syn_ack(w, burst, i, splice);
	if (!answer) {
		uint32_t seq = ntohl(sy_packet_tcp(sy_frame(burst->mbuf[i]), v)->seq);
		splice->syn_number = (seq + 1) & SPLICE_SYN_MASK;
		splice->spliced = SPLICE_SYN_SEEN;
	}
	return true;
}

void splice_syn_retransmit(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	const struct sy_balance *b = w->app;
	const struct session *s = session_at(t, record);
	const struct session_cold *cold = session_cold_at(t, record);
	const struct sy_tuple tuple = session_client_tuple(s, cold, &b->endpoint[s->server]);
	struct rte_mbuf *m = splice_syn_packet(w, &tuple, splice_begin_of(s));
	if (!m)
		return;
	originated_mark(b, m);
	if (!sy_packet_resubmit(w, m))
		sy_packet_drop(w, m, SY_DROP_OPENING);
}

void splice_abandon(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	struct session *s = session_at(t, record);
	const struct splice_begin *begin = splice_begin_of(s);
	if (!segment_is_allowed(w, ORIGINATED_RESET_BOTH, NULL))
		return;
	reset_client(w, s, begin->cookie + 1);
	reset_server(w, s, begin->number + 1);
}
