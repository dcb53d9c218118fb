// SPDX-License-Identifier: Apache-2.0
/* Updates the FIN flags of a session for a segment with ACK, inline: most packets that close a
 * connection need only this. */
#ifndef TCP_STEP_H
#define TCP_STEP_H

#include "tcp_state.h"

/* The state that follows from the FINs seen so far. */
static inline enum session_state tcp_state_of_fins(const struct session *s)
{
	const uint8_t both = SESSION_CLIENT_FIN | SESSION_SERVER_FIN;
	const uint8_t acked = SESSION_CLIENT_FIN_ACKED | SESSION_SERVER_FIN_ACKED;
	if (SY_LIKELY((s->flags & both) == 0))
		return SESSION_ESTABLISHED;
	if ((s->flags & acked) == acked)
		return SESSION_TIME_WAIT;
	return (s->flags & both) == both ? SESSION_CLOSING : SESSION_FIN_WAIT;
}

/* Notes a FIN, and whose FIN the segment acknowledges; arguments as for tcp_state_advance(). */
static inline void tcp_note_fins(struct session *s, struct session_cold *cold,
                                 enum session_direction from, uint8_t flags, uint32_t seq,
                                 uint32_t ack, uint32_t len)
{
	const uint8_t other_fin = from == SESSION_CLIENT ? SESSION_SERVER_FIN : SESSION_CLIENT_FIN;
	const uint8_t other_acked =
	        from == SESSION_CLIENT ? SESSION_SERVER_FIN_ACKED : SESSION_CLIENT_FIN_ACKED;
	/* a FIN is the last number of its side: only ack == fin_seq acknowledges it */
	if ((s->flags & other_fin) && ack == cold->fin_seq[!from])
		s->flags |= other_acked;

	/* A server that sends its FIN before it has received the client's enters TIME_WAIT, whether
	 * it closed first or both closed at once. */
	if (flags & SY_TCP_FIN) {
		if (from == SESSION_SERVER && !(s->flags & SESSION_CLIENT_FIN_ACKED))
			s->flags |= SESSION_SERVER_FIRST;
		s->flags |= from == SESSION_CLIENT ? SESSION_CLIENT_FIN : SESSION_SERVER_FIN;
		cold->fin_seq[from] = seq + len + 1;
	}
}

#endif
