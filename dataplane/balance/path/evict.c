// SPDX-License-Identifier: Apache-2.0
/*
 * Eviction: which sessions end early so that a new one gets a record or local port
 * (docs/design/0026-pressure.md). A search visits a bounded number of records, starting where the
 * previous one stopped.
 */
#include "evict.h"

#include "end.h"
#include "pressure.h"
#include "reset_both.h"
#include "service_drop.h"

#define EVICT_RECORDS 64 /* records per search: 32 adjacent cache lines */
/* Min idle seconds before a session with answers may be evicted. */
#define EVICT_SILENT 2
/* The same for a one-way session after a credible FIN of its client: the server may still send, and
 * only the client's ACKs show that. */
#define EVICT_ONE_WAY_SILENT 60
/* A service has few sessions if another one has more than EVICT_FEW times as many. */
#define EVICT_FEW 2
/* As in sweep.c: a larger idle time means that the clock is behind. */
#define IDLE_MAX (UINT16_MAX - 60)

/* In the order of eviction. */
enum evict_rank {
	EVICT_OVER,      /* timed out, reset, or its server is gone */
	EVICT_EMBRYONIC, /* half open; unreplied UDP; echo */
	EVICT_TIME_WAIT,
	EVICT_CLOSING, /* both FINs were seen, one is acknowledged */
	EVICT_UDP,     /* UDP whose client has sent after an answer; one-way: sends repeatedly */
	EVICT_HALF,    /* closed by one side: the other may still send data */
	EVICT_BUSY,    /* as EVICT_UDP, but not silent; of another service that has more */
	EVICT_FEWEST,  /* embryonic, of a service that has few */
	EVICT_OWN_FEW, /* as EVICT_UDP, of the new session's service, which has few */
	EVICT_NEVER,
};

/* One search: the new session's server, and the maximum number of sessions that a service has among
 * those visited. */
struct eviction {
	const struct sy_balance *b;
	const struct service_load *load; /* the worker's */
	const struct session_table *t;
	uint32_t server;
	uint32_t weight; /* of the new session's service: weight_of() */
	uint32_t largest;
	bool embryonic; /* evict and count only embryonic sessions */
	uint16_t now;
};

/* An unacknowledged FIN may be forged, and one-way modes see no acknowledgements. */
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
	case SESSION_UDP_ANSWERED:
	case SESSION_ECHO:
		return EVICT_EMBRYONIC;
	case SESSION_OPENING: /* its client is real */
		return silent ? EVICT_EMBRYONIC : EVICT_NEVER;
	case SESSION_UDP_ONE_WAY:
		if (!endpoint_is_one_way(e) || !pressure_is_repeated(s, cold))
			return EVICT_EMBRYONIC;
		/* fall through */
	case SESSION_UDP_BOTH_WAYS:
		return silent ? EVICT_UDP : EVICT_BUSY;
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

/* The service's embryonic sessions at this worker; 0 if the service is gone. */
static uint32_t pressure_of(const struct sy_balance *b, const struct service_load *load,
                            uint32_t server)
{
	const uint32_t service = b->endpoint[server].service;
	return service == SERVICE_NONE ? 0 : pressure_embryonic(load, service);
}

/* The service's sessions at this worker that a flood can create: embryonic TCP, all UDP. Services
 * of SNAT share rules, so there a server stands for the protocol. 0 if the service is gone. */
static uint32_t weight_of(const struct sy_balance *b, const struct service_load *load,
                          uint32_t server)
{
	const struct endpoint *e = &b->endpoint[server];
	if (e->service == SERVICE_NONE)
		return 0;
	const uint32_t weight = pressure_embryonic(load, e->service);
	if (e->proto != SY_PROTO_UDP)
		return weight;
	const uint32_t *active =
	        e->mode == MODE_SNAT ? &b->server_active[server] : &b->service_active[e->service];
	const uint32_t sessions = SY_READ(*active) / b->workers;
	return sessions > weight ? sessions : weight;
}

