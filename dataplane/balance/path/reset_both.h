// SPDX-License-Identifier: Apache-2.0
/* Resets both ends of a session (docs/design/0011-tcp-lifecycle.md). */
#ifndef RESET_BOTH_H
#define RESET_BOTH_H

#include "balance.h"

/* Is it a TCP session whose ends would otherwise wait for each other? */
bool reset_both_is_due(const struct endpoint *e, const struct session *s);
/* Ends the session and resets both ends. Each end gets a probe, and its answer is answered with a
 * reset. heard: the side that has just sent a packet and needs no probe; or SESSION_NEITHER. */
#define SESSION_NEITHER 2
void reset_both_begin(struct sy_worker *w, struct session *s, unsigned heard);
/* Repeats the probe of each side that was not heard: the probe or its answer was lost, or the rate
 * limit withheld it. */
void reset_both_probe(struct sy_worker *w, struct session *s);
/* Packet i belongs to a session that ends (record burst->session[i]). True: it may create a new
 * session, and the old one has ended. False: it was answered and dropped. */
bool reset_both_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);
/* Answers packet i by a reset and drops it for this reason; its session ends as by
 * reset_both_begin(), if it does not already. */
void reset_both_refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                       enum sy_drop reason);

#endif
