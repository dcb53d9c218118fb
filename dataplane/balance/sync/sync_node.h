// SPDX-License-Identifier: Apache-2.0
/*
 * The protocol engine of a node (docs/design/0068-session-sync.md): chooses the peer that keeps a
 * slot's replicas, and processes and builds the datagrams of each worker. These functions neither
 * open sockets nor read clocks.
 *
 *     sync_lane_receive()  datagram ─▶ opened ─▶ hello                          worker 0
 *                                          └───▶ part ─▶ log or replica         the slot's owner
 *     sync_lane_poll()     changes, copies, sums, acknowledgements, hellos ─▶ datagrams
 *
 * A lane is the state of one worker. A worker alone accesses its lane, and the logs and replicas of
 * its slots. Worker 0 writes the peers; all workers read some fields (sync_peer.h).
 */
#ifndef SYNC_NODE_H
#define SYNC_NODE_H

#include "sync_log.h"
#include "sync_peer.h"
#include "sync_replica.h"
#include "sync_seal.h"

#define SYNC_WORKERS  64
#define SYNC_SECRETS  2
#define SYNC_DATAGRAM (sizeof(struct sync_header) + SYNC_PAYLOAD + SYNC_TAG)

/* Max bytes of a relayed IP packet: that of a jumbo frame. A relay has 8 bytes before it. */
#define SYNC_RELAY_PACKET 9216
#define SYNC_DATAGRAM_MAX (sizeof(struct sync_header) + 8 + SYNC_RELAY_PACKET + SYNC_TAG)

/* Why a datagram was dropped: name in counters, meaning. */
#define SYNC_DROPS(X)                                                                              \
	X(MALFORMED, "sync-malformed",                                                             \
	  "it is no datagram of this protocol, or of a later version")                             \
	X(UNKNOWN_SENDER, "sync-unknown-sender",                                                   \
	  "it does not come from the address of the node that it names")                           \
	X(UNKNOWN_PEER, "sync-unknown-peer", "its node number is no peer's")                       \
	X(UNKNOWN_SECRET, "sync-unknown-secret", "the secret that it names is not configured")     \
	X(FORGED, "sync-forged", "its authentication tag is wrong")                                \
	X(REPLAYED, "sync-replayed", "it is a duplicate, or too old to tell")                      \
	X(OUTDATED, "sync-outdated", "sender or receiver have restarted since it was sent")

enum sync_drop {
#define X(id, name, help) SYNC_DROP_##id,
	SYNC_DROPS(X)
#undef X
	        SYNC_DROP_COUNT
};

const char *sync_drop_name(enum sync_drop reason);
const char *sync_drop_help(enum sync_drop reason);

struct sync_relay;

struct sync_node_options {
	uint8_t node; /* 1 to 31 */
	char name[SYNC_NAME];
	uint64_t slot_key; /* hash of the slot key: equal if two nodes have the same key */
	struct sync_secret secret[SYNC_SECRETS]; /* the first one seals; len 0: none */
	uint32_t peers;                          /* bitmap of node numbers */
	unsigned workers;
	unsigned copies;           /* max records that a worker copies per millisecond */
	struct sync_source source; /* of slots, and of SYNC_DICTIONARY */
	struct sync_sink sink;
	void *context;
	/* The worker that owns a slot's log and replicas. */
	unsigned (*owner)(void *context, unsigned slot);
	/* Passes a part to the worker that owns its slot, which calls sync_lane_part(). It may drop
	 * the part: the peer retransmits it. */
	void (*pass)(void *context, unsigned worker, uint8_t node, const struct sync_part *part);
	/* Sends a datagram to a node. */
	void (*send)(void *context, unsigned worker, uint8_t node, const uint8_t *bytes,
	             size_t len);
	/* Returns the sum of the node's objects that are stored in the slot, and sets their
	 * SYNC_KEPT. */
	struct sync_sum (*stored)(void *context, uint8_t node, unsigned slot);
	/* A peer has relayed an IP packet (sync_relay.h). NULL: no peer does. */
	void (*relayed)(void *context, unsigned worker, const struct sync_relay *relay,
	                const uint8_t *packet, size_t len);
};

struct sync_node;

/* Returns NULL if there is no memory, or libcrypto fails. */
struct sync_node *sync_node_create(const struct sync_node_options *options, uint64_t now_ns);
void sync_node_destroy(struct sync_node *n); /* may be NULL */

void sync_lane_receive(struct sync_node *n, unsigned worker, const uint8_t *datagram, size_t len,
                       uint64_t now_ns);
/* Counts a datagram that the caller has dropped. */
void sync_lane_drop(struct sync_node *n, unsigned worker, enum sync_drop reason);
void sync_lane_part(struct sync_node *n, unsigned worker, uint8_t node,
                    const struct sync_part *part, uint64_t now_ns);
/* Sends what is due. Returns the latest time of the next call. */
uint64_t sync_lane_poll(struct sync_node *n, unsigned worker, uint64_t now_ns);

/* Called by the slot's worker, which has refused the node's put because another node, or this one,
 * serves the session: tells the node so. entry: a put with that node's ids. May be lost. */
void sync_lane_owned(struct sync_node *n, unsigned worker, uint8_t node, unsigned slot,
                     uint8_t owner, const uint8_t *entry);

/* Called by the slot's worker after a record has changed, or before it is removed. Changes of
 * replicas are not sent. */
void sync_node_change(struct sync_node *n, unsigned slot, uint32_t record);
void sync_node_end(struct sync_node *n, unsigned slot, uint32_t record);
/* Transfers a session to the node that has put it: the record stays as that node's replica. If both
 * nodes transfer it to each other at once, each of them serves it again. */
void sync_node_transfer(struct sync_node *n, unsigned slot, uint32_t record, uint8_t node);

/* Called by the slot's worker before it turns a replica into an own session: the sum towards the
 * former owner counts it as refused. The caller then reports a change. */
void sync_node_take(struct sync_node *n, unsigned slot, uint32_t record);
/* Called by the slot's worker before it turns all replicas of the slot into own sessions. */
void sync_node_claim(struct sync_node *n, unsigned slot);
/* Requests copies of the worker's slots from all peers: of slots in which a put was refused, or of
 * all. */
void sync_node_request_copies(struct sync_node *n, unsigned worker, bool refused_only);
/* The same for one slot of the worker. */
void sync_node_request_copy(struct sync_node *n, unsigned worker, unsigned slot, bool refused_only);

/* Called by the control thread. Worker 0 sends the role in its hellos. */
void sync_node_set_role(struct sync_node *n, enum sync_role role);
enum sync_role sync_node_role(const struct sync_node *n);

/* For reports: the contents may be slightly out of date. */
const struct sync_peer *sync_node_peer(const struct sync_node *n, uint8_t node);
const struct sync_log *sync_node_log(const struct sync_node *n, unsigned slot);
const struct sync_replica *sync_node_replica(const struct sync_node *n, uint8_t node,
                                             unsigned slot);
/* Returns the number of slots in which this node may lack sessions of the peer: no digest of the
 * peer's present incarnation has shown yet that all were stored or refused. */
unsigned sync_node_lacking(const struct sync_node *n, uint8_t node);
/* The node that keeps the replicas of this node's sessions in the slot; 0: no peer is alive. */
uint8_t sync_node_target(const struct sync_node *n, unsigned slot);
uint64_t sync_node_drops(const struct sync_node *n, enum sync_drop reason);

#endif
