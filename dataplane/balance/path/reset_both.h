// SPDX-License-Identifier: Apache-2.0
/* Resets both ends of a session (docs/design/0011-tcp-lifecycle.md). */
#ifndef RESET_BOTH_H
#define RESET_BOTH_H

#include "balance.h"

/* Is this a TCP session whose ends would otherwise wait for each other? */
bool reset_both_is_due(const struct endpoint *e, const struct session *s);
/* Ends the session and resets both ends: each gets a probe, and its answer gets a reset. sender:
 * the side that has just sent a packet and needs no probe; or SESSION_NEITHER. */
#define SESSION_NEITHER 2
void reset_both_begin(struct sy_worker *w, struct session *s, unsigned sender);
/* Probes again each side that has sent nothing: the probe or its answer was lost or suppressed. */
void reset_both_probe(struct sy_worker *w, struct session *s);
/* Processes packet i of a session that ends (record burst->session[i]). Returns true if the session
 * has ended and the packet may create a new one. Returns false if it was answered and dropped. */
bool reset_both_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Answers packet i by a reset and drops it for this reason. Ends its session as reset_both_begin()
 * does, unless it already ends. */
void reset_both_refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                       enum sy_drop reason);

#endif
