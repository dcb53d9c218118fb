// SPDX-License-Identifier: Apache-2.0
/*
 * For slow.c: a packet advances the state of its session.
 *
 *   its server or its path is gone            reset_both_packet()
 *   a SYN, its server takes no new sessions   reopen_syn()
 *   its server's connection is being opened   splice_packet()
 *   UDP, echo                                 both directions were seen
 *   TCP                                       slow_syn(), then slow_advance_tcp()
 *
 * A SYN may end the session, reuse it for another connection, or be forwarded for the server to
 * decide.
 */
#include <arpa/inet.h>

#include "slow_advance.h"

#include "challenge.h"
#include "client_address.h"
#include "client_sessions.h"
#include "create.h"
#include "delay.h"
#include "end.h"
#include "loss.h"
#include "police.h"
#include "pressure.h"
#include "reopen.h"
#include "reset.h"
#include "reset_both.h"
#include "segment_shortcut.h"
#include "service_drop.h"
#include "splice_path.h"
#include "tcp_state.h"

/* A SYN or SYN-ACK of a session that waits for its server's answer. Clients repeat a lost SYN after
 * one second at the earliest (RFC 6298 2): earlier copies are duplicated or forged, and say nothing
 * about the server. */
static void slow_time(struct sy_worker *w, const struct sy_burst *burst, unsigned i,
                      struct session *s)
{
	const struct sy_balance *b = w->app;
	if (b->endpoint[s->server].mode == MODE_SNAT)
		return;
	if (burst->direction[i] == SESSION_SERVER && s->state == SESSION_SYN_RECEIVED) {
		delay_answer(w, burst->slot[i], burst->session[i], s->server);
		loss_begin(w, burst->slot[i], burst->session[i], s);
	}
	if (burst->direction[i] == SESSION_SERVER)
		return;
	if (SY_UNLIKELY(burst->mbuf[i]->ol_flags & b->strict_flag)) { /* the client's first one */
		if (!endpoint_is_one_way(&b->endpoint[s->server]))
			delay_begin(w, burst->slot[i], burst->session[i]);
		return;
	}
	delay_clear(w, burst->slot[i], burst->session[i]);
	if (session_idle(s, segment_common_of(w).now) > 0)
		delay_note_repeated(w, s->server);
}

static enum tcp_result slow_advance_tcp(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	const struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	const uint32_t record = burst->session[i];
	const enum session_direction from = burst->direction[i];
	uint8_t *frame = sy_frame(burst->mbuf[i]);
	const struct sy_view *v = &burst->view[i];
	const bool counts = SY_UNLIKELY(SY_RCU_READ(b->client_counts) != NULL);
	struct session *s = session_at(t, record);
	struct session_cold *cold = session_cold_at(t, record);
	const struct sy_tcp *tcp = sy_packet_tcp(frame, v);
	uint32_t payload = v->l4_len - (tcp->offset >> 4) * 4u;
	uint8_t flags = v->tcp_flags;
	uint32_t secret = SY_UNLIKELY(flags & SY_TCP_RST) ? reset_secret(b, s) : 0;
	if (endpoint_is_one_way(&b->endpoint[s->server])) {
		bool begins = s->state == SESSION_SYN_SENT;
		enum tcp_result result =
		        tcp_state_one_way(s, cold, flags, ntohl(tcp->seq), payload, secret);
		if (begins && s->state == SESSION_ESTABLISHED)
			challenge_note_session(w, s);
		return result;
	}
	if (from == SESSION_SERVER && s->flags & SESSION_ADDRESS_PENDING)
		flags = client_address_acknowledged(s, cold, frame, v);
	if (SY_UNLIKELY(counts) && !(v->tcp_flags & (SY_TCP_SYN | SY_TCP_RST)) &&
	    client_sessions_shows_nothing(w, burst, i))
		return TCP_FORWARD;
	if (SY_UNLIKELY(s->flags & SESSION_WATCHED))
		loss_count(w, burst->slot[i], record, s, from, tcp, payload);
	uint32_t ack = ntohl(tcp->ack);
	if (from == SESSION_SERVER) /* in the client's numbering */
		ack -= session_shift(s, cold);
	else /* in the server's numbering */
		ack += session_number(t, record, &b->endpoint[s->server]);
	const uint8_t before = s->state;
	enum tcp_result result =
	        tcp_state_advance(s, cold, from, flags, ntohl(tcp->seq), ack, payload, secret);
	if (SY_UNLIKELY(before == SESSION_SYN_SENT && flags & SY_TCP_SYN))
		slow_time(w, burst, i, s);
	if (SY_UNLIKELY(counts) && from == SESSION_SERVER && flags & SY_TCP_SYN)
		client_sessions_expect(w, burst, i);
	return result;
}

