// SPDX-License-Identifier: Apache-2.0
/* Measured shares, set by the agent, until they expire. */
#include "shares.h"

#include <arpa/inet.h>
#include <rte_hash.h>
#include <stdlib.h>

#define SECOND_NS     UINT64_C(1000000000)
#define TICK_SERVICES 4096u /* max services per tick */

typedef Steelyard__Forwarder__V1__ServiceShares pb_shares;

/* Finds a service's servers. Shares mostly come in the servers' own order; for any other, a table
 * is built on demand. */
struct finder {
	struct model_service *service;
	unsigned next;   /* the server after the last one found */
	unsigned *table; /* index + 1 by hash, 0: none; linear probing. NULL: not made */
	unsigned mask;
};

static bool server_is(const struct model_server *s, const struct sy_addr *addr, uint16_t port)
{
	return s->port == port && sy_addr_equal(&s->addr, addr);
}

static void finder_make_table(struct finder *f)
{
	unsigned size = 16;
	while (size < 2 * f->service->servers)
		size *= 2;
	f->table = calloc(size, sizeof(*f->table));
	f->mask = size - 1;
	for (unsigned i = 0; f->table && i < f->service->servers; i++) {
		const struct model_server *s = &f->service->server[i];
		uint64_t at = scheduler_name(&s->addr, s->port);
		while (f->table[at & f->mask])
			at++;
		f->table[at & f->mask] = i + 1;
	}
}

/* The index of a server; the number of servers: none has this address. */
static unsigned finder_search(struct finder *f, const struct sy_addr *addr, uint16_t port)
{
	const struct model_service *s = f->service;
	if (f->next < s->servers && server_is(&s->server[f->next], addr, port))
		return f->next;
	if (!f->table)
		finder_make_table(f);
	if (!f->table) { /* no memory */
		unsigned i = 0;
		while (i < s->servers && !server_is(&s->server[i], addr, port))
			i++;
		return i;
	}
	uint64_t at = scheduler_name(addr, port);
	for (; f->table[at & f->mask]; at++)
		if (server_is(&s->server[f->table[at & f->mask] - 1], addr, port))
			return f->table[at & f->mask] - 1;
	return s->servers;
}

static struct model_server *finder_find(struct finder *f,
                                        const Steelyard__Forwarder__V1__ServerShare *pb)
{
	struct sy_addr addr;
	struct sy_error ignored = {0};
	if (pb->port > UINT16_MAX || read_addr(&pb->address, "server", &addr, &ignored) < 0)
		return NULL;
	unsigned i = finder_search(f, &addr, htons((uint16_t)pb->port));
	if (i == f->service->servers)
		return NULL;
	f->next = i + 1;
	return &f->service->server[i];
}

/* Where a client's hash decides, each change moves clients: changes below a sixteenth wait. */
static uint32_t next_measured(const struct scheduler_ops *ops, uint32_t before, uint32_t reported)
{
	uint32_t change = reported > before ? reported - before : before - reported;
	return ops->by_hash && before > 0 && reported > 0 && change < before / 16 ? before
	                                                                          : reported;
}

static void shares_clear(struct model_service *s)
{
	for (unsigned i = 0; i < s->servers; i++)
		s->server[i].reported = s->server[i].measured = 0;
	s->shares_until_ns = 0;
	s->ceiling = 0;
}

/* The mean, by weight, of those that have one. */
static uint64_t mean_per_weight(const struct model_service *s)
{
	uint64_t sum = 0, weights = 0;
	for (unsigned i = 0; i < s->servers; i++)
		if (s->server[i].measured && s->server[i].weight) {
			sum += s->server[i].measured;
			weights += s->server[i].weight;
		}
	return weights ? sum / weights : 1;
}

uint32_t shares_of(const struct model_service *s, const struct model_server *server)
{
	if (server->measured)
		return server->measured;
	uint64_t share = mean_per_weight(s) * server->weight;
	return share > UINT32_MAX ? UINT32_MAX : share ? (uint32_t)share : 1;
}

