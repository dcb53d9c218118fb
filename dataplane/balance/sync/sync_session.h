// SPDX-License-Identifier: Apache-2.0
/*
 * Sessions as entries of a slot's log (docs/design/0068-session-sync.md). Ids of servers and local
 * addresses are the sender's.
 *
 *     put     head │ flags, local, server, meaning │ ports │ client │ state… │ age │ second record
 *     change  head │ flags, local, server, meaning │ ports │ client │ state… │     │ second record
 *     delete  head │ flags, local, server, meaning │ ports │ client │        │     │ second record
 *
 * Client and second record are left out of changes and deletions of sessions that have a local
 * address: server and local port identify them. Numbers are little endian, ports and addresses in
 * network order.
 */
#ifndef SYNC_SESSION_H
#define SYNC_SESSION_H

#include "session.h"
#include "sync_entry.h"

/* A session's records as an entry describes them, with the sender's ids and without path, delta and
 * commit, which belong to one node. */
struct sync_session {
	struct session hot[2];
	struct session_cold cold[2];
	uint16_t meaning; /* hash of what the ids mean: they may have been reassigned */
	uint16_t idle_s;  /* since its last packet; hot.seen is not set */
	uint32_t age_s;   /* of a put: since its creation; cold.created is not set */
	bool is_pair;     /* the second records are set */
	bool has_client;
	bool transferred; /* of a deletion: the sender keeps the session as the receiver's replica.
	                     A receiver that has it as the sender's replica serves it again */
	bool known;       /* of a put: the log has an earlier put of this session */
	bool from_master; /* the sender was the master */
	bool unused;      /* the sender has taken it over, and no packet has arrived since */
};

/* Writes the entry. by_local: server and local port identify the session. */
void sync_session_write(const struct sync_session *s, enum sync_entry_kind kind, bool by_local,
                        uint8_t entry[static SYNC_ENTRY]);

/* Parses an entry. A later version may append fields, which are ignored. Returns false if the entry
 * is malformed. */
bool sync_session_read(const uint8_t *entry, struct sync_session *out);

#endif
