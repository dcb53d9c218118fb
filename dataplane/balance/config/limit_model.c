// SPDX-License-Identifier: Apache-2.0
/*
 * Limits in the configuration. A limit is an immutable object under an id. Its bucket belongs to
 * the id, so a limit that is replaced keeps its credit. If it counts something else now, or its
 * bucket is shared in another way, it gets another id.
 *
 * Published in this order: limits, services, the chains of other services that limits name. Only
 * then are limits removed that are in no chain any more.
 */
#include "limit_model.h"

#include <errno.h>

#include "table_map.h"

/* costs in units of model_publish()'s budget */
#define LIMIT_COST   60
#define SERVICE_COST 30
#define SERVER_COST  20

/* Workers have seen a new rate at the latest after this time. */
#define SETTLE_NS UINT64_C(50000000)

uint64_t limits_now(const struct sy_balance *b)
{
	uint64_t now = 0;
	for (unsigned w = 0; w < b->workers; w++) {
		uint64_t swept = __atomic_load_n(&b->worker[w].swept_ns, __ATOMIC_RELAXED);
		now = swept > now ? swept : now;
	}
	return now;
}

/* ---- counts ---------------------------------------------------------------------------------- */

static void counts_add(struct sy_limit_counts *sum, const struct sy_limit_counts *c)
{
	sum->packets += SY_READ(c->packets);
	sum->bytes += SY_READ(c->bytes);
}

static void counts_subtract(struct sy_limit_counts *from, const struct sy_limit_counts *c)
{
	from->packets -= c->packets;
	from->bytes -= c->bytes;
}

static void totals_subtract(struct limit_totals *from, const struct limit_totals *t)
{
	counts_subtract(&from->passed, &t->passed);
	counts_subtract(&from->above, &t->above);
	counts_subtract(&from->unlimited, &t->unlimited);
}

static struct limit_totals counted_under(const struct sy_balance *b, uint32_t id)
{
	struct limit_totals sum = {0};
	for (unsigned w = 0; w < b->workers; w++) {
		const struct limit_share *share = &b->worker[w].limited[id];
		counts_add(&sum.passed, &share->passed);
		counts_add(&sum.above, &share->above);
		counts_add(&sum.unlimited, &share->unlimited);
	}
	return sum;
}

struct limit_totals limit_totals(const struct sy_balance *b, uint32_t id)
{
	struct limit_totals sum = counted_under(b, id);
	totals_subtract(&sum, &b->ctl->limits->state[id].base);
	return sum;
}

/* ---- names ----------------------------------------------------------------------------------- */

struct model_limit *limit_find(const struct limit_model *m, const char *name)
{
	uint32_t hash = nodes_hash(name, strlen(name));
	for (struct node *n = NULL; (n = nodes_next(&m->names, n, hash));) {
		struct model_limit *l = SY_CONTAINER_OF(n, struct model_limit, by_name);
		if (strcmp(l->name, name) == 0)
			return l;
	}
	return NULL;
}

static int name_compare(const void *a, const void *b, void *limits)
{
	struct model_limit *const *limit = limits;
	return strcmp(limit[*(const uint32_t *)a]->name, limit[*(const uint32_t *)b]->name);
}

const uint32_t *limits_sorted(struct limit_model *m)
{
	uint32_t count = 0;
	if (m->sorted)
		return m->sorted;
	m->sorted = malloc((m->limits + 1) * sizeof(*m->sorted));
	for (uint32_t id = 0; m->sorted && id < m->ids.fresh; id++)
		if (m->limit[id])
			m->sorted[count++] = id;
	if (m->sorted)
		qsort_r(m->sorted, count, sizeof(*m->sorted), name_compare, m->limit);
	return m->sorted;
}

static void sorted_forget(struct limit_model *m)
{
	free(m->sorted);
	m->sorted = NULL;
}

/* ---- changes --------------------------------------------------------------------------------- */

static int limit_touch(struct limit_model *m, uint32_t id, struct sy_error *err)
{
	if (m->touched[id])
		return 0;
	if (!list_reserve((void **)&m->touch, m->touches, &m->touch_capacity, sizeof(*m->touch)))
		return sy_fail(err, ENOMEM, "no memory for the limits");
	m->touch[m->touches++] = (struct limit_touch){id, m->limit[id]};
	m->touched[id] = m->touches;
	return 0;
}

