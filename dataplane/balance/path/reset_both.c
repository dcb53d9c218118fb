// SPDX-License-Identifier: Apache-2.0
/* Resets both ends of a session (docs/design/0011-tcp-lifecycle.md). */
#include "reset_both.h"

#include <arpa/inet.h>

#include "end.h"
#include "opening_queue.h"
#include "reset.h"
#include "service_drop.h"

static bool reset_both_is_allowed(struct sy_worker *w)
{
	return segment_is_allowed(w, ORIGINATED_RESET_BOTH, NULL);
}

bool reset_both_is_due(const struct endpoint *e, const struct session *s)
{
	return e->proto == SY_PROTO_TCP && s->state != SESSION_SYN_SENT &&
	       s->state != SESSION_TIME_WAIT && s->state != SESSION_RESET &&
	       s->state != SESSION_DYING;
}

/* In state DYING, the FIN flags say which side has sent a packet and was reset. */
static uint8_t reset_both_sent_by(unsigned side)
{
	return side == SESSION_CLIENT   ? SESSION_CLIENT_FIN
	       : side == SESSION_SERVER ? SESSION_SERVER_FIN
	                                : 0;
}

void reset_both_probe(struct sy_worker *w, struct session *s)
{
	const struct sy_balance *b = w->app;
	if (!(s->flags & SESSION_CLIENT_FIN) && reset_both_is_allowed(w))
		probe_send(w, s, SESSION_CLIENT);
	/* the answers of a one-way server are not visible */
	if (!(s->flags & SESSION_SERVER_FIN) && !endpoint_is_one_way(&b->endpoint[s->server]) &&
	    reset_both_is_allowed(w))
		probe_send(w, s, SESSION_SERVER);
}

/* The next session with this record must not get this client's queued data. */
static void opening_forget(struct sy_worker *w, const struct session *s)
{
	const struct sy_balance *b = w->app;
	const struct session_table *t = b->table[sy_slot_of(&s->client, s->client_port)];
	opening_queue_drop(w, t->slot, (uint32_t)(s - session_at(t, 0)));
}

void reset_both_begin(struct sy_worker *w, struct session *s, unsigned sender)
{
	if (s->state == SESSION_OPENING)
		opening_forget(w, s);
	s->state = SESSION_DYING;
	s->seen = (uint16_t)balance_seconds(w);
	s->flags &= (uint8_t) ~(SESSION_CLIENT_FIN | SESSION_SERVER_FIN);
	s->flags |= reset_both_sent_by(sender);
	reset_both_probe(w, s);
}

bool reset_both_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	struct session *s = session_at(t, burst->session[i]);
	const struct endpoint *e = &b->endpoint[s->server];
	const struct sy_view *v = &burst->view[i];
	bool begins = (v->tcp_flags & (SY_TCP_SYN | SY_TCP_ACK)) == SY_TCP_SYN &&
	              burst->direction[i] == SESSION_CLIENT;
	bool due = reset_both_is_due(e, s);

	if (begins || (!due && s->state != SESSION_DYING)) {
		session_end(w, t, burst->session[i]);
		burst->session[i] = SESSION_NONE;
		return true;
	}
	bool removed = SY_READ(e->removed) || SY_READ(b->local_removed[s->local]);
	reset_both_refuse(w, burst, i, removed ? SY_DROP_SERVER_REMOVED : SY_DROP_SESSION_KILLED);
	return false;
}

void reset_both_refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i, enum sy_drop reason)
{
	const struct sy_balance *b = w->app;
	struct session *s = session_at(b->table[burst->slot[i]], burst->session[i]);
	const struct endpoint *e = &b->endpoint[s->server];
	const struct sy_view *v = &burst->view[i];
	enum sy_csum_state csum = sy_packet_check_l4(sy_frame(burst->mbuf[i]), v);
	if (csum != SY_CSUM_OK) { /* unknown for a fragment: never answered */
		session_packet_drop(w, burst, i, s,
		                    csum == SY_CSUM_UNKNOWN ? reason : SY_DROP_BAD_L4_CHECKSUM);
		return;
	}
	reset_answer(w, burst, i);
	if (reset_both_is_due(e, s))
		reset_both_begin(w, s, burst->direction[i]);
	s->flags |= reset_both_sent_by(burst->direction[i]);
	/* Only the client's next number is known; it is what the server expects, even in an answer
	 * to a probe. */
	if (endpoint_is_one_way(e))
		reset_server(w, s, ntohl(sy_packet_tcp(sy_frame(burst->mbuf[i]), v)->seq));
	session_packet_drop(w, burst, i, s, reason);
}