/* Returns true if the session of a SYN with the result TCP_SERVER_DECIDES or TCP_RESTART stays: the
 * SYN goes to the same server, which may still have the connection. Returns false if the server is
 * down or accepts no new connections. */
static bool slow_keeps(const struct sy_balance *b, const struct session *s, enum tcp_result result)
{
	const struct endpoint *e = &b->endpoint[s->server];
	return result == TCP_SERVER_DECIDES ? !SY_READ(e->down) : SY_READ(e->eligible);
}

/* Keeps the session if access lists and limits of new sessions accept the connection that the SYN
 * begins. Returns false if the packet was dropped. */
static bool slow_keep(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                      struct session_table *t, enum tcp_result result)
{
	const struct sy_balance *b = w->app;
	const uint32_t record = burst->session[i];
	struct session *s = session_at(t, record);
	const enum sy_drop reason = create_recheck(w, burst, i, s->server);
	if (SY_UNLIKELY(reason != SY_DROP_NONE)) {
		session_packet_drop(w, burst, i, s, reason);
		return false;
	}
	if (result == TCP_SERVER_DECIDES) /* the limits are charged again for its retransmission */
		return true;
	police_begun(w, i);
	tcp_state_restart(s);
	splice_end(t, record, &b->endpoint[s->server]);
	session_cold_at(t, record)->created = balance_seconds(w) & SESSION_CREATED_MASK;
	if (!endpoint_is_one_way(&b->endpoint[s->server]))
		delay_begin(w, burst->slot[i], record);
	return true;
}

/* A SYN or SYN-ACK of a SNAT session. Returns false if it was dropped. */
static bool slow_snat_syn(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          struct session_cold *pair)
{
	const struct sy_view *v = &burst->view[i];
	const struct sy_tcp *tcp = sy_packet_tcp(sy_frame(burst->mbuf[i]), v);
	bool answer = v->tcp_flags & SY_TCP_ACK;
	if (burst->direction[i] == SESSION_CLIENT && !answer)
		tcp_state_note_snat_syn(pair, ntohl(tcp->seq), v->l4_len - (tcp->offset >> 4) * 4u);
	if (burst->direction[i] == SESSION_CLIENT || !answer ||
	    tcp_state_is_snat_answer(pair, ntohl(tcp->ack)))
		return true;
	sy_burst_drop(w, burst, i, SY_DROP_BAD_TCP_STATE);
	return false;
}

/* A SYN or SYN-ACK. Returns false if it was answered or dropped. */
static bool slow_syn(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                     struct session_table *t, const struct session *s)
{
	const struct sy_balance *b = w->app;
	uint32_t record = burst->session[i];
	const struct endpoint *e = &b->endpoint[s->server];
	if (e->mode == MODE_SNAT)
		return slow_snat_syn(w, burst, i, session_cold_at(t, record + 1));
	if (!(s->flags & SESSION_SHIFTED)) /* never spliced, or no longer */
		return true;
	struct session_splice *splice = session_splice_of(t, record, e);
	return !splice || !splice->spliced || splice_syn_received(w, burst, i, splice);
}

