// SPDX-License-Identifier: Apache-2.0
/*
 * Translation of ids. Entries name servers and local addresses by the sender's ids. The log of one
 * more slot, SYNC_DICTIONARY, transfers the meaning of these ids: a server's tuple, or an address.
 * The receiver translates them into its own ids.
 *
 * Worker 0 stores the meanings of peers' ids, and translates all of them again when this node's own
 * ids have changed; all workers read translations, relaxed. The control thread publishes the table
 * of own ids.
 */
#ifndef PEERS_NAMES_H
#define PEERS_NAMES_H

#include "balance.h"
#include "sync_log.h"
#include "sync_peer.h"
#include "sync_replica.h"

#define NAMES_SERVERS (1u << 24)
/* Records of the dictionary: local addresses by id, then servers. */
#define NAMES_LOCALS  SESSION_LOCALS
#define NAMES_RECORDS (NAMES_LOCALS + NAMES_SERVERS)
#define NAMES_NONE    UINT32_MAX

/* The meaning of a server id: compared and sent as bytes. */
struct names_server {
	struct sy_addr addr, vip;
	uint16_t port, vport, last_port; /* as in struct session_server_name */
	uint8_t proto, mode;
};
_Static_assert(sizeof(struct names_server) == 40, "no padding");

/* A peer's ids. */
struct names_peer {
	uint8_t *flags;              /* [NAMES_RECORDS]: NAMES_KNOWN, NAMES_COUNTED */
	struct names_server *server; /* [NAMES_SERVERS] */
	struct sy_addr local[SESSION_LOCALS];
	/* Translations; NAMES_NONE: no own id has the meaning. Readers: all workers, relaxed, after
	 * `flags` */
	uint32_t *own; /* [NAMES_RECORDS] */
	uint8_t *mark; /* [NAMES_RECORDS]: marks of the log to this peer */
	uint32_t top;  /* no record from here on has a meaning */
};
/* NAMES_OWN: new sessions at the peer use the address. */
enum { NAMES_KNOWN = 1, NAMES_COUNTED = 2, NAMES_OWN = 4 };

struct names_table; /* own ids, sorted by meaning */

struct names {
	const struct session_store *store;
	const struct sy_balance *b;
	struct names_peer *peer[SYNC_NODES];
	const struct names_table *table; /* RCU; NULL: none yet */
	uint32_t table_version;          /* version of the store's names in it. Control thread */
	/* Worker 0: */
	uint32_t count;          /* number of own records */
	uint32_t *sent;          /* [count]: hash of the meaning in the logs; 0: none */
	uint32_t sent_version;   /* version of the store's names in the logs */
	uint32_t locals_version; /* of b->local_is_own in the logs */
	uint32_t scan_at;        /* the next own record to compare; `count`: the scan is complete */
	uint32_t resolve_at; /* the next peers' record to translate again; NAMES_RECORDS: the pass
	                        is complete */
	const struct names_table *resolved_by;
	uint32_t resolved; /* number of complete passes. Readers: all workers, acquire */
};

/* Fails with -ENOMEM. servers: bound of own server ids; peers: bitmap of node numbers. */
int names_create(struct names *n, const struct sy_balance *b, const struct session_store *store,
                 uint32_t servers, uint32_t peers);
void names_destroy(struct names *n);
/* Called by the control thread: publishes the table of own ids if they have changed. */
void names_tick(struct sy_balance *b, struct names *n);
/* Called by the control thread: finds a local or pool address that new sessions use here and at a
 * peer, so that both could choose the same port. Returns false if there is none. */
bool names_find_shared(const struct names *n, uint8_t *node, struct sy_addr *addr);
/* Called by worker 0: logs changed own ids, and translates some of the peers' ids. Returns true if
 * more of them are left. */
bool names_poll(struct sy_balance *b, struct names *n);

/* Returns the meaning of an own server id. */
struct names_server names_of(const struct endpoint *e);
/* Returns a hash of the meanings of a session's ids; local NULL: no local address. */
uint16_t names_meaning(const struct names_server *server, const struct sy_addr *local);
/* Returns the meaning of a peer's id; NULL: its dictionary entry has not arrived. */
const struct names_server *names_server(const struct names *n, unsigned node, uint32_t id);
const struct sy_addr *names_local(const struct names *n, unsigned node, uint8_t id);
/* Returns the own id with the same meaning, or NAMES_NONE. */
uint32_t names_own_server(const struct names *n, unsigned node, uint32_t id);
uint32_t names_own_local(const struct names *n, unsigned node, uint8_t id);

/* ---- source and sink of SYNC_DICTIONARY ------------------------------------------------------ */

bool names_describe(const struct names *n, uint32_t record, uint8_t entry[static SYNC_ENTRY],
                    uint64_t *hash);
void names_describe_end(uint32_t record, uint8_t entry[static SYNC_ENTRY], uint64_t *hash);
uint32_t names_next(const struct names *n, uint32_t record);
enum sync_result names_apply(struct names *n, unsigned node, const uint8_t *entry, uint64_t *hash);
void names_copy_begin(struct names *n, unsigned node);
void names_copy_end(struct names *n, unsigned node);
struct sync_sum names_stored(struct names *n, unsigned node);

#endif
