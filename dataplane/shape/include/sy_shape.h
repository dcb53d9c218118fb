// SPDX-License-Identifier: Apache-2.0
/*
 * shape: packets wait for their turn and for the rate of a port (docs/design/0037-shaping.md). It
 * knows nothing of services or sessions: callers bring packets, the number of a branch and the
 * time.
 *
 *     port ──▶ tenant ──▶ service ──▶ class, a queue
 *
 * Each may have a maximum, and all but the port a guaranteed rate. At each level the packet of the
 * highest priority goes first; among equals what has not yet had its guaranteed rate; then in turn,
 * by weights. What is late with its guaranteed rate goes before all others.
 *
 * A tree belongs to one thread, which puts and takes. Another one builds it, and reads its counts.
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
#define SY_SHAPE_RATE_MIN   UINT64_C(8000)         /* bits a second */
#define SY_SHAPE_RATE_MAX   UINT64_C(400000000000) /* bits a second */
#define SY_SHAPE_BY_DSCP    0xffu
#define SY_SHAPE_NEVER      UINT64_MAX

/* Early drops begin where the mean length of the queue is above `from` percent of what it may hold,
 * and reach `percent` at `to`; above that all packets are dropped. Packets of drop precedence 2 and
 * 3 (RFC 2597) have three quarters and half of both. */
struct sy_shape_early {
	uint8_t from, to, percent; /* percent 0: none */
};

struct sy_shape_class {
	char name[SY_SHAPE_NAME];
	uint8_t priority;             /* 0 goes first */
	uint8_t weight;               /* among the classes of a service that have this priority */
	uint32_t queue;               /* packets, for each service */
	uint64_t guaranteed, maximum; /* bits a second, of each service; 0: none */
	struct sy_shape_early early;
};

/* A tenant or a service. */
struct sy_shape_branch {
	char name[SY_SHAPE_NAME];
	uint64_t guaranteed, maximum; /* bits a second; 0: none */
	uint8_t weight;               /* when the guaranteed rates are served */
	uint8_t class;                /* of all packets; SY_SHAPE_BY_DSCP. Of services */
	uint16_t tenant;              /* of services: number of the tenant */
};

struct sy_shape_config {
	uint64_t rate;                       /* bits a second */
	uint64_t burst;                      /* bytes that may leave at once after a pause */
	int8_t header;                       /* bytes that a frame counts besides its own */
	uint8_t least;                       /* that it counts at least */
	unsigned classes, tenants, services; /* at least one of each */
	uint8_t class_of[64];                /* by DSCP */
	struct sy_shape_class class[SY_SHAPE_CLASSES];
	struct sy_shape_branch *tenant, *service; /* 0: of packets that belong nowhere else */
};

struct sy_shape;

/* Builds a tree; `room`: packets that all its queues hold together at most. The configuration is
 * copied. -EINVAL with a text: it is impossible. Any thread. */
int sy_shape_create(const struct sy_shape_config *c, unsigned room, uint64_t now_ns,
                    struct sy_shape **out, struct sy_error *err);
/* The queues are empty, or their packets are freed. */
void sy_shape_destroy(struct sy_shape *s);
const struct sy_shape_config *sy_shape_config(const struct sy_shape *s);

/*
 * Puts a frame into its queue. m->pkt_len is its length, and it is one segment; service: a number
 * of the configuration, greater ones count as 0. SY_DROP_NONE, or why it finds no place: it is the
 * caller's then.
 */
enum sy_drop sy_shape_put(struct sy_shape *s, struct rte_mbuf *m, unsigned service,
                          uint64_t now_ns);
/* Takes at most n frames that may leave now. */
unsigned sy_shape_dequeue(struct sy_shape *s, struct rte_mbuf **m, unsigned n, uint64_t now_ns);
/* The next frame may leave at this time, not before; after sy_shape_dequeue(). SY_SHAPE_NEVER:
 * nothing waits. */
uint64_t sy_shape_next(const struct sy_shape *s);
/* From now on all rates are ignored: what waits leaves in its order. */
void sy_shape_open(struct sy_shape *s);
/* Of the room for packets that wait, so many are held elsewhere now: in the device. */
void sy_shape_hold(struct sy_shape *s, unsigned elsewhere);
unsigned sy_shape_waiting(const struct sy_shape *s);

/* Finds, for each tenant, service and class of another tree, the one of the same name; number 0
 * takes in others, and the class of DSCP 0. Before sy_shape_move(), by the thread that builds. */
int sy_shape_follow(struct sy_shape *to, const struct sy_shape *from, struct sy_error *err);
/*
 * Moves what waits in the tree that this one follows, in order, and what is left of its rates, and
 * its counts. Nothing is dropped: a queue may become longer than it may be. By the owner of both.
 */
void sy_shape_move(struct sy_shape *to, struct sy_shape *from, uint64_t now_ns);

/* Of one class of one service. Any thread, while nobody moves or destroys the tree. */
struct sy_shape_counts {
	uint64_t sent, sent_bytes; /* bytes of frames */
	uint64_t full, early;      /* packets that were dropped */
	uint64_t dropped_bytes;
	uint32_t waiting;
};
struct sy_shape_counts sy_shape_read(const struct sy_shape *s, unsigned service, unsigned class);

#endif
