// SPDX-License-Identifier: Apache-2.0
/*
 * In an ECMP group: packets whose session another node serves, or may have
 * (docs/design/0071-ecmp.md). Does nothing without such a group.
 *
 *     the record is of another node's session   relay_to_owner()   to it; take over if it is dead
 *     no record                                 relay_to_home()    to the slot's first living node
 *     some fragments of a datagram              relay_fragment()   to the node where all meet
 */
#ifndef PACKET_RELAY_H
#define PACKET_RELAY_H

#include "away.h"

/* The session of packet i, record burst->session[i], is away. Returns true if the packet was
 * relayed to its owner. Otherwise this node serves the session from now on: the owner is dead, or
 * has lost it. */
bool relay_to_owner(struct sy_worker *w, struct sy_burst *burst, unsigned i);

/* Do other nodes know which of them serves the service's UDP sessions? Those of one packet, and
 * those that are not synchronised, are their node's alone. */
static inline bool relay_asks(const struct service *service)
{
	return !service || (!service->policy.one_packet && service->policy.sync != SYNC_OFF);
}

/* Packet i has no session here. begins: it can begin one without a handshake. Returns true if it
 * has left the burst: relayed to a node that may have the session, or dropped. */
bool relay_to_home(struct sy_worker *w, struct sy_burst *burst, unsigned i, bool begins);

/* The same for the packets at[] of a burst that may begin sessions: TCP begins them here, other
 * packets ask other nodes first. Removes from at[] those that have left, and returns the number of
 * the rest. */
unsigned relay_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at, unsigned count);

/* Was the packet relayed to this node? */
static inline bool relay_is_from_peer(const struct sy_balance *b, const struct rte_mbuf *m)
{
	return m->ol_flags & b->relayed_flag;
}

/* Returns the node where the fragments of a datagram meet that have arrived at different nodes: the
 * first living one of a slot, by source and id (its last 16 bits); 0: at this one. */
uint8_t relay_fragments_to(const struct sy_worker *w, const struct sy_addr *src, uint16_t id);

/* Sends a fragment to that node; the buffer stays the caller's. Returns false if too many packets
 * are relayed, or if a peer has relayed this one: nodes that disagree about the node where
 * fragments meet do not send them to and fro. */
bool relay_fragment(struct sy_worker *w, const struct rte_mbuf *m, uint8_t node);

/* This node serves the session from now on. Its last use is now, so that it does not expire
 * early. */
void relay_take(struct sy_worker *w, struct session_table *t, uint32_t record);

/* Called by the sweep for a session that is away: takes it over if its owner is dead. Returns true
 * if it is to end: another node keeps the replica. */
bool relay_sweep(struct sy_worker *w, struct session_table *t, uint32_t record);

#endif
