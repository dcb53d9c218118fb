// SPDX-License-Identifier: Apache-2.0
/*
 * Which sessions end early, so that a new one gets a record or a local port
 * (docs/design/0026-pressure.md). A search looks at a bounded number of records, from where the
 * previous search stopped.
 */
#include "evict.h"

#include "end.h"
#include "pressure.h"
#include "reset_both.h"
#include "service_drop.h"

#define EVICT_RECORDS 64 /* records per search: 32 consecutive cache lines */
/* Idle seconds after which a session that has had answers may be evicted. */
#define EVICT_SILENT 2
/* The same for a one-way session whose client has closed by a credible FIN: its server may still
 * send, which only the client's ACKs show. */
#define EVICT_ONE_WAY_SILENT 60
/* A service has few unproven sessions if another has this many times as many. */
#define EVICT_FEW 8
/* As in sweep.c: an idle time above this means that the clock is late. */
#define IDLE_MAX (UINT16_MAX - 60)

/* In the order of eviction, first to last. */
enum evict_rank {
	EVICT_OVER,     /* timed out, reset, or its server is gone */
	EVICT_UNPROVEN, /* half open; UDP and echo without answers */
	EVICT_TIME_WAIT,
	EVICT_CLOSING, /* both FINs were seen, and one is acknowledged */
	EVICT_UDP,     /* with answers, or with answers that we cannot see */
	EVICT_HALF,    /* closed by one side: the other may still send data */
	EVICT_FEWEST,  /* unproven, of a service that has few of them */
	EVICT_NEVER,
};

/* One search: for a session of which service, and how many sessions the largest of the other
 * services has among those that the search looks at. */
struct eviction {
	const struct sy_balance *b;
	const struct service_load *load; /* the worker's */
	const struct session_table *t;
	uint32_t service;
	uint32_t largest;
	enum evict_rank last; /* the last rank that may end */
	uint16_t now;
};

/* A FIN that was never acknowledged may be forged, and one-way modes see no acknowledgements. */
static bool closing_is_certain(const struct endpoint *e, const struct session *s)
{
	return !endpoint_is_one_way(e) &&
	       s->flags & (SESSION_CLIENT_FIN_ACKED | SESSION_SERVER_FIN_ACKED);
}

static bool half_may_end(const struct endpoint *e, const struct session *s, uint16_t idle)
{
	if (endpoint_is_one_way(e)) /* the flag says that the FIN is credible */
		return s->flags & SESSION_CLIENT_FIN_ACKED && idle >= EVICT_ONE_WAY_SILENT;
	return closing_is_certain(e, s) && idle >= EVICT_SILENT;
}

static enum evict_rank rank_of(const struct endpoint *e, const struct session *s,
                               const struct session_cold *cold, uint16_t idle)
{
	const bool silent = idle >= EVICT_SILENT;
	switch (s->state) {
	case SESSION_RESET:
		return EVICT_OVER;
	case SESSION_SYN_SENT:
	case SESSION_SYN_RECEIVED:
	case SESSION_ECHO:
		return EVICT_UNPROVEN;
	case SESSION_OPENING: /* its client is real */
		return silent ? EVICT_UNPROVEN : EVICT_NEVER;
	case SESSION_UDP_ONE_WAY:
		if (!endpoint_is_one_way(e) || !pressure_talks(s, cold))
			return EVICT_UNPROVEN;
		/* fall through */
	case SESSION_UDP_BOTH_WAYS:
		return silent ? EVICT_UDP : EVICT_NEVER;
	case SESSION_TIME_WAIT:
		return EVICT_TIME_WAIT;
	case SESSION_CLOSING:
		return silent && closing_is_certain(e, s) ? EVICT_CLOSING : EVICT_NEVER;
	case SESSION_FIN_WAIT:
		return half_may_end(e, s, idle) ? EVICT_HALF : EVICT_NEVER;
	default: /* established, challenged, or being reset */
		return EVICT_NEVER;
	}
}

/* A service's unproven sessions, of this worker; of one that is gone: none. */
static uint32_t unproven_of(const struct service_load *load, uint32_t service)
{
	return service == SERVICE_NONE ? 0 : load[service].unproven;
}

/* Do a service's unproven sessions end only when nothing else may? Those of the service that asks
 * do not, once they are a second old. */
static bool is_of_few(const struct eviction *v, uint32_t service, uint16_t idle)
{
	uint64_t count = unproven_of(v->load, service);
	return (service != v->service || idle == 0) && count * EVICT_FEW < v->largest;
}

#define COST_NEVER ((uint32_t)EVICT_NEVER << 16)

/* By rank, then by idle time: the session with the lowest cost is evicted first. */
static uint32_t cost_of(const struct eviction *v, uint32_t record)
{
	const struct sy_balance *b = v->b;
	const struct session *s = session_at(v->t, record);
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	uint16_t idle = session_idle(s, v->now);
	if (s->state == SESSION_DYING)
		return COST_NEVER;
	if (!service || session_is_dead(b, s))
		return reset_both_is_due(e, s) ? COST_NEVER : (uint32_t)EVICT_OVER << 16;
	if (idle > IDLE_MAX)
		idle = 0;
	enum evict_rank rank = rank_of(e, s, session_cold_at(v->t, record), idle);
	if (rank == EVICT_UNPROVEN && is_of_few(v, e->service, idle))
		rank = EVICT_FEWEST;
	if (rank < EVICT_CLOSING && idle > session_timeout(service, s))
		rank = EVICT_OVER;
	return rank > v->last ? COST_NEVER : (uint32_t)rank << 16 | (uint16_t)~idle;
}

