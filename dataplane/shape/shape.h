// SPDX-License-Identifier: Apache-2.0
/*
 * A tree of nodes. Port, tenants and services have rings of those children from which a packet may
 * leave now; classes have queues.
 *
 *   rings of a node, by priority:   ANY     children that may send a packet of it, round robin
 *                                   DUE     those of them below their guaranteed rate
 *                                   LATE    those of them that lag by half of their burst
 *
 * LATE is served first; then the highest priority, and in it DUE. So a guaranteed rate holds beside
 * any flood of higher classes, and a high class waits for others' guarantees only if it floods.
 *
 * A child is in one ring for each priority that it could serve, so that a packet of a high class
 * does not cost its tenant the position of its other packets.
 */
#ifndef SHAPE_H
#define SHAPE_H

#include <sy_limit.h>

#include "sy_shape.h"

/* A counter that the owner writes and others read. */
#define SY_SHAPE_READ(counter) __atomic_load_n(&(counter), __ATOMIC_RELAXED)
#define SY_SHAPE_COUNT(counter, n)                                                                 \
	__atomic_store_n(&(counter), SY_SHAPE_READ(counter) + (n), __ATOMIC_RELAXED)

#define NODE_NONE UINT32_MAX
/* Bytes that a node of weight 1 sends per round. */
#define QUANTUM 2048

enum level { LEVEL_PORT, LEVEL_TENANT, LEVEL_SERVICE, LEVEL_CLASS, LEVELS };
enum rings { ANY, DUE, LATE, RINGS };

/* A bucket that the last packet may overdraw: it passes while any credit is left. */
struct rate {
	struct sy_limit_rate line;
	uint64_t level;
	double ns_per_byte;
	bool on;
};

/* A queue: linked by mbuf->next, so that its length costs no memory. */
struct queue {
	struct rte_mbuf *first, *last;
	uint32_t count; /* readers: relaxed */
	uint32_t max;
	struct {
		uint32_t from, to; /* thresholds of the mean length, 2^-8 packets; to 0: never */
		uint32_t percent;
	} early[3];                    /* by drop precedence - 1 */
	uint32_t mean;                 /* 2^-8 packets */
	uint64_t empty_since_ns;       /* count is 0 */
	struct sy_shape_counts counts; /* writer: owner; readers: relaxed */
};

struct node {
	uint32_t parent;
	uint8_t level;
	uint8_t has;           /* bitmap: priorities of which a packet may leave now */
	uint8_t stands[RINGS]; /* bitmap: rings of the parent that it is in */
	uint8_t priority;      /* of a class */
	uint32_t heap_at;      /* its index in the heap; NODE_NONE: none */
	uint64_t wake_ns;
	int32_t quantum, deficit[SY_SHAPE_PRIORITIES];
	struct rate guaranteed, maximum;
	struct {
		uint32_t next, prev;
	} link[RINGS][SY_SHAPE_PRIORITIES];
	union {
		struct {
			uint8_t used[RINGS]; /* rings that are not empty */
			uint32_t head[RINGS][SY_SHAPE_PRIORITIES];
		};
		struct queue queue;
	};
} __attribute__((aligned(SY_CACHE_LINE)));

struct sy_shape {
	struct sy_shape_config config;
	struct node *node; /* port, tenants, services, classes of service 0, of 1, … */
	uint32_t nodes, first_service, first_class;
	uint32_t *heap;                           /* nodes by wake_ns */
	uint32_t waits;                           /* in the heap */
	uint32_t waiting, capacity, capacity_all; /* capacity: less sy_shape_hold() */
	uint64_t random;
	bool open; /* ignore rates */
	/* sy_shape_follow(): by number in the old tree, the number here. */
	uint16_t *tenant_of, *service_of;
	uint8_t class_of[SY_SHAPE_CLASSES];
};

static inline uint32_t class_index(const struct sy_shape *s, unsigned service, unsigned class)
{
	return s->first_class + service * s->config.classes + class;
}

/* ---- queue.c --------------------------------------------------------------------------------- */

void queue_init(struct queue *q, const struct sy_shape_class *c);
/* May a packet of this drop precedence, 0 to 2, enter? Returns NONE or the drop reason. */
enum sy_drop queue_check(struct sy_shape *s, struct queue *q, unsigned precedence, uint64_t now_ns,
                         double ns_per_byte);
void queue_add(struct queue *q, struct rte_mbuf *m);
struct rte_mbuf *queue_remove(struct queue *q, uint64_t now_ns);

/* ---- tree.c ---------------------------------------------------------------------------------- */

int64_t rate_credit(struct rate *r, uint64_t now_ns);
/* Updates the rings of a node, and of its ancestors as far as that changes them. whole: of all
 * ancestors. */
void node_refresh(struct sy_shape *s, uint32_t index, bool whole, uint64_t now_ns);
/* Updates the nodes whose wake time has come. */
void nodes_wake(struct sy_shape *s, uint64_t now_ns);
/* The next child of a node to serve; *priority, *ring: where it was found. */
uint32_t child_pick(const struct node *n, unsigned *priority, enum rings *ring);
/* Accounts for bytes that the child has sent by this ring. */
void child_sent(struct sy_shape *s, struct node *parent, uint32_t child, unsigned priority,
                enum rings ring, uint32_t bytes);

#endif
