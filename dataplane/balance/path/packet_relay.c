// SPDX-License-Identifier: Apache-2.0
#include "packet_relay.h"

#include <rte_mbuf_dyn.h>

#include "client_sessions.h"
#include "locate.h"
#include "pressure.h"
#include "sync_members.h"
#include "sync_relay.h"

/* Packets that a worker relays in vain per second, and at once: no node has a session for them.
 * Each costs two nodes two system calls, and anybody can send them. Those of sessions are not
 * limited: the routers may send another node's packets here for as long as its sessions live. */
#define RELAY_RATE  50000u
#define RELAY_BURST 5000u
/* After this time without a part of its log, a replica belongs to another node. */
#define RELAY_STALE_NS UINT64_C(30000000000)
/* After a restart: owners put their sessions again meanwhile, and the rest has no owner. */
#define RELAY_UNKNOWN_NS UINT64_C(5000000000)

/* How the packet came: all zero if it arrived at a port of this node. */
static struct sync_relay relay_of(const struct sy_balance *b, struct rte_mbuf *m)
{
	return SY_LIKELY(!(m->ol_flags & b->relayed_flag))
	               ? (struct sync_relay){0}
	               : *RTE_MBUF_DYNFIELD(m, b->relay_field, const struct sync_relay *);
}

/* Sends packet i to a node. It has then left the burst, even if the datagram is lost. */
static void relay_send(struct sy_worker *w, struct sy_burst *burst, unsigned i, uint8_t node,
                       struct sync_relay relay)
{
	const struct sy_balance *b = w->app;
	const struct sy_view *v = &burst->view[i];
	struct rte_mbuf *m = burst->mbuf[i];
	const uint8_t self = b->options.peers.node;
	relay.visited |= 1u << self;
	relay.ingress = relay.ingress ? relay.ingress : self;
	if (!sync_lane_relay(b->sync, w->id, node, &relay, sy_frame(m) + v->l3,
	                     (size_t)(v->frame_len - v->l3))) {
		sy_burst_drop(w, burst, i, SY_DROP_TOO_BIG);
		return;
	}
	rte_pktmbuf_free(m);
	burst->next[i] = SY_NEXT_RELAYED;
}

/* The node that serves the session; 0: unknown. */
static uint8_t owner_of(const struct sy_balance *b, unsigned slot, uint32_t record)
{
	return group_is_ecmp(b) ? *session_mark_at(b, slot, record) & SYNC_OWNER : 0;
}

/* Charges the limit for a packet that was relayed in vain, or may be. */
static bool relay_charge(struct sy_worker *w)
{
	return rate_charge(&balance_worker_of(w)->relayed, w->now_ns, 1000000000 / RELAY_RATE,
	                   RELAY_BURST);
}

/* Does the limit allow to relay a packet that arrived at a port? It is charged if it comes back. */
static bool relay_is_allowed(struct sy_worker *w)
{
	struct rate_limit left = balance_worker_of(w)->relayed;
	return rate_charge(&left, w->now_ns, 1000000000 / RELAY_RATE, RELAY_BURST);
}

/* ---- the session is known -------------------------------------------------------------------- */

void relay_take(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	struct sy_balance *b = w->app;
	struct session *s = session_at(t, record);
	const bool counted = session_counts(b, t->slot, record);
	const uint8_t proto = b->endpoint[s->server].proto;
	s->state = away_state_of(b, t->slot, record, proto);
	if (group_is_ecmp(b)) {
		const uint8_t owner = owner_of(b, t->slot, record);
		*away_state_at(b, t->slot, record) = owner ? AWAY_TAKEN | owner : 0;
		sync_node_take(b->sync, t->slot, record);
	}
	session_recount(b, t->slot, record, counted);
	session_touch(s, s->seen, (uint16_t)balance_seconds(w));
	if (session_state_is_embryonic(s->state))
		pressure_begin(w, t, record);
	if (SY_UNLIKELY(SY_RCU_READ(b->client_counts) != NULL))
		client_sessions_recount(w, t, record);
	synced_change(w, t->slot, record);
}

bool relay_to_owner(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	const struct sy_balance *b = w->app;
	const uint8_t slot = burst->slot[i];
	const uint8_t owner = owner_of(b, slot, burst->session[i]);
	const struct sync_relay relay = relay_of(b, burst->mbuf[i]);
	if (!owner || !sync_node_is_alive(b->sync, owner, w->now_ns) ||
	    relay.visited >> owner & 1) {
		relay_take(w, b->table[slot], burst->session[i]);
		return false;
	}
	relay_send(w, burst, i, owner, relay);
	return true;
}

