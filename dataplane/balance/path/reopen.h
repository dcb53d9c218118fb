// SPDX-License-Identifier: Apache-2.0
/* A client's SYN under the tuple of a session whose server accepts no new sessions
 * (docs/design/0011-tcp-lifecycle.md). */
#ifndef REOPEN_H
#define REOPEN_H

#include "balance.h"

enum reopen {
	REOPEN_STATE, /* the session's state decides, as on any server */
	REOPEN_MOVE,  /* end the session: the SYN begins one on another server */
	REOPEN_PROBE, /* probe the client: is the old connection over? Drop the SYN */
	REOPEN_WAIT,  /* drop the SYN: the server is down and no other accepts sessions */
};

/* Decides by the states of the session and its server, which is not eligible. seq: the SYN's, host
 * order; has_other: another server of the service accepts sessions. */
enum reopen reopen_decide(const struct session *s, const struct session_cold *cold,
                          const struct endpoint *e, uint32_t seq, bool has_other);
/* Applies the decision to packet i, a client's SYN. Returns false if it was dropped. Otherwise the
 * session has ended (burst->session[i] is SESSION_NONE), or its state decides. */
bool reopen_syn(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* Is packet i a client's SYN of a session whose server accepts no new sessions? */
static inline bool reopen_concerns(const struct endpoint *e, const struct sy_view *v,
                                   enum session_direction from)
{
	return from == SESSION_CLIENT && v->proto == SY_PROTO_TCP && sy_view_has_l4(v) &&
	       (v->tcp_flags & (SY_TCP_SYN | SY_TCP_ACK | SY_TCP_RST)) == SY_TCP_SYN &&
	       !SY_READ(e->eligible) && e->mode != MODE_SNAT;
}

#endif
