// SPDX-License-Identifier: Apache-2.0
/* TCP's states as seen from between the two ends (RFC 9293 3.3.2). */
#ifndef TCP_STATE_H
#define TCP_STATE_H

#include "balance.h"

enum tcp_result {
	TCP_FORWARD,
	TCP_REOPEN,  /* a SYN under an old tuple: end the session, create a new one */
	TCP_RESTART, /* likewise, but the server may still have the old connection. If the server
	              accepts new sessions, keep the session and call tcp_state_restart(): then
	              this server gets the SYN. Otherwise as REOPEN */
	TCP_SERVER_DECIDES, /* a SYN of a session that may be over: forward it, the server decides.
	            If the server is down, as REOPEN */
	TCP_CHALLENGE,      /* forward a reset that may be forged: challenge_send() */
	TCP_DROP,           /* BAD_TCP_STATE */
};

/* Advances the session's state by a packet (RFC 9293 3.3.2). seq, ack: host order; len: payload
 * bytes; secret: the acknowledgement number of probes, which is the sequence number of a reset in
 * answer to a probe. */
enum tcp_result tcp_state_advance(struct session *s, struct session_cold *cold,
                                  enum session_direction from, uint8_t flags, uint32_t seq,
                                  uint32_t ack, uint32_t len, uint32_t secret);
/* The same for a one-way session: only the client's packets are visible. */
enum tcp_result tcp_state_one_way(struct session *s, struct session_cold *cold, uint8_t flags,
                                  uint32_t seq, uint32_t len, uint32_t secret);
/*
 * SYNs and SYN-ACKs of a SNAT session: an answer of the remote must acknowledge the inside host's
 * last SYN. pair: the cold half of the pair record, which stores the expected acknowledgement.
 *
 * Notes a SYN of the inside host with this many bytes of data. An answer may acknowledge them (TCP
 * Fast Open, RFC 7413 4.2.2), even if the SYN was retransmitted without them.
 */
void tcp_state_note_snat_syn(struct session_cold *pair, uint32_t seq, uint32_t len);
/* Does this SYN-ACK answer the noted SYN? */
bool tcp_state_is_snat_answer(const struct session_cold *pair, uint32_t ack);
/* After TCP_RESTART: restarts the session with the same server. */
void tcp_state_restart(struct session *s);

#endif