static int limit_link(struct limit_model *m, struct model_limit *l, struct sy_error *err)
{
	int rc = limit_targets_add(m, l, err);
	if (rc < 0)
		return rc;
	nodes_add(&m->names, &l->by_name, nodes_hash(l->name, strlen(l->name)));
	m->limit[l->id] = l;
	m->limits++;
	m->target_count += l->targets + l->within;
	m->clients += l->max;
	return 0;
}

static void limit_unlink(struct limit_model *m, struct model_limit *l)
{
	limit_targets_remove(m, l);
	nodes_remove(&m->names, &l->by_name);
	m->limit[l->id] = NULL;
	m->limits--;
	m->target_count -= l->targets + l->within;
	m->clients -= l->max;
}

/* Unlinks a limit, and frees it unless a rollback needs it. */
static int limit_leave(struct limit_model *m, struct model_limit *l, struct sy_error *err)
{
	int rc = limit_touch(m, l->id, err);
	if (rc < 0)
		return rc;
	limit_unlink(m, l);
	if (m->touch[m->touched[l->id] - 1].before != l)
		limit_free(l);
	return 0;
}

/* Allocates an id for a limit, with a table if it is per client. */
static int limit_id_alloc(struct sy_balance *b, struct model_limit *l, struct sy_error *err)
{
	struct limit_model *m = b->ctl->limits;
	l->id = id_alloc(&m->ids);
	if (l->id == UINT32_MAX)
		return sy_fail(
		        err, ENOSPC,
		        "no room for another limit: there may be %u; some that are deleted at "
		        "the same time still take room: delete them first",
		        LIMITS);
	int rc = limit_touch(m, l->id, err);
	if (rc < 0) {
		id_free(&m->ids, l->id);
		return rc;
	}
	if (l->max == 0)
		return 0;
	m->state[l->id].table = sy_limit_table_create(l->max, b->workers);
	return m->state[l->id].table ? 0
	                             : sy_fail(err, ENOMEM, "limit %s: no memory for %u clients",
	                                       l->name, l->max);
}

int limit_put(struct sy_balance *b, const pb_limit *pb, struct sy_error *err)
{
	struct limit_model *m = b->ctl->limits;
	struct model_limit *l;
	int rc = limit_read(b, pb, &l, err);
	if (rc < 0)
		return rc;
	struct model_limit *old = limit_find(m, l->name);
	const bool keeps = old && limit_keeps_id(old, l);
	if (old) {
		l->id = old->id;
		/* Was it published under this id, before this transaction or with its last
		 * change? */
		const bool known = b->limits.limit[old->id] != NULL;
		l->replaces = !known ? old->replaces : keeps ? LIMITS : old->id;
		rc = limit_leave(m, old, err);
	}
	if (rc == 0 && !keeps)
		rc = limit_id_alloc(b, l, err);
	if (rc == 0) {
		l->built->id = (uint16_t)l->id;
		if (l->built->clients)
			l->built->clients->table = m->state[l->id].table;
		rc = limit_link(m, l, err);
	}
	if (rc < 0)
		limit_free(l);
	sorted_forget(m);
	return rc;
}

int limit_delete(struct sy_balance *b, const char *name, struct sy_error *err)
{
	struct limit_model *m = b->ctl->limits;
	struct model_limit *l = limit_find(m, name);
	if (!l)
		return sy_fail(err, EINVAL, "there is no limit %.63s", name);
	sorted_forget(m);
	return limit_leave(m, l, err);
}

/* ---- transactions ---------------------------------------------------------------------------- */

void limits_begin(struct sy_balance *b)
{
	struct limit_model *m = b->ctl->limits;
	m->touches = m->published = 0;
	m->service_at = 0;
	m->of_all = m->of_vips = false;
}

int limits_check(struct sy_balance *b, struct sy_error *err)
{
	struct limit_model *m = b->ctl->limits;
	if (m->clients > LIMIT_CLIENTS)
		return sy_fail(err, EINVAL,
		               "the limits by clients have %llu buckets, at most %u are possible: "
		               "lower the most of some",
		               (unsigned long long)m->clients, LIMIT_CLIENTS);
	if (m->target_count > LIMIT_ALL)
		return sy_fail(err, EINVAL,
		               "the limits name %llu services, VIPs, servers and prefixes of "
		               "clients, at most %u are possible: name VIPs instead of services, "
		               "or services instead of servers",
		               (unsigned long long)m->target_count, LIMIT_ALL);
	return limit_targets_check(m, err);
}

/* The id has no limit any more, neither configured nor published. */
static void id_release(struct limit_model *m, uint32_t id)
{
	sy_limit_table_destroy(m->state[id].table);
	m->state[id] = (struct limit_state){0};
	id_free(&m->ids, id);
}

