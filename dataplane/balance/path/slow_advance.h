// SPDX-License-Identifier: Apache-2.0
/* State changes of sessions, for slow.c. */
#ifndef SLOW_ADVANCE_H
#define SLOW_ADVANCE_H

#include "balance.h"

/* Advances the session's state by packet i. Returns false if the packet was dropped. If the packet
 * may begin a new session, ends this one: burst->session[i] is then SESSION_NONE. */
bool slow_advance(struct sy_worker *w, struct sy_burst *burst, unsigned i);

#endif