/* A datagram of a session. An answer alone validates nothing, since the request's source may be
 * forged. A client that sends after an answer has received it, as in Linux's conntrack
 * (ASSURED). */
static void slow_advance_udp(const struct sy_burst *burst, unsigned i, struct session *s)
{
	if (burst->direction[i] == SESSION_SERVER) {
		if (s->state == SESSION_UDP_ONE_WAY && !session_is_one_packet(s))
			s->state = SESSION_UDP_ANSWERED;
		return;
	}
	if (s->state != SESSION_UDP_ANSWERED && !(s->flags & SESSION_UNSHOWN))
		return;
	const enum sy_csum_state csum =
	        sy_packet_check_l4(sy_frame(burst->mbuf[i]), &burst->view[i]);
	if (csum != SY_CSUM_OK && csum != SY_CSUM_UNKNOWN)
		return;
	s->state = SESSION_UDP_BOTH_WAYS;
	s->flags &= (uint8_t)~SESSION_UNSHOWN;
}

static bool slow_advance_state(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	uint32_t record = burst->session[i];
	struct session *s = session_at(t, record);
	const struct sy_view *v = &burst->view[i];
	enum session_direction from = burst->direction[i];

	if (s->state == SESSION_DYING || session_is_dead(b, s) || session_is_lost(b, s, from))
		return reset_both_packet(w, burst, i);
	if (SY_UNLIKELY(reopen_concerns(&b->endpoint[s->server], v, from))) {
		bool goes_on = reopen_syn(w, burst, i);
		if (!goes_on || burst->session[i] == SESSION_NONE)
			return goes_on;
	}
	if (s->state == SESSION_OPENING)
		return splice_packet(w, burst, i);
	if (!sy_view_has_l4(v)) /* the first fragment has advanced the state */
		return true;
	/* A server's checksums are verified on its first answer only. */
	if (from == SESSION_SERVER &&
	    (s->state == SESSION_SYN_SENT || s->state == SESSION_UDP_ONE_WAY) &&
	    sy_packet_is_unfinished(sy_frame(burst->mbuf[i]), v)) {
		session_packet_drop(w, burst, i, s, SY_DROP_UNFINISHED_CHECKSUM);
		return false;
	}
	if (v->proto == SY_PROTO_UDP)
		slow_advance_udp(burst, i, s);
	if (v->proto != SY_PROTO_TCP)
		return true;
	if (v->tcp_flags & SY_TCP_SYN && !slow_syn(w, burst, i, t, s))
		return false;
	if (SY_UNLIKELY(v->tcp_flags & SY_TCP_RST) && from == SESSION_CLIENT &&
	    challenge_is_late_proof(w, burst, i, s))
		return false;
	enum tcp_result result = slow_advance_tcp(w, burst, i);
	switch (result) {
	case TCP_DROP:
		session_packet_drop(w, burst, i, s, SY_DROP_BAD_TCP_STATE);
		return false;
	case TCP_SERVER_DECIDES:
	case TCP_RESTART:
		if (slow_keeps(b, s, result))
			return slow_keep(w, burst, i, t, result);
		/* fall through */
	case TCP_REOPEN:
		session_end(w, t, record);
		burst->session[i] = SESSION_NONE;
		return true;
	case TCP_CHALLENGE:
		challenge_send(w, s, from);
		break;
	case TCP_FORWARD:
		break;
	}
	return true;
}

bool slow_advance(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	const struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	uint32_t record = burst->session[i];
	const bool embryonic = session_state_is_embryonic(session_at(t, record)->state);
	const bool shown = session_is_shown(session_at(t, record));
	bool goes_on = slow_advance_state(w, burst, i);
	if (burst->session[i] == SESSION_NONE)
		return goes_on;
	pressure_change(w, t, record, embryonic);
	if (SY_LIKELY(!SY_RCU_READ(b->client_counts)) ||
	    client_sessions_change(w, t, record, !shown))
		return goes_on;
	client_sessions_refuse(w, burst, i, !goes_on);
	return false;
}
