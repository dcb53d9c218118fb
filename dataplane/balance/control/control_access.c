// SPDX-License-Identifier: Apache-2.0
/* Replies to read requests for access lists. */
#include <errno.h>

#include "access_model.h"
#include "control.h"
#include "model_message.h"

/* The names of the services that name a list. */
static int reply_services(const struct sy_balance *b, unsigned list, struct arena *a,
                          Steelyard__Forwarder__V1__AccessStats *pb)
{
	const struct model *m = b->ctl->model;
	size_t count = 0;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		count += m->service[id] && m->service[id]->policy.access == list + 1;
	pb->services = arena_alloc(a, (count + 1) * sizeof(*pb->services));
	if (!pb->services)
		return -ENOMEM;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		if (m->service[id] && m->service[id]->policy.access == list + 1)
			pb->services[pb->n_services++] = m->service[id]->name;
	return 0;
}

static int reply_stats(const struct sy_balance *b, unsigned id, struct arena *a,
                       Steelyard__Forwarder__V1__AccessStats **out)
{
	const struct access_version *v = &b->ctl->access->now;
	const struct model_list *l = v->list[id];
	Steelyard__Forwarder__V1__AccessStats *pb = arena_alloc(a, sizeof(*pb));
	if (!pb)
		return -ENOMEM;
	steelyard__forwarder__v1__access_stats__init(pb);
	pb->list = reply_access_list(l, a);
	pb->matches = arena_alloc(a, (l->built->rules + 1u) * sizeof(*pb->matches));
	if (!pb->list || !pb->matches)
		return -ENOMEM;
	for (unsigned i = 0; i < l->built->rules; i++)
		pb->matches[pb->n_matches++] = access_matches(b, l, i);
	pb->otherwise = access_matches(b, l, l->built->rules);
	pb->global = v->global == id + 1;
	pb->ended = access_ended(b, l);
	*out = pb;
	return reply_services(b, id, a, pb);
}

static int reply_set(const struct access_version *v, unsigned bit, struct arena *a,
                     Steelyard__Forwarder__V1__AccessSetStats **out)
{
	const struct model_set *s = v->set[bit];
	Steelyard__Forwarder__V1__AccessSetStats *pb = arena_alloc(a, sizeof(*pb));
	if (!pb)
		return -ENOMEM;
	steelyard__forwarder__v1__access_set_stats__init(pb);
	pb->name = arena_alloc(a, MODEL_NAME);
	pb->lists = arena_alloc(a, ACCESS_LISTS * sizeof(*pb->lists));
	if (!pb->name || !pb->lists)
		return -ENOMEM;
	memcpy(pb->name, s->name, MODEL_NAME);
	pb->prefixes4 = s->prefixes4;
	pb->prefixes6 = s->prefixes - s->prefixes4;
	pb->missing = s->missing;
	for (unsigned id = 0; id < ACCESS_LISTS; id++)
		if (v->list[id] && v->list[id]->built->sets >> bit & 1)
			pb->lists[pb->n_lists++] = v->list[id]->name;
	*out = pb;
	return 0;
}

int list_access(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                struct sy_error *err)
{
	const struct access_version *v = &b->ctl->access->now;
	Steelyard__Forwarder__V1__AccessLists *l;
	(void)q;
	MESSAGE_NEW(a, l, steelyard__forwarder__v1__access_lists__init);
	MESSAGE_NEW_LIST(a, l->lists, ACCESS_LISTS);
	for (unsigned id = 0; id < ACCESS_LISTS; id++)
		if (v->list[id] && reply_stats(b, id, a, &l->lists[l->n_lists++]) < 0)
			return sy_fail(err, ENOMEM, "no memory for the answer");
	MESSAGE_NEW_LIST(a, l->sets, ADDRESS_SETS);
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		if (v->set[bit] && reply_set(v, bit, a, &l->sets[l->n_sets++]) < 0)
			return sy_fail(err, ENOMEM, "no memory for the answer");
	if (v->ranges)
		l->sets_bytes = address_ranges_bytes(v->ranges->built);
	l->dropped_early = sy_port_drops(b->rt, SY_DROP_ACL_DROP);
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_ACCESS;
	out->list_access = l;
	return 0;
}
