// SPDX-License-Identifier: Apache-2.0
/*
 * Session synchronisation at this balancer (docs/design/0068-session-sync.md): its session tables
 * are source and sink of a struct sync_node, whose datagrams its workers exchange with the peers.
 *
 *     path/ ── synced_change() ──▶ sync_node ◀── source, sink ──▶ session tables
 *                                   │    ▲
 *                           datagrams    parts of the slots of other workers
 *                                   ▼
 *                              UDP sockets, one for each worker
 *
 *   peers_source.c, peers_sink.c   serialise sessions; apply entries to session tables
 *   peers_names.c                  translates server and address ids between nodes
 *   peers.c                        a worker's poll, parts for other workers
 *   peers_role.c                   the role
 *   peers_socket.c                 the sockets
 *   peers_relay.c                  packets that other nodes of an ECMP group relay
 */
#ifndef PEERS_H
#define PEERS_H

#include "balance.h"
#include "peers_names.h"
#include "sync_node.h"

struct rte_ring;

/* Why a peer's session was not stored: name in reports, meaning. */
#define PEERS_REFUSALS(X)                                                                          \
	X(SERVER, "unknown-server", "its server or service is not configured here")                \
	X(LOCAL, "unknown-local", "its local address is not configured here")                      \
	X(FULL, "table-full", "the session tables are full")                                       \
	X(OWN, "served-here", "this node serves a session with the same tuple")                    \
	X(MALFORMED, "malformed", "it cannot be a session of its server")

enum peers_refusal {
#define X(id, name, help) PEERS_REFUSED_##id,
	PEERS_REFUSALS(X)
#undef X
	        PEERS_REFUSAL_COUNT
};

const char *peers_refusal_name(enum peers_refusal reason);
const char *peers_refusal_help(enum peers_refusal reason);

/* State of one worker. Writer: that worker; readers of `refused`: relaxed. */
struct peers_worker {
	struct rte_ring *inbox; /* parts of its slots that other workers have received */
	int fd;
	uint8_t role;            /* struct peers.role at the last poll */
	uint32_t masters;        /* bitmap of the peers that were masters at the last poll */
	uint32_t alive;          /* bitmap of the living peers at the last poll */
	uint16_t claim_at;       /* the next slot to claim; SY_SLOTS: all are claimed */
	uint32_t names_resolved; /* struct peers.resolved, as of the last request for copies */
	uint64_t receive_ns;     /* time of the next read of the socket, unless a sleep finds it
	                            readable */
	uint64_t refused[PEERS_REFUSAL_COUNT];
	uint64_t unsent; /* datagrams that the kernel did not accept */
} __attribute__((aligned(SY_CACHE_LINE)));

struct peers {
	struct sy_balance *b;
	struct sync_node *node;
	struct sy_peers_options options;
	struct sy_hash_key key; /* of identities: the same on all nodes of a cluster */
	struct names names;
	/* Of SYN cookies, by secret: all nodes accept each other's. */
	struct sy_siphash_key cookie[SYNC_SECRETS];
	unsigned cookies;
	/* By slot: the capacity of the table when it was too full for a put; 0: it was not. Writer
	 * and reader: the slot's worker */
	uint32_t full_at[SY_SLOTS];
	/* By node and slot: the incarnation of the last whole copy. As full_at */
	uint32_t copied_epoch[SYNC_NODES][SY_SLOTS];
	uint8_t role; /* enum sync_role. Writer: control thread; readers: relaxed */
	/* Of the control thread: the role that was set, which differs while the change waits; when
	 * it was set; whether this node was the master and has started without its sessions. */
	uint8_t wanted;
	bool lost;
	uint64_t wanted_ns;
	/* By node: the role of a live peer at the last tick; SYNC_ROLE_UNKNOWN: it was not alive */
	uint8_t seen[SYNC_NODES];
	/* Time of worker 0's first poll; 0: not yet. Writer: worker 0; readers: relaxed */
	uint64_t started_ns;
	struct peers_worker worker[SY_MAX_WORKERS];
};

