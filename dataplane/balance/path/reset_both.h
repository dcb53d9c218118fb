// SPDX-License-Identifier: Apache-2.0
/* Both ends of a session are told that it ends (docs/design/0011-tcp-life.md). */
#ifndef RESET_BOTH_H
#define RESET_BOTH_H

#include "balance.h"

/* A TCP session of ends that would wait for each other. */
bool reset_both_is_due(const struct endpoint *e, const struct session *s);
/* It ends, and both ends shall know: they are asked to say something, which is answered by a reset.
 * heard: the side that need not be asked, as it just spoke; SESSION_NEITHER. */
#define SESSION_NEITHER 2
void reset_both_begin(struct sy_worker *w, struct session *s, unsigned heard);
/* Asks once more who was not heard: the question or its answer was lost, or there were too many. */
void reset_both_probe(struct sy_worker *w, struct session *s);
/* Packet i is of a session that ends (record burst->session[i]). Returns true if it may begin a new
 * one, and then the session has ended; false: it was answered and dropped. */
bool reset_both_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i);

#endif
