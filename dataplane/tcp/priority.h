// SPDX-License-Identifier: Apache-2.0
/* Priorities by hooks (docs/design/0045-priorities.md). struct priority exists only after
 * sy_stack_hooks(). While no hook is in use, sy_stack.ranked is NULL and all levels are SY_USUAL. A
 * hook assigned to a listener or connection, or by `become`, stays in use for the stack's life:
 * finding its last user is not worth the cost. */
#ifndef PRIORITY_H
#define PRIORITY_H

#include "level_share.h"
#include "pool.h"
#include "receive_level.h"
#include "stack.h"

/* Per connection, by its index. */
struct rank {
	uint32_t own;     /* cell of its private area, or POOL_NONE */
	uint32_t until;   /* end of the last unread byte of `level` */
	uint32_t born_ms; /* when the handshake completed */
	uint32_t lost;    /* loss events */
	uint8_t level;    /* highest level of unread data, else of the data read last */
	uint8_t listed;   /* level of its event list, if it is in one */
	uint8_t hook;     /* segment hook; SY_HOOK_NONE: the stack's */
	bool unread;      /* counted in priority.unread */
	/* The application has read from it: its unread data counts in priority.waits. Valid while
	 * the stack is ranked. */
	bool known;
};
_Static_assert(sizeof(struct rank) <= 24, "beside the 512 bytes of a connection");

struct priority {
	struct sy_hooks *hooks;
	unsigned packet_hook, segment_hook;
	bool named; /* a hook was assigned to a listener or connection */
	struct rank *rank;
	struct pool own;                /* cells of SY_CACHE_LINE bytes */
	uint32_t unread[SY_PRIORITIES]; /* connections */
	/* Of these, known ones. Others delay no packets: a peer could open any number of them. */
	uint32_t waits[SY_PRIORITIES];
	uint32_t stuck[SY_PRIORITIES]; /* of known ones: not read for long, so they delay nothing */
	uint32_t idle[SY_PRIORITIES];  /* poll iterations that less urgent packets were delayed,
	                                  since the last read */
	struct receive_levels waiting; /* max is 0 before the first packet hook */
};

void priority_close(struct sy_stack *s);
/* Disables levels if no hook is in use. */
void priority_disable(struct sy_stack *s);

static inline struct rank *rank_of(const struct sy_stack *s, const struct connection *c)
{
	return &s->priority->rank[connection_index(s, c)];
}

/* Returns the level of its transmission: that of its events, unless a baseline schedules. */
static inline unsigned priority_send_level(const struct sy_stack *s, const struct connection *c)
{
	return rank_of(s, c)->level;
}

/* Returns the level that packet_level.c stored in a packet. */
unsigned packet_level(const struct rte_mbuf *m);
void packet_set_level(struct rte_mbuf *m, unsigned level);

/* ---- received packets (packet_level.c) ------------------------------------------------------- */

/* Runs the packet hook and queues the packets by level. */
void packets_queue(struct sy_stack *s, struct rte_mbuf **packet, unsigned count);

static inline bool packet_hook_in_use(const struct sy_stack *s)
{
	const struct priority *p = s->priority;
	return p->packet_hook != SY_HOOK_NONE ||
	       p->waiting.count > 0; /* queued packets must not be overtaken */
}

/* ---- connections (priority.c) ---------------------------------------------------------------- */

/* A connection is created; is established; has a loss event; is freed. */
void priority_begin(struct sy_stack *s, const struct connection *c);
void priority_born(struct sy_stack *s, const struct connection *c);
void priority_lost(struct sy_stack *s, const struct connection *c);
void priority_end(struct sy_stack *s, const struct connection *c);

/* Runs the segment hook for in-order data, before it is added to the counters, and returns its
 * level. seg: the segment that carried it or closed the gap before it. */
unsigned priority_hook_run(struct sy_stack *s, struct connection *c, struct rte_mbuf *m,
                           const struct segment *seg);
/* The data is now unread. last: the previous last packet. */
void priority_added(struct sy_stack *s, struct connection *c, struct rte_mbuf *last,
                    unsigned level);
/* Bytes were read, or dropped. */
void priority_read(struct sy_stack *s, struct connection *c);

/* ---- events (event_order.c) ------------------------------------------------------------------ */

/* Moves its event to the list of its level. */
void event_place(struct sy_stack *s, struct connection *c);

static inline void event_add(struct sy_stack *s, struct connection *c)
{
	if (SY_UNLIKELY(s->ranked != NULL))
		event_place(s, c);
	else if (!list_has(s, LIST_EVENT, c))
		list_append(s, &s->event[SY_USUAL], LIST_EVENT, c);
}

void event_leave(struct sy_stack *s, struct connection *c);
/* Moves all events into one list. */
void events_unranked(struct sy_stack *s);

#endif
