// SPDX-License-Identifier: Apache-2.0
/* The end of a transaction: checks it, then rolls it back or publishes it. */
#include <arpa/inet.h>
#include <stdlib.h>

#include <rte_hash.h>

#include "access_model.h"
#include "address_set.h"
#include "limit_model.h"
#include "model.h"
#include "shaping_model.h"
#include "snat_model.h"

void model_begin(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	m->open = true;
	m->touches = 0;
	m->new_server_count = 0;
	m->published = 0;
	m->publishings_before = m->publishings;
	m->local_touched = m->address_touched = m->source_touched = m->snat_touched = false;
	m->ranges_touched = false;
	memcpy(m->local_before, m->local, sizeof(m->local));
	access_begin(b);
	limits_begin(b);
	shaping_begin(b);
}

static int check_servers(struct sy_balance *b, const struct model_service *s, struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	for (unsigned i = 0; s && i < s->servers; i++)
		if (address_kind(b, &s->server[i].addr) != ADDRESS_SET_NONE)
			return sy_fail(err, EINVAL,
			               "service %s: server %s is a VIP, a local or a pool address "
			               "itself",
			               s->name, sy_addr_format(&s->server[i].addr, text));
	return 0;
}

int model_check(struct sy_balance *b, struct sy_error *err)
{
	struct model *m = b->ctl->model;
	unsigned locals[2] = {0, 0};
	for (unsigned id = 0; id < MAX_LOCALS; id++)
		if (m->local[id].used && !m->local[id].pools && !m->local[id].of_peer)
			locals[sy_addr_is_v4(&m->local[id].addr)]++;
	for (unsigned v4 = 0; v4 < 2; v4++)
		if (m->local_servers[v4] > 0 && locals[v4] == 0)
			return sy_fail(err, EINVAL,
			               "there are IPv%c servers but no IPv%c local address: "
			               "FNAT and IPIP need one of the servers' family",
			               v4 ? '4' : '6', v4 ? '4' : '6');
	int rc = m->ranges_touched ? ranges_check(b, err) : 0;
	if (m->address_touched)
		for (uint32_t id = 0; rc == 0 && id < m->service_ids.fresh; id++)
			rc = check_servers(b, m->service[id], err);
	else
		for (unsigned i = 0; rc == 0 && i < m->touches; i++)
			rc = check_servers(b, m->service[m->touch[i].id], err);
	if (rc == 0 && m->snat_touched)
		rc = snat_check(b, err);
	if (rc == 0)
		rc = access_check(b, err);
	if (rc == 0)
		rc = limits_check(b, err);
	if (rc == 0)
		rc = shaping_check(b, err);
	return rc;
}

static void count_service(struct model *m, const struct model_service *s, int sign)
{
	if (s->snat) {
		snat_count(m, s->snat, sign);
		return;
	}
	for (unsigned i = 0; i < s->servers; i++)
		model_count_server(m, s, &s->server[i], sign);
	m->services += sign;
}

static void rollback_service(struct sy_balance *b, uint32_t id, struct model_service *before)
{
	struct model *m = b->ctl->model;
	struct model_service *after = m->service[id];
	if (after) {
		count_service(m, after, -1);
		if (!before) {
			rte_hash_del_key(m->by_key, &after->key);
			if (!after->snat)
				address_release(b, &after->key.vip);
		}
	}
	if (before) {
		count_service(m, before, 1);
		if (!after) {
			rte_hash_add_key_data(m->by_key, &before->key, (void *)(uintptr_t)id);
			/* its address is still claimed: no transaction has ended since */
			if (!before->snat)
				address_acquire(b, &before->key.vip, ADDRESS_SET_VIP, NULL);
		}
	} else {
		id_free(&m->service_ids, id);
	}
	if (before && after)
		before->gone = after->gone; /* counters never decrease */
	m->service[id] = before;
	model_service_free(after);
}

/* Was it in use before this transaction, and is it now, for the same purpose? */
static bool local_stays(const struct model *m, unsigned id)
{
	const struct model_local *now = &m->local[id], *before = &m->local_before[id];
	return now->used && before->used && !now->pools == !before->pools;
}

static void rollback_new_locals(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	for (unsigned id = 0; id < MAX_LOCALS; id++)
		if (m->local[id].used && !local_stays(m, id))
			address_release(b, &m->local[id].addr);
}

