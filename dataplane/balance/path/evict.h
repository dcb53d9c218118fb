// SPDX-License-Identifier: Apache-2.0
/* Eviction of sessions from a full slot, for create.c and snat_create.c. */
#ifndef EVICT_H
#define EVICT_H

#include "balance.h"

/*
 * All of these end the least valuable of some sessions, but never an established TCP session, and
 * count it as SY_DROP_EMBRYONIC_EVICTED or SY_DROP_SESSION_EVICTED. They may end the session of a
 * later packet of the burst: balance_worker.ended shows that. server: of the new session.
 */

/* Makes a record available for a new session if the table is full. With `pair` an even record and
 * the next one become free. Returns false if none of the sessions it looked at may end. */
bool evict_session(struct sy_worker *w, struct session_table *t, uint32_t server, bool pair);
/* Before a new session begins while embryonic sessions have their whole share of the table: ends
 * one of them, if there is one among those it looks at. */
void evict_embryonic(struct sy_worker *w, struct session_table *t, uint32_t server);
/* For struct session_port_search, in a struct port_search. */
uint32_t evict_port_cost(const struct session_port_search *search, const struct session *s);
/* Ends the session that session_find_port() returned as `victim`. */
void evict_for_port(struct sy_worker *w, struct session_table *t, uint32_t record);

#endif