/* ---- the session is unknown ------------------------------------------------------------------ */

/* No node has the session. Returns true if the packet has returned to the node where it arrived. */
static bool relay_back(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                       struct sync_relay relay)
{
	const struct sy_balance *b = w->app;
	if (!relay.ingress || relay.ingress == b->options.peers.node ||
	    !sync_node_is_alive(b->sync, relay.ingress, w->now_ns))
		return false;
	relay.is_back = 1;
	relay_send(w, burst, i, relay.ingress, relay);
	return true;
}

bool relay_to_home(struct sy_worker *w, struct sy_burst *burst, unsigned i, bool begins)
{
	const struct sy_balance *b = w->app;
	if (SY_LIKELY(!group_is_ecmp(b)))
		return false;
	const struct sync_relay relay = relay_of(b, burst->mbuf[i]);
	if (relay.is_back) {
		relay_charge(w);
		return false;
	}
	const uint32_t visited = relay.visited | 1u << b->options.peers.node;
	const uint8_t next = sync_node_next(b->sync, burst->slot[i], visited, w->now_ns);
	if (!next && (begins || sync_node_is_settled(b->sync, w->now_ns)))
		return relay_back(w, burst, i, relay);
	if (!next) { /* do not reset what a node may have that was not heard yet */
		sy_burst_drop(w, burst, i, SY_DROP_NO_SESSION);
		return true;
	}
	if (!relay.ingress && !relay_is_allowed(w)) {
		if (!begins)
			sy_burst_drop(w, burst, i, SY_DROP_RELAY_RATE);
		return !begins;
	}
	relay_send(w, burst, i, next, relay);
	return true;
}

unsigned relay_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at, unsigned count)
{
	unsigned stay = 0;
	for (unsigned k = 0; k < count; k++) {
		const unsigned i = at[k];
		const struct sy_view *v = &burst->view[i];
		if (v->proto == SY_PROTO_TCP || !relay_asks(locate_packet(w, burst, i)) ||
		    (!burst->plain[i] && sy_packet_ttl(sy_frame(burst->mbuf[i]), v) <= 1) ||
		    !relay_to_home(w, burst, i, true))
			at[stay++] = (uint8_t)i;
	}
	return stay;
}

/* ---- fragments ------------------------------------------------------------------------------- */

uint8_t relay_fragments_to(const struct sy_worker *w, const struct sy_addr *src, uint16_t id)
{
	const struct sy_balance *b = w->app;
	if (SY_LIKELY(!group_is_ecmp(b)))
		return 0;
	const uint8_t node = sync_node_first(b->sync, sy_slot_of(src, id), 0, w->now_ns);
	return node == b->options.peers.node ? 0 : node;
}

bool relay_fragment(struct sy_worker *w, const struct rte_mbuf *m, uint8_t node)
{
	/* The node gets it as if a port had received it. When the datagram is complete, it looks
	 * for the session, which this node may have. */
	static const struct sync_relay arrives = {0};
	const struct sy_balance *b = w->app;
	return !relay_is_from_peer(b, m) && relay_charge(w) &&
	       sync_lane_relay(b->sync, w->id, node, &arrives,
	                       rte_pktmbuf_mtod(m, const uint8_t *) + SY_ETH_LEN,
	                       (size_t)rte_pktmbuf_data_len(m) - SY_ETH_LEN);
}

/* ---- the sweep ------------------------------------------------------------------------------- */

/* Does no node serve the session any more? Not in a group: an earlier process was. */
static bool is_left(const struct sy_worker *w, unsigned slot, uint8_t owner)
{
	const struct sy_balance *b = w->app;
	if (!group_is_ecmp(b))
		return true;
	if (owner)
		return !sync_node_is_alive(b->sync, owner, w->now_ns);
	return sync_node_age(b->sync, w->now_ns) > RELAY_UNKNOWN_NS &&
	       sync_node_is_known(b->sync, slot, w->now_ns);
}

bool relay_sweep(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	const struct sy_balance *b = w->app;
	const uint8_t owner = owner_of(b, t->slot, record);
	if (is_left(w, t->slot, owner)) {
		relay_take(w, t, record);
		return false;
	}
	return owner && !sync_node_keeps(b->sync, owner, t->slot, w->now_ns) &&
	       (int64_t)(w->now_ns - sync_node_replica(b->sync, owner, t->slot)->part_ns) >
	               (int64_t)RELAY_STALE_NS;
}
