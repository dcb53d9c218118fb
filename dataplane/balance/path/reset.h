// SPDX-License-Identifier: Apache-2.0
/* Originated resets and probes (docs/design/0011-tcp-lifecycle.md). */
#ifndef RESET_H
#define RESET_H

#include "balance.h"

/* For a session that ends or whose tuple is reused: if the server closed first, it keeps the tuple
 * in TIME_WAIT. A reset ends that, so that the server does not mistake a later client for this
 * one. */
void reset_time_wait(struct sy_worker *w, struct session *s, const struct session_cold *cold);
/* The number that probes of this session acknowledge. */
uint32_t reset_secret(const struct sy_balance *b, const struct session *s);
/* For a reset from this side that may be forged and is being forwarded: challenges the side in
 * whose name it came, within the rate limit, and sets the session's state. */
void challenge_send(struct sy_worker *w, struct session *s, enum session_direction from);
/* Repeats the challenge: the first one or its answer may be lost (RFC 5961 7). */
void challenge_repeat(struct sy_worker *w, struct session *s);
/* Resets the sender of packet i, which has no session, if its checksum is right. */
void reset_unknown(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* ---- for reset_both.c ------------------------------------------------------------------------ */

/* Does the rate limit of its class allow one more segment? Otherwise counts a drop. to: as for
 * originated_charge(). */
bool segment_is_allowed(struct sy_worker *w, enum originated_class class, const struct sy_addr *to);
/* Probes one side: a live connection acknowledges the probe, a dead one sends a reset with the
 * number reset_secret(). */
void probe_send(struct sy_worker *w, struct session *s, enum session_direction to);
/* Resets the server in the name of the client. seq: host order. */
void reset_server(struct sy_worker *w, struct session *s, uint32_t seq);
/* Resets the client in the name of the VIP. */
void reset_client(struct sy_worker *w, struct session *s, uint32_t seq);
/* Sends a reset of this tuple back to a packet's sender, within the rate limit. */
void reset_refused(struct sy_worker *w, const struct rte_mbuf *in, const struct sy_tuple *t,
                   uint32_t seq);
/* Answers packet i with a reset. Returns whether it was sent. */
bool reset_answer(struct sy_worker *w, const struct sy_burst *burst, unsigned i);

#endif
