// SPDX-License-Identifier: Apache-2.0
/*
 * This node among its peers (docs/design/0068-session-sync.md): which peer keeps the replicas of
 * which slot, and the datagrams that each worker receives and sends. It neither opens sockets nor
 * reads clocks.
 *
 *     sync_lane_receive()  datagram ─▶ opened ─▶ hello                          worker 0
 *                                          └───▶ part ─▶ log or replica         the slot's owner
 *     sync_lane_poll()     changes, copies, sums, acknowledgements, hellos ─▶ datagrams
 *
 * A lane is a worker's share. Writer and reader of a lane, and of the logs and replicas of the
 * slots that its worker owns: that worker. Of peers: worker 0; others read what sync_peer.h says.
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

/* Why a datagram was dropped: name in counters, meaning. */
#define SYNC_DROPS(X)                                                                              \
	X(MALFORMED, "sync-malformed",                                                             \
	  "it is no datagram of this protocol, or of a later version")                             \
	X(UNKNOWN_SENDER, "sync-unknown-sender",                                                   \
	  "it does not come from the address of the node that it names")                           \
	X(UNKNOWN_PEER, "sync-unknown-peer", "its node number is no peer's")                       \
	X(UNKNOWN_SECRET, "sync-unknown-secret", "the secret that it names is not configured")     \
	X(FORGED, "sync-forged", "its seal is wrong")                                              \
	X(REPLAYED, "sync-replayed", "it came before, or too late")                                \
	X(OUTDATED, "sync-outdated", "it is of, or for, an earlier start of a node")

enum sync_drop {
#define X(id, name, help) SYNC_DROP_##id,
	SYNC_DROPS(X)
#undef X
	        SYNC_DROP_COUNT
};

const char *sync_drop_name(enum sync_drop reason);
const char *sync_drop_help(enum sync_drop reason);

struct sync_node_options {
	uint8_t node; /* 1 to 31 */
	char name[SYNC_NAME];
	uint64_t slot_key; /* a hash that nodes with equal slot keys have in common */
	struct sync_secret secret[SYNC_SECRETS]; /* the first one seals; len 0: none */
	uint32_t peers;                          /* a bit by node number */
	unsigned workers;
	unsigned copies; /* entries of copies that one worker makes in a millisecond, at most */
	struct sync_source source; /* of slots, and of SYNC_DICTIONARY */
	struct sync_sink sink;
	void *context;
	/* The worker that owns a slot's log and replicas. */
	unsigned (*owner)(void *context, unsigned slot);
	/* Passes a part on to its owner, which calls sync_lane_part(). A part that is not passed is
	 * sent again by the peer. */
	void (*pass)(void *context, unsigned worker, uint8_t node, const struct sync_part *part);
	/* Sends a datagram to a node. */
	void (*send)(void *context, unsigned worker, uint8_t node, const uint8_t *bytes,
	             size_t len);
	/* What is stored of the node's objects in the slot: all of them count from now on. */
	struct sync_sum (*stored)(void *context, uint8_t node, unsigned slot);
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
/* Sends what is due. Returns when it is to be called again at the latest. */
uint64_t sync_lane_poll(struct sync_node *n, unsigned worker, uint64_t now_ns);

/* Called by the owner of the slot: a record has changed, or is about to be removed. A change of a
 * replica is not sent: its owner sends its own. */
void sync_node_change(struct sync_node *n, unsigned slot, uint32_t record);
void sync_node_end(struct sync_node *n, unsigned slot, uint32_t record);
/* The record stays, as the node's replica: it has put it, and is to serve it. If that node has
 * given it to this one meanwhile, it takes it back. */
void sync_node_give(struct sync_node *n, unsigned slot, uint32_t record, uint8_t node);

/* Called by the owner of the slot, which is about to make all replicas in it its own objects. */
void sync_node_claim(struct sync_node *n, unsigned slot);
/* Asks all peers for copies of the worker's slots: of those in which a put was refused, or all. */
void sync_node_ask(struct sync_node *n, unsigned worker, bool refused_only);
/* The same for one slot, of which the worker is the owner. */
void sync_node_ask_slot(struct sync_node *n, unsigned worker, unsigned slot, bool refused_only);

/* Worker 0 tells the peers. Control thread. */
void sync_node_set_role(struct sync_node *n, enum sync_role role);
enum sync_role sync_node_role(const struct sync_node *n);

/* How far a slot's replicas are; for reports, which may be a moment late. */
const struct sync_peer *sync_node_peer(const struct sync_node *n, uint8_t node);
const struct sync_log *sync_node_log(const struct sync_node *n, unsigned slot);
const struct sync_replica *sync_node_replica(const struct sync_node *n, uint8_t node,
                                             unsigned slot);
/* The node that keeps the replicas of this node's sessions in the slot; 0: no peer is alive. */
uint8_t sync_node_target(const struct sync_node *n, unsigned slot);
uint64_t sync_node_drops(const struct sync_node *n, enum sync_drop reason);

#endif
