// SPDX-License-Identifier: Apache-2.0
/* Replies to read requests for SNAT rules. */
#include <errno.h>

#include "control.h"
#include "model_message.h"
#include "snat_model.h"

static int reply_stats(const struct sy_balance *b, const struct model_service *s, struct arena *a,
                       Steelyard__Forwarder__V1__SnatStats **out)
{
	Steelyard__Forwarder__V1__SnatStats *pb = arena_alloc(a, sizeof(*pb));
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
	const struct model *m = b->ctl->model;
	Steelyard__Forwarder__V1__SnatList *l = arena_alloc(a, sizeof(*l));
	(void)q;
	if (!l)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	steelyard__forwarder__v1__snat_list__init(l);
	l->rules = arena_alloc(a, (model_rules(m) + 1) * sizeof(*l->rules));
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
