// SPDX-License-Identifier: Apache-2.0
/*
 * Which nodes live, and which of them a slot belongs to: rendezvous hashing (Thaler and
 * Ravishankar, 1998), so that only slots of a node that comes or goes move. The first node by the
 * hash keeps the replicas of all other nodes' sessions in the slot; the second one those of the
 * first (docs/design/0071-ecmp.md).
 *
 * Any worker may call these functions.
 */
#ifndef SYNC_MEMBERS_H
#define SYNC_MEMBERS_H

#include "sync_node.h"

#define SYNC_CHANGED_NS UINT64_C(60000000000) /* replicas have moved within this time */
#define SYNC_SETTLE_NS  UINT64_C(1500000000)  /* a peer that is silent after a start is dead */

/* Is it a peer, and alive? */
bool sync_node_is_alive(const struct sync_node *n, uint8_t node, uint64_t now_ns);
/* Returns the slot's first living node, this one included, of those not in the bitmap `without`; 0:
 * none. */
uint8_t sync_node_first(const struct sync_node *n, unsigned slot, uint32_t without,
                        uint64_t now_ns);
/* Is this node to keep the replicas of the owner's sessions in the slot? */
bool sync_node_keeps(const struct sync_node *n, uint8_t owner, unsigned slot, uint64_t now_ns);
/* The next node that may have a session of the slot, if those in `visited` have not; 0: none. The
 * slot's first node keeps the replicas of all others; shortly after a change of the members it may
 * lack some, and every living node is the next one, in the slot's order. */
uint8_t sync_node_next(const struct sync_node *n, unsigned slot, uint32_t visited, uint64_t now_ns);
/* Before this node stops, when no worker polls: tells the peers, which then take its sessions over
 * at once. */
void sync_node_leave(struct sync_node *n, uint64_t now_ns);
/* Do all living peers have what this node has sent to them, and is nothing left to send? */
bool sync_node_is_acknowledged(const struct sync_node *n, uint64_t now_ns);
/* Bitmap of the living peers, up to 200 ms old. */
uint32_t sync_node_alive(const struct sync_node *n);
/* When the peer last died, or fell silent; 0: never. */
uint64_t sync_node_gone_ns(const struct sync_node *n, uint8_t node);
/* Is it known of all replicas in the slot which living node owns them? Called by the slot's worker.
 */
bool sync_node_is_known(const struct sync_node *n, unsigned slot, uint64_t now_ns);
/* Has a node come or gone within SYNC_CHANGED_NS? */
bool sync_node_has_changed(const struct sync_node *n, uint64_t now_ns);
/* Nanoseconds since this node has started. */
uint64_t sync_node_age(const struct sync_node *n, uint64_t now_ns);
/* Is it known which nodes live? False shortly after this node's start. */
bool sync_node_is_settled(const struct sync_node *n, uint64_t now_ns);

#endif
