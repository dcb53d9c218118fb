// SPDX-License-Identifier: Apache-2.0
/* TCP's states as seen from between the two ends (RFC 9293 3.3.2). */
#ifndef TCP_STATE_H
#define TCP_STATE_H

#include "balance.h"

enum tcp_result {
	TCP_FORWARD,
	TCP_REOPEN, /* a SYN under an old tuple: end the session, create another */
	TCP_AGAIN,  /* likewise, but the server may still have the old connection. If it takes new
	               ones, keep the session, so that it sees the tuple it knows:
	               tcp_state_recheck(). If not, as REOPEN */
	TCP_ASK,    /* a SYN of a session that may be over: forward it, as the server knows. If it
	               is down, as REOPEN */
	TCP_CHALLENGE, /* forward a reset that may be forged: challenge_send() */
	TCP_DROP,      /* BAD_TCP_STATE */
};

/* Advances the session's state by a packet (RFC 9293 3.3.2). seq, ack: host order; len: payload
 * bytes; secret: for a reset, the number that probes acknowledged. A reset that answers a probe has
 * that number. */
enum tcp_result tcp_state_advance(struct session *s, struct session_cold *cold,
                                  enum session_direction from, uint8_t flags, uint32_t seq,
                                  uint32_t ack, uint32_t len, uint32_t secret);
/* The same for a one-way session, of which only the client's packets are seen. */
enum tcp_result tcp_state_one_way(struct session *s, struct session_cold *cold, uint8_t flags,
                                  uint32_t seq, uint32_t len, uint32_t secret);
/*
 * The SYNs and SYN-ACKs of a SNAT session, whose remote may be anybody. pair: the cold half of its
 * pair record, which keeps what an answer to the inside host's last SYN acknowledges.
 *
 * Notes a SYN, the host's only, with this many bytes of data: an answer may acknowledge them, too
 * (TCP Fast Open, RFC 7413 4.2.2), even if the SYN was repeated without them.
 */
void tcp_state_note_snat_syn(struct session_cold *pair, uint32_t seq, uint32_t len);
/* Does this SYN-ACK answer it? */
bool tcp_state_is_snat_answer(const struct session_cold *pair, uint32_t ack);
/* After TCP_AGAIN: the same session and server, from the beginning. */
void tcp_state_recheck(struct session *s);

#endif
