// SPDX-License-Identifier: Apache-2.0
/* Ending a session; the hashes of its index entries. */
#ifndef END_H
#define END_H

#include "balance.h"

/*
 * The hash of the client side's index entry. A client may have any number of one-packet sessions,
 * and its next datagram must match none: their entries are stored where only session_end() looks.
 */
uint64_t session_client_hash(const struct session *s, uint64_t tuple_hash, uint64_t server_hash);

/* The hashes of a session's index entries. */
struct session_hashes {
	uint64_t client, server;
};
struct session_hashes session_get_hashes(const struct sy_balance *b, const struct session *s,
                                         const struct session_cold *cold);

/* Ends a session: removes its index entries, frees the record, updates counters, and closes its
 * server's TIME_WAIT. */
void session_end(struct sy_worker *w, struct session_table *t, uint32_t record);
/* The same for up to SESSIONS_END sessions of one table: their cache misses overlap. */
void sessions_end(struct sy_worker *w, struct session_table *t, const uint32_t *record,
                  unsigned count);
#define SESSIONS_END 32

#endif
