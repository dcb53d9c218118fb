// SPDX-License-Identifier: Apache-2.0
/* Evaluates access lists for the new sessions of a burst: first the list for all services, then the
 * services' own lists, each list once for all its packets. In the common case no client is in a
 * set: one result of the list for all services applies to all. */
#include "access_check.h"

#include <sy_plain.h>

#include "access.h"
#include "address_ranges.h"
#include "icmp_packet.h"
#include "reset.h"
#include "service_drop.h"

/* Reports of matches: 100 per second and worker. */
#define LOG_COST_NS 10000000u
#define LOG_BURST   100u

/* Packet i may not be parsed yet. */
static inline struct address_lookup packet_lookup(const struct address_ranges *r,
                                                  const struct sy_burst *burst, unsigned i)
{
	const unsigned plain = burst->plain[i];
	const uint8_t *frame = sy_frame(burst->mbuf[i]);
	if (SY_UNLIKELY(!plain)) {
		const struct sy_addr *client = &burst->view[i].tuple.src;
		return address_lookup_of(r, sy_addr_is_v4(client), client);
	}
	if (SY_LIKELY(plain & SY_PLAIN_V4)) {
		const struct sy_addr client = sy_plain_source(frame, true);
		return address_lookup_of(r, true, &client);
	}
	const struct sy_addr client = sy_plain_source(frame, false);
	return address_lookup_of(r, false, &client);
}

/* Prefetches wait for address translation: issue them back to back. */
void access_lookup_begin(struct sy_worker *w, const struct sy_burst *burst, const uint8_t *at,
                         unsigned count)
{
	const struct sy_balance *b = w->app;
	const struct access *a = SY_RCU_READ(b->access);
	struct balance_worker *bw = balance_worker_of(w);
	struct address_lookup *lookup = bw->burst.lookup;
	uint64_t lookup_begun = 0;
	if (!a || !a->ranges || !a->ranges->large)
		return;
	for (unsigned k = 0; k < count; k++) {
		const unsigned i = at[k];
		if (SY_UNLIKELY(burst->session[i] != SESSION_NONE))
			continue;
		*lookup++ = packet_lookup(a->ranges, burst, i);
		lookup_begun |= UINT64_C(1) << i;
	}
	bw->burst.lookup_ranges = a->ranges;
	bw->burst.lookup_begun = lookup_begun;
	for (const struct address_lookup *one = bw->burst.lookup; one < lookup; one++)
		address_lookup_prefetch(one);
}

void access_lookup_continue(struct sy_worker *w, const struct sy_burst *burst)
{
	struct balance_worker *bw = balance_worker_of(w);
	const unsigned n = (unsigned)__builtin_popcountll(bw->burst.lookup_begun);
	uint64_t pass = address_lookups_pass(bw->burst.lookup, n);
	for (uint64_t left = bw->burst.lookup_begun; SY_UNLIKELY(pass);
	     left &= left - 1, pass >>= 1) {
		if (!(pass & 1))
			continue;
		address_lookup_continue(bw->burst.lookup_ranges,
		                        &burst->view[__builtin_ctzll(left)].tuple.src);
		bw->burst.passed |= left & -left;
	}
}

/* Packets that would begin sessions, and the query for the lists. */
struct batch {
	uint8_t at[SY_BURST];
	uint64_t may; /* bitmap: clients that may be in a set */
	struct access_query query;
};

static inline void batch_add(struct batch *batch, const struct sy_burst *burst, unsigned i)
{
	struct access_query *query = &batch->query;
	const struct sy_view *v = &burst->view[i];
	batch->at[query->count] = (uint8_t)i;
	query->client[query->count] = &v->tuple.src;
	query->proto[query->count++] = v->proto;
}

static inline void batch_copy(struct batch *to, const struct batch *from, unsigned k)
{
	const unsigned n = to->query.count++;
	to->at[n] = from->at[k];
	to->query.client[n] = from->query.client[k];
	to->query.proto[n] = from->query.proto[k];
	to->query.sets[n] = from->query.sets[k];
	to->query.members |= (uint64_t)(from->query.sets[k] != 0) << n;
}

