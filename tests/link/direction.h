// SPDX-License-Identifier: Apache-2.0
/* One direction of a link, in the caller's virtual time. A packet passes
 *
 *     MTU -> queue -> transmitter -> wire: lost? corrupted? twice? overtaken? -> due
 *
 * Packets that leave the transmitter are numbered: the number determines their fate. Spared packets
 * (link_frame.h) are only delayed. This file uses no device and no clock. */
#ifndef LINK_DIRECTION_H
#define LINK_DIRECTION_H

#include "params.h"
#include "store.h"

/* Why packets do not arrive. */
#define DIRECTION_DROPS(X)                                                                         \
	X(LOSS, "loss")                 /* chance, in the good state */                            \
	X(BURST, "burst")               /* and in the bad one */                                   \
	X(TAIL, "tail")                 /* the queue was full */                                   \
	X(RED, "red")                   /* early, by the queue's length */                         \
	X(MTU, "mtu")                   /* larger than the link's MTU */                           \
	X(NO_MEMORY, "no-memory")       /* the pool is empty: --packets */                         \
	X(UNFINISHED, "unfinished-sum") /* checksum offload is on at the sender */                 \
	X(OVERSIZE, "oversize")    /* larger than the interface's MTU: segmentation offload */     \
	X(RECEIVE, "receive-ring") /* the program had no CPU time: --ring */                       \
	X(SEND, "send")            /* the kernel refused it: its interface is down */

/* Other events of packets. */
#define DIRECTION_COUNTS(X)                                                                        \
	X(arrived)                                                                                 \
	X(arrived_bytes)                                                                           \
	X(spared)      /* of those that arrived */                                                 \
	X(fragments)   /* made of packets that arrived */                                          \
	X(fragmented)  /* these packets */                                                         \
	X(transmitted) /* numbered packets that left the transmitter */                            \
	X(transmitted_bytes)                                                                       \
	X(duplicated)                                                                              \
	X(corrupted)                                                                               \
	X(reordered)                                                                               \
	X(marked)                                                                                  \
	X(bursts)                                                                                  \
	X(answers) /* "too big", to this direction's receiver */                                   \
	X(delivered)                                                                               \
	X(delivered_bytes)

enum direction_drop {
#define X(name, text) DROP_##name,
	DIRECTION_DROPS(X)
#undef X
	        DROP_COUNT
};

struct direction_counts {
#define X(name) uint64_t name;
	DIRECTION_COUNTS(X)
#undef X
	uint64_t drop[DROP_COUNT];
	uint64_t way_max; /* packets on their way at a time */
};

#define HELD_MAX 256

struct direction {
	struct params params;
	struct pool *pool;
	struct direction *back; /* where answers go */
	struct direction_counts counts;

	uint64_t seed, numbered; /* packets that chance has decided about */
	bool bad;                /* state of the Gilbert-Elliott model */

	struct queue queue; /* before the transmitter */
	uint64_t free_at;   /* when the transmitter is done */

	struct heap wire;
	uint64_t last_due, passed; /* of packets that are not reordered */
	/* Reordered packets that wait for followers, in no order. */
	uint32_t held[HELD_MAX], held_count;
};

int direction_open(struct direction *d, struct pool *pool, struct direction *back);
void direction_close(struct direction *d);
/* Begins the draws anew. */
void direction_seed(struct direction *d, uint64_t seed);
/* Sets parameters. Packets in flight keep their time; those in the queue get the new one. */
void direction_set(struct direction *d, const struct params *p);

/* A packet has arrived, at its time `arrived`: its bytes and length are in the pool. */
void direction_arrive(struct direction *d, uint32_t index);
/* Moves packets from the queue to the wire, up to now. */
void direction_advance(struct direction *d, uint64_t now);
/* The next packet that is due, now the caller's; STORE_NONE: there is none yet. */
uint32_t direction_take(struct direction *d, uint64_t now);
/* When there will be something to do; UINT64_MAX: never. */
uint64_t direction_next(const struct direction *d);
/* Makes all packets in flight due now, in the order in which they would have arrived. */
void direction_hurry(struct direction *d, uint64_t now);

/* Counts a packet as delivered or lost, and frees its slot. */
void direction_delivered(struct direction *d, uint32_t index);
void direction_drop(struct direction *d, uint32_t index, enum direction_drop why);
/* Counts packets that arrived and were lost before they had a place. */
void direction_refuse(struct direction *d, uint64_t packets, enum direction_drop why);

/* Returns packets that are neither delivered nor lost yet, except dequeued ones. */
uint64_t direction_on_the_way(const struct direction *d);
const char *direction_drop_name(enum direction_drop why);

#endif
