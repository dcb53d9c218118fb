// SPDX-License-Identifier: Apache-2.0
/* Eviction of sessions from a full slot, for create.c and snat_create.c. */
#ifndef EVICT_H
#define EVICT_H

#include "balance.h"

/* Makes a record available for a new session if the table is full: ends the least valuable of some
 * sessions, but never an established TCP session. With `pair` an even record and the next one
 * become free. Counts each session as SY_DROP_SESSION_EVICTED. Returns false if none of the
 * sessions it looked at may end. It may end the session of a later packet of the burst:
 * balance_worker.ended shows that. */
bool evict_session(struct sy_worker *w, struct session_table *t, bool pair);

#endif
