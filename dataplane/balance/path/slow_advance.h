// SPDX-License-Identifier: Apache-2.0
/* How packets advance the states of their sessions, for slow.c. */
#ifndef SLOW_ADVANCE_H
#define SLOW_ADVANCE_H

#include "balance.h"

/* Advances a session's state by packet i. False: the packet was dropped. Ends the session if
 * the packet may create another one: burst->session[i] is then SESSION_NONE. */
bool slow_advance(struct sy_worker *w, struct sy_burst *burst, unsigned i);

#endif
