// SPDX-License-Identifier: Apache-2.0
#ifndef EVICT_H
#define EVICT_H

#include "balance.h"

/* For a new session that a table has no record for: ends the least valuable of some sessions, never
 * an established TCP one, so that one record is free, or with `pair` an even one and the next.
 * Counts each as SY_DROP_SESSION_EVICTED. Returns false if none of those it looked at may go. The
 * session of a later packet of the burst may have been the one: balance_worker.ended tells. */
bool evict_session(struct sy_worker *w, struct session_table *t, bool pair);

#endif
