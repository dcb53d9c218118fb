// SPDX-License-Identifier: Apache-2.0
/* Resets and probes that we send (docs/design/0011-tcp-lifecycle.md). */
#ifndef RESET_H
#define RESET_H

#include "balance.h"

/* For a session that ends, or whose tuple begins again. If its server closed first, the server
 * keeps the tuple in TIME_WAIT: a reset clears it, so that the server takes no later client for
 * this one. */
void reset_time_wait(struct sy_worker *w, struct session *s, const struct session_cold *cold);
/* The number that probes of this session acknowledge. */
uint32_t reset_secret(const struct sy_balance *b, const struct session *s);
/* For a reset from this side that is being forwarded and may be forged: challenges the side that is
 * said to have sent it, within the rate limit, and sets the session's state accordingly. */
void challenge_send(struct sy_worker *w, struct session *s, enum session_direction from);
/* Repeats the challenge: the first answer may be lost or suppressed (RFC 5961 7). */
void challenge_repeat(struct sy_worker *w, struct session *s);
/* Resets the sender of packet i, which has no session, if its checksum is right. */
void reset_unknown(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* ---- for reset_both.c ------------------------------------------------------------------------ */

/* Is one more segment within its class's rate? If not, it is counted as dropped. to: as for
 * originated_charge(). */
bool segment_is_allowed(struct sy_worker *w, enum originated_class class, const struct sy_addr *to);
/* Probes one side: is the connection alive? The answer acknowledges the probe, or is a reset with
 * the number reset_secret(). */
void probe_send(struct sy_worker *w, struct session *s, enum session_direction to);
/* Resets the server in the name of the client. seq: host order. */
void reset_server(struct sy_worker *w, struct session *s, uint32_t seq);
/* Resets the client in the name of the VIP. */
void reset_client(struct sy_worker *w, struct session *s, uint32_t seq);
/* Sends a reset of this tuple back to the sender of a packet, within the limit of resets. */
void reset_refused(struct sy_worker *w, const struct rte_mbuf *in, const struct sy_tuple *t,
                   uint32_t seq);
/* Answers packet i with a reset. Returns whether it was sent. */
bool reset_answer(struct sy_worker *w, const struct sy_burst *burst, unsigned i);

#endif
