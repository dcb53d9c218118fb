// SPDX-License-Identifier: Apache-2.0
/*
 * A slot whose table is full: the least valuable of some sessions gives way to a new one
 * (docs/design/0019-slots.md). A search looks at a bounded number of records, where the last one
 * stopped.
 */
#include "evict.h"
#include "end.h"
#include "reset_both.h"

#define EVICT_RECORDS 64 /* that one search looks at: 32 cache lines in a row */
/* Seconds of silence from which on a session that has had answers may go. */
#define EVICT_SILENT 2
/* As for the sweep: above it the clock is behind. */
#define IDLE_MAX (UINT16_MAX - 60)

/* What goes first stands first. */
enum evict_rank {
	EVICT_OVER,       /* over its time, reset, or its server is gone */
	EVICT_UNANSWERED, /* half open; UDP and echo that nobody answered */
	EVICT_TIME_WAIT,
	EVICT_CLOSING, /* both FINs were seen, and one is acknowledged */
	EVICT_UDP,     /* with answers, or of which they cannot be seen */
	EVICT_HALF,    /* closed by one side: the other may still have something to say */
	EVICT_NEVER,
};

/* A FIN that nobody acknowledged may be forged, and one-way modes cannot tell. */
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
	default: /* established, or a reset that is being checked, or one that is told its end */
		return EVICT_NEVER;
	}
}

#define COST_NEVER ((uint32_t)EVICT_NEVER << 16)

/* By rank, then by silence: the lower goes first. */
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

/* Of what has to end for record to be free; of a pair, both from `record` on. */
static uint32_t record_cost(const struct sy_balance *b, const struct session_table *t,
                            uint32_t record, uint16_t now)
{
	const struct session *s = session_at(t, record);
	if (s->state == SESSION_FREE)
		return 0;
	/* its session is the record before */
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

bool evict_session(struct sy_worker *w, struct session_table *t, bool pair)
{
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
		if (cost < lowest && (pair || session_at(t, record)->state != SESSION_FREE)) {
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