/* Finds the sets of which the clients are members. */
static void batch_find_sets(const struct access *a, struct batch *batch)
{
	struct access_query *query = &batch->query;
	const struct sy_addr *client[SY_BURST];
	uint32_t sets[SY_BURST];
	unsigned n = 0;
	query->members = 0;
	memset(query->sets, 0, query->count * sizeof(query->sets[0]));
	if (!a->ranges || !batch->may)
		return;
	for (uint64_t left = batch->may; left; left &= left - 1)
		client[n++] = query->client[__builtin_ctzll(left)];
	address_ranges_find(a->ranges, client, sets, n);
	n = 0;
	for (uint64_t left = batch->may; left; left &= left - 1, n++) {
		query->sets[__builtin_ctzll(left)] = sets[n];
		query->members |= sets[n] ? left & -left : 0;
	}
}

/* Queues a match for the control thread to log. */
static void access_report(struct sy_worker *w, const struct access_list *l, uint16_t rule,
                          const struct sy_addr *client)
{
	struct access_worker *aw = balance_worker_of(w)->access;
	uint32_t read = __atomic_load_n(&aw->read, __ATOMIC_ACQUIRE);
	if (aw->written - read == ACCESS_RECORDS ||
	    !rate_charge(&aw->log_rate, w->now_ns, LOG_COST_NS, LOG_BURST))
		return;
	aw->record[aw->written % ACCESS_RECORDS] = (struct access_record){
	        *SY_CONTAINER_OF(client, struct sy_tuple, src), l->id, rule, l->rule[rule].action};
	__atomic_store_n(&aw->written, aw->written + 1, __ATOMIC_RELEASE);
}

/* Reports one of log_every matches of a rule. matched: bitmap by index in the batch; all were
 * counted. */
static void rule_report(struct sy_worker *w, const struct access_list *l, const struct batch *batch,
                        uint16_t rule, uint64_t matched)
{
	const struct access_rule *r = &l->rule[rule];
	uint64_t hits = balance_worker_of(w)->access->hits[r->counter] -
	                (unsigned)__builtin_popcountll(matched);
	for (; matched; matched &= matched - 1)
		if (++hits % r->log_every == 0)
			access_report(w, l, rule, batch->query.client[__builtin_ctzll(matched)]);
}

/* Reports the matches of all rules that log: rules that only count, and rules that decide. */
static __attribute__((noinline)) void batch_report(struct sy_worker *w, const struct access_list *l,
                                                   const struct batch *batch,
                                                   const struct access_answer *answer)
{
	const unsigned count = RTE_MIN(batch->query.count, (unsigned)SY_BURST);
	uint64_t left = 0; /* unreported sessions of rules that log */
	for (unsigned c = 1; l->counting_logs >> c; c++) {
		uint64_t matched = 0;
		for (unsigned k = 0; l->counting_logs >> c & 1 && k < count; k++)
			matched |= (uint64_t)(answer->counted[k] >> c & 1) << k;
		if (matched)
			rule_report(w, l, batch, l->counting[c], matched);
	}
	for (unsigned k = 0; k < count; k++)
		left |= (uint64_t)(answer->rule[k] < l->rules &&
		                   l->rule[answer->rule[k]].log_every != 0)
		        << k;
	while (left) {
		const uint16_t rule = answer->rule[__builtin_ctzll(left)];
		uint64_t matched = 0;
		for (uint64_t rest = left; rest; rest &= rest - 1)
			if (answer->rule[__builtin_ctzll(rest)] == rule)
				matched |= rest & -rest;
		left &= ~matched;
		rule_report(w, l, batch, rule, matched);
	}
}

/* Notifies the sender of packet i that it was refused, if the list says so. */
static enum sy_drop access_refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i,
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

/* Evaluates one list. Returns a bitmap of refused sessions by index in the batch. count: count and
 * report matches. */
static uint64_t batch_evaluate(struct sy_worker *w, const struct access_list *l,
                               const struct batch *batch, struct access_answer *answer, bool count)
{
	struct access_worker *aw = balance_worker_of(w)->access;
	uint64_t refused = access_list_evaluate(l, &batch->query, count ? aw->hits : NULL, answer);
	if (SY_UNLIKELY(l->logs) && count)
		batch_report(w, l, batch, answer);
	return refused;
}