static void touches_end(struct limit_model *m)
{
	for (unsigned t = 0; t < m->touches; t++)
		m->touched[m->touch[t].id] = 0;
	m->touches = 0;
}

void limits_rollback(struct sy_balance *b)
{
	struct limit_model *m = b->ctl->limits;
	struct model_limit *refused;
	if (m->touches == 0)
		return;
	/* Unlink all new limits first: an old one may have the same name. */
	for (unsigned t = 0; t < m->touches; t++)
		if (m->limit[m->touch[t].id] && m->limit[m->touch[t].id] != m->touch[t].before) {
			refused = m->limit[m->touch[t].id];
			limit_unlink(m, refused);
			limit_free(refused);
		}
	for (unsigned t = 0; t < m->touches; t++) {
		const struct limit_touch *touch = &m->touch[t];
		/* The index entries of what it names still exist, so this needs no memory. */
		if (touch->before && m->limit[touch->id] != touch->before)
			(void)limit_link(m, touch->before, NULL);
		else if (!touch->before)
			id_release(m, touch->id);
	}
	limit_targets_collect(m);
	touches_end(m);
	sorted_forget(m);
}

/* ---- publishing ------------------------------------------------------------------------------ */

/* Called when no worker uses the old rate or the limit. */
static void limit_retired(void *limit)
{
	struct limit *old = limit;
	struct sy_balance *b = old->balance;
	const struct limit *now = b->limits.limit[old->id];
	if (old->ends) {
		id_release(b->ctl->limits, old->id);
	} else if (now && now->clients) {
		sy_limit_table_settle(now->clients->table,
		                      sy_limit_volume(&now->rate, limits_now(b) + SETTLE_NS));
	} else if (now && now->engine != SY_LIMIT_OWN) { /* otherwise its worker does it */
		sy_limit_settle(&b->limits.bucket[old->id].limit, (enum sy_limit_engine)now->engine,
		                sy_limit_volume(&now->rate, limits_now(b) + SETTLE_NS));
	}
	limit_built_free(old);
}

static void limit_retire(struct sy_balance *b, const struct limit *old, bool ends)
{
	struct limit *l = (struct limit *)(uintptr_t)old;
	l->ends = ends;
	sy_rcu_retire(b->rt, l, limit_retired);
}

/* Initializes a bucket: full, or with the credit of the one that it replaces. */
static void bucket_begin(struct sy_balance *b, const struct model_limit *l, uint64_t now)
{
	struct limit_model *m = b->ctl->limits;
	struct sy_limit *bucket = &b->limits.bucket[l->id].limit;
	const struct limit *from = l->replaces != LIMITS ? b->limits.limit[l->replaces] : NULL;
	sy_limit_init(bucket, &l->built->rate, l->batch, now);
	b->limits.bucket[l->id].by_chains = b->limits.bucket[l->id].by_workers = 0;
	m->state[l->id].base = counted_under(b, l->id);
	if (!from || from->unit != l->unit)
		return;
	const struct limit_totals carried = limit_totals(b, l->replaces);
	totals_subtract(&m->state[l->id].base, &carried);
	if (from->clients || l->max > 0)
		return;
	uint64_t left = sy_limit_credit(&b->limits.bucket[from->id].limit, &from->rate,
	                                sy_limit_volume(&from->rate, now));
	if (left < l->burst)
		bucket->level = sy_limit_volume(&l->built->rate, now) - left;
}

static void limit_publish(struct sy_balance *b, struct model_limit *l)
{
	struct limit_model *m = b->ctl->limits;
	const struct limit *old = b->limits.limit[l->id];
	struct limit *now = l->built;
	const uint64_t at = limits_now(b);
	/* The amounts have been checked, so neither can fail. */
	if (old)
		(void)sy_limit_rate_change(&now->rate, &old->rate, l->amount, l->period_ns,
		                           l->burst, at, NULL);
	else
		(void)sy_limit_rate_init(&now->rate, l->amount, l->period_ns, l->burst, at, NULL);
	now->line = ++m->lines;
	now->first_line = old ? old->first_line : now->line;
	if (!old)
		bucket_begin(b, l, at);
	l->built = NULL;
	SY_RCU_PUBLISH(b->limits.limit[l->id], now);
	if (old)
		limit_retire(b, old, false);
}

