// SPDX-License-Identifier: Apache-2.0
/* Replies to read requests for shaping. */
#include <errno.h>

#include "control.h"
#include "model_message.h"
#include "shaping_model.h"

typedef Steelyard__Forwarder__V1__ShapingStats pb_stats;

static int reply_counts(const struct model_shaping *m, const struct sy_shape *s, unsigned service,
                        unsigned class, struct arena *a, pb_stats *pb, struct sy_error *err)
{
	const struct sy_shape_counts n = sy_shape_read(s, service, class);
	Steelyard__Forwarder__V1__ShapingCounts *out;
	if (n.sent + n.full + n.early + n.waiting == 0)
		return 0;
	MESSAGE_NEW(a, out, steelyard__forwarder__v1__shaping_counts__init);
	out->tenant = m->config.service[service].tenant;
	out->service = service - m->first[out->tenant];
	out->class_ = class;
	out->sent_packets = n.sent;
	out->sent_bytes = n.sent_bytes;
	out->dropped_full = n.full;
	out->dropped_early = n.early;
	out->dropped_bytes = n.dropped_bytes;
	out->waiting = n.waiting;
	pb->waiting += n.waiting;
	pb->counts[pb->n_counts++] = out;
	return 0;
}

static int reply_port(const struct sy_balance *b, const struct model_shaping *m, struct arena *a,
                      pb_stats **out, struct sy_error *err)
{
	const unsigned port = shaping_port(b, m->port);
	const struct sy_shape *s = shaping_in_force(b, m);
	pb_stats *pb;
	MESSAGE_NEW(a, pb, steelyard__forwarder__v1__shaping_stats__init);
	*out = pb;
	pb->shaping = shaping_message(m, a);
	if (!pb->shaping)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	const char *problem = port == SY_PORT_NONE ? NULL : shaping_problem(b, port);
	if (problem) {
		pb->problem = arena_alloc(a, strlen(problem) + 1);
		if (!pb->problem)
			return sy_fail(err, ENOMEM, "no memory for the answer");
		strcpy(pb->problem, problem);
		return 0;
	}
	if (!s)
		return 0;
	pb->active = true;
	pb->worker = sy_port_shape_worker(b->rt, port);
	pb->room = sy_port_shape_capacity(b->rt, port);
	MESSAGE_NEW_LIST(a, pb->counts, m->config.services * m->config.classes);
	for (unsigned i = 0; i < m->config.services; i++)
		for (unsigned k = 0; k < m->config.classes; k++)
			if (reply_counts(m, s, i, k, a, pb, err) < 0)
				return -ENOMEM;
	return 0;
}

int list_shaping(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                 struct sy_error *err)
{
	const struct shaping_model *m = b->ctl->shaping;
	Steelyard__Forwarder__V1__ShapingList *l;
	(void)q;
	MESSAGE_NEW(a, l, steelyard__forwarder__v1__shaping_list__init);
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_SHAPING;
	out->list_shaping = l;
	MESSAGE_NEW_LIST(a, l->ports, SHAPED_PORTS);
	for (unsigned i = 0; i < SHAPED_PORTS; i++)
		if (m->now[i] && reply_port(b, m->now[i], a, &l->ports[l->n_ports++], err) < 0)
			return -ENOMEM;
	return 0;
}
