// SPDX-License-Identifier: Apache-2.0
/* Services as published: built from the model in pieces, and rebuilt during slow start. */
#include <stdlib.h>

#include "client_count.h"
#include "model.h"
#include "shares.h"

#define SECOND_NS    UINT64_C(1000000000)
#define SERVICE_COST 150 /* cost of a service without servers, in budget units */
#define SERVER_COST  4

static bool server_is_eligible(const struct model_server *server)
{
	return server->state == STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP &&
	       server->weight > 0;
}

static uint32_t limit_of(const struct model_server *server)
{
	return server->max_sessions ? server->max_sessions : UINT32_MAX;
}

/* The server's share of its weight at now_ns, in sixteenths. */
static uint8_t server_share(const struct model_service *s, const struct model_server *server,
                            uint64_t now_ns)
{
	if (!server->returned_ns || s->policy.slow_start == 0 || now_ns < server->returned_ns)
		return SHARES;
	uint64_t step = s->policy.slow_start * SECOND_NS / SHARES;
	uint64_t share = 1 + (now_ns - server->returned_ns) / step;
	return share < SHARES ? (uint8_t)share : SHARES;
}

static struct pool *pool_make(const struct model_service *s, bool backup)
{
	struct pool *p = pool_create(scheduler_find(s->policy.scheduler), s->servers);
	if (p)
		p->ceiling = s->ceiling;
	for (unsigned i = 0; p && i < s->servers; i++) {
		const struct model_server *server = &s->server[i];
		if (server->backup != backup)
			continue;
		uint64_t name = scheduler_name(&server->addr, server->port);
		uint16_t share = server_is_eligible(server) ? server->share : 0;
		if (s->shares_until_ns)
			pool_measure(p, server->id, name, server->weight, shares_of(s, server),
			             share, limit_of(server));
		else
			pool_add(p, server->id, name, server->weight, share, limit_of(server));
	}
	return p;
}

/* Creates the table of clients' sessions before workers see the first service that needs it. */
static bool counts_begin(struct sy_balance *b)
{
	struct client_counts *made = b->client_counts ? b->client_counts : client_counts_create();
	__atomic_store_n(&b->client_counts, made, __ATOMIC_RELEASE);
	return made != NULL;
}

struct service *service_create(struct sy_balance *b, const struct model_service *s)
{
	struct service *out = calloc(1, sizeof(*out));
	bool backups = false;
	if (!out)
		return NULL;
	out->id = s->id;
	out->policy = s->policy;
	if (s->policy.client_sessions && !counts_begin(b)) {
		free(out);
		return NULL;
	}
	out->table_cache = b->ctl->table_cache;
	out->one_way = s->mode == MODE_DR || s->mode == MODE_IPIP;
	out->anyone = (struct sy_tuple){.dst = s->key.vip,
	                                .sport = s->key.last_port,
	                                .dport = s->key.vport,
	                                .proto = s->key.proto};
	for (unsigned state = 0; state < SESSION_STATES; state++)
		out->timeout[state] =
		        s->timeout[state] ? s->timeout[state] : session_timeout_default[state];
	out->timeout[SESSION_UDP_ANSWERED] = out->timeout[SESSION_UDP_ONE_WAY];
	out->timeout[SESSION_OPENING] = out->timeout[SESSION_SYN_SENT];
	out->timeout[SESSION_RESET_BY_CLIENT] = out->timeout[SESSION_RESET];
	out->timeout[SESSION_RESET_BY_SERVER] = out->timeout[SESSION_RESET];
	for (unsigned i = 0; i < s->servers; i++)
		backups |= s->server[i].backup;
	out->pool = pool_make(s, false);
	out->backups = backups ? pool_make(s, true) : NULL;
	if (!out->pool || (backups && !out->backups)) {
		service_free(out);
		return NULL;
	}
	return out;
}

int service_build(struct service *s, int64_t *budget)
{
	int rc = pool_build(s->pool, s->table_cache, budget);
	*budget -= SERVICE_COST + SERVER_COST * (int64_t)s->pool->members;
	if (rc == 0 && s->backups)
		rc = pool_build(s->backups, s->table_cache, budget);
	return rc;
}

