// SPDX-License-Identifier: Apache-2.0
/* A client's SYN under the tuple of a session whose server accepts no new sessions
 * (docs/design/0011-tcp-lifecycle.md). */
#ifndef REOPEN_H
#define REOPEN_H

#include "balance.h"

enum reopen {
	REOPEN_STATE, /* the session's state decides, as on any server */
	REOPEN_MOVE,  /* end the session: the SYN begins one on another server */
	REOPEN_PROBE, /* ask the client whether the old connection is over; drop the SYN */
	REOPEN_WAIT,  /* the server is down and no other accepts sessions: drop the SYN */
};

/* Decides by the session's state and its server's. seq: the SYN's, in host order; others: another
 * server accepts sessions. The server is not eligible. */
enum reopen reopen_decide(const struct session *s, const struct session_cold *cold,
                          const struct endpoint *e, uint32_t seq, bool others);
/* Carries the decision out for packet i, a client's SYN. False: the packet was dropped. Otherwise
 * the session has ended (burst->session[i] is SESSION_NONE), or its state decides. */
bool reopen_syn(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* Is packet i a client's SYN whose session has a server that accepts no new sessions? */
static inline bool reopen_concerns(const struct endpoint *e, const struct sy_view *v,
                                   enum session_direction from)
{
	return from == SESSION_CLIENT && v->proto == SY_PROTO_TCP && sy_view_has_l4(v) &&
	       (v->tcp_flags & (SY_TCP_SYN | SY_TCP_ACK | SY_TCP_RST)) == SY_TCP_SYN &&
	       !SY_READ(e->eligible) && e->mode != MODE_SNAT;
}

#endif
