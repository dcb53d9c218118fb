// SPDX-License-Identifier: Apache-2.0
/*
 * What the packet path tells session synchronisation (docs/design/0068-session-sync.md): a session
 * has changed, or ends. Called by the slot's owner. Without peers, each costs one comparison.
 */
#ifndef SYNCED_H
#define SYNCED_H

#include "balance.h"
#include "sync_node.h"

#define SYNCED_DELAY_NS UINT64_C(1000000) /* changes wait for others, to share a datagram */

static inline uint8_t *session_mark_at(const struct sy_balance *b, unsigned slot, uint32_t record)
{
	return &b->sync_mark[(size_t)slot * SESSION_RECORDS_MAX + record];
}

/* Does another node serve the session? */
static inline bool session_is_replica(const struct sy_balance *b, unsigned slot, uint32_t record)
{
	return SY_UNLIKELY(b->sync != NULL) && *session_mark_at(b, slot, record) & SYNC_OWNER;
}

/* Does a peer serve, and not this node? */
static inline bool synced_is_backup(const struct sy_balance *b)
{
	return SY_UNLIKELY(b->sync != NULL) && sync_node_role(b->sync) != SYNC_ROLE_MASTER;
}

static inline void synced_poll_soon(struct sy_worker *w)
{
	struct balance_worker *bw = balance_worker_of(w);
	if (bw->sync_ns > w->now_ns + SYNCED_DELAY_NS)
		bw->sync_ns = w->now_ns + SYNCED_DELAY_NS;
}

static inline void synced_change(struct sy_worker *w, unsigned slot, uint32_t record)
{
	const struct sy_balance *b = w->app;
	if (SY_LIKELY(!b->sync))
		return;
	sync_node_change(b->sync, slot, record);
	synced_poll_soon(w);
}

/* The same for a session that may be too young for the peer to know. */
static inline void synced_change_known(struct sy_worker *w, unsigned slot, uint32_t record)
{
	const struct sy_balance *b = w->app;
	if (SY_UNLIKELY(b->sync != NULL) && *session_mark_at(b, slot, record) & SYNC_KNOWN)
		synced_change(w, slot, record);
}

/* Before the record is freed. */
static inline void synced_end(struct sy_worker *w, unsigned slot, uint32_t record)
{
	const struct sy_balance *b = w->app;
	if (SY_LIKELY(!b->sync))
		return;
	sync_node_end(b->sync, slot, record);
	synced_poll_soon(w);
}

/* The flags that peers get: losses are watched by one worker of one node. */
static inline uint8_t synced_flags(const struct session *s, uint8_t proto)
{
	return proto == SY_PROTO_TCP ? s->flags & (uint8_t)~SESSION_WATCHED : s->flags;
}

/* What a packet may change in a session. */
struct synced_state {
	uint8_t state, flags;
	uint8_t cold[offsetof(struct session_cold, commit)];
};

static inline struct synced_state synced_state_of(const struct sy_balance *b,
                                                  const struct session_table *t, uint32_t record)
{
	struct synced_state out = {0};
	if (SY_LIKELY(!b->sync) || record == SESSION_NONE)
		return out;
	const struct session *s = session_at(t, record);
	out.state = s->state;
	out.flags = synced_flags(s, b->endpoint[s->server].proto);
	memcpy(out.cold, session_cold_at(t, record), sizeof(out.cold));
	return out;
}

/* before: of the same record, which is still live; or SESSION_NONE. */
static inline void synced_compare(struct sy_worker *w, const struct session_table *t,
                                  uint32_t record, const struct synced_state *before)
{
	const struct sy_balance *b = w->app;
	if (SY_LIKELY(!b->sync) || record == SESSION_NONE)
		return;
	const struct synced_state now = synced_state_of(b, t, record);
	if (memcmp(&now, before, sizeof(now)) != 0)
		synced_change(w, t->slot, record);
}

#endif