static void rollback_old_locals(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	for (unsigned id = 0; id < MAX_LOCALS; id++)
		if (m->local_before[id].used && !local_stays(m, id))
			address_acquire(b, &m->local_before[id].addr,
			                m->local_before[id].pools ? ADDRESS_SET_POOL
			                                          : ADDRESS_SET_LOCAL,
			                NULL);
	memcpy(m->local, m->local_before, sizeof(m->local));
}

void model_rollback(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	/* An address may have become a VIP or ceased to be one: release it before referencing it
	 * again. */
	rollback_new_locals(b);
	while (m->touches > 0) {
		const struct model_touch *t = &m->touch[--m->touches];
		m->touched[t->id] = false;
		rollback_service(b, t->id, t->before);
	}
	rollback_old_locals(b);
	access_rollback(b);
	limits_rollback(b);
	shaping_rollback(b);
	while (m->new_server_count > 0)
		server_id_cancel(b, m->new_server[--m->new_server_count]);
	address_free_unused(b);
	if (m->source_touched)
		source_collect(b);
	m->open = false;
}

/* ---- publishing ------------------------------------------------------------------------------ */

/* Marks the servers of the published service by the number of this publishing. Checking a mark
 * replaces a search for removed servers, as a service may be large. */
static void servers_mark_published(struct model *m, const struct model_service *after)
{
	m->publishings++;
	for (unsigned i = 0; after && i < after->servers; i++)
		m->published_at[after->server[i].id] = m->publishings;
}

/* Retires the servers that the service no longer has. */
static void publish_removed_servers(struct sy_balance *b, const struct model_service *before)
{
	const struct model *m = b->ctl->model;
	for (unsigned i = 0; before && i < before->servers; i++) {
		uint32_t id = before->server[i].id;
		if (m->published_at[id] == m->publishings)
			continue;
		server_id_retire(b, id);
	}
}

/* Updates the count when `now` replaces `before`; NULL: none. */
static void reset_unknown_count(struct sy_balance *b, const struct service *before,
                                const struct service *now)
{
	uint32_t reset_unknown_services = b->reset_unknown_services;
	reset_unknown_services -= before && before->policy.resets & RESETS_UNKNOWN;
	reset_unknown_services += now && now->policy.resets & RESETS_UNKNOWN;
	__atomic_store_n(&b->reset_unknown_services, reset_unknown_services, __ATOMIC_RELAXED);
}

/* Sets whether clients' packets get the DSCP of the service. */
static void endpoint_mark(struct endpoint *e, bool on)
{
	const uint8_t others = e->limited & (uint8_t)~LIMITED_DSCP;
	__atomic_store_n(&e->limited, on ? others | LIMITED_DSCP : others, __ATOMIC_RELAXED);
}

void publish_service(struct sy_balance *b, uint32_t id, const struct model_service *before,
                     struct service *now)
{
	struct model *m = b->ctl->model;
	const struct model_service *after = m->service[id];

	if (!before && !after) {
		id_free(&m->service_ids, id);
		return;
	}
	servers_mark_published(m, after);
	b->ctl->access->changed |= after && after->policy.access &&
	                           (!before || before->policy.access != after->policy.access);
	if (after) {
		if (!now) {
			sy_log(SY_LOG_ERROR, "balance",
			       "no memory: service %s keeps its old servers", after->name);
			return;
		}
		for (unsigned i = 0; i < after->servers; i++) {
			const struct model_server *server = &after->server[i];
			struct endpoint *e = &b->endpoint[server->id];
			id_dictionary_put_server(b, server->id);
			uint8_t down = server->state ==
			               STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN;
			uint8_t dead =
			        server->state ==
			                STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_KILL ||
			        (down && after->policy.resets & RESETS_DOWN);
			__atomic_store_n(&e->down, down, __ATOMIC_RELAXED);
			__atomic_store_n(&e->dead, dead, __ATOMIC_RELAXED);
			endpoint_renew_path(b, e);
			endpoint_mark(e, after->policy.mark > 0);
		}
		limits_service(b, after);
		shaping_service(b, id, &after->key);
		reset_unknown_count(b, b->service[id], now);
		service_swap(b, id, now);
		if (!before && !after->snat && directory_add(b, &after->key, id) < 0)
			sy_log(SY_LOG_ERROR, "balance", "no memory: service %s gets no sessions",
			       after->name);
		if (!before && !after->snat)
			early_add(b, &after->key, id);
	} else {
		/* Deleted; or deleted and added again under another id, which takes over the
		 * key. */
		if (!before->snat)
			directory_remove(b, &before->key, id);
		reset_unknown_count(b, b->service[id], NULL);
		service_swap(b, id, NULL);
		retire_id(b, RETIRED_SERVICE, id);
	}
	publish_removed_servers(b, before);
	check_publish(b, before, after);
}

