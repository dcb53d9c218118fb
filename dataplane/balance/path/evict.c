// SPDX-License-Identifier: Apache-2.0
/*
 * Eviction when a slot's table is full: the least valuable of some sessions ends, and a new one
 * takes its record (docs/design/0019-slots.md). A search looks at a bounded number of records, from
 * where the previous search stopped.
 */
#include "evict.h"
#include "end.h"
#include "reset_both.h"

#define EVICT_RECORDS 64 /* records per search: 32 consecutive cache lines */
/* Idle seconds after which a session that has had answers may be evicted. */
#define EVICT_SILENT 2
/* As in sweep.c: an idle time above this means that the clock is late. */
#define IDLE_MAX (UINT16_MAX - 60)

/* In the order of eviction, first to last. */
enum evict_rank {
	EVICT_OVER,       /* timed out, reset, or its server is gone */
	EVICT_UNANSWERED, /* half open; UDP and echo without answers */
	EVICT_TIME_WAIT,
	EVICT_CLOSING, /* both FINs were seen, and one is acknowledged */
	EVICT_UDP,     /* with answers, or with answers that we cannot see */
	EVICT_HALF,    /* closed by one side: the other may still send data */
	EVICT_NEVER,
};

/* A FIN that was never acknowledged may be forged, and one-way modes see no acknowledgements. */
static bool closing_is_certain(const struct endpoint *e, const struct session *s)
{
	return !endpoint_is_one_way(e) &&
	       s->flags & (SESSION_CLIENT_FIN_ACKED | SESSION_SERVER_FIN_ACKED);
}

static enum evict_rank rank_of(const struct endpoint *e, const struct session *s, bool silent)
{
	switch (s->state) {
	case SESSION_RESET:
		return EVICT_OVER;
	case SESSION_SYN_SENT:
	case SESSION_SYN_RECEIVED:
	case SESSION_ECHO:
		return EVICT_UNANSWERED;
	case SESSION_OPENING: /* its client is real */
		return silent ? EVICT_UNANSWERED : EVICT_NEVER;
	case SESSION_UDP_ONE_WAY:
		if (!endpoint_is_one_way(e))
			return EVICT_UNANSWERED;
		/* fall through */
	case SESSION_UDP_BOTH_WAYS:
		return silent ? EVICT_UDP : EVICT_NEVER;
	case SESSION_TIME_WAIT:
		return EVICT_TIME_WAIT;
	case SESSION_CLOSING:
		return silent && closing_is_certain(e, s) ? EVICT_CLOSING : EVICT_NEVER;
	case SESSION_FIN_WAIT:
		return silent && closing_is_certain(e, s) ? EVICT_HALF : EVICT_NEVER;
	default: /* established, challenged, or being reset */
		return EVICT_NEVER;
	}
}

#define COST_NEVER ((uint32_t)EVICT_NEVER << 16)

/* By rank, then by idle time: the session with the lowest cost is evicted first. */
static uint32_t cost_of(const struct sy_balance *b, const struct session *s, uint16_t now)
{
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	uint16_t idle = session_idle(s, now);
	if (s->state == SESSION_DYING)
		return COST_NEVER;
	if (!service || session_is_dead(b, s))
		return reset_both_is_due(e, s) ? COST_NEVER : (uint32_t)EVICT_OVER << 16;
	if (idle > IDLE_MAX)
		idle = 0;
	enum evict_rank rank = rank_of(e, s, idle >= EVICT_SILENT);
	if (rank < EVICT_CLOSING && idle > session_timeout(service, s))
		rank = EVICT_OVER;
	return rank == EVICT_NEVER ? COST_NEVER : (uint32_t)rank << 16 | (uint16_t)~idle;
}

/* The cost of ending the session in a record. A pair ends by its first record. */
static uint32_t record_cost(const struct sy_balance *b, const struct session_table *t,
                            uint32_t record, uint16_t now)
{
	const struct session *s = session_at(t, record);
	if (s->state == SESSION_FREE)
		return 0;
	/* its session is in the record before it */
	return s->state == SESSION_PAIR_RECORD ? COST_NEVER : cost_of(b, s, now);
}

static uint32_t pair_cost(const struct sy_balance *b, const struct session_table *t,
                          uint32_t record, uint16_t now)
{
	uint32_t one = record_cost(b, t, record, now);
	if (session_is_pair(t, record) || one == COST_NEVER)
		return one;
	uint32_t other = record_cost(b, t, record + 1, now);
	return one > other ? one : other;
}

static void record_evict(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	if (session_at(t, record)->state == SESSION_FREE)
		return;
	session_end(w, t, record);
	SY_COUNT(w->counters.drop[SY_DROP_SESSION_EVICTED], 1);
}

/* Nothing of `count` records from this one on can end. */
static bool is_free(const struct session_table *t, uint32_t record, uint32_t count)
{
	return session_at(t, record)->state == SESSION_FREE &&
	       session_at(t, record + count - 1)->state == SESSION_FREE;
}

bool evict_session(struct sy_worker *w, struct session_table *t, bool pair)
{
	__atomic_store_n(&t->refused, t->refused + 1, __ATOMIC_RELAXED);
	const struct sy_balance *b = w->app;
	uint16_t now = (uint16_t)balance_seconds(w);
	uint32_t best = SESSION_NONE, lowest = COST_NEVER, step = 1 + pair;
	for (unsigned n = 0; n < EVICT_RECORDS && t->top >= step; n += step) {
		uint32_t record = pair ? t->evict_at & ~1u : t->evict_at;
		if (record + step > t->top)
			record = 0;
		t->evict_at = record + step;
		uint32_t cost =
		        pair ? pair_cost(b, t, record, now) : record_cost(b, t, record, now);
		if (cost < lowest && !is_free(t, record, step)) {
			lowest = cost;
			best = record;
		}
	}
	if (best == SESSION_NONE)
		return false;
	bool both = pair && !session_is_pair(t, best);
	record_evict(w, t, best);
	if (both)
		record_evict(w, t, best + 1);
	return true;
}
