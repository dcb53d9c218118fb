// SPDX-License-Identifier: Apache-2.0
/* The state of a sync_node: per worker (lane), per slot and per peer. */
#ifndef SYNC_LANE_H
#define SYNC_LANE_H

#include "sync_members.h"
#include "sync_node.h"
#include "sync_relay.h"

#define SYNC_MS     UINT64_C(1000000)
#define SYNC_SUM_NS UINT64_C(1000000000) /* between two sums of a slot */
#define SYNC_ALL_NS UINT64_C(10000000)   /* between visits of slots that have nothing to send */
/* After so many time-outs without an acknowledgement from a live peer, the log restarts with a
 * copy: the ids in its entries may have been reassigned. */
#define SYNC_STUCK 10

/* Ciphers of a peer's datagrams. [0]: of its accepted incarnation; [1]: of another incarnation,
 * whose hellos may be accepted. */
struct sync_opened {
	struct sync_cipher *cipher[2];
	uint64_t incarnation[2];
	uint8_t secret[2];
	struct sync_replay replay[2][SYNC_WORKERS]; /* by sending worker */
};

/* Answers that are due to a peer: bitmaps by slot. */
struct sync_answers {
	uint64_t applied[SYNC_SLOTS / 64 + 1], gap[SYNC_SLOTS / 64 + 1], copy[SYNC_SLOTS / 64 + 1];
};

struct sync_lane {
	struct sync_cipher *cipher; /* of the datagrams that this worker sends */
	uint64_t counter;           /* datagrams sent */
	uint64_t polled_ns;         /* time of the last poll */
	uint64_t all_ns;            /* time of the last poll of all slots */
	/* Bitmap of slots with changes or unacknowledged entries. */
	uint64_t due[SY_SLOTS / 64];
	uint64_t derived_ns;  /* when the last key of an unaccepted incarnation was derived */
	uint32_t answers_due; /* bitmap of nodes */
	unsigned first_slot;  /* the next poll begins here: slots share the bounded copies */
	struct sync_answers answers[SYNC_NODES];
	struct sync_opened *opened[SYNC_NODES]; /* NULL: not a peer */
	uint64_t drop[SYNC_DROP_COUNT];         /* readers: relaxed */
	/* Packets to and from each node. Readers: relaxed. */
	uint64_t relayed_out[SYNC_NODES], relayed_in[SYNC_NODES];
} __attribute__((aligned(SY_CACHE_LINE)));

/* The node and the epoch to which a log is written; node 0: none so far. */
struct sync_assignment {
	uint8_t node;
	uint32_t epoch;
};

struct sync_node {
	struct sync_node_options options;
	struct sync_self self;
	struct sync_peer peer[SYNC_NODES];
	/* By slot: the node that is to keep its replicas. Writer: worker 0; readers: relaxed. */
	uint8_t target[SY_SLOTS];
	bool targets_due;
	uint64_t targets_ns;
	uint64_t created_ns;
	uint64_t changed_ns; /* when a node last came or went. As `target` */
	uint32_t alive;      /* bitmap of peers at the last update. As `target` */
	/* When the peer last went. As `target` */
	uint64_t gone_ns[SYNC_NODES];
	struct sync_assignment assigned[SY_SLOTS], dictionary_assigned[SYNC_NODES];
	struct sync_log log[SY_SLOTS], dictionary[SYNC_NODES];
	struct sync_replica *replica[SYNC_NODES]; /* [SYNC_SLOTS]; NULL: not a peer */
	struct sync_lane lane[SYNC_WORKERS];
};

/* Seals and sends a datagram. */
void sync_lane_send(struct sync_node *n, unsigned worker, uint8_t node,
                    enum sync_datagram_kind kind, const void *plain, size_t len);
/* Chooses the target of each slot by the nodes that live. Called by worker 0. */
void sync_members_update(struct sync_node *n, uint64_t now_ns);
/* Returns false if the relayed packet is malformed, or this node accepts none. */
bool sync_relay_receive(struct sync_node *n, unsigned worker, uint8_t node, const uint8_t *plain,
                        size_t len);

#endif
