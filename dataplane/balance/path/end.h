// SPDX-License-Identifier: Apache-2.0
/* Ending a session, and the hashes under which the index has it. */
#ifndef END_H
#define END_H

#include "balance.h"

/*
 * The hash under which the client's side is in the index. A client may have any number of
 * one-packet sessions, and its next datagram must find none of them: they are stored where only the
 * code that ends them looks.
 */
uint64_t session_client_hash(const struct session *s, uint64_t tuple_hash, uint64_t server_hash);

/* The hashes under which a session is in the index. */
struct session_hashes {
	uint64_t client, server;
};
struct session_hashes session_get_hashes(const struct sy_balance *b, const struct session *s,
                                         const struct session_cold *cold);

/* Ends a session: removes it from the index, frees its record, updates counters, and clears its
 * server's TIME_WAIT. */
void session_end(struct sy_worker *w, struct session_table *t, uint32_t record);
/* The same for up to SESSIONS_END sessions of one table; their cache misses overlap. */
void sessions_end(struct sy_worker *w, struct session_table *t, const uint32_t *record,
                  unsigned count);
#define SESSIONS_END 32

#endif
