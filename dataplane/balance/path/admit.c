// SPDX-License-Identifier: Apache-2.0
/* Asks access lists about the new sessions of a burst: those of the list for all services, then
 * those of the services' own lists, each list for all its packets together. */
#include "admit.h"

#include "access.h"
#include "address_ranges.h"
#include "create.h"
#include "icmp.h"
#include "reset.h"

/* Reports of matches: 100 per second and worker. */
#define LOG_COST_NS 10000000u
#define LOG_BURST   100u

/* New sessions that are asked together. */
struct batch {
	unsigned count;
	uint8_t at[SY_BURST]; /* packets */
	bool v4[SY_BURST];
	struct access_key key[SY_BURST];
	const struct sy_addr *client[SY_BURST];
};

static void batch_add(struct batch *batch, const struct sy_burst *burst, unsigned i)
{
	const struct sy_tuple *t = &burst->view[i].tuple;
	batch->at[batch->count] = (uint8_t)i;
	batch->v4[batch->count] = sy_addr_is_v4(&t->src);
	batch->client[batch->count] = &t->src;
	batch->key[batch->count++] = access_key_of(t, 0);
}

/* Finds out of which sets the clients are members. */
static void batch_find_sets(const struct access *a, struct batch *batch)
{
	uint16_t class[SY_BURST];
	if (!a->ranges)
		return;
	address_ranges_find(a->ranges, batch->client, class, batch->count);
	for (unsigned i = 0; i < batch->count; i++)
		batch->key[i].sets = __builtin_bswap32(address_ranges_sets(a->ranges, class[i]));
}

/* Leaves a match for the control thread to log. */
static void admit_report(struct sy_worker *w, struct access_worker *aw, const struct access_list *l,
                         uint16_t rule, const struct sy_tuple *client)
{
	uint32_t read = __atomic_load_n(&aw->read, __ATOMIC_ACQUIRE);
	if (aw->hits[l->rule[rule].counter] % l->rule[rule].log_every != 0 ||
	    aw->written - read == ACCESS_RECORDS ||
	    !rate_take(&aw->log_rate, w->now_ns, LOG_COST_NS, LOG_BURST))
		return;
	aw->record[aw->written % ACCESS_RECORDS] =
	        (struct access_record){*client, l->id, rule, l->rule[rule].action};
	__atomic_store_n(&aw->written, aw->written + 1, __ATOMIC_RELEASE);
}

/* Tells the sender of packet i that it is refused, if the list says so. */
static enum sy_drop admit_refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                 enum access_action action)
{
	if (action != ACCESS_RESET)
		return SY_DROP_ACL_DROP;
	if (burst->view[i].proto == SY_PROTO_TCP)
		reset_unknown(w, burst, i);
	else
		icmp_send_error(w, burst, i, SY_ICMP_PROHIBITED, 0);
	return SY_DROP_ACL_RESET;
}

/* Asks one list; returns the refused sessions, a bit each by their place in the batch. count:
 * counts and reports what matched. */
static uint64_t batch_ask(struct sy_worker *w, struct sy_burst *burst, const struct access_list *l,
                          const struct batch *batch, enum access_action *action, bool count)
{
	struct access_worker *aw = balance_worker_of(w)->access;
	uint16_t rule[SY_BURST];
	uint64_t refused = 0;
	access_list_ask(l, batch->key, batch->v4, batch->count, count ? aw->hits : NULL, rule);
	for (unsigned i = 0; i < batch->count; i++) {
		if (count && rule[i] < l->rules && SY_UNLIKELY(l->rule[rule[i]].log_every))
			admit_report(w, aw, l, rule[i], &burst->view[batch->at[i]].tuple);
		action[i] = access_list_action(l, rule[i]);
		refused |= (uint64_t)(action[i] != ACCESS_ALLOW) << i;
	}
	return refused;
}

/* Drops the refused sessions' packets, and takes them out of the batch. */
static void batch_refuse(struct sy_worker *w, struct sy_burst *burst, struct batch *batch,
                         uint64_t refused, const enum access_action *action)
{
	struct balance_worker *bw = balance_worker_of(w);
	unsigned kept = 0;
	if (SY_LIKELY(!refused))
		return;
	for (unsigned k = 0; k < batch->count; k++) {
		unsigned i = batch->at[k];
		if (refused >> k & 1) {
			enum sy_drop reason = admit_refuse(w, burst, i, action[k]);
			SY_COUNT(
			        bw->counts[bw->creation[i].service->id].refused[refusal_of(reason)],
			        1);
			sy_burst_drop(w, burst, i, reason);
			continue;
		}
		batch->at[kept] = batch->at[k];
		batch->v4[kept] = batch->v4[k];
		batch->client[kept] = batch->client[k];
		batch->key[kept++] = batch->key[k];
	}
	batch->count = kept;
}

