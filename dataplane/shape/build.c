// SPDX-License-Identifier: Apache-2.0
/* Builds trees, and moves waiting packets from one to the next. */
#include <stdlib.h>

#include "shape.h"

/* Min burst of a tenant, service or class: two large frames. */
#define BURST_MIN 4096
#define BURST_MAX UINT64_C(100000000000)

/* ---- building -------------------------------------------------------------------------------- */

static int branch_check(const struct sy_shape_config *c, const struct sy_shape_branch *b,
                        const char *what, struct sy_error *err)
{
	const uint64_t rates[] = {b->guaranteed, b->maximum};
	for (unsigned i = 0; i < 2; i++)
		if (rates[i] && (rates[i] < SY_SHAPE_RATE_MIN || rates[i] > SY_SHAPE_RATE_MAX))
			return sy_fail(err, EINVAL,
			               "%s %s: a rate is not within 8 kbit/s to 400 Gbit/s", what,
			               b->name);
	if (b->weight < 1 || b->weight > SY_SHAPE_WEIGHT_MAX)
		return sy_fail(err, EINVAL, "%s %s: its weight is not within 1–%u", what, b->name,
		               SY_SHAPE_WEIGHT_MAX);
	if (b->class != SY_SHAPE_BY_DSCP && b->class >= c->classes)
		return sy_fail(err, EINVAL, "%s %s: there is no class %u", what, b->name, b->class);
	return 0;
}

static int class_check(const struct sy_shape_class *c, struct sy_error *err)
{
	const struct sy_shape_branch rates = {
	        .guaranteed = c->guaranteed, .maximum = c->maximum, .weight = c->weight};
	const struct sy_shape_config any = {.classes = 1};
	int rc = branch_check(&any, &rates, "class", err);
	if (rc < 0)
		return rc;
	if (c->priority >= SY_SHAPE_PRIORITIES)
		return sy_fail(err, EINVAL, "class %s: its priority is not within 0–%u", c->name,
		               SY_SHAPE_PRIORITIES - 1);
	if (c->queue < 1 || c->queue > SY_SHAPE_QUEUE_MAX)
		return sy_fail(err, EINVAL, "class %s: its queue is not within 1–%u packets",
		               c->name, SY_SHAPE_QUEUE_MAX);
	if (c->early.percent > 100 || c->early.to > 100 ||
	    (c->early.percent > 0 && c->early.from >= c->early.to))
		return sy_fail(err, EINVAL,
		               "class %s: early drops begin and end within 0–100 %% of the queue, "
		               "in this order",
		               c->name);
	return 0;
}

static int config_check(const struct sy_shape_config *c, struct sy_error *err)
{
	int rc = 0;
	if (c->rate < SY_SHAPE_RATE_MIN || c->rate > SY_SHAPE_RATE_MAX)
		return sy_fail(err, EINVAL, "the rate is not within 8 kbit/s to 400 Gbit/s");
	if (c->burst < BURST_MIN || c->burst > BURST_MAX)
		return sy_fail(err, EINVAL, "the burst is not within %u bytes to 100 GB",
		               BURST_MIN);
	if (c->classes < 1 || c->classes > SY_SHAPE_CLASSES || c->tenants < 1 ||
	    c->tenants > SY_SHAPE_TENANTS || c->services < 1 || c->services > SY_SHAPE_SERVICES)
		return sy_fail(err, EINVAL, "there are 1–%u classes, 1–%u tenants, 1–%u services",
		               SY_SHAPE_CLASSES, SY_SHAPE_TENANTS, SY_SHAPE_SERVICES);
	for (unsigned i = 0; rc == 0 && i < c->classes; i++)
		rc = class_check(&c->class[i], err);
	for (unsigned i = 0; rc == 0 && i < SY_ARRAY_LEN(c->class_of); i++)
		if (c->class_of[i] >= c->classes)
			rc = sy_fail(err, EINVAL, "DSCP %u has no class", i);
	for (unsigned i = 0; rc == 0 && i < c->tenants; i++)
		rc = branch_check(c, &c->tenant[i], "tenant", err);
	for (unsigned i = 0; rc == 0 && i < c->services; i++) {
		rc = branch_check(c, &c->service[i], "service", err);
		if (rc == 0 && c->service[i].tenant >= c->tenants)
			rc = sy_fail(err, EINVAL, "service %s: there is no tenant %u",
			             c->service[i].name, c->service[i].tenant);
	}
	return rc;
}

