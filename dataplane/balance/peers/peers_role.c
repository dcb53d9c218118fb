// SPDX-License-Identifier: Apache-2.0
/*
 * This node's role (docs/design/0069-which-node-serves.md). Control thread.
 *
 *   to master    waits while a live peer has sessions that this node lacks
 *   to backup    waits while a live peer that is no master lacks sessions of this node
 *
 * The peer's present role and what it lacks are in its hellos. In an ECMP group all nodes serve,
 * always.
 */
#include "model.h"
#include "peers.h"
#include "saved.h"
#include "synced.h"

/* Max time of a change to master while no node serves: a copy of 10 million sessions takes so long.
 */
#define UNSERVED_NS UINT64_C(15000000000)

static const char *role_name(uint8_t role)
{
	return role == SYNC_ROLE_MASTER ? "master" : "backup";
}

/* ---- does the change wait? ------------------------------------------------------------------- */

/* For so long a master that is to leave waits for a silent peer, as it serves meanwhile: the peer's
 * host may be busy. */
#define GONE_NS UINT64_C(5000000000)

/* Is it too early to tell whether the peer is alive? silence_ns: after so much it is not. */
static bool is_unknown(const struct peers *p, const struct sync_peer *peer, uint64_t silence_ns,
                       uint64_t now_ns)
{
	const uint64_t started_ns = SY_READ(p->started_ns);
	return !SY_READ(peer->received_ns) && (!started_ns || now_ns - started_ns < silence_ns);
}

/* Of a peer that does not serve: a start without sessions waits for all that the peer has kept;
 * otherwise that is replicated already, and only what the peer has served itself may be missing. */
static bool has_sessions(const struct peers *p, const struct sync_peer *peer)
{
	return SY_READ(peer->role) == SYNC_ROLE_MASTER || p->lost || SY_READ(peer->sessions) > 0;
}

static bool master_waits_for(const struct peers *p, uint8_t node, uint64_t now_ns)
{
	const struct sync_peer *peer = sync_node_peer(p->node, node);
	const uint64_t started_ns = SY_READ(p->started_ns);
	const uint64_t since_ns = p->wanted_ns > started_ns ? p->wanted_ns : started_ns;
	if (is_unknown(p, peer, SYNC_ALIVE_NS, now_ns))
		return true;
	return sync_peer_is_alive(peer, now_ns) && has_sessions(p, peer) &&
	       sync_node_lacking(p->node, node) > 0 &&
	       (SY_READ(peer->role) == SYNC_ROLE_MASTER || now_ns - since_ns < UNSERVED_NS);
}

static bool backup_waits_for(const struct peers *p, uint8_t node, uint64_t now_ns)
{
	const struct sync_peer *peer = sync_node_peer(p->node, node);
	if (is_unknown(p, peer, GONE_NS, now_ns))
		return true;
	const uint64_t received_ns = SY_READ(peer->received_ns);
	return received_ns && (int64_t)(now_ns - received_ns) < (int64_t)GONE_NS &&
	       SY_READ(peer->role) != SYNC_ROLE_MASTER && SY_READ(peer->lacking) > 0;
}

static bool change_waits(const struct peers *p)
{
	/* the times of peers are the workers' */
	const uint64_t now_ns = sy_worker_at(p->b->rt, 0)->now_ns;
	bool waits = false;
	for (uint8_t node = 1; node < SYNC_NODES; node++)
		if (p->options.peer[node].port)
			waits |= p->wanted == SYNC_ROLE_MASTER ? master_waits_for(p, node, now_ns)
			                                       : backup_waits_for(p, node, now_ns);
	return waits;
}

/* ---- changes --------------------------------------------------------------------------------- */

static void role_begin(struct sy_balance *b, uint8_t role)
{
	if (role != SYNC_ROLE_MASTER)
		addresses_serve(b, false);
	__atomic_store_n(&b->peers->role, role, __ATOMIC_RELAXED);
	sync_node_set_role(b->peers->node, role);
	if (role == SYNC_ROLE_MASTER)
		addresses_serve(b, true);
}

static void role_save(const struct sy_balance *b, uint8_t role)
{
	const struct saved_role saved = {role == SYNC_ROLE_MASTER,
	                                 b->peers->wanted == SYNC_ROLE_MASTER};
	const int rc = role_file_save(b->options.state_directory, saved);
	if (rc < 0)
		sy_log(SY_LOG_ERROR, "peers",
		       "the role cannot be saved in %s: %s; after a restart the former role "
		       "applies",
		       b->options.state_directory, strerror(-rc));
}

