// SPDX-License-Identifier: Apache-2.0
/* What clients read of SNAT's rules. */
#include <errno.h>

#include "control.h"
#include "model.h"
#include "snat.h"

static int reply_rule(const struct sy_balance *b, const struct model_service *s, struct arena *a,
                      Steelyard__Forwarder__V1__Snat **out)
{
	Steelyard__Forwarder__V1__Snat *pb = arena_take(a, sizeof(*pb));
	const struct model_snat *snat = s->snat;
	if (!pb)
		return -ENOMEM;
	steelyard__forwarder__v1__snat__init(pb);
	pb->name = (char *)(uintptr_t)s->name;
	pb->inside = arena_take(a, (snat->prefixes + 1) * sizeof(*pb->inside));
	pb->pool = arena_take(a, (snat->pools + 1) * sizeof(*pb->pool));
	if (!pb->inside || !pb->pool || reply_timeouts(a, s, &pb->timeouts) < 0)
		return -ENOMEM;
	for (unsigned i = 0; i < snat->prefixes; i++) {
		const struct sy_source *from = &snat->prefix[i];
		Steelyard__Forwarder__V1__Prefix *prefix = arena_take(a, sizeof(*prefix));
		if (!prefix)
			return -ENOMEM;
		steelyard__forwarder__v1__prefix__init(prefix);
		prefix->length = from->bits - (sy_addr_is_v4(&from->addr) ? 96 : 0);
		if (reply_addr(a, &from->addr, &prefix->address) < 0)
			return -ENOMEM;
		pb->inside[pb->n_inside++] = prefix;
	}
	for (unsigned i = 0; i < snat->pools; i++)
		if (reply_addr(a, &b->model->local[snat->pool[i]].addr, &pb->pool[pb->n_pool++]) <
		    0)
			return -ENOMEM;
	*out = pb;
	return 0;
}

static unsigned rule_count(const struct model *m)
{
	unsigned rules = 0;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		rules += m->service[id] && m->service[id]->snat;
	return rules;
}

int reply_rules(const struct sy_balance *b, struct arena *a, Steelyard__Forwarder__V1__Config *c)
{
	const struct model *m = b->model;
	c->snat = arena_take(a, (rule_count(m) + 1) * sizeof(*c->snat));
	if (!c->snat)
		return -ENOMEM;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		if (m->service[id] && m->service[id]->snat &&
		    reply_rule(b, m->service[id], a, &c->snat[c->n_snat++]) < 0)
			return -ENOMEM;
	return 0;
}

static int reply_stats(const struct sy_balance *b, const struct model_service *s, struct arena *a,
                       Steelyard__Forwarder__V1__SnatStats **out)
{
	Steelyard__Forwarder__V1__SnatStats *pb = arena_take(a, sizeof(*pb));
	struct traffic total = s->gone;
	if (!pb)
		return -ENOMEM;
	steelyard__forwarder__v1__snat_stats__init(pb);
	for (unsigned i = 0; i < s->servers; i++) {
		struct traffic t = traffic_sum(b, s->server[i].id);
		traffic_add(&total, &t);
	}
	*out = pb;
	if (reply_rule(b, s, a, &pb->rule) < 0)
		return -ENOMEM;
	return reply_traffic(a, &total, SY_READ(b->service_active[s->id]), &pb->traffic, NULL);
}

int list_snat(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
              struct sy_error *err)
{
	const struct model *m = b->model;
	Steelyard__Forwarder__V1__SnatList *l = arena_take(a, sizeof(*l));
	(void)q;
	if (!l)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	steelyard__forwarder__v1__snat_list__init(l);
	l->rules = arena_take(a, (rule_count(m) + 1) * sizeof(*l->rules));
	if (!l->rules)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		if (m->service[id] && m->service[id]->snat &&
		    reply_stats(b, m->service[id], a, &l->rules[l->n_rules++]) < 0)
			return sy_fail(err, ENOMEM, "no memory for the answer");
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_SNAT;
	out->list_snat = l;
	return 0;
}