/* 0: no rate. */
static void rate_set(struct rate *r, const struct sy_shape_config *c, uint64_t bits,
                     uint64_t now_ns)
{
	if (!bits)
		return;
	uint64_t burst = (uint64_t)((unsigned __int128)c->burst * bits / c->rate);
	burst = burst > BURST_MIN ? burst : BURST_MIN;
	burst = burst < BURST_MAX ? burst : BURST_MAX;
	r->on = true;
	r->ns_per_byte = 8e9 / (double)bits;
	/* the amounts were checked before */
	(void)sy_limit_rate_init(&r->line, bits, UINT64_C(8000000000), burst, now_ns, NULL);
	r->level = sy_limit_volume(&r->line, now_ns) - burst;
}

static void node_init(struct sy_shape *s, uint32_t index, enum level level, uint32_t parent,
                      unsigned weight)
{
	struct node *n = &s->node[index];
	n->level = (uint8_t)level;
	n->parent = parent;
	n->heap_at = NODE_NONE;
	n->quantum = (int32_t)weight * QUANTUM;
	for (unsigned p = 0; p < SY_SHAPE_PRIORITIES; p++)
		n->deficit[p] = n->quantum;
}

static void branch_init(struct sy_shape *s, uint32_t index, enum level level, uint32_t parent,
                        const struct sy_shape_branch *b, uint64_t now_ns)
{
	node_init(s, index, level, parent, b->weight);
	rate_set(&s->node[index].guaranteed, &s->config, b->guaranteed, now_ns);
	rate_set(&s->node[index].maximum, &s->config, b->maximum, now_ns);
}

static void tree_init(struct sy_shape *s, uint64_t now_ns)
{
	const struct sy_shape_config *c = &s->config;
	node_init(s, 0, LEVEL_PORT, NODE_NONE, 1);
	rate_set(&s->node[0].maximum, c, c->rate, now_ns);
	for (unsigned i = 0; i < c->tenants; i++)
		branch_init(s, 1 + i, LEVEL_TENANT, 0, &c->tenant[i], now_ns);
	for (unsigned i = 0; i < c->services; i++) {
		const uint32_t service = s->first_service + i;
		branch_init(s, service, LEVEL_SERVICE, 1 + c->service[i].tenant, &c->service[i],
		            now_ns);
		for (unsigned k = 0; k < c->classes; k++) {
			const struct sy_shape_class *class = &c->class[k];
			struct node *n = &s->node[class_index(s, i, k)];
			node_init(s, class_index(s, i, k), LEVEL_CLASS, service, class->weight);
			rate_set(&n->guaranteed, c, class->guaranteed, now_ns);
			rate_set(&n->maximum, c, class->maximum, now_ns);
			n->priority = class->priority;
			queue_init(&n->queue, class);
		}
	}
}

static void *copy_of(const void *from, size_t size)
{
	void *to = malloc(size);
	return to ? memcpy(to, from, size) : NULL;
}

int sy_shape_create(const struct sy_shape_config *c, unsigned capacity, uint64_t now_ns,
                    struct sy_shape **out, struct sy_error *err)
{
	int rc = config_check(c, err);
	if (rc < 0)
		return rc;
	struct sy_shape *s = calloc(1, sizeof(*s));
	if (!s)
		return sy_fail(err, ENOMEM, "no memory for a port's queues");
	s->config = *c;
	s->config.tenant = copy_of(c->tenant, c->tenants * sizeof(*c->tenant));
	s->config.service = copy_of(c->service, c->services * sizeof(*c->service));
	s->capacity = s->capacity_all = capacity;
	s->random = UINT64_C(0x9e3779b97f4a7c15);
	s->first_service = 1 + c->tenants;
	s->first_class = s->first_service + c->services;
	s->nodes = s->first_class + c->services * c->classes;
	s->node = aligned_alloc(SY_CACHE_LINE, s->nodes * sizeof(*s->node));
	s->heap = calloc(s->nodes, sizeof(*s->heap));
	if (!s->config.tenant || !s->config.service || !s->node || !s->heap) {
		sy_shape_destroy(s);
		return sy_fail(err, ENOMEM,
		               "no memory for %u queues of a port: name fewer services",
		               c->services * c->classes);
	}
	memset(s->node, 0, s->nodes * sizeof(*s->node));
	tree_init(s, now_ns);
	*out = s;
	return 0;
}

void sy_shape_destroy(struct sy_shape *s)
{
	if (!s)
		return;
	for (uint32_t i = s->first_class; s->node && i < s->nodes; i++)
		while (s->node[i].queue.count > 0)
			rte_pktmbuf_free(queue_remove(&s->node[i].queue, 0));
	free(s->node);
	free(s->heap);
	free(s->config.tenant);
	free(s->config.service);
	free(s->tenant_of);
	free(s->service_of);
	free(s);
}