/* Drops the packets of refused sessions and removes them from the batch. */
static __attribute__((noinline)) void batch_refuse(struct sy_worker *w, struct sy_burst *burst,
                                                   const struct access_list *l, struct batch *batch,
                                                   uint64_t refused,
                                                   const struct access_answer *answer)
{
	struct balance_worker *bw = balance_worker_of(w);
	const unsigned count = batch->query.count;
	batch->query.count = 0;
	batch->query.members = 0;
	for (unsigned k = 0; k < count; k++) {
		const unsigned i = batch->at[k];
		if (!(refused >> k & 1)) {
			batch_copy(batch, batch, k);
			continue;
		}
		enum sy_drop reason =
		        access_refuse(w, burst, i, access_list_action(l, answer->rule[k]));
		SY_COUNT(bw->counts[bw->burst.service[i]->id].refused[refusal_of(reason)], 1);
		service_packet_drop(w, burst, i, bw->burst.service[i], reason);
	}
}

/* Evaluates the services' own lists, once for all packets of a list. waiting: bitmap of packets
 * whose service has a list. Returns whether a list refused any. */
static __attribute__((noinline)) bool
batch_evaluate_services(struct sy_worker *w, struct sy_burst *burst, const struct access *a,
                        const struct batch *batch, uint64_t waiting)
{
	const struct balance_worker *bw = balance_worker_of(w);
	struct access_answer answer;
	bool any = false;
	while (waiting) {
		const unsigned first = (unsigned)__builtin_ctzll(waiting);
		const uint16_t id = bw->burst.service[batch->at[first]]->policy.access;
		const struct access_list *l = a->list[id - 1];
		struct batch part;
		part.query.count = 0;
		part.query.members = 0;
		for (uint64_t left = waiting; left; left &= left - 1) {
			unsigned k = (unsigned)__builtin_ctzll(left);
			if (bw->burst.service[batch->at[k]]->policy.access != id)
				continue;
			waiting &= ~(UINT64_C(1) << k);
			batch_copy(&part, batch, k);
		}
		uint64_t refused = l ? batch_evaluate(w, l, &part, &answer, true) : 0;
		if (refused)
			batch_refuse(w, burst, l, &part, refused, &answer);
		any |= refused != 0;
	}
	return any;
}

/* Bitmap by index in at[]: sessions whose clients may be in a set. access_lookup_continue() has
 * found most of them if the table is large. */
static inline uint64_t burst_lookup(struct sy_worker *w, const struct access *a,
                                    const struct sy_burst *burst, const uint8_t *at, unsigned count)
{
	struct balance_worker *bw = balance_worker_of(w);
	if (SY_UNLIKELY(bw->burst.lookup_ranges != a->ranges)) { /* changed since look up */
		bw->burst.lookup_ranges = a->ranges;
		bw->burst.lookup_begun = bw->burst.passed = 0;
	}
	if (!a->ranges ||
	    SY_LIKELY(!((bw->burst.located & ~bw->burst.lookup_begun) | bw->burst.passed)))
		return 0;
	if (bw->burst.located &
	    ~bw->burst.lookup_begun) { /* a small table, or lists that have just changed */
		for (unsigned k = 0; k < count; k++)
			bw->burst.lookup[k] =
			        address_lookup_begin(a->ranges, &burst->view[at[k]].tuple.src);
		return address_lookups_pass(bw->burst.lookup, count);
	}
	uint64_t may = 0;
	for (unsigned k = 0; k < count; k++)
		may |= (bw->burst.passed >> at[k] & 1) << k;
	return may;
}

/* Bitmap by index in at[]: packets to check one by one. All others are in no set, and their
 * services have no list: the list for all services has one result for them, accepts them, and
 * counts them. may: packets whose clients may be in a set. */
