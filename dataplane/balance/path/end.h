// SPDX-License-Identifier: Apache-2.0
/* The end of a session. */
#ifndef END_H
#define END_H

#include "balance.h"

/*
 * The hash that its client's side is filed under. Of one client there may be any number of
 * one-packet sessions, none of which its next datagram may find: they lie where only their end
 * looks.
 */
uint64_t session_client_hash(const struct session *s, uint64_t tuple_hash, uint64_t server_hash);

/* What a session is filed under. */
struct session_hashes {
	uint64_t client, server;
};
struct session_hashes session_get_hashes(const struct sy_balance *b, const struct session *s,
                                         const struct session_cold *cold);

/* Ends a session: index, record, counters; and its server's TIME_WAIT. */
void session_end(struct sy_worker *w, struct session_table *t, uint32_t record);
/* The same for many of a table, their cache misses side by side. At most SESSIONS_END of them. */
void sessions_end(struct sy_worker *w, struct session_table *t, const uint32_t *record,
                  unsigned count);
#define SESSIONS_END 32

#endif