/* ---- moving ---------------------------------------------------------------------------------- */

static uint16_t branch_find(const struct sy_shape_branch *in, unsigned n, const char *name,
                            unsigned tenant)
{
	for (unsigned i = 0; i < n; i++)
		if (in[i].tenant == tenant && strcmp(in[i].name, name) == 0)
			return (uint16_t)i;
	return 0;
}

int sy_shape_follow(struct sy_shape *to, const struct sy_shape *from, struct sy_error *err)
{
	const struct sy_shape_config *old = &from->config, *now = &to->config;
	to->tenant_of = calloc(old->tenants, sizeof(*to->tenant_of));
	to->service_of = calloc(old->services, sizeof(*to->service_of));
	if (!to->tenant_of || !to->service_of)
		return sy_fail(err, ENOMEM, "no memory for a port's queues");
	for (unsigned i = 0; i < old->tenants; i++)
		to->tenant_of[i] = branch_find(now->tenant, now->tenants, old->tenant[i].name, 0);
	for (unsigned i = 0; i < old->services; i++)
		to->service_of[i] = branch_find(now->service, now->services, old->service[i].name,
		                                to->tenant_of[old->service[i].tenant]);
	for (unsigned i = 0; i < old->classes; i++) {
		to->class_of[i] = now->class_of[0];
		for (unsigned k = 0; k < now->classes; k++)
			if (strcmp(now->class[k].name, old->class[i].name) == 0)
				to->class_of[i] = (uint8_t)k;
	}
	return 0;
}

/* The old credit or debt continues under the new rate. */
static void rate_continue(struct rate *to, struct rate *from, uint64_t now_ns)
{
	if (!to->on || !from->on)
		return;
	int64_t credit = rate_credit(from, now_ns);
	if (credit > (int64_t)to->line.burst)
		credit = (int64_t)to->line.burst;
	to->level = sy_limit_volume(&to->line, now_ns) - (uint64_t)credit;
}

static void node_continue(struct node *to, struct node *from, uint64_t now_ns)
{
	rate_continue(&to->guaranteed, &from->guaranteed, now_ns);
	rate_continue(&to->maximum, &from->maximum, now_ns);
}

static void queue_continue(struct queue *to, struct queue *from)
{
	SY_SHAPE_COUNT(to->counts.sent, from->counts.sent);
	SY_SHAPE_COUNT(to->counts.sent_bytes, from->counts.sent_bytes);
	SY_SHAPE_COUNT(to->counts.full, from->counts.full);
	SY_SHAPE_COUNT(to->counts.early, from->counts.early);
	SY_SHAPE_COUNT(to->counts.dropped_bytes, from->counts.dropped_bytes);
	if (from->count == 0)
		return;
	if (to->last)
		to->last->next = from->first;
	else
		to->first = from->first;
	to->last = from->last;
	__atomic_store_n(&to->count, to->count + from->count, __ATOMIC_RELAXED);
	from->first = from->last = NULL;
	__atomic_store_n(&from->count, 0, __ATOMIC_RELAXED);
}

/* Number 0 of a level inherits from removed ones; only its namesake inherits rates. */
static bool is_same(const struct sy_shape_branch *to, const struct sy_shape_branch *from)
{
	return strcmp(to->name, from->name) == 0;
}

void sy_shape_move(struct sy_shape *to, struct sy_shape *from, uint64_t now_ns)
{
	const struct sy_shape_config *old = &from->config, *now = &to->config;
	node_continue(&to->node[0], &from->node[0], now_ns);
	for (unsigned i = 0; i < old->tenants; i++)
		if (is_same(&now->tenant[to->tenant_of[i]], &old->tenant[i]))
			node_continue(&to->node[1 + to->tenant_of[i]], &from->node[1 + i], now_ns);
	for (unsigned i = 0; i < old->services; i++) {
		const unsigned service = to->service_of[i];
		const bool same = is_same(&now->service[service], &old->service[i]);
		if (same)
			node_continue(&to->node[to->first_service + service],
			              &from->node[from->first_service + i], now_ns);
		for (unsigned k = 0; k < old->classes; k++) {
			struct node *a = &from->node[class_index(from, i, k)];
			struct node *b = &to->node[class_index(to, service, to->class_of[k])];
			if (same)
				node_continue(b, a, now_ns);
			queue_continue(&b->queue, &a->queue);
		}
	}
	to->waiting += from->waiting;
	from->waiting = 0;
	for (uint32_t i = to->first_class; i < to->nodes; i++)
		if (to->node[i].queue.count > 0)
			node_refresh(to, i, false, now_ns);
}
