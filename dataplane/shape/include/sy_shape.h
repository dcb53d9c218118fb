// SPDX-License-Identifier: Apache-2.0
/*
 * shape: a hierarchical packet scheduler and shaper for a port (docs/design/0037-shaping.md).
 * Independent of services and sessions: callers supply packets, the number of a branch, and the
 * time.
 *
 * port ──▶ tenant ──▶ service ──▶ class, a queue
 *
 * Each may have a maximum rate, and all but the port a guaranteed rate. At each level the packet of
 * the highest priority goes first; among equals children below their guaranteed rate; then round
 * robin by weight. Children that lag behind their guaranteed rate go before all others.
 *
 * A tree belongs to one thread, which enqueues and dequeues. Another thread builds it and reads its
 * counts.
 */
#ifndef SY_SHAPE_H
#define SY_SHAPE_H

#include <rte_mbuf.h>

#include <sy_base.h>

#define SY_SHAPE_CLASSES    8u
#define SY_SHAPE_PRIORITIES 8u
#define SY_SHAPE_TENANTS    1024u
#define SY_SHAPE_SERVICES   1024u
#define SY_SHAPE_NAME       64u
#define SY_SHAPE_QUEUE_MAX  65535u
#define SY_SHAPE_WEIGHT_MAX 100u
#define SY_SHAPE_RATE_MIN   UINT64_C(8000)         /* bits per second */
#define SY_SHAPE_RATE_MAX   UINT64_C(400000000000) /* bits per second */
#define SY_SHAPE_BY_DSCP    0xffu
#define SY_SHAPE_NEVER      UINT64_MAX

/* Early drops begin when the mean length of the queue exceeds `from` percent of its limit, and
 * reach `percent` at `to`; beyond, all packets are dropped. Drop precedence 2 and 3 (RFC 2597) have
 * three quarters and half of both. */
struct sy_shape_early {
	uint8_t from, to, percent; /* percent 0: off */
};

struct sy_shape_class {
	char name[SY_SHAPE_NAME];
	uint8_t priority;             /* 0 is the highest */
	uint8_t weight;               /* among the service's classes of this priority */
	uint32_t queue;               /* max packets, per service */
	uint64_t guaranteed, maximum; /* bits per second, per service; 0: none */
	struct sy_shape_early early;
};

/* A tenant or a service. */
struct sy_shape_branch {
	char name[SY_SHAPE_NAME];
	uint64_t guaranteed, maximum; /* bits per second; 0: none */
	uint8_t weight;               /* once guaranteed rates are served */
	uint8_t class;   /* class of all its packets; SY_SHAPE_BY_DSCP. Services only */
	uint16_t tenant; /* services only: number of its tenant */
};

struct sy_shape_config {
	uint64_t rate;                       /* bits per second */
	uint64_t burst;                      /* bytes that may leave at once after a pause */
	int8_t header;                       /* bytes added to each frame's length */
	uint8_t min;                         /* min length of a frame */
	unsigned classes, tenants, services; /* at least one of each */
	uint8_t class_of[64];                /* by DSCP */
	struct sy_shape_class class[SY_SHAPE_CLASSES];
	struct sy_shape_branch *tenant, *service; /* number 0: for packets that match no other */
};

struct sy_shape;

/* Builds a tree with a capacity of `room` packets. Copies the configuration. Fails with -EINVAL and
 * a text if it is impossible. Any thread. */
int sy_shape_create(const struct sy_shape_config *c, unsigned room, uint64_t now_ns,
                    struct sy_shape **out, struct sy_error *err);
/* Frees a tree and its packets. */
void sy_shape_destroy(struct sy_shape *s);
const struct sy_shape_config *sy_shape_config(const struct sy_shape *s);

/*
 * Enqueues a frame of m->pkt_len bytes and one segment; service: a number of the configuration,
 * greater ones count as 0. Returns SY_DROP_NONE, or the drop reason: then the frame is still the
 * caller's.
 */
enum sy_drop sy_shape_put(struct sy_shape *s, struct rte_mbuf *m, unsigned service,
                          uint64_t now_ns);
/* Dequeues at most n frames that may leave now. */
unsigned sy_shape_dequeue(struct sy_shape *s, struct rte_mbuf **m, unsigned n, uint64_t now_ns);
/* After sy_shape_dequeue(): the time at which the next frame may leave; SY_SHAPE_NEVER: none
 * waits. */
uint64_t sy_shape_next(const struct sy_shape *s);
/* Ignores all rates from now on: waiting packets leave in order. */
void sy_shape_open(struct sy_shape *s);
/* Reduces the capacity by this many packets, which are in the device's queue. */
void sy_shape_hold(struct sy_shape *s, unsigned elsewhere);
unsigned sy_shape_waiting(const struct sy_shape *s);

/* Maps each tenant, service and class of another tree to the one of the same name; number 0 and the
 * class of DSCP 0 get the rest. Call before sy_shape_move(), in the building thread. */
int sy_shape_follow(struct sy_shape *to, const struct sy_shape *from, struct sy_error *err);
/*
 * Moves the packets, credits and counts of the tree that this one follows; packets stay in order.
 * Drops nothing: a queue may exceed its limit. Called by the owner of both.
 */
void sy_shape_move(struct sy_shape *to, struct sy_shape *from, uint64_t now_ns);

/* Counts of one class of one service. Any thread, while no thread moves or destroys the tree. */
struct sy_shape_counts {
	uint64_t sent, sent_bytes; /* bytes of frames */
	uint64_t full, early;      /* packets that were dropped */
	uint64_t dropped_bytes;
	uint32_t waiting;
};
struct sy_shape_counts sy_shape_read(const struct sy_shape *s, unsigned service, unsigned class);

#endif