static void role_change(struct sy_balance *b)
{
	struct peers *p = b->peers;
	sy_log(SY_LOG_INFO, "peers", "role: %s", role_name(p->wanted));
	p->lost = false;
	if (p->wanted == SYNC_ROLE_MASTER)
		__atomic_store_n(&b->serves_since, balance_seconds(sy_worker_at(b->rt, 0)),
		                 __ATOMIC_RELAXED);
	/* Save first: this process may be killed while it claims addresses. */
	role_save(b, p->wanted);
	role_begin(b, p->wanted);
	for (unsigned w = 0; w < b->workers; w++)
		sy_worker_wake(sy_worker_at(b->rt, w));
}

void peers_set_role(struct sy_balance *b, enum sync_role role, bool at_once)
{
	struct peers *p = b->peers;
	const bool changes = p->wanted != role;
	p->wanted = (uint8_t)role;
	if (changes)
		p->wanted_ns = sy_worker_at(b->rt, 0)->now_ns;
	if (p->role != role && (at_once || !change_waits(p))) {
		role_change(b);
	} else if (changes) {
		p->lost = false;
		role_save(b, p->role);
		if (p->role != role)
			sy_log(SY_LOG_INFO, "peers", "role: still %s, %s once no session is lost",
			       role_name(p->role), role_name(p->wanted));
	}
}

/* Returns true if a live peer is a backup now, and may have announced this node's addresses before:
 * it was a master, or this node heard nothing from it. */
static bool peer_has_resigned(struct peers *p)
{
	const uint64_t now_ns = sy_worker_at(p->b->rt, 0)->now_ns;
	bool resigned = false;
	for (uint8_t node = 1; node < SYNC_NODES; node++) {
		const struct sync_peer *peer = sync_node_peer(p->node, node);
		const uint8_t role = p->options.peer[node].port && sync_peer_is_alive(peer, now_ns)
		                             ? SY_READ(peer->role)
		                             : SYNC_ROLE_UNKNOWN;
		resigned |= role == SYNC_ROLE_BACKUP && p->seen[node] != role;
		p->seen[node] = role;
	}
	return resigned;
}

void role_tick(struct sy_balance *b)
{
	struct peers *p = b->peers;
	if (peer_has_resigned(p) && p->role == SYNC_ROLE_MASTER)
		sy_addresses_announce(b->rt);
	if (SY_UNLIKELY(p->role != p->wanted) && b->ctl->owner && b->ctl->store && !change_waits(p))
		role_change(b);
}

/* ---- start ----------------------------------------------------------------------------------- */

void role_resume(struct sy_balance *b)
{
	struct peers *p = b->peers;
	const struct saved_role saved = p->options.is_ecmp
	                                        ? (struct saved_role){true, true}
	                                        : role_file_load(b->options.state_directory);
	p->wanted = saved.wanted_master ? SYNC_ROLE_MASTER : SYNC_ROLE_BACKUP;
	p->wanted_ns = 0;
	role_begin(b, saved.master ? SYNC_ROLE_MASTER : SYNC_ROLE_BACKUP);
	for (unsigned w = 0; w < b->workers; w++)
		p->worker[w].role = p->role;
}

void peers_acquired(struct sy_balance *b)
{
	if (b->peers)
		role_resume(b);
}

bool peers_is_standby(const struct sy_balance *b)
{
	return b->peers && SY_READ(b->peers->role) != SYNC_ROLE_MASTER;
}

/* Returns true if this start has none of the sessions that an earlier one served. */
static bool sessions_are_lost(const struct sy_balance *b)
{
	const struct adoption *a = &b->ctl->adoption;
	return a->found.source == SESSION_SOURCE_NEW ||
	       (a->found.source != SESSION_SOURCE_HANDED_OVER && a->count[SESSION_KEPT] == 0);
}

/* A master without its sessions waits for the peer's replicas. */
static void master_check(struct sy_balance *b)
{
	struct peers *p = b->peers;
	if (p->role != SYNC_ROLE_MASTER || p->options.is_ecmp || !sessions_are_lost(b))
		return;
	sy_log(SY_LOG_WARN, "peers",
	       "this node was the master, and none of its sessions could be adopted: it is a "
	       "backup until it has those of its peer");
	p->lost = true;
	role_begin(b, SYNC_ROLE_BACKUP);
	for (unsigned w = 0; w < b->workers; w++)
		p->worker[w].role = p->role;
	role_save(b, p->role);
}

/* Turns adopted sessions into replicas of the only peer: it may have served them meanwhile, and the
 * sums show which it still has. */
static void sessions_keep(struct sy_balance *b)
{
	uint8_t peer = 0;
	for (uint8_t node = 1; node < SYNC_NODES; node++) {
		if (!b->peers->options.peer[node].port)
			continue;
		if (peer)
			return;
		peer = node;
	}
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		uint32_t cursor = 0, record;
		while ((record = session_next(b->table[slot], &cursor)) != SESSION_NONE)
			*session_mark_at(b, slot, record) = peer;
	}
}

void role_adopted(struct sy_balance *b)
{
	master_check(b);
	if (b->peers->role != SYNC_ROLE_MASTER)
		sessions_keep(b);
}
