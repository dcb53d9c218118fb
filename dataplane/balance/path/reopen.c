// SPDX-License-Identifier: Apache-2.0
/*
 * A client connects again from a port whose session has a server that accepts no new sessions.
 *
 *   the server is down           the SYN begins a session on another server
 *   it drains, or has weight 0   an open connection continues, and a blind attacker may have forged
 *                                the SYN: a probe makes the client confirm or reset it
 *
 * Sessions of servers that were removed, killed, or are reset when they fail, are dead:
 * reset_both.c.
 */
#include "reopen.h"

#include <arpa/inet.h>

#include "create.h"
#include "end.h"
#include "originated.h"
#include "reset.h"
#include "service_drop.h"
#include "unavailable.h"

/* May the connection be open? Only the client can decide. */
static bool state_may_be_open(uint8_t state)
{
	const uint32_t open = 1u << SESSION_ESTABLISHED | 1u << SESSION_FIN_WAIT |
	                      1u << SESSION_CLOSING | 1u << SESSION_RESET_BY_CLIENT |
	                      1u << SESSION_RESET_BY_SERVER;
	return open >> state & 1;
}

enum reopen reopen_decide(const struct session *s, const struct session_cold *cold,
                          const struct endpoint *e, uint32_t seq, bool has_other)
{
	const bool one_way = endpoint_is_one_way(e);
	if (SY_READ(e->down))
		return has_other ? REOPEN_MOVE : REOPEN_WAIT;
	switch (s->state) {
	case SESSION_SYN_SENT:
		/* A retransmitted SYN whose answer is not visible follows the first one. */
		if (!has_other || (one_way && seq == cold->client_first))
			return REOPEN_STATE;
		return REOPEN_MOVE;
	case SESSION_FIN_WAIT:
		if (one_way && s->flags & SESSION_CLIENT_FIN_ACKED) /* the FIN was credible */
			return REOPEN_STATE;
		return REOPEN_PROBE;
	default:
		return state_may_be_open(s->state) ? REOPEN_PROBE : REOPEN_STATE;
	}
}

/* Probes the client as after a possibly forged reset. An open connection acknowledges, and the
 * session continues; a client in SYN-SENT sends a reset that validates the end of the session. */
static void reopen_probe(struct sy_worker *w, struct session *s)
{
	const uint8_t before = s->state;
	if (!session_is_challenged(s))
		challenge_send(w, s, SESSION_CLIENT);
	else if (segment_is_allowed(w, ORIGINATED_CHALLENGE, NULL))
		probe_send(w, s, SESSION_CLIENT);
	/* The client has the timeout of state RESET to answer. Further SYNs do not extend it. */
	if (s->state != before)
		s->seen = (uint16_t)balance_seconds(w);
}

bool reopen_syn(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	struct session *s = session_at(t, burst->session[i]);
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	const struct sy_view *v = &burst->view[i];
	enum sy_drop reason = create_check(b, burst, i);

	if (originated_is_marked(
	            b, burst->mbuf[i])) /* a SYN of the forwarder itself, for a spliced session */
		return true;
	if (reason != SY_DROP_NONE) {
		session_packet_drop(w, burst, i, s, reason);
		return false;
	}
	const uint32_t seq = ntohl(sy_packet_tcp(sy_frame(burst->mbuf[i]), v)->seq);
	switch (reopen_decide(s, session_cold_at(t, burst->session[i]), e, seq,
	                      service_has_server(service))) {
	case REOPEN_STATE:
		return true;
	case REOPEN_MOVE:
		session_end(w, t, burst->session[i]);
		burst->session[i] = SESSION_NONE;
		return true;
	case REOPEN_PROBE:
		reopen_probe(w, s);
		session_packet_drop(w, burst, i, s, SY_DROP_BAD_TCP_STATE);
		return false;
	case REOPEN_WAIT:
		break;
	}
	if (service)
		unavailable_refuse(w, burst, i, service, SY_DROP_NO_SERVER);
	else
		session_packet_drop(w, burst, i, s, SY_DROP_NO_SERVER);
	return false;
}