/* Are both at the same position of the same chains? */
static bool limit_stays(const struct sy_balance *b, const struct model_limit *before,
                        const struct model_limit *now)
{
	const struct limit *old = b->limits.limit[now->id];
	return before && old && old->sides == now->built->sides &&
	       old->marks == now->built->marks && before->targets == now->targets &&
	       memcmp(before->target, now->target, now->targets * sizeof(*now->target)) == 0;
}

bool limits_publish(struct sy_balance *b, int64_t *budget)
{
	struct limit_model *m = b->ctl->limits;
	for (; m->published < m->touches; m->published++) {
		const struct limit_touch *t = &m->touch[m->published];
		struct model_limit *now = m->limit[t->id];
		if (*budget <= 0)
			return false;
		*budget -= LIMIT_COST;
		if (!now || !limit_stays(b, t->before, now)) {
			if (t->before)
				limit_targets_touch(b, t->before);
			if (now)
				limit_targets_touch(b, now);
			*budget -= 10 * (int64_t)((t->before ? t->before->targets : 0) +
			                          (now ? now->targets : 0));
		}
		if (now)
			limit_publish(b, now);
	}
	return true;
}

bool limits_publish_chains(struct sy_balance *b, int64_t *budget)
{
	struct limit_model *m = b->ctl->limits;
	const struct model *model = b->ctl->model;
	if (m->touches == 0)
		return true;
	for (; m->service_at < model->service_ids.fresh; m->service_at++) {
		const struct model_service *s = model->service[m->service_at];
		if (*budget <= 0)
			return false;
		*budget -= SERVICE_COST;
		if (!s || s->snat || !limit_targets_touched(b, s))
			continue;
		limits_service(b, s);
		*budget -= SERVER_COST * (int64_t)s->servers;
	}
	return true;
}

void limits_finish(struct sy_balance *b)
{
	struct limit_model *m = b->ctl->limits;
	limits_note_flows(b);
	if (m->touches == 0)
		return;
	limit_targets_collect(m);
	for (unsigned t = 0; t < m->touches; t++) {
		const struct limit_touch *touch = &m->touch[t];
		const struct limit *old = b->limits.limit[touch->id];
		limit_free(touch->before);
		if (m->limit[touch->id])
			continue;
		if (old) {
			SY_RCU_PUBLISH(b->limits.limit[touch->id], NULL);
			limit_retire(b, old, true);
		} else {
			id_release(m, touch->id);
		}
	}
	touches_end(m);
	memset(m->of_service, 0, b->options.max_services * sizeof(*m->of_service));
}

/* ---- creation and destruction ---------------------------------------------------------------- */

int limit_model_create(struct sy_balance *b, struct sy_error *err)
{
	struct limit_model *m = b->ctl->limits = calloc(1, sizeof(*m));
	if (m) {
		m->limit = table_map(LIMITS, sizeof(*m->limit));
		m->state = table_map(LIMITS, sizeof(*m->state));
		m->touched = table_map(LIMITS, sizeof(*m->touched));
		m->ids = (struct id_pool){.free = table_map(LIMITS, sizeof(uint32_t)),
		                          .limit = LIMITS};
		m->of_service = calloc(b->options.max_services, sizeof(*m->of_service));
	}
	if (m && m->limit && m->state && m->touched && m->ids.free && m->of_service &&
	    nodes_create(&m->names) && nodes_create(&m->targets) && nodes_create(&m->chains))
		return 0;
	return sy_fail(err, ENOMEM, "no memory for the limits");
}

void limit_model_destroy(struct sy_balance *b)
{
	struct limit_model *m = b->ctl->limits;
	if (!m)
		return;
	for (unsigned t = 0; t < m->touches; t++)
		if (m->touch[t].before != m->limit[m->touch[t].id])
			limit_free(m->touch[t].before);
	for (uint32_t id = 0; m->limit && id < m->ids.fresh; id++) {
		limit_free(m->limit[id]);
		limit_built_free((struct limit *)(uintptr_t)b->limits.limit[id]);
		sy_limit_table_destroy(m->state[id].table);
	}
	limit_targets_destroy(m);
	free(m->names.head);
	free(m->touch);
	free(m->of_service);
	sorted_forget(m);
	table_unmap(m->limit, LIMITS, sizeof(*m->limit));
	table_unmap(m->state, LIMITS, sizeof(*m->state));
	table_unmap(m->touched, LIMITS, sizeof(*m->touched));
	table_unmap(m->ids.free, LIMITS, sizeof(uint32_t));
	free(m);
	b->ctl->limits = NULL;
}