/* Creates b->peers and b->sync, if peers are configured; before workers run. */
int peers_create(struct sy_balance *b, struct sy_error *err);
void peers_destroy(struct sy_balance *b);
/* Binds the sockets: after a predecessor has closed them, before workers run. */
int peers_open(struct sy_balance *b, struct sy_error *err);
/* Before this node stops, when no worker runs: waits until its peers have all of its sessions, for
 * at most LEAVE_NS. In an ECMP group it then tells them to take them over. In a pair, keepalived
 * decides, and a restart may be over before it does. */
void peers_leave(struct sy_balance *b);
/* A step of peers_leave(). Returns true when that is done. */
bool peers_leave_step(struct sy_balance *b, uint64_t since_ns, uint64_t now_ns);
void peers_close(struct sy_balance *b);
/* Call when this process has locked the state directory: loads the role again, which a predecessor
 * may have changed since peers_create(). */
void peers_acquired(struct sy_balance *b);
/* Returns true if this node serves no sessions, and keeps replicas for its peers. */
bool peers_is_standby(const struct sy_balance *b);
/* Call after sessions were adopted: a standby keeps them as replicas. */
void peers_adopted(struct sy_balance *b);
/* Called by the control thread every RETIRE_PERIOD_MS. */
void peers_tick(struct sy_balance *b);

/* Called by a worker in each poll. Returns true if there was work. */
bool peers_poll(struct sy_worker *w);
/* Returns the latest time of the next peers_poll(). */
uint64_t peers_wake_ns(const struct sy_worker *w);
bool peers_is_idle(const struct sy_worker *w);

/* Called by the control thread. A master serves its sessions and replicas; a backup keeps both for
 * its peer. Unless at_once, the change waits while sessions would be lost. */
void peers_set_role(struct sy_balance *b, enum sync_role role, bool at_once);

/* ---- peers_role.c ---------------------------------------------------------------------------- */

/* Begins with the saved role, before workers run. */
void role_resume(struct sy_balance *b);
/* Call after sessions were adopted. */
void role_adopted(struct sy_balance *b);
/* Completes a change that has waited. */
void role_tick(struct sy_balance *b);

/* ---- peers_source.c -------------------------------------------------------------------------- */

struct sync_source peers_source(struct peers *p);
/* Returns the hash of a session's identity, the same on all nodes: of its server's meaning, its
 * local address (NULL: none), and its records. */
uint64_t peers_identity(const struct peers *p, const struct names_server *server,
                        const struct sy_addr *local, const struct session hot[2],
                        const struct session_cold *cold);
/* The same for a record of this balancer. */
uint64_t peers_identity_at(const struct peers *p, unsigned slot, uint32_t record);
/* Do server and local port identify its sessions? */
bool peers_is_by_local(uint8_t mode);
struct sy_worker *peers_worker_of(const struct peers *p, unsigned slot);

/* ---- peers_sink.c ---------------------------------------------------------------------------- */

struct sync_sink peers_sink(struct peers *p);
struct sync_sum peers_stored(void *peers, uint8_t node, unsigned slot);
/* Makes all replicas in a slot this node's own sessions. Called by its owner. */
void peers_claim(struct sy_worker *w, unsigned slot);

/* ---- peers_relay.c --------------------------------------------------------------------------- */

void peers_relayed(void *peers, unsigned worker, const struct sync_relay *relay,
                   const uint8_t *packet, size_t len);

/* ---- peers_socket.c -------------------------------------------------------------------------- */

/* Fails with -EINVAL if the sockets could not be bound to the address: a process that fails on it
 * would not start again. */
int peers_address_check(const struct sy_addr *addr, uint16_t port, struct sy_error *err);
int peers_sockets_open(struct peers *p, struct sy_error *err);
void peers_sockets_close(struct peers *p);
/* Passes what has arrived to the node. Returns whether there was anything; sets *more if more may
 * have arrived. */
bool peers_receive(struct peers *p, struct sy_worker *w, bool *more);
void peers_send(void *peers, unsigned worker, uint8_t node, const uint8_t *bytes, size_t len);

#endif
