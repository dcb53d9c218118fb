// SPDX-License-Identifier: Apache-2.0
/*
 * Ids keep their meaning across processes. The tables' file has a dictionary of their meanings. At
 * a start the forwarder reserves the ids in it. A server or local address that is configured with
 * the same meaning gets its id back, and with it the sessions that refer to the id.
 *
 *     free ──alloc──▶ configured ──retire─▶ retired ──sweeps──▶ free        while workers run
 *     reserved ──alloc──▶ configured ──retire─▶ reserved     until id_dictionary_settle()
 *
 * An id gets its name before any session refers to it, and keeps it until none does: an id without
 * a name may be allocated to any server.
 */
#include <stdlib.h>

#include "limit_model.h"
#include "model.h"
#include "snat_model.h"

/* ---- writing --------------------------------------------------------------------------------- */

/* Does not rewrite a correct name: it would be torn for a moment, and sessions may depend on it. */
void id_dictionary_put_server(struct sy_balance *b, uint32_t id)
{
	const struct endpoint *e = &b->endpoint[id];
	const struct session_server_name name = {
	        .addr = e->addr,
	        .vip = e->vip,
	        .port = e->port,
	        .vport = e->first_port,
	        .last_port = e->last_port,
	        .proto = e->proto,
	        .mode = e->mode,
	};
	struct session_server_name now;
	/* `removed` shares a byte with the mode; it is 0 in both. */
	if (b->ctl->dictionary.settled &&
	    !(session_server_named(b->ctl->store, id, &now) &&
	      memcmp(&now, &name, offsetof(typeof(name), active)) == 0))
		session_name_server(b->ctl->store, id, &name);
}

void id_dictionary_put_local(struct sy_balance *b, uint8_t id)
{
	struct sy_addr now;
	if (b->ctl->dictionary.settled &&
	    !(session_local_named(b->ctl->store, id, &now) && sy_addr_equal(&now, &b->local[id])))
		session_name_local(b->ctl->store, id, &b->local[id]);
}

/* ---- reserving the ids of an earlier process ------------------------------------------------- */

static bool is_reserved(const struct sy_balance *b, uint32_t id)
{
	return b->ctl->dictionary.server_found[id] && b->endpoint[id].service == SERVICE_NONE;
}

/* Orders by meaning: the fields before `service`, then the service's ports, protocol and mode. */
static int meaning_compare(const struct endpoint *a, const struct endpoint *b)
{
	int order = memcmp(a, b, offsetof(struct endpoint, service));
	if (order == 0)
		order = (int)a->first_port - (int)b->first_port;
	if (order == 0)
		order = (int)a->last_port - (int)b->last_port;
	if (order == 0)
		order = (int)a->proto - (int)b->proto;
	return order ? order : (int)a->mode - (int)b->mode;
}

static int id_compare(const void *a, const void *b, void *endpoints)
{
	const struct endpoint *e = endpoints;
	return meaning_compare(&e[*(const uint32_t *)a], &e[*(const uint32_t *)b]);
}

static void endpoint_reserve(struct sy_balance *b, uint32_t id,
                             const struct session_server_name *name)
{
	b->ctl->dictionary.server_found[id] = true;
	b->endpoint[id] = (struct endpoint){
	        .addr = name->addr,
	        .vip = name->vip,
	        .port = name->port,
	        .vport = name->last_port ? 0 : name->vport,
	        .service = SERVICE_NONE,
	        .first_port = name->vport,
	        .last_port = name->last_port,
	        .proto = name->proto,
	        .mode = name->mode,
	        .removed = 1,
	        .dead = 1,
	};
}

/* All ids below the highest name were allocated before: they are now free or reserved. */
static void pool_reserve(struct sy_balance *b)
{
	struct id_pool *pool = &b->ctl->model->server_ids;
	struct session_server_name name;
	uint32_t top = session_servers(b->ctl->store), kept = 0;
	if (top > b->options.max_servers)
		top = b->options.max_servers;
	pool->limit = top; /* a dictionary that could not grow has no names above */
	while (top > pool->fresh && !session_server_named(b->ctl->store, top - 1, &name))
		top--;
	for (uint32_t id = top; id-- > pool->fresh;) {
		b->endpoint[id].removed = b->endpoint[id].dead = 1;
		id_free(pool, id);
	}
	if (top > pool->fresh)
		pool->fresh = top;
	for (uint32_t i = 0; i < pool->count; i++) {
		uint32_t id = pool->free[i];
		if (session_server_named(b->ctl->store, id, &name))
			endpoint_reserve(b, id, &name);
		else
			pool->free[kept++] = id;
	}
	pool->count = kept;
}

