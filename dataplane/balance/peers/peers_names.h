// SPDX-License-Identifier: Apache-2.0
/*
 * Ids by meaning: entries name servers and local addresses by the sender's ids. What these mean is
 * the log of one more slot, SYNC_DICTIONARY; the receiver finds its own ids for them.
 *
 * Worker 0 writes what a peer's ids mean, and translates again when this node's own ids have
 * changed; all workers read translations, relaxed. The control thread publishes the table of own
 * ids.
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

/* A server's meaning. Bytes that are compared and sent. */
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
	/* Own ids; NAMES_NONE: there is none. Readers: all workers, relaxed, after `flags` */
	uint32_t *own; /* [NAMES_RECORDS] */
	uint8_t *mark; /* [NAMES_RECORDS]: marks of the log to this peer */
	uint32_t top;  /* records above have no meaning */
};
enum { NAMES_KNOWN = 1, NAMES_COUNTED = 2 };

struct names_table; /* own ids, sorted by meaning */

struct names {
	const struct session_store *store;
	struct names_peer *peer[SYNC_NODES];
	const struct names_table *table; /* RCU; NULL: none yet */
	uint32_t table_version;          /* of the store's names. Control thread */
	/* Worker 0: */
	uint32_t count;        /* own records */
	uint32_t *sent;        /* [count]: hash of the meaning in the logs; 0: none */
	uint32_t sent_version; /* of the store's names that are in the logs */
	uint32_t scan_at;      /* the next own record to compare; `count`: all are */
	uint32_t resolve_at; /* the next peers' record to translate again; NAMES_RECORDS: all are */
	const struct names_table *resolved_by;
	uint32_t resolved; /* counts complete passes. Readers: all workers, acquire */
};

/* Returns 0 or -ENOMEM. servers: own ids are below it; peers: a bit by node number. */
int names_create(struct names *n, const struct session_store *store, uint32_t servers,
                 uint32_t peers);
void names_destroy(struct names *n);
/* Publishes the table of own ids, if they have changed. Control thread. */
void names_tick(struct sy_balance *b, struct names *n);
/* Worker 0: notes changed own ids, and translates some peers' ids. Returns whether more are left.
 */
bool names_poll(struct sy_balance *b, struct names *n);

/* The meaning of an own server id. */
struct names_server names_of(const struct endpoint *e);
/* A hash of what the ids of a session mean; local NULL: it has none. */
uint16_t names_meaning(const struct names_server *server, const struct sy_addr *local);
/* What a peer's id means; NULL: it is not explained yet. */
const struct names_server *names_server(const struct names *n, unsigned node, uint32_t id);
const struct sy_addr *names_local(const struct names *n, unsigned node, uint8_t id);
/* The own id for it, or NAMES_NONE. */
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
