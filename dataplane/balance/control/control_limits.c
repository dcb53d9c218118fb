// SPDX-License-Identifier: Apache-2.0
/* Replies to read requests for limits. */
#include <errno.h>

#include "control.h"
#include "limit_model.h"
#include "model_message.h"

#define LIST_LIMITS 1000u /* per reply, unless the request asks for fewer */
#define LIST_WORST  100u

typedef Steelyard__Forwarder__V1__LimitCounts pb_counts;

/* The clients of a limit with the most packets above it, worst first. */
struct worst {
	unsigned count, max;
	struct sy_limit_client client[LIST_WORST];
};

static void worst_add(struct worst *worst, const struct sy_limit_client *c)
{
	unsigned at = worst->count;
	if (c->above.packets == 0)
		return;
	while (at > 0 && worst->client[at - 1].above.packets < c->above.packets)
		at--;
	if (at == worst->max)
		return;
	if (worst->count < worst->max)
		worst->count++;
	memmove(&worst->client[at + 1], &worst->client[at], (worst->count - at - 1) * sizeof(*c));
	worst->client[at] = *c;
}

static pb_counts *reply_counts(struct arena *a, const struct sy_limit_counts *c)
{
	pb_counts *pb = arena_alloc(a, sizeof(*pb));
	if (!pb)
		return NULL;
	steelyard__forwarder__v1__limit_counts__init(pb);
	pb->packets = c->packets;
	pb->bytes = c->bytes;
	return pb;
}

static int reply_client(struct arena *a, const struct model_limit *l,
                        const struct sy_limit_client *c,
                        Steelyard__Forwarder__V1__LimitClient **out, struct sy_error *err)
{
	const struct sy_addr network = {.d = {c->key.d[0], c->key.d[1]}};
	Steelyard__Forwarder__V1__LimitClient *pb;
	MESSAGE_NEW(a, pb, steelyard__forwarder__v1__limit_client__init);
	*out = pb;
	pb->length = l->prefix[sy_addr_is_v4(&network)];
	pb->passed = reply_counts(a, &c->passed);
	pb->above = reply_counts(a, &c->above);
	if (!pb->passed || !pb->above || reply_addr(a, &network, &pb->address) < 0)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	return 0;
}

/* Counts the clients' buckets, and lists the worst. */
static int reply_clients(const struct sy_balance *b, struct arena *a, const struct model_limit *l,
                         const struct limit *now, unsigned max,
                         Steelyard__Forwarder__V1__LimitStats *pb, struct sy_error *err)
{
	const struct sy_limit_table *t = now->clients->table;
	const uint64_t volume = sy_limit_volume(&now->rate, sy_clock_ns());
	struct worst worst = {.max = max < LIST_WORST ? max : LIST_WORST};
	struct sy_limit_client c;
	if (max == 0) { /* keys and counts are not needed */
		pb->clients = sy_limit_table_used(t, &now->rate, volume);
		return 0;
	}
	for (uint32_t at = 0; at < sy_limit_table_capacity(t); at++)
		if (sy_limit_table_read(t, at, &now->rate, volume, &c)) {
			pb->clients += !c.full;
			worst_add(&worst, &c);
		}
	MESSAGE_NEW_LIST(a, pb->worst, worst.count);
	for (unsigned i = 0; i < worst.count; i++)
		if (reply_client(a, l, &worst.client[i], &pb->worst[pb->n_worst++], err) < 0)
			return -ENOMEM;
	return 0;
}

static int reply_stats(const struct sy_balance *b, struct arena *a, const struct model_limit *l,
                       unsigned worst, Steelyard__Forwarder__V1__LimitStats **out,
                       struct sy_error *err)
{
	static const char *const engines[] = {"own", "cas", "lock", "light-lock", "atomic"};
	const struct limit *now = b->limits.limit[l->id];
	const struct limit_totals totals = limit_totals(b, l->id);
	Steelyard__Forwarder__V1__LimitStats *pb;
	MESSAGE_NEW(a, pb, steelyard__forwarder__v1__limit_stats__init);
	*out = pb;
	pb->limit = reply_limit(l, a);
	pb->passed = reply_counts(a, &totals.passed);
	pb->above = reply_counts(a, &totals.above);
	pb->engine = (char *)(uintptr_t)engines[limit_engine(b, l)];
	pb->why = (char *)(uintptr_t)limit_engine_reason(b, l);
	if (!pb->limit || !pb->passed || !pb->above)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	if (l->max == 0) {
		pb->left = sy_limit_credit(&b->limits.bucket[l->id].limit, &now->rate,
		                           sy_limit_volume(&now->rate, sy_clock_ns()));
		return 0;
	}
	pb->unlimited = reply_counts(a, &totals.unlimited);
	if (!pb->unlimited)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	return reply_clients(b, a, l, now, worst, pb, err);
}

static int list_one(const struct sy_balance *b,
                    const Steelyard__Forwarder__V1__ListLimitsRequest *q, struct arena *a,
                    Steelyard__Forwarder__V1__LimitList *out, struct sy_error *err)
{
	const struct model_limit *l = limit_find(b->ctl->limits, q->name);
	MESSAGE_NEW_LIST(a, out->limits, 1);
	if (!l)
		return sy_fail(err, EINVAL, "there is no limit %.63s", q->name);
	return reply_stats(b, a, l, q->worst, &out->limits[out->n_limits++], err);
}

int list_limits(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                struct sy_error *err)
{
	const Steelyard__Forwarder__V1__ListLimitsRequest *request = q->list_limits;
	struct limit_model *m = b->ctl->limits;
	const uint32_t limit =
	        request->limit && request->limit < LIST_LIMITS ? request->limit : LIST_LIMITS;
	Steelyard__Forwarder__V1__LimitList *l;
	size_t bytes = 0;
	MESSAGE_NEW(a, l, steelyard__forwarder__v1__limit_list__init);
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_LIMITS;
	out->list_limits = l;
	if (*request->name)
		return list_one(b, request, a, l, err);
	const uint32_t *sorted = limits_sorted(m);
	MESSAGE_NEW_LIST(a, l->limits, limit);
	if (!sorted)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	uint32_t at = request->cursor;
	for (; at < m->limits && l->n_limits < limit && bytes < LIST_LIMIT_BYTES; at++) {
		if (reply_stats(b, a, m->limit[sorted[at]], request->worst,
		                &l->limits[l->n_limits++], err) < 0)
			return -ENOMEM;
		bytes +=
		        m->limit[sorted[at]]->packed_len + 64 * l->limits[l->n_limits - 1]->n_worst;
	}
	l->next_cursor = at < m->limits ? at : 0;
	return 0;
}