static void set_ceiling(struct model_service *s)
{
	uint32_t largest = 1;
	for (unsigned i = 0; i < s->servers; i++) {
		const struct model_server *server = &s->server[i];
		uint32_t one = server->weight ? server->measured / server->weight : 0;
		largest = one > largest ? one : largest;
	}
	s->ceiling = pool_ceiling(s->ceiling, largest);
}

/* Reads one service's shares. Returns true if it has some, or had. */
static bool service_read_shares(struct model_service *s, const pb_shares *pb, uint32_t *unknown)
{
	const struct scheduler_ops *ops = scheduler_find(s->policy.scheduler);
	struct finder finder = {.service = s};
	bool had = s->shares_until_ns > 0, has = false;
	for (unsigned i = 0; i < s->servers; i++)
		s->server[i].reported = 0;
	for (size_t i = 0; i < pb->n_servers; i++) {
		struct model_server *server = finder_find(&finder, pb->servers[i]);
		if (server)
			server->reported = pb->servers[i]->share;
		else
			++*unknown;
		has |= server != NULL;
	}
	free(finder.table);
	if (!has) {
		shares_clear(s);
		return had;
	}
	for (unsigned i = 0; i < s->servers; i++)
		s->server[i].measured =
		        next_measured(ops, s->server[i].measured, s->server[i].reported);
	set_ceiling(s);
	return true;
}

static int check(const Steelyard__Forwarder__V1__SetSharesRequest *pb, struct sy_error *err)
{
	size_t servers = 0;
	if (pb->valid_s == 0 || pb->valid_s > SHARES_LONGEST)
		return sy_fail(err, EINVAL, "shares: valid for %u s, which is not within 1–%u s",
		               pb->valid_s, SHARES_LONGEST);
	for (size_t i = 0; i < pb->n_services; i++) {
		const pb_shares *s = pb->services[i];
		servers += s->n_servers;
		for (size_t k = 0; k < s->n_servers; k++)
			if (s->servers[k]->share == 0)
				return sy_fail(err, EINVAL,
				               "shares: a share of 0: leave the server out, or "
				               "drain it");
	}
	if (servers > SHARES_SERVERS)
		return sy_fail(err, EINVAL, "shares of %zu servers in one request: send at most %u",
		               servers, SHARES_SERVERS);
	return 0;
}

int shares_set(struct sy_balance *b, const Steelyard__Forwarder__V1__SetSharesRequest *pb,
               Steelyard__Forwarder__V1__SharesResult *out, struct sy_error *err)
{
	struct model *m = b->ctl->model;
	int rc = check(pb, err);
	for (size_t i = 0; rc == 0 && i < pb->n_services; i++) {
		struct service_key key;
		void *id;
		rc = read_key(pb->services[i]->service, &key, err);
		if (rc < 0)
			break;
		if (rte_hash_lookup_data(m->by_key, &key, &id) < 0) {
			out->unknown++;
			continue;
		}
		struct model_service *s = m->service[(uintptr_t)id];
		if (!service_read_shares(s, pb->services[i], &out->unknown))
			continue;
		if (s->ceiling) {
			s->shares_until_ns = balance_now(b) + pb->valid_s * SECOND_NS;
			out->services++;
		}
		service_republish(b, s);
	}
	return rc;
}

uint32_t shares_left(const struct sy_balance *b, const struct model_service *s)
{
	uint64_t now = balance_now(b);
	return s->shares_until_ns > now
	               ? (uint32_t)((s->shares_until_ns - now + SECOND_NS - 1) / SECOND_NS)
	               : 0;
}

void shares_tick(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	uint32_t fresh = m->service_ids.fresh;
	for (uint32_t n = 0; n < TICK_SERVICES && n < fresh; n++) {
		uint32_t id = m->shares_at < fresh ? m->shares_at : 0;
		struct model_service *s = m->service[id];
		m->shares_at = id + 1;
		if (!s || !s->shares_until_ns || balance_now(b) < s->shares_until_ns)
			continue;
		sy_log(SY_LOG_WARN, "balance",
		       "service %s: its measured shares were not renewed: new sessions follow the "
		       "weights. Is the agent running?",
		       s->name);
		shares_clear(s);
		service_republish(b, s);
	}
}
