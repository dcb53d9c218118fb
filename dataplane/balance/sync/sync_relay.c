// SPDX-License-Identifier: Apache-2.0
#include "sync_relay.h"

#include "sync_lane.h"

bool sync_lane_relay(struct sync_node *n, unsigned worker, uint8_t node,
                     const struct sync_relay *relay, const uint8_t *packet, size_t len)
{
	uint8_t plain[sizeof(*relay) + SYNC_RELAY_PACKET];

	if (len > SYNC_RELAY_PACKET ||
	    !__atomic_load_n(&n->peer[node].incarnation, __ATOMIC_ACQUIRE))
		return false;
	memcpy(plain, relay, sizeof(*relay));
	memcpy(plain + sizeof(*relay), packet, len);
	sync_lane_send(n, worker, node, SYNC_RELAY, plain, sizeof(*relay) + len);
	uint64_t *count = &n->lane[worker].relayed_out[node];
	__atomic_store_n(count, *count + 1, __ATOMIC_RELAXED);
	return true;
}

bool sync_relay_receive(struct sync_node *n, unsigned worker, uint8_t node, const uint8_t *plain,
                        size_t len)
{
	struct sync_relay relay;

	if (!n->options.relayed || len <= sizeof(relay))
		return false;
	memcpy(&relay, plain, sizeof(relay));
	if (relay.ingress >= SYNC_NODES ||
	    (relay.ingress && !((n->options.peers | 1u << n->self.node) >> relay.ingress & 1)))
		return false;
	uint64_t *count = &n->lane[worker].relayed_in[node];
	__atomic_store_n(count, *count + 1, __ATOMIC_RELAXED);
	n->options.relayed(n->options.context, worker, &relay, plain + sizeof(relay),
	                   len - sizeof(relay));
	return true;
}

struct sync_relayed sync_node_relayed(const struct sync_node *n, uint8_t node)
{
	struct sync_relayed sum = {0};

	for (unsigned i = 0; i < n->options.workers; i++) {
		sum.out += __atomic_load_n(&n->lane[i].relayed_out[node], __ATOMIC_RELAXED);
		sum.in += __atomic_load_n(&n->lane[i].relayed_in[node], __ATOMIC_RELAXED);
	}
	return sum;
}