/* All sessions of a server's service. */
static uint32_t active_of(const struct sy_balance *b, uint32_t server)
{
	const uint32_t service = b->endpoint[server].service;
	return service == SERVICE_NONE ? 0 : SY_READ(b->service_active[service]);
}

static inline bool is_same_service(const struct sy_balance *b, uint32_t one, uint32_t other)
{
	return b->endpoint[one].service == b->endpoint[other].service;
}

/* May a new session evict an embryonic one of another service? Only if that service has more of
 * them, and not far fewer than the new session's service has sessions in all: a flood that
 * completes its handshakes must not evict embryonic sessions of others. */
static bool may_end_embryonic(const struct sy_balance *b, const struct service_load *load,
                              uint32_t server, uint32_t other)
{
	const uint64_t theirs = pressure_of(b, load, other);
	return theirs > pressure_of(b, load, server) &&
	       theirs * PRESSURE_FEW > weight_of(b, load, server);
}

/* The rank, between services, of a session that is not over: a new session evicts one of another
 * service only if that service has more than its own. A flood thus evicts its own service's
 * sessions. */
static enum evict_rank rank_among(const struct eviction *v, uint32_t server, enum evict_rank rank,
                                  uint16_t idle)
{
	const bool same = is_same_service(v->b, server, v->server);
	const uint64_t weight = weight_of(v->b, v->load, server);
	bool may = same;
	switch (rank) {
	case EVICT_EMBRYONIC:
		may |= may_end_embryonic(v->b, v->load, v->server, server);
		break;
	case EVICT_CLOSING:
	case EVICT_HALF:
		may |= active_of(v->b, server) > active_of(v->b, v->server);
		break;
	case EVICT_UDP:
		may |= weight > v->weight;
		break;
	case EVICT_BUSY:
		may = !same && weight > v->weight;
		break;
	default:
		may = true;
	}
	if (!may)
		return EVICT_NEVER;
	/* Within a service, a new session outlives silent ones. */
	const uint64_t count = v->embryonic || (same && rank == EVICT_EMBRYONIC && idle == 0)
	                               ? pressure_of(v->b, v->load, server)
	                               : weight;
	if (count * EVICT_FEW >= v->largest)
		return rank;
	return rank == EVICT_EMBRYONIC ? EVICT_FEWEST : rank == EVICT_UDP ? EVICT_OWN_FEW : rank;
}

#define COST_NEVER ((uint32_t)EVICT_NEVER << 16)

/* The session with the lowest cost is evicted first: by rank, then by idle time. */
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
	if (rank < EVICT_CLOSING && idle > session_timeout(service, s))
		rank = EVICT_OVER;
	if (rank != EVICT_OVER)
		rank = rank_among(v, s->server, rank, idle);
	if (v->embryonic && !session_state_is_embryonic(s->state))
		return COST_NEVER;
	return rank == EVICT_NEVER ? COST_NEVER : (uint32_t)rank << 16 | (uint16_t)~idle;
}

/* The cost of evicting a record's session. A pair ends by its first record. */
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

/* Notes how many sessions this session's service has, if the search may evict it. */
static void eviction_note(struct eviction *v, uint32_t record)
{
	const struct session *s = session_at(v->t, record);
	if (s->state == SESSION_FREE || s->state == SESSION_PAIR_RECORD)
		return;
	if (!session_state_is_embryonic(s->state) &&
	    (s->state != SESSION_UDP_BOTH_WAYS || v->embryonic))
		return;
	const uint32_t weight = v->embryonic ? pressure_of(v->b, v->load, s->server)
	                                     : weight_of(v->b, v->load, s->server);
	if (weight > v->largest)
		v->largest = weight;
}

static void record_evict(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	uint8_t state = session_at(t, record)->state;
	if (state == SESSION_FREE)
		return;
	const struct sy_balance *b = w->app;
	const enum sy_drop reason = session_state_is_embryonic(state) ? SY_DROP_EMBRYONIC_EVICTED
	                                                              : SY_DROP_SESSION_EVICTED;
	service_count_drop(w, b->endpoint[session_at(t, record)->server].service, reason);
	session_end(w, t, record);
	SY_COUNT(w->counters.drop[reason], 1);
}