/* The cost of ending the session in a record. A pair ends by its first record. */
static uint32_t record_cost(const struct eviction *v, uint32_t record)
{
	const struct session *s = session_at(v->t, record);
	if (s->state == SESSION_FREE)
		return 0;
	/* its session is in the record before it */
	return s->state == SESSION_PAIR_RECORD ? COST_NEVER : cost_of(v, record);
}

static uint32_t pair_cost(const struct eviction *v, uint32_t record)
{
	uint32_t one = record_cost(v, record);
	if (session_is_pair(v->t, record) || one == COST_NEVER)
		return one;
	uint32_t other = record_cost(v, record + 1);
	return one > other ? one : other;
}

/* Notes how many sessions the service of this one has that may end: of unproven ones this worker's,
 * of answered UDP all. */
static void eviction_note(struct eviction *v, uint32_t record)
{
	const struct session *s = session_at(v->t, record);
	if (s->state == SESSION_FREE || s->state == SESSION_PAIR_RECORD)
		return;
	uint32_t service = v->b->endpoint[s->server].service, count = 0;
	if (session_state_is_unproven(s->state))
		count = unproven_of(v->load, service);
	else if (s->state == SESSION_UDP_BOTH_WAYS && v->last > EVICT_UNPROVEN &&
	         service != SERVICE_NONE)
		count = SY_READ(v->b->service_active[service]) / v->b->workers;
	if (count > v->largest)
		v->largest = count;
}

static void record_evict(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	uint8_t state = session_at(t, record)->state;
	if (state == SESSION_FREE)
		return;
	const struct sy_balance *b = w->app;
	const enum sy_drop reason = session_state_is_unproven(state) ? SY_DROP_UNPROVEN_EVICTED
	                                                             : SY_DROP_SESSION_EVICTED;
	service_count_drop(w, b->endpoint[session_at(t, record)->server].service, reason);
	session_end(w, t, record);
	SY_COUNT(w->counters.drop[reason], 1);
}

/* Nothing of `count` records from this one on can end. */
static bool is_free(const struct session_table *t, uint32_t record, uint32_t count)
{
	return session_at(t, record)->state == SESSION_FREE &&
	       session_at(t, record + count - 1)->state == SESSION_FREE;
}

/* The first record of the next step of a search. */
static uint32_t search_next(const struct session_table *t, uint32_t at, uint32_t step)
{
	at &= ~(step - 1);
	return at + step > t->top ? 0 : at;
}

/* The record of the session to end, SESSION_NONE: none may. step 2: an even record, with the next
 * one. */
static uint32_t search(struct eviction *v, struct session_table *t, uint32_t step)
{
	uint32_t best = SESSION_NONE, lowest = COST_NEVER, at = t->evict_at;
	for (unsigned n = 0; n < EVICT_RECORDS && t->top >= step; n += step) {
		at = search_next(t, at, step);
		for (uint32_t i = 0; i < step; i++)
			eviction_note(v, at + i);
		at += step;
	}
	at = t->evict_at;
	for (unsigned n = 0; n < EVICT_RECORDS && t->top >= step; n += step) {
		at = search_next(t, at, step);
		uint32_t cost = step == 2 ? pair_cost(v, at) : record_cost(v, at);
		if (cost < lowest && !is_free(t, at, step)) {
			lowest = cost;
			best = at;
		}
		at += step;
	}
	t->evict_at = at;
	return best;
}

static struct eviction eviction_begin(struct sy_worker *w, struct session_table *t,
                                      uint32_t service, enum evict_rank last)
{
	__atomic_store_n(&t->refused, t->refused + 1, __ATOMIC_RELAXED);
	return (struct eviction){.b = w->app,
	                         .load = balance_worker_of(w)->load,
	                         .t = t,
	                         .service = service,
	                         .last = last,
	                         .now = (uint16_t)balance_seconds(w)};
}

bool evict_session(struct sy_worker *w, struct session_table *t, uint32_t service, bool pair)
{
	struct eviction v = eviction_begin(w, t, service, EVICT_FEWEST);
	uint32_t best = search(&v, t, 1 + pair);
	if (best == SESSION_NONE)
		return false;
	bool both = pair && !session_is_pair(t, best);
	record_evict(w, t, best);
	if (both)
		record_evict(w, t, best + 1);
	return true;
}

void evict_unproven(struct sy_worker *w, struct session_table *t, uint32_t service)
{
	struct eviction v = eviction_begin(w, t, service, EVICT_UNPROVEN);
	uint32_t best = search(&v, t, 1);
	if (best != SESSION_NONE)
		record_evict(w, t, best);
}

/* ---- local ports ----------------------------------------------------------------------------- */

uint32_t evict_port_cost(const struct session_port_search *search, const struct session *s)
{
	const struct port_search *p = SY_CONTAINER_OF(search, struct port_search, search);
	uint32_t service = p->balance->endpoint[s->server].service;
	uint16_t idle = session_idle(s, search->now);
	if (!session_state_is_unproven(s->state) || s->state == SESSION_OPENING)
		return session_port_cost(search, s);
	if (service != p->service &&
	    unproven_of(p->load, service) <= unproven_of(p->load, p->service))
		return SESSION_NONE;
	if (idle > IDLE_MAX)
		idle = 0;
	return 1u << 16 | (uint16_t)~idle; /* after those in TIME_WAIT */
}

void evict_for_port(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	if (session_state_is_unproven(session_at(t, record)->state))
		record_evict(w, t, record);
	else
		session_end(w, t, record);
}