/* Asks the services' own lists, those of one list together. */
static void batch_ask_services(struct sy_worker *w, struct sy_burst *burst, const struct access *a,
                               struct batch *batch)
{
	const struct balance_worker *bw = balance_worker_of(w);
	enum access_action action[SY_BURST];
	uint64_t waiting = 0; /* those whose service has a list */
	/* GCC with sanitizers does not see that a batch is a burst at most. */
	for (unsigned k = 0; k < batch->count && k < SY_BURST; k++)
		waiting |= (uint64_t)(bw->creation[batch->at[k]].service->policy.access != 0) << k;
	while (waiting) {
		const unsigned first = (unsigned)__builtin_ctzll(waiting);
		const uint16_t id = bw->creation[batch->at[first]].service->policy.access;
		struct batch part;
		part.count = 0;
		for (uint64_t left = waiting; left; left &= left - 1) {
			unsigned k = (unsigned)__builtin_ctzll(left);
			if (bw->creation[batch->at[k]].service->policy.access != id)
				continue;
			waiting &= ~(UINT64_C(1) << k);
			part.at[part.count] = batch->at[k];
			part.v4[part.count] = batch->v4[k];
			part.key[part.count++] = batch->key[k];
		}
		const struct access_list *l = a->list[id - 1];
		if (l)
			batch_refuse(w, burst, &part, batch_ask(w, burst, l, &part, action, true),
			             action);
	}
}

/* Might packet i begin a session of a service? Notes the service. */
static bool admit_concerns(struct sy_worker *w, const struct sy_burst *burst, unsigned i)
{
	struct balance_worker *bw = balance_worker_of(w);
	const struct sy_view *v = &burst->view[i];
	if (!packet_may_create(v) || !sy_view_has_l4(v) || burst->direction[i] != SESSION_CLIENT)
		return false;
	bw->creation[i].service = directory_find(w->app, &v->tuple);
	return bw->creation[i].service;
}

unsigned admit_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at, unsigned count)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	const struct access *a = SY_RCU_READ(b->access);
	enum access_action action[SY_BURST];
	struct batch batch;
	unsigned left = 0;
	if (!a)
		return count;
	batch.count = 0;
	for (unsigned k = 0; k < count; k++)
		if (admit_concerns(w, burst, at[k]))
			batch_add(&batch, burst, at[k]);
	if (batch.count == 0)
		return count;
	batch_find_sets(a, &batch);
	for (unsigned k = 0; k < batch.count; k++)
		bw->admitted |= UINT64_C(1) << batch.at[k];
	if (a->global)
		batch_refuse(w, burst, &batch, batch_ask(w, burst, a->global, &batch, action, true),
		             action);
	batch_ask_services(w, burst, a, &batch);
	for (unsigned k = 0; k < count; k++)
		if (burst->next[at[k]] == SY_NEXT_SLOW)
			at[left++] = at[k];
	return left;
}

/* again: its SYN was counted, and only a refusal counts now. */
static enum sy_drop admit_one(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                              const struct access *a, const struct service *service, bool again)
{
	const struct access_list *list[2] = {
	        a->global, service->policy.access ? a->list[service->policy.access - 1] : NULL};
	enum access_action action[1];
	struct batch batch;
	batch.count = 0;
	batch_add(&batch, burst, i);
	batch_find_sets(a, &batch);
	for (unsigned k = 0; k < 2; k++)
		if (list[k] && batch_ask(w, burst, list[k], &batch, action, !again)) {
			if (again)
				batch_ask(w, burst, list[k], &batch, action, true);
			return admit_refuse(w, burst, i, action[0]);
		}
	return SY_DROP_NONE;
}

enum sy_drop admit_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          const struct service *service)
{
	const struct sy_balance *b = w->app;
	const struct access *a = SY_RCU_READ(b->access);
	if (SY_LIKELY(!a) || balance_worker_of(w)->admitted >> i & 1)
		return SY_DROP_NONE;
	return admit_one(w, burst, i, a, service, false);
}

enum sy_drop admit_again(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                         const struct service *service)
{
	const struct sy_balance *b = w->app;
	const struct access *a = SY_RCU_READ(b->access);
	return SY_LIKELY(!a) ? SY_DROP_NONE : admit_one(w, burst, i, a, service, true);
}