static bool id_is_removed(const struct sy_balance *b, uint32_t id)
{
	struct session_server_name name;
	return !session_server_named(b->ctl->store, id, &name) || name.removed;
}

/* Lists the reserved ids that a configuration may claim. An id that is marked removed is excluded,
 * except in a successor that has not applied the journal yet: its snapshot may be older than the
 * mark, and without the id it would allocate another one, which the predecessor may be using. */
static int claimable_list(struct sy_balance *b)
{
	struct id_dictionary *n = &b->ctl->dictionary;
	uint32_t ids = b->ctl->model->server_ids.fresh, kept = 0;
	free(n->claimable);
	n->claimables = 0;
	n->claimable = malloc((ids + 1) * sizeof(*n->claimable));
	if (!n->claimable)
		return -ENOMEM;
	for (uint32_t id = 0; id < ids; id++)
		if (n->server_found[id] && (!b->ctl->owner || !id_is_removed(b, id)))
			n->claimable[n->claimables++] = id;
	qsort_r(n->claimable, n->claimables, sizeof(*n->claimable), id_compare, b->endpoint);
	for (uint32_t i = 0; i < n->claimables; i++) {
		uint32_t *id = &n->claimable[i], *last = &n->claimable[kept ? kept - 1 : 0];
		if (kept == 0 || id_compare(id, last, b->endpoint) != 0)
			n->claimable[kept++] = *id;
		else if (id_is_removed(b, *last)) /* of ids with one meaning, only one is in use */
			*last = *id;
	}
	n->claimables = kept;
	return 0;
}

static void locals_reserve(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	for (unsigned id = 0; id < MAX_LOCALS; id++) {
		if (m->local[id].used || m->local_retired[id] ||
		    !session_local_named(b->ctl->store, (uint8_t)id, &m->local[id].addr))
			continue;
		m->local_retired[id] = true;
		b->local[id] = m->local[id].addr;
		b->local_removed[id] = 1;
		b->ctl->dictionary.local_found[id] = true;
	}
}

int id_dictionary_reserve(struct sy_balance *b, struct sy_error *err)
{
	pool_reserve(b);
	locals_reserve(b);
	if (claimable_list(b) < 0)
		return sy_fail(err, ENOMEM, "no memory for the servers of earlier sessions");
	return 0;
}

/* ---- ids of servers -------------------------------------------------------------------------- */

static uint32_t id_claim(const struct sy_balance *b, const struct endpoint *like)
{
	uint32_t low = 0, high = b->ctl->dictionary.claimables;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2, id = b->ctl->dictionary.claimable[middle];
		int order = meaning_compare(like, &b->endpoint[id]);
		if (order == 0)
			return is_reserved(b, id) ? id : UINT32_MAX;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return UINT32_MAX;
}

static uint32_t id_find_reserved(const struct sy_balance *b, bool removed)
{
	struct session_server_name name;
	for (uint32_t id = 0; id < b->ctl->model->server_ids.fresh; id++)
		if (is_reserved(b, id) && session_server_named(b->ctl->store, id, &name) &&
		    name.removed == removed)
			return id;
	return UINT32_MAX;
}

/* Evicts a reserved id. While the configuration is read, ids may run out because of servers that
 * were added and removed in between. A complete configuration matters more than one server's
 * sessions; validation never assigns these to another server. */
static uint32_t id_evict(struct sy_balance *b)
{
	struct id_dictionary *n = &b->ctl->dictionary;
	if (n->settled || b->options.inherit)
		return UINT32_MAX;
	uint32_t id = id_find_reserved(b, true), kept = 0;
	if (id == UINT32_MAX)
		id = id_find_reserved(b, false);
	for (uint32_t i = 0; i < n->claimables; i++)
		if (n->claimable[i] != id)
			n->claimable[kept++] = n->claimable[i];
	n->claimables = kept;
	return id;
}

uint32_t server_id_alloc(struct sy_balance *b, const struct endpoint *e)
{
	uint32_t id = id_claim(b, e);
	const bool found = id != UINT32_MAX;
	if (!found)
		id = id_alloc(&b->ctl->model->server_ids);
	if (id == UINT32_MAX)
		id = id_evict(b);
	if (id != UINT32_MAX) {
		b->endpoint[id] = *e;
		b->ctl->dictionary.server_found[id] = found;
	}
	return id;
}

static void endpoint_bury(struct endpoint *e)
{
	__atomic_store_n(&e->removed, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&e->dead, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&e->eligible, 0, __ATOMIC_RELAXED);
}

