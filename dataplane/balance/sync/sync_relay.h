// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that a node passes to another one, which may have their session
 * (docs/design/0071-ecmp.md): sealed datagrams, each with one IP packet.
 */
#ifndef SYNC_RELAY_H
#define SYNC_RELAY_H

#include "sync_node.h"

/* Precedes the packet. Little endian. */
struct sync_relay {
	uint32_t visited; /* bitmap of the nodes that have had the packet: it does not return there
	                   */
	uint8_t ingress;  /* the node where it arrived; 0: the receiver, as if at a port */
	uint8_t is_back; /* it returns to that node, which begins a session or drops it: no node has
	                    one */
	uint8_t spare[2];
};
_Static_assert(sizeof(struct sync_relay) == 8, "a wire format");

/* Sends an IP packet to a node. Returns false if it is longer than SYNC_RELAY_PACKET, or the node
 * was never heard. Like any datagram, it may be lost. */
bool sync_lane_relay(struct sync_node *n, unsigned worker, uint8_t node,
                     const struct sync_relay *relay, const uint8_t *packet, size_t len);

struct sync_relayed {
	uint64_t out, in; /* packets to the node, and from it */
};
struct sync_relayed sync_node_relayed(const struct sync_node *n, uint8_t node);

#endif
