// SPDX-License-Identifier: Apache-2.0
#include "sync_members.h"

#include "sync_lane.h"

#define SYNC_GOODBYES 3 /* one may be lost */

bool sync_node_is_alive(const struct sync_node *n, uint8_t node, uint64_t now_ns)
{
	return n->options.peers >> node & 1 && sync_peer_is_alive(&n->peer[node], now_ns);
}

uint8_t sync_node_first(const struct sync_node *n, unsigned slot, uint32_t without, uint64_t now_ns)
{
	const uint32_t nodes = (n->options.peers | 1u << n->self.node) & ~without;
	uint64_t best = 0;
	uint8_t first = 0;

	for (uint32_t left = nodes; left; left &= left - 1) {
		const uint8_t node = (uint8_t)__builtin_ctz(left);
		if (node != n->self.node && !sync_peer_is_alive(&n->peer[node], now_ns))
			continue;
		uint64_t weight = sy_hash_mix(slot + 1, node * UINT64_C(0x9e3779b97f4a7c15));
		if (!first || weight > best) {
			first = node;
			best = weight;
		}
	}
	return first;
}

bool sync_node_keeps(const struct sync_node *n, uint8_t owner, unsigned slot, uint64_t now_ns)
{
	return sync_node_first(n, slot, 1u << owner, now_ns) == n->self.node;
}

uint8_t sync_node_next(const struct sync_node *n, unsigned slot, uint32_t visited, uint64_t now_ns)
{
	if (sync_node_has_changed(n, now_ns))
		return sync_node_first(n, slot, visited, now_ns);
	const uint8_t first = sync_node_first(n, slot, 0, now_ns);
	return visited >> first & 1 ? 0 : first;
}

void sync_node_leave(struct sync_node *n, uint64_t now_ns)
{
	const struct sync_self self = {.slot_key = n->self.slot_key, .role = SYNC_ROLE_LEAVING};
	struct sync_hello hello;

	for (uint8_t node = 1; node < SYNC_NODES; node++) {
		struct sync_peer *peer = &n->peer[node];
		if (!sync_node_is_alive(n, node, now_ns))
			continue;
		peer->echoed = false; /* to the accepted incarnation */
		peer->hello_at_ns = now_ns;
		sync_hello_make(peer, &self, now_ns, &hello);
		for (unsigned i = 0; i < SYNC_GOODBYES; i++)
			sync_lane_send(n, 0, node, SYNC_HELLO, &hello, sizeof(hello));
	}
}

bool sync_node_is_acknowledged(const struct sync_node *n, uint64_t now_ns)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct sync_log *log = &n->log[slot];
		if (sync_node_is_alive(n, n->target[slot], now_ns) &&
		    (sync_log_is_due(log) || !sync_window_is_empty(&log->window)))
			return false;
	}
	return true;
}

uint32_t sync_node_alive(const struct sync_node *n)
{
	return __atomic_load_n(&n->alive, __ATOMIC_RELAXED);
}

uint64_t sync_node_gone_ns(const struct sync_node *n, uint8_t node)
{
	return __atomic_load_n(&n->gone_ns[node], __ATOMIC_RELAXED);
}

bool sync_node_is_known(const struct sync_node *n, unsigned slot, uint64_t now_ns)
{
	for (uint32_t left = sync_node_alive(n); left; left &= left - 1) {
		const uint8_t node = (uint8_t)__builtin_ctz(left);
		if (sync_node_keeps(n, node, slot, now_ns) && !n->replica[node][slot].verified)
			return false;
	}
	return sync_node_is_settled(n, now_ns);
}

bool sync_node_has_changed(const struct sync_node *n, uint64_t now_ns)
{
	return (int64_t)(now_ns - __atomic_load_n(&n->changed_ns, __ATOMIC_RELAXED)) <
	       (int64_t)SYNC_CHANGED_NS;
}

uint64_t sync_node_age(const struct sync_node *n, uint64_t now_ns)
{
	return now_ns > n->created_ns ? now_ns - n->created_ns : 0;
}

bool sync_node_is_settled(const struct sync_node *n, uint64_t now_ns)
{
	if (sync_node_age(n, now_ns) >= SYNC_SETTLE_NS)
		return true;
	for (uint32_t left = n->options.peers; left; left &= left - 1)
		if (!__atomic_load_n(&n->peer[__builtin_ctz(left)].incarnation, __ATOMIC_RELAXED))
			return false;
	return true;
}

/* A silent peer stays the target while no other peer is alive: it may come back with all replicas
 * that it has acknowledged. */
void sync_members_update(struct sync_node *n, uint64_t now_ns)
{
	uint32_t alive = 0;

	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		uint8_t target = sync_node_first(n, slot, 1u << n->self.node, now_ns);
		if (target)
			__atomic_store_n(&n->target[slot], target, __ATOMIC_RELAXED);
	}
	for (uint8_t node = 1; node < SYNC_NODES; node++)
		alive |= (uint32_t)sync_node_is_alive(n, node, now_ns) << node;
	if (alive == n->alive)
		return;
	__atomic_store_n(&n->changed_ns, now_ns, __ATOMIC_RELAXED);
	for (uint32_t gone = n->alive & ~alive; gone; gone &= gone - 1)
		__atomic_store_n(&n->gone_ns[__builtin_ctz(gone)], now_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&n->alive, alive, __ATOMIC_RELAXED);
}
