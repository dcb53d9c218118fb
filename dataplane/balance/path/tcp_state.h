// SPDX-License-Identifier: Apache-2.0
/* TCP's states as somebody in the middle sees them (RFC 9293 3.3.2). */
#ifndef TCP_STATE_H
#define TCP_STATE_H

#include "balance.h"

enum tcp_result {
	TCP_FORWARD,
	TCP_REOPEN, /* a new connection under an old tuple: end the session, create another */
	TCP_AGAIN,  /* likewise, but the server may hold on to the old one: tcp_state_again() if it
	             * takes new connections, so that it meets the tuple it knows; or else REOPEN */
	TCP_ASK, /* forward: the server, unless it is down, tells whether it is over; or REOPEN */
	TCP_CHALLENGE, /* forward a reset that may be forged: challenge_send() */
	TCP_DROP,      /* BAD_TCP_STATE */
};

/* Moves the session's state by a packet seen in the middle (RFC 9293 3.3.2). seq, ack in host
 * order; len: payload bytes; secret: of a reset, what a probe acknowledged, hence the number of one
 * that answers it. */
enum tcp_result tcp_state_advance(struct session *s, struct session_cold *cold,
                                  enum session_direction from, uint8_t flags, uint32_t seq,
                                  uint32_t ack, uint32_t len, uint32_t secret);
/* The same for a session of which only the client's packets are seen. */
enum tcp_result tcp_state_one_way(struct session *s, struct session_cold *cold, uint8_t flags,
                                  uint32_t seq, uint32_t len, uint32_t secret);
/* After TCP_AGAIN: the same session and server, from the beginning. */
void tcp_state_again(struct session *s);

#endif