static inline uint64_t burst_single_out(struct sy_worker *w, const struct access *a, uint64_t may,
                                        const uint8_t *at, unsigned count)
{
	const struct balance_worker *bw = balance_worker_of(w);
	uint64_t singled = may;
	if (a->global && a->global->outsiders == ACCESS_NO_COUNTER)
		return UINT64_MAX >> (64 - count);
	for (unsigned k = 0; SY_UNLIKELY(bw->burst.listed) && k < count; k++)
		singled |= (bw->burst.listed >> at[k] & 1) << k;
	if (a->global)
		SY_COUNT(bw->access->hits[a->global->outsiders],
		         count - (unsigned)__builtin_popcountll(singled));
	return singled;
}

/* Evaluates the lists for the singled-out packets. */
static __attribute__((noinline)) unsigned
access_check_singly(struct sy_worker *w, struct sy_burst *burst, const struct access *a,
                    uint8_t *at, unsigned count, uint64_t singled, uint64_t may)
{
	const struct balance_worker *bw = balance_worker_of(w);
	struct access_answer answer;
	uint64_t refused = 0, waiting = 0;
	bool any = false;
	struct batch batch;
	unsigned left = 0;
	batch.query.count = 0;
	batch.may = 0;
	for (; singled; singled &= singled - 1) {
		const unsigned k = (unsigned)__builtin_ctzll(singled);
		batch.may |= (may >> k & 1) << batch.query.count;
		batch_add(&batch, burst, at[k]);
	}
	batch_find_sets(a, &batch);
	if (a->global)
		refused = batch_evaluate(w, a->global, &batch, &answer, true);
	if (SY_UNLIKELY(refused)) {
		batch_refuse(w, burst, a->global, &batch, refused, &answer);
		any = true;
	}
	/* GCC with sanitizers does not see that a batch has at most SY_BURST packets. */
	for (unsigned k = 0; bw->burst.listed && k < batch.query.count && k < SY_BURST; k++)
		waiting |= (bw->burst.listed >> batch.at[k] & 1) << k;
	if (waiting)
		any |= batch_evaluate_services(w, burst, a, &batch, waiting);
	if (SY_LIKELY(!any))
		return count;
	for (unsigned k = 0; k < count; k++)
		if (burst->next[at[k]] == SY_NEXT_SLOW)
			at[left++] = at[k];
	return left;
}

unsigned access_check_burst(struct sy_worker *w, struct sy_burst *burst, uint8_t *at,
                            unsigned count)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	const struct access *a = SY_RCU_READ(b->access);
	if (!a || count == 0)
		return count;
	bw->burst.accepted =
	        bw->burst.located; /* the lists are not evaluated for packets without a service */
	const uint64_t may = burst_lookup(w, a, burst, at, count);
	const uint64_t singled = burst_single_out(w, a, may, at, count);
	return singled ? access_check_singly(w, burst, a, at, count, singled, may) : count;
}

/* again: the packet's SYN was checked and counted before, so count only a refusal. */
static enum sy_drop access_check_one(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                     const struct access *a, const struct service *service,
                                     bool again)
{
	const struct access_list *list[2] = {
	        a->global, service->policy.access ? a->list[service->policy.access - 1] : NULL};
	struct access_answer answer;
	struct batch batch;
	batch.query.count = 0;
	batch_add(&batch, burst, i);
	batch.may = 1;
	batch_find_sets(a, &batch);
	for (unsigned k = 0; k < 2; k++)
		if (list[k] && batch_evaluate(w, list[k], &batch, &answer, !again)) {
			if (again)
				batch_evaluate(w, list[k], &batch, &answer, true);
			return access_refuse(w, burst, i,
			                     access_list_action(list[k], answer.rule[0]));
		}
	return SY_DROP_NONE;
}

enum sy_drop access_check_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                 const struct service *service)
{
	const struct sy_balance *b = w->app;
	const struct access *a = SY_RCU_READ(b->access);
	if (SY_LIKELY(!a) || balance_worker_of(w)->burst.accepted >> i & 1)
		return SY_DROP_NONE;
	return access_check_one(w, burst, i, a, service, false);
}

enum sy_drop access_recheck_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                   const struct service *service)
{
	const struct sy_balance *b = w->app;
	const struct access *a = SY_RCU_READ(b->access);
	return SY_LIKELY(!a) ? SY_DROP_NONE : access_check_one(w, burst, i, a, service, true);
}