void server_id_cancel(struct sy_balance *b, uint32_t id)
{
	struct endpoint *e = &b->endpoint[id];
	endpoint_bury(e);
	limits_forget_server(b, id);
	if (b->ctl->dictionary.server_found[id])
		e->service = SERVICE_NONE;
	else
		id_free(&b->ctl->model->server_ids, id);
}

void server_id_retire(struct sy_balance *b, uint32_t id)
{
	if (!b->ctl->dictionary.settled) { /* no worker has seen it yet */
		server_id_cancel(b, id);
		return;
	}
	endpoint_bury(&b->endpoint[id]);
	limits_forget_server(b, id);
	session_server_set_removed(b->ctl->store, id);
	retire_id(b, RETIRED_SERVER, id);
}

void server_id_free(struct sy_balance *b, uint32_t id)
{
	session_name_server(b->ctl->store, id, NULL);
	b->ctl->dictionary.server_found[id] = false;
	id_free(&b->ctl->model->server_ids, id);
}

/* ---- ids of local addresses ------------------------------------------------------------------ */

unsigned local_id_find(const struct sy_balance *b, const struct sy_addr *addr)
{
	const struct model *m = b->ctl->model;
	unsigned place = MAX_LOCALS;
	for (unsigned id = MAX_LOCALS; id-- > 0;) {
		bool leaving = m->local_before[id].used || m->local_retired[id];
		if (m->local[id].used)
			continue;
		if (leaving && sy_addr_equal(&m->local[id].addr, addr))
			return id;
		if (!leaving)
			place = id;
	}
	return place;
}

void local_id_publish(struct sy_balance *b, uint8_t id)
{
	struct model *m = b->ctl->model;
	if (m->local_retired[id]) {
		m->local_retired[id] = false;
		retire_forget(b, RETIRED_LOCAL, id);
	}
	b->local[id] = m->local[id].addr;
	id_dictionary_put_local(b, id);
	__atomic_store_n(&b->local_removed[id], 0, __ATOMIC_RELEASE);
}

void local_id_retire(struct sy_balance *b, uint8_t id)
{
	__atomic_store_n(&b->local_removed[id], 1, __ATOMIC_RELAXED);
	b->ctl->model->local_retired[id] = true;
	if (b->ctl->dictionary.settled)
		retire_id(b, RETIRED_LOCAL, id);
}

void local_id_free(struct sy_balance *b, uint8_t id)
{
	session_name_local(b->ctl->store, id, NULL);
	b->ctl->model->local_retired[id] = false;
	b->ctl->dictionary.local_found[id] = false;
}

/* ---- end of the start ------------------------------------------------------------------------ */

static bool service_claim(struct sy_balance *b, struct model_service *s)
{
	bool moved = false;
	for (unsigned i = 0; i < s->servers; i++) {
		struct endpoint e = b->endpoint[s->server[i].id];
		bool *found = b->ctl->dictionary.server_found;
		uint32_t id = found[s->server[i].id] ? UINT32_MAX : id_claim(b, &e);
		if (id == UINT32_MAX)
			continue;
		server_id_cancel(b, s->server[i].id);
		found[id] = true;
		e.limited = 0; /* publish_service() finds its limits */
		b->endpoint[id] = e;
		s->server[i].id = id;
		moved = true;
	}
	return moved;
}

void id_dictionary_claim(struct sy_balance *b)
{
	for (uint32_t id = 0; id < b->ctl->model->service_ids.fresh; id++) {
		struct model_service *s = b->ctl->model->service[id];
		if (s && service_claim(b, s))
			publish_service(b, id, s, service_make(b, s));
	}
	snat_publish(b);
}

static void settle_server(struct sy_balance *b, uint32_t id)
{
	const struct endpoint *e = &b->endpoint[id];
	if (!e->removed) {
		id_dictionary_put_server(b, id);
	} else if (is_reserved(b, id)) {
		session_server_set_removed(b->ctl->store, id);
		retire_id(b, RETIRED_SERVER, id);
	}
}

void id_dictionary_settle(struct sy_balance *b)
{
	b->ctl->dictionary.settled = true;
	for (uint32_t id = 0; id < b->ctl->model->server_ids.fresh; id++)
		settle_server(b, id);
	for (unsigned id = 0; id < MAX_LOCALS; id++) {
		if (b->ctl->model->local[id].used)
			id_dictionary_put_local(b, (uint8_t)id);
		else if (b->ctl->model->local_retired[id])
			retire_id(b, RETIRED_LOCAL, id);
	}
	id_dictionary_close(b);
}

void id_dictionary_close(struct sy_balance *b)
{
	free(b->ctl->dictionary.claimable);
	b->ctl->dictionary.claimable = NULL;
	b->ctl->dictionary.claimables = 0;
}
