// SPDX-License-Identifier: Apache-2.0
/* One core's state. */
#ifndef STACK_H
#define STACK_H

#include "connection.h"
#include "flight.h"
#include "hold.h"
#include "listener.h"
#include "shares.h"
#include "wheel.h"

#define MS_NS UINT64_C(1000000)

/* Ids: a generation above an index. Listeners come after the connections. */
#define INDEX_BITS      22
#define INDEX_MASK      ((UINT32_C(1) << INDEX_BITS) - 1)
#define GENERATION_MASK ((UINT32_C(1) << (32 - INDEX_BITS)) - 1)

#define LOOSE_MAX 1024 /* segments that belong to no connection's turn: resets, challenges, … */

/* Answers of all connections that came after a time-out, though nothing was lost. */
struct late {
	uint64_t sum_ms;    /* how long they took, in this second: */
	uint32_t begins_ms; /* when it began */
	uint32_t count;
	uint32_t quick; /* connections with an answer in it before any time-out could pass */
	uint32_t least_ms, since_ms; /* what time-outs are at least, since when; 0: as ever */
};

struct sy_stack {
	struct sy_stack_options options; /* with all defaults in place */
	struct reassembly *reassembly;   /* NULL: no fragment has come yet */
	const struct congestion_ops *congestion;
	uint64_t now_ns;
	uint32_t now_ms;                      /* modulo 2^32 */
	uint64_t seen_ns;                     /* sy_stack_seen(); UINT64_MAX: it is now */
	uint32_t due_ms;                      /* timers up to here are due */
	struct late late;                     /* timer.c */
	uint64_t held_ns;                     /* when they are acknowledged: hold.c */
	uint32_t held[HOLD_MOST], held_count; /* connections */

	struct connection *connection;
	struct sy_stack_endpoint *client; /* of connections; NULL: options.toa is off */
	uint32_t free, fresh; /* the free ones, chained by bucket_next; the first never used */
	uint32_t *bucket, bucket_mask;
	struct sy_hash_key hash_key;
	struct sy_siphash_key iss_key, ts_key, cookie_key, challenge_key;
	uint64_t cookie_ns; /* when the last one was sent */
	uint32_t port_cursor;

	struct wheel wheel;
	struct wheel_link *wheel_links;
	struct chunk_pool chunks;
	struct pool flights;          /* struct flight */
	struct pool sent, arrived;    /* ranges */
	uint64_t receive_held;        /* bytes of packets that wait */
	bool scarce;                  /* the driver's buffers, when they were looked at */
	bool very_scarce;             /* so that not even one for each connection is kept */
	uint32_t looked_ms, unlooked; /* the last time; packets since */

	struct list send[SY_PRIORITIES]; /* LIST_SEND, by level */
	unsigned send_levels;            /* bit n: level n has some */
	struct shares send_shares;
	struct list event[SY_PRIORITIES]; /* LIST_EVENT, by level */
	unsigned event_levels;            /* bit n: level n has some; with priorities only */
	struct shares shares;             /* of levels in what is fetched */
	uint64_t event_counts[SY_PRIORITIES];
	struct priority *priority;    /* NULL: nobody has asked for hooks */
	struct priority *ranked;      /* the same while somebody may be asked; NULL: all is usual */
	struct list space, time_wait; /* LIST_ROLE */
	uint32_t space_told;          /* connections with EVENT_SPACE */
	struct listener *listener;
	uint32_t listener_count;
	bool listener_news; /* one of them may have an event */

	struct spent spent;
	struct rte_mbuf *loose[LOOSE_MAX];
	uint32_t loose_first, loose_count;

	uint32_t large_most;   /* payload of a segment that the port cuts; 0: it cuts none */
	uint8_t receive_scale; /* of windows, as offered */
	uint64_t challenge_s;
	uint32_t challenges; /* that all connections may still send in this second */
	uint32_t used, half_open, orphans;
	uint64_t orphans_taken;
	struct sy_stack_counters counters;
	size_t fixed;
};

static inline uint64_t time_ms64(const struct sy_stack *s)
{
	return s->now_ns / MS_NS;
}

/* The stack's clock goes to this time, never back. */
static inline void stack_time(struct sy_stack *s, uint64_t now_ns)
{
	if (now_ns > s->now_ns)
		s->now_ns = now_ns;
	s->now_ms = (uint32_t)(s->now_ns / MS_NS);
}

/* The peer is alive. */
static inline void connection_heard(const struct sy_stack *s, struct connection *c)
{
	c->heard_ms = s->now_ms;
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

/* No buffer was to be had: do packets that were read give some? Then the caller tries again. */
static inline bool stack_spares(struct sy_stack *s)
{
	bool some = s->spent.count > 0;

	spent_free(&s->spent);
	return some;
}

/* A segment to be sent, before those of connections; NULL: none. Frees it if too many wait. */
void stack_send_loose(struct sy_stack *s, struct rte_mbuf *m);
/* The first of them; there is one. */
struct rte_mbuf *stack_take_loose(struct sy_stack *s);
/* Packets whose turn it is. */
void packets_receive(struct sy_stack *s, struct rte_mbuf **packet, unsigned count);
/* Answers a segment that belongs to nothing by a reset. */
void stack_refuse(struct sy_stack *s, const struct segment *seg);

/* The pools of ranges (range.c). */
int pools_make(struct sy_stack *s);
void pools_close(struct sy_stack *s);
uint32_t pools_used(const struct sy_stack *s);
/* Chunks may be free: of those who wait for space, as many are told. */
void space_tell(struct sy_stack *s);
/* The next one is told if any chunk is free. False: none is, or nobody waits. */
bool space_tell_next(struct sy_stack *s);
/* The application hears it from this connection, or nothing more. */
void space_heard(struct sy_stack *s, struct connection *c);
/* May a packet be kept that came out of order? Those that are kept are counted. */
bool range_may_hold(const struct sy_stack *s, const struct connection *c, const struct rte_mbuf *m);
void range_hold(struct sy_stack *s, struct connection *c, const struct rte_mbuf *m);
void range_unhold(struct sy_stack *s, struct connection *c, const struct rte_mbuf *m);

#endif