/* Are `count` records from this one on free? */
static bool is_free(const struct session_table *t, uint32_t record, uint32_t count)
{
	return session_at(t, record)->state == SESSION_FREE &&
	       session_at(t, record + count - 1)->state == SESSION_FREE;
}

/* The first record of the search's next step. */
static uint32_t search_next(const struct session_table *t, uint32_t at, uint32_t step)
{
	at &= ~(step - 1);
	return at + step > t->top ? 0 : at;
}

/* Returns the record of the session to evict, or SESSION_NONE. step 2: an even record together with
 * the next one. */
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

static struct eviction eviction_begin(struct sy_worker *w, struct session_table *t, uint32_t server,
                                      bool embryonic)
{
	const struct service_load *load = balance_worker_of(w)->load;
	__atomic_store_n(&t->refused, t->refused + 1, __ATOMIC_RELAXED);
	return (struct eviction){.b = w->app,
	                         .load = load,
	                         .t = t,
	                         .server = server,
	                         .weight = weight_of(w->app, load, server),
	                         .embryonic = embryonic,
	                         .now = (uint16_t)balance_seconds(w)};
}

bool evict_session(struct sy_worker *w, struct session_table *t, uint32_t server, bool pair)
{
	struct eviction v = eviction_begin(w, t, server, false);
	uint32_t best = search(&v, t, 1 + pair);
	if (best == SESSION_NONE)
		return false;
	bool both = pair && !session_is_pair(t, best);
	record_evict(w, t, best);
	if (both)
		record_evict(w, t, best + 1);
	return true;
}

void evict_embryonic(struct sy_worker *w, struct session_table *t, uint32_t server)
{
	struct eviction v = eviction_begin(w, t, server, true);
	uint32_t best = search(&v, t, 1);
	if (best != SESSION_NONE)
		record_evict(w, t, best);
}

/* ---- local ports ----------------------------------------------------------------------------- */

/* Costs, lowest first, each by idle time: TIME_WAIT (session_port_cost()); embryonic sessions; of
 * services with more sessions, silent ones, then the others; silent ones of the new session's
 * service. */
enum { PORT_EMBRYONIC = 1 << 16, PORT_SILENT = 2 << 16, PORT_BUSY = 3 << 16, PORT_OWN = 4 << 16 };

uint32_t evict_port_cost(const struct session_port_search *search, const struct session *s)
{
	const struct port_search *p = SY_CONTAINER_OF(search, struct port_search, search);
	const struct sy_balance *b = p->balance;
	const bool embryonic = session_state_is_embryonic(s->state) && s->state != SESSION_OPENING;
	uint16_t idle = session_idle(s, search->now);
	/* Keep mappings of SNAT's inside hosts that are in use (RFC 4787). */
	if (!embryonic &&
	    (s->state != SESSION_UDP_BOTH_WAYS || b->endpoint[s->server].mode == MODE_SNAT))
		return session_port_cost(search, s);
	const bool same = is_same_service(b, s->server, p->server);
	if (idle > IDLE_MAX)
		idle = 0;
	if (embryonic)
		return same || may_end_embryonic(b, p->load, p->server, s->server)
		               ? PORT_EMBRYONIC | (uint16_t)~idle
		               : SESSION_NONE;
	const bool silent = idle >= EVICT_SILENT;
	if (same)
		return silent ? PORT_OWN | (uint16_t)~idle : SESSION_NONE;
	if (weight_of(b, p->load, s->server) <= weight_of(b, p->load, p->server))
		return SESSION_NONE;
	return (silent ? PORT_SILENT : PORT_BUSY) | (uint16_t)~idle;
}

void evict_for_port(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	if (session_at(t, record)->state == SESSION_TIME_WAIT)
		session_end(w, t, record);
	else
		record_evict(w, t, record);
}
