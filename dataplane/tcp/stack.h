// SPDX-License-Identifier: Apache-2.0
/* State of one stack. */
#ifndef STACK_H
#define STACK_H

#include "ack_coalesce.h"
#include "connection.h"
#include "flight.h"
#include "level_share.h"
#include "listener.h"
#include "wheel.h"

#define MS_NS UINT64_C(1000000)

/* Ids: generation and index. Listeners' indices follow those of connections. */
#define INDEX_BITS      22
#define INDEX_MASK      ((UINT32_C(1) << INDEX_BITS) - 1)
#define GENERATION_MASK ((UINT32_C(1) << (32 - INDEX_BITS)) - 1)

/* Control segments outside the connections' send lists: resets, challenge ACKs, … */
#define MAX_CONTROL 1024

/* The minimum RTO that all connections share, learned from their spurious time-outs: the RTT grew,
 * nothing was lost. */
struct rto_floor {
	uint32_t begins_ms; /* start of the current second */
	uint32_t count;     /* connections with a spurious time-out in this second */
	uint64_t sum_ms;    /* sum of their RTTs */
	uint32_t quick;     /* connections with an RTT below the minimum RTO in this second */
	uint32_t min_ms;    /* learned minimum RTO; 0: none */
	uint32_t since_ms;  /* when it was learned */
};

struct sy_stack {
	struct sy_stack_options options; /* defaults filled in */
	struct reassembly *reassembly;   /* NULL: no fragment received yet */
	const struct congestion_ops *congestion;
	uint64_t now_ns;
	uint32_t now_ms;            /* modulo 2^32 */
	uint64_t seen_ns;           /* sy_stack_mark_seen(); UINT64_MAX: now_ns */
	uint32_t due_ms;            /* timers have run up to here */
	struct rto_floor rto_floor; /* timer.c */
	uint64_t coalesced_ns;      /* deadline of coalesced ACKs: ack_coalesce.c */
	uint32_t coalesced[MAX_COALESCED], coalesced_count; /* connections */

	struct connection *connection;
	struct sy_stack_endpoint *client; /* by connection; NULL: options.toa is off */
	uint32_t free, fresh;             /* free list by bucket_next; first index never used */
	uint32_t *bucket, bucket_mask;
	struct sy_hash_key hash_key;
	struct sy_siphash_key iss_key, ts_key, cookie_key, challenge_key;
	uint64_t cookie_ns; /* when the last cookie was sent */
	uint32_t port_cursor;

	struct wheel wheel;
	struct wheel_link *wheel_links;
	struct chunk_pool chunks;
	struct pool flights;       /* union flight */
	struct pool sent, arrived; /* ranges */
	uint64_t receive_queued;   /* bytes of unread packets */
	bool scarce;               /* few free buffers in the driver's pool, at the last check */
	bool very_scarce;          /* not even one queued packet per connection is affordable */
	uint32_t checked_ms, unchecked; /* time of the last check; packets since */

	struct list send[SY_PRIORITIES]; /* LIST_SEND, by level */
	unsigned send_levels;            /* bit n: level n is not empty */
	struct shares send_shares;
	struct list event[SY_PRIORITIES]; /* LIST_EVENT, by level */
	unsigned event_levels;            /* bit n: level n is not empty; with priorities only */
	struct shares shares;             /* of fetched events */
	uint64_t event_counts[SY_PRIORITIES];
	struct priority *priority;    /* NULL: sy_stack_hooks() was not called */
	struct priority *ranked;      /* = priority, or NULL without a hook in use */
	struct list space, time_wait; /* LIST_ROLE */
	uint32_t space_notified;      /* connections with EVENT_SPACE */
	struct listener_table listeners;
	uint32_t *port_uses; /* connections that segments can reach, by local port */

	struct spent spent;
	struct rte_mbuf *control[MAX_CONTROL];
	uint32_t control_first, control_count;

	uint32_t max_large;    /* max. payload of a TSO segment; 0: no TSO */
	uint8_t receive_scale; /* offered window scale */
	uint64_t challenge_s;
	uint32_t challenges; /* challenge ACKs left for all connections in this second */
	uint32_t used, half_open, orphans;
	uint64_t orphans_taken;
	struct sy_stack_counters counters;
	size_t fixed;
};

static inline uint64_t time_ms64(const struct sy_stack *s)
{
	return s->now_ns / MS_NS;
}

/* Advances the stack's clock; never sets it back. */
static inline void stack_time(struct sy_stack *s, uint64_t now_ns)
{
	if (now_ns > s->now_ns)
		s->now_ns = now_ns;
	s->now_ms = (uint32_t)(s->now_ns / MS_NS);
}

/* The peer has sent an acceptable segment. */
static inline void connection_mark_alive(const struct sy_stack *s, struct connection *c)
{
	c->alive_ms = s->now_ms;
	c->probes = 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static inline bool list_has(const struct sy_stack *s, enum list_kind kind,
                            const struct connection *c)
{
	return c->place[kind].after != connection_index(s, c);
}

void list_append(struct sy_stack *s, struct list *l, enum list_kind kind, struct connection *c);
void list_remove(struct sy_stack *s, struct list *l, enum list_kind kind, struct connection *c);

static inline struct connection *list_first(struct sy_stack *s, const struct list *l)
{
	return l->first == INDEX_NONE ? NULL : &s->connection[l->first];
}

/* After an allocation failure: frees consumed packets. Returns true if there were any, so that the
 * caller retries. */
static inline bool stack_reclaim(struct sy_stack *s)
{
	bool some = s->spent.count > 0;

	spent_free(&s->spent);
	return some;
}

/* Queues a segment to transmit before those of connections; frees it if the queue is full. m may be
 * NULL. */
void stack_send_control(struct sy_stack *s, struct rte_mbuf *m);
/* Dequeues the first one; the queue is not empty. */
struct rte_mbuf *stack_next_control(struct sy_stack *s);
/* Processes packets that need not wait in levels. */
void packets_receive(struct sy_stack *s, struct rte_mbuf **packet, unsigned count);
/* Answers a segment without connection or listener by a reset. */
void stack_refuse(struct sy_stack *s, const struct segment *seg);

/* Pools of ranges (range_pool.c). */
int pools_make(struct sy_stack *s);
void pools_close(struct sy_stack *s);
uint32_t pools_used(const struct sy_stack *s);
/* Notifies as many waiting connections as chunks are free. */
void space_notify(struct sy_stack *s);
/* Notifies the next waiting connection. Returns false if no chunk is free or no connection waits.
 */
bool space_notify_next(struct sy_stack *s);
/* The application has fetched the notification of this connection, or the connection ends. */
void space_acknowledge(struct sy_stack *s, struct connection *c);
/* Returns true if an out-of-order packet may be queued; charge and uncharge account for queued
 * ones. */
bool range_fits(const struct sy_stack *s, const struct connection *c, const struct rte_mbuf *m);
void range_charge(struct sy_stack *s, struct connection *c, const struct rte_mbuf *m);
void range_uncharge(struct sy_stack *s, struct connection *c, const struct rte_mbuf *m);

#endif
