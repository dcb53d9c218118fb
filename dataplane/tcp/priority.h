// SPDX-License-Identifier: Apache-2.0
/* What a stack makes of hooks (docs/design/0045-priorities.md). A stack that nobody has asked for
 * its hooks has no struct priority. While no hook is in use, nothing has a level: that of all is
 * SY_USUAL, and sy_stack.ranked is NULL. A hook that a listener or a connection has got, or became,
 * is in use for the stack's life: nobody looks for the last one that has one. */
#ifndef PRIORITY_H
#define PRIORITY_H

#include "pool.h"
#include "receive_level.h"
#include "shares.h"
#include "stack.h"

/* Of a connection, by its index. */
struct rank {
	uint32_t own;     /* the cell of its private area; POOL_NONE: it has none */
	uint32_t until;   /* sequence number behind the last unread byte of `level` */
	uint32_t born_ms; /* when the handshake was done */
	uint32_t lost;    /* times that a loss was found */
	uint8_t level;    /* the most urgent of what is unread, else of what was read last */
	uint8_t listed;   /* the list of events that it is in, if it is in one */
	uint8_t hook;     /* SY_HOOK_NONE: the stack's */
	bool unread;      /* it counts in priority.unread */
	bool known;       /* something of it was read: what is unread of it counts in
	                     priority.waits. From `level` to here: while the stack is ranked */
};
_Static_assert(sizeof(struct rank) <= 24, "beside the 512 bytes of a connection");

struct priority {
	struct sy_hooks *hooks;
	unsigned packet_hook, segment_hook;
	bool named; /* a listener or a connection has got a hook of its own, or became one */
	struct rank *rank;
	struct pool own;                /* cells of SY_CACHE_LINE bytes */
	uint32_t unread[SY_PRIORITIES]; /* connections */
	uint32_t waits[SY_PRIORITIES];  /* of these: known ones. For others nothing waits: anybody
	                                   can  open connections without end */
	uint32_t stuck[SY_PRIORITIES];  /* of known ones: nobody reads them, so nothing waits */
	uint32_t
	        idle[SY_PRIORITIES]; /* turns that less urgent packets waited, since one was read */
	struct receive_levels waiting; /* most is 0 before the first packet hook */
};

void priority_close(struct sy_stack *s);
/* Nobody is asked any more, if that is so: nothing has a level. */
void priority_rest(struct sy_stack *s);

static inline struct rank *rank_of(const struct sy_stack *s, const struct connection *c)
{
	return &s->priority->rank[connection_index(s, c)];
}

/* The level of what it sends: that of its events. */
static inline unsigned priority_send_level(const struct sy_stack *s, const struct connection *c)
{
	return rank_of(s, c)->level;
}

/* The level that the driver's step has written into a packet. */
unsigned packet_level(const struct rte_mbuf *m);
void packet_set_level(struct rte_mbuf *m, unsigned level);

/* ---- the driver's step (packet_level.c) ------------------------------------------------------ */

/* Packets wait, each in the level that the hook says. */
void packets_wait(struct sy_stack *s, struct rte_mbuf **packet, unsigned count);

static inline bool packets_are_asked(const struct sy_stack *s)
{
	const struct priority *p = s->priority;
	return p->packet_hook != SY_HOOK_NONE || p->waiting.count > 0; /* none overtakes them */
}

/* ---- the transport's step (priority.c) ------------------------------------------------------- */

/* A connection begins; its handshake is done; it has lost something; its place is free. */
void priority_begin(struct sy_stack *s, const struct connection *c);
void priority_born(struct sy_stack *s, const struct connection *c);
void priority_lost(struct sy_stack *s, const struct connection *c);
void priority_end(struct sy_stack *s, const struct connection *c);

/* Bytes come in order, and do not count as received yet: the level of the packet that is trimmed to
 * them. seg: the segment that brought them, or closed the gap before them. */
unsigned priority_ask(struct sy_stack *s, struct connection *c, struct rte_mbuf *m,
                      const struct segment *seg);
/* Now they are unread. last: the packet that was the last one before. */
void priority_added(struct sy_stack *s, struct connection *c, struct rte_mbuf *last,
                    unsigned level);
/* Bytes were read, or dropped. */
void priority_read(struct sy_stack *s, struct connection *c);

/* ---- events (event.c) ------------------------------------------------------------------------ */

/* Its event is in the list of its level, which may be another than before. */
void event_place(struct sy_stack *s, struct connection *c);

static inline void event_add(struct sy_stack *s, struct connection *c)
{
	if (SY_UNLIKELY(s->ranked != NULL))
		event_place(s, c);
	else if (!list_has(s, LIST_EVENT, c))
		list_append(s, &s->event[SY_USUAL], LIST_EVENT, c);
}

void event_leave(struct sy_stack *s, struct connection *c);
/* All events are in one list again. */
void events_unranked(struct sy_stack *s);

#endif
