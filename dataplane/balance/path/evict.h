// SPDX-License-Identifier: Apache-2.0
/* Evicts sessions from a full slot, for create.c and snat_create.c. */
#ifndef EVICT_H
#define EVICT_H

#include "balance.h"

/*
 * These evict the least valuable of the sessions they visit, never an established TCP session, and
 * count it as SY_DROP_EMBRYONIC_EVICTED or SY_DROP_SESSION_EVICTED. They may end the session of a
 * later packet of the burst: balance_worker.ended changes. server: of the new session.
 */

/* Frees a record for a new session if the table is full; with `pair`, an even record and the next
 * one. Returns false if no visited session may be evicted. */
bool evict_session(struct sy_worker *w, struct session_table *t, uint32_t server, bool pair);
/* Evicts an embryonic session if the search finds one. Call before a new session begins while
 * embryonic sessions use their whole share of the table. */
void evict_embryonic(struct sy_worker *w, struct session_table *t, uint32_t server);
/* Callback of struct session_port_search. */
uint32_t evict_port_cost(const struct session_port_search *search, const struct session *s);
/* Evicts the session that session_find_port() returned as `victim`. */
void evict_for_port(struct sy_worker *w, struct session_table *t, uint32_t record);

#endif