struct service *service_make(struct sy_balance *b, const struct model_service *s)
{
	struct service *out = service_create(b, s);
	int64_t enough = INT64_MAX;
	if (!out || service_build(out, &enough) == 0)
		return out;
	service_free(out);
	return NULL;
}

void service_free(void *service)
{
	struct service *s = service;
	if (!s)
		return;
	pool_free(s->pool, s->table_cache);
	pool_free(s->backups, s->table_cache);
	free(s);
}

void service_swap(struct sy_balance *b, uint32_t id, struct service *now)
{
	const struct service *old = b->service[id];
	SY_RCU_PUBLISH(b->service[id], now);
	if (old)
		sy_rcu_retire(b->rt, (void *)(uintptr_t)old, service_free);
}

void service_republish(struct sy_balance *b, const struct model_service *s)
{
	struct service *now = service_make(b, s);
	if (now)
		service_swap(b, s->id, now);
}

/* ---- slow start ------------------------------------------------------------------------------ */

static void ramp_add(struct model *m, struct model_service *s)
{
	if (s->ramping ||
	    !list_reserve((void **)&m->ramp, m->ramps, &m->ramp_capacity, sizeof(*m->ramp)))
		return; /* without memory its share stays as it is */
	m->ramp[m->ramps++] = s->id;
	s->ramping = true;
}

void service_note_servers(struct sy_balance *b, struct model_service *s, bool fresh)
{
	const struct service *before = b->service[s->id];
	/* Without other eligible servers, as at a first start, there is no slow start. */
	bool slow = s->policy.slow_start > 0 && !fresh && before &&
	            (before->pool->eligible > 0 || (before->backups && before->backups->eligible));
	uint64_t now = balance_now(b);
	for (unsigned i = 0; i < s->servers; i++) {
		struct model_server *server = &s->server[i];
		struct endpoint *e = &b->endpoint[server->id];
		bool eligible = server_is_eligible(server);
		if (eligible && !e->eligible)
			server->returned_ns = slow ? now : 0;
		server->share = server_share(s, server, now);
		if (eligible && server->share < SHARES)
			ramp_add(b->ctl->model, s);
		__atomic_store_n(&e->eligible, eligible, __ATOMIC_RELAXED);
		__atomic_store_n(&e->backup, server->backup, __ATOMIC_RELAXED);
		__atomic_store_n(&e->limit, limit_of(server), __ATOMIC_RELAXED);
	}
}

/* Has a share grown? *over: all shares are complete. */
static bool ramp_advance(struct sy_balance *b, struct model_service *s, bool *over)
{
	bool grown = false;
	*over = true;
	for (unsigned i = 0; i < s->servers; i++) {
		struct model_server *server = &s->server[i];
		uint8_t share = server_share(s, server, balance_now(b));
		grown |= server_is_eligible(server) && share != server->share;
		*over &= share == SHARES;
		server->share = share;
	}
	return grown;
}

/* Advances one service; returns the cost. */
static int64_t ramp_step(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	unsigned at = m->ramp_at < m->ramps ? m->ramp_at : 0;
	struct model_service *s = m->service[m->ramp[at]];
	bool over = true;
	int64_t cost = SERVER_COST * (int64_t)(1 + (s ? s->servers : 0));
	if (s && s->ramping && ramp_advance(b, s, &over)) {
		service_republish(b, s);
		cost += SERVICE_COST + cost;
	}
	m->ramp_at = at + 1;
	if (over) { /* or the service is gone, or another one has its id */
		if (s)
			s->ramping = false;
		m->ramp[at] = m->ramp[--m->ramps];
		m->ramp_at = at;
	}
	return cost;
}

void service_tick(struct sy_balance *b)
{
	const struct model *m = b->ctl->model;
	int64_t budget = PUBLISH_PIECE;
	for (unsigned n = m->ramps; n > 0 && !m->open && budget > 0; n--)
		budget -= ramp_step(b);
	if (!m->open)
		shares_tick(b);
}