/* Builds the new version of the touched service. Returns false if the budget was used up: the next
 * call continues. Without memory m->next is NULL. */
static bool prepare_service(struct sy_balance *b, const struct model_touch *t, int64_t *budget)
{
	struct model *m = b->ctl->model;
	struct model_service *after = m->service[t->id];
	if (!after)
		return true;
	if (!m->next) {
		service_note_servers(b, after, !t->before);
		m->next = service_create(b, after);
	}
	int rc = m->next ? service_build(m->next, budget) : -ENOMEM;
	if (rc < 0) {
		service_free(m->next);
		m->next = NULL;
	}
	return rc <= 0;
}

bool model_publish(struct sy_balance *b, int64_t budget)
{
	struct model *m = b->ctl->model;
	shaping_publish(b);
	if (!limits_publish(b, &budget))
		return false;
	while (m->published < m->touches) {
		struct model_touch *t = &m->touch[m->published];
		if (budget <= 0 || !prepare_service(b, t, &budget))
			return false;
		publish_service(b, t->id, t->before, m->next);
		m->next = NULL;
		model_service_free(t->before);
		t->before = NULL;
		m->touched[t->id] = false;
		m->published++;
	}
	return limits_publish_chains(b, &budget);
}

static void publish_set(struct sy_balance *b, bool include_unreferenced)
{
	const struct model *m = b->ctl->model;
	if (!m->address_touched && !m->local_touched && !m->source_touched)
		return;
	if (publish_addresses(b, include_unreferenced) < 0)
		sy_log(SY_LOG_ERROR, "balance", "no memory: the set of addresses is out of date");
}

void model_publish_addresses(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	for (unsigned id = 0; id < MAX_LOCALS; id++) {
		if (!m->local[id].used || m->local_before[id].used)
			continue;
		local_id_publish(b, (uint8_t)id);
	}
	if (m->source_touched)
		source_divert(b);
	publish_set(b, true);
	access_publish(b);
}

static void publish_removed_locals(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	for (unsigned id = 0; id < MAX_LOCALS; id++) {
		const struct model_local *now = &m->local[id], *before = &m->local_before[id];
		if (!now->used && before->used)
			local_id_retire(b, (uint8_t)id);
	}
}

void model_finish(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	for (unsigned i = 0; i < m->new_server_count; i++) {
		uint32_t id = m->new_server[i];
		if (m->published_at[id] <= m->publishings_before)
			server_id_cancel(b, id);
	}
	publish_removed_locals(b);
	access_finish(b);
	limits_finish(b);
	shaping_finish(b);
	access_recheck_existing(b);
	if (m->snat_touched || (m->source_touched && b->snat))
		snat_publish(b);
	publish_set(b, false);
	early_flush(b);
	if (m->local_touched)
		check_publish_all(b);
	if (m->address_touched)
		address_free_unused(b);
	if (m->source_touched)
		source_collect(b);
	m->touches = m->new_server_count = 0;
	m->open = false;
	m->revision++;
	model_settle(b);
}

void model_settle(struct sy_balance *b)
{
	struct model *m = b->ctl->model;
	if (m->settled || !b->ctl->served || m->revision == 0)
		return;
	m->settled = true;
	sy_address_settle(b->rt);
}

int model_transact(struct sy_balance *b, model_changes apply, const void *what,
                   struct sy_error *err)
{
	model_begin(b);
	int rc = apply(b, what, err);
	if (rc == 0)
		rc = model_check(b, err);
	if (rc < 0) {
		model_rollback(b);
		return rc;
	}
	model_publish_addresses(b);
	model_publish(b, INT64_MAX);
	model_finish(b);
	return 0;
}
