// SPDX-License-Identifier: Apache-2.0
/* Resets and probes of our own (docs/design/0011-tcp-life.md). */
#ifndef RESET_H
#define RESET_H

#include "balance.h"

/* Of a session that ends, or whose tuple begins again: if its server closed first and remembers the
 * tuple (TIME_WAIT), it is told to forget it, so that no later client is taken for this one. */
void reset_time_wait(struct sy_worker *w, struct session *s, const struct session_cold *cold);
/* What probes of this session acknowledge. */
uint32_t reset_secret(const struct sy_balance *b, const struct session *s);
/* A reset that may be forged, from this side, is being forwarded: asks who is said to have sent it,
 * unless too many are asked; the session's state says so. */
void challenge_send(struct sy_worker *w, struct session *s, enum session_direction from);
/* Asks once more, as the first answer may be lost or suppressed (RFC 5961 7). */
void challenge_repeat(struct sy_worker *w, struct session *s);
/* Packet i has no session, and its sender is told so if its checksum is right. */
void reset_unknown(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* ---- for reset_both.c ------------------------------------------------------------------------ */

/* Within the rate of packets of our own, by this limit; or it is counted. */
bool probe_is_allowed(struct sy_worker *w, struct rate_limit *limit);
/* Asks one side whether the connection lives; what it answers acknowledges or is reset_secret(). */
void probe_send(struct sy_worker *w, struct session *s, enum session_direction to);
/* Resets the server as if by the client. seq: host order. */
void reset_server(struct sy_worker *w, struct session *s, uint32_t seq);
/* Answers packet i by a reset. */
void reset_answer(struct sy_worker *w, const struct sy_burst *burst, unsigned i);

#endif
