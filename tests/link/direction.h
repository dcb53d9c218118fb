// SPDX-License-Identifier: Apache-2.0
/* One direction of a link, in the time that its caller says it is. A packet passes
 *
 *     MTU -> queue -> transmitter -> wire: lost? corrupted? twice? overtaken? -> due
 *
 * The packets that leave the transmitter are numbered: the number decides their fate. Those that
 * frame.h calls spared are late, and nothing else. No device and no clock is known here. */
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
	X(RECEIVE, "receive-ring") /* the program was not given time: --ring */                    \
	X(SEND, "send")            /* the kernel would not take it: its interface is down */

/* What happens to packets beside. */
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
	uint64_t way_most; /* packets on their way at a time */
};

#define HELD_MOST 256

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
	uint64_t last_due, passed; /* of packets that nothing holds */
	/* Reordered packets that wait for followers, in no order. */
	uint32_t held[HELD_MOST], held_count;
};

int direction_open(struct direction *d, struct pool *pool, struct direction *back);
void direction_close(struct direction *d);
/* Begins the draws anew. */
void direction_seed(struct direction *d, uint64_t seed);
/* New parameters. What is on its way keeps its time, what is in the queue does not. */
void direction_set(struct direction *d, const struct params *p);

/* A packet has arrived, at its time `arrived`: its bytes and length are in the pool. */
void direction_arrive(struct direction *d, uint32_t index);
/* Moves packets from the queue to the wire, up to now. */
void direction_advance(struct direction *d, uint64_t now);
/* The next packet that is due, now the caller's; STORE_NONE: there is none yet. */
uint32_t direction_take(struct direction *d, uint64_t now);
/* When there will be something to do; UINT64_MAX: never. */
uint64_t direction_next(const struct direction *d);
/* What is on its way is due now, in the order in which it would have arrived. */
void direction_hurry(struct direction *d, uint64_t now);

/* Counts a packet that has arrived, or was lost, and gives its place back. */
void direction_delivered(struct direction *d, uint32_t index);
void direction_drop(struct direction *d, uint32_t index, enum direction_drop why);
/* Counts packets that arrived and were lost before they had a place. */
void direction_refuse(struct direction *d, uint64_t packets, enum direction_drop why);

/* Packets that are neither delivered nor lost yet, without those that were taken. */
uint64_t direction_on_the_way(const struct direction *d);
const char *direction_drop_name(enum direction_drop why);

#endif
