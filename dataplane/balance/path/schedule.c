// SPDX-License-Identifier: Apache-2.0
/* Chooses a new session's server, for create.c: the server bound to the client's prefix
 * (persistence), otherwise the scheduler's choice among the servers, then among the backups. */
#include <forwarder.pb-c.h>

#include "challenge.h"
#include "client_rate.h"
#include "client_sessions.h"
#include "create.h"

static uint32_t limit_of(const struct service *service)
{
	return service->policy.max_sessions ? service->policy.max_sessions : UINT32_MAX;
}

/* Picks a server from a pool and acquires a session on it. Sets *full if the pool has servers, but
 * all are at their limit. */
static uint32_t pool_pick(struct sy_balance *b, struct pick *p, const struct pool *pool, bool *full)
{
	uint32_t i;
	if (!pool || pool->eligible == 0)
		return SERVER_NONE;
	p->pool = pool;
	/* Another worker may reach the server's limit first; then pick() tries the others. */
	while ((i = pool->ops->pick(p)) != PICK_NONE) {
		const struct candidate *c = &pool->candidate[i];
		if (load_acquire(&b->server_active[c->server], c->limit))
			return c->server;
	}
	*full = true;
	return SERVER_NONE;
}

/* Picks a server, or a backup if no server accepts the session, and acquires a session on it. */
static uint32_t server_pick(struct sy_worker *w, const struct service *service,
                            const struct sy_tuple *client, bool *full)
{
	struct sy_balance *b = w->app;
	bool by_tuple = service->policy.hash_on == STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_TUPLE;
	struct pick p = {
	        .state = &balance_worker_of(w)->scheduler,
	        .active = b->server_active,
	        .delay = b->server_delay,
	        .service = service->id,
	};
	if (service->pool->ops->by_hash)
		p.hash = scheduler_hash(&client->src, client->sport, by_tuple);
	uint32_t server = pool_pick(b, &p, service->pool, full);
	return server != SERVER_NONE ? server : pool_pick(b, &p, service->backups, full);
}

/* Acquires a session on the server that is bound to the prefix. */
static bool bound_acquire(struct sy_balance *b, uint32_t server)
{
	return load_acquire(&b->server_active[server], SY_READ(b->endpoint[server].limit));
}

/* server_pick() for a service with persistence. */
static uint32_t server_persist(struct sy_worker *w, const struct service *service,
                               const struct sy_tuple *client, bool *full)
{
	struct sy_balance *b = w->app;
	uint32_t now = balance_seconds(w);
	uint32_t bound = persist_find(b, service, &client->src, now);
	if (bound != SERVER_NONE && bound_acquire(b, bound))
		return bound;
	uint32_t server = server_pick(w, service, client, full);
	if (server == SERVER_NONE)
		return SERVER_NONE;
	uint32_t first = persist_bind(b, service, &client->src, server, bound, now);
	if (first == server || !bound_acquire(b, first))
		return server;
	__atomic_fetch_sub(&b->server_active[server], 1, __ATOMIC_RELAXED);
	return first;
}

/* Charges the service's per-client limits. */
static __attribute__((noinline)) enum sy_drop
client_check(struct sy_worker *w, const struct service *service, const struct sy_addr *client)
{
	struct sy_balance *b = w->app;
	const struct policy *p = &service->policy;
	enum sy_drop reason = SY_DROP_NONE;
	if (p->client_sessions && !client_sessions_has_place(b, service, client))
		reason = SY_DROP_CLIENT_SESSIONS;
	else if (p->client_per_second &&
	         !client_rate_charge(b->client_rates, challenge_client(b, service, client),
	                             w->now_ns / 1000, p->client_per_second, p->client_burst))
		reason = SY_DROP_CLIENT_RATE;
	if (reason != SY_DROP_NONE)
		SY_COUNT(balance_worker_of(w)->load[service->id].client_refused, 1);
	return reason;
}

enum sy_drop schedule(struct sy_worker *w, const struct service *service,
                      const struct sy_tuple *client, uint32_t *server)
{
	struct sy_balance *b = w->app;
	uint32_t *active = &b->service_active[service->id];
	bool full = false;
	if (SY_UNLIKELY(service->policy.client_per_second | service->policy.client_sessions)) {
		enum sy_drop reason = client_check(w, service, &client->src);
		if (reason != SY_DROP_NONE)
			return reason;
	}
	if (!load_acquire(active, limit_of(service)))
		return SY_DROP_CONNECTION_LIMIT;
	*server = service->policy.persistence.timeout ? server_persist(w, service, client, &full)
	                                              : server_pick(w, service, client, &full);
	if (*server != SERVER_NONE)
		return SY_DROP_NONE;
	__atomic_fetch_sub(active, 1, __ATOMIC_RELAXED);
	return full ? SY_DROP_CONNECTION_LIMIT : SY_DROP_NO_SERVER;
}
