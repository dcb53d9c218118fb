// SPDX-License-Identifier: Apache-2.0
#include "police.h"

#include <sy_plain.h>

#include "event_stage.h"
#include "originated.h"
#include "service_drop.h"

/* The buckets of per-client limits that a packet was charged to. */
struct charged {
	struct sy_limit_entry place[LIMIT_CHAIN];
};

static struct limit_share *share_of(struct sy_worker *w, const struct limit *l)
{
	return &balance_worker_of(w)->limited[l->id];
}

static struct sy_limit *bucket_of(const struct sy_worker *w, const struct limit *l)
{
	const struct sy_balance *b = w->app;
	return &b->limits.bucket[l->id].limit;
}

/* This worker's first packet under a new rate. */
static __attribute__((noinline)) void share_renew(struct sy_worker *w, const struct limit *l,
                                                  struct limit_share *share, uint64_t volume)
{
	if (share->first_line != l->first_line) /* the id belonged to another limit */
		share->local = 0;
	share->first_line = l->first_line;
	share->line = l->line;
	if ((l->engine == SY_LIMIT_OWN || l->engine == SY_LIMIT_ATOMIC) && !l->clients)
		sy_limit_settle(bucket_of(w, l), (enum sy_limit_engine)l->engine, volume);
}

/* The engine for this worker's access to the bucket now. */
static inline enum sy_limit_engine engine_of(struct sy_worker *w, const struct limit *l)
{
	const struct sy_balance *b = w->app;
	if (SY_LIKELY(l->engine != SY_LIMIT_ATOMIC))
		return (enum sy_limit_engine)l->engine;
	const struct limit_bucket *bucket = &b->limits.bucket[l->id];
	return balance_worker_of(w)->alone &&
	                       !(SY_READ(bucket->by_chains) | SY_READ(bucket->by_workers))
	               ? SY_LIMIT_ATOMIC
	               : SY_LIMIT_CAS;
}

static inline void count(struct sy_limit_counts *c, uint64_t packets, uint64_t bytes)
{
	SY_COUNT(c->packets, packets);
	SY_COUNT(c->bytes, bytes);
}

/* Bytes to count for a packet. */
static inline uint64_t counted_bytes(const struct limit *l, uint16_t len)
{
	return l->unit == LIMIT_SESSIONS ? 0 : len;
}

static inline enum sy_limit_answer limit_charge(struct sy_worker *w, const struct limit *l,
                                                const struct sy_limit_key *key, uint64_t cost,
                                                struct sy_limit_entry *place)
{
	struct limit_share *share = share_of(w, l);
	uint64_t volume = sy_limit_volume(&l->rate, w->now_ns);
	if (SY_UNLIKELY(share->line != l->line))
		share_renew(w, l, share, volume);
	if (l->clients)
		return sy_limit_table_charge(l->clients->table, &l->rate, key, volume, cost, place);
	return sy_limit_charge(bucket_of(w, l), engine_of(w, l), &l->rate, &share->local, volume,
	                       cost)
	               ? SY_LIMIT_CHARGED
	               : SY_LIMIT_ABOVE;
}

static void limit_refund(struct sy_worker *w, const struct limit *l, uint64_t cost,
                         const struct sy_limit_entry *place)
{
	if (l->clients)
		sy_limit_table_refund(l->clients->table, place, cost);
	else
		sy_limit_refund(bucket_of(w, l), engine_of(w, l), &share_of(w, l)->local, cost);
}

static void limit_count(struct sy_worker *w, const struct limit *l, bool above, uint16_t len,
                        const struct sy_limit_entry *place)
{
	struct limit_share *share = share_of(w, l);
	uint64_t bytes = counted_bytes(l, len);
	count(above ? &share->above : &share->passed, 1, bytes);
	if (l->clients)
		sy_limit_table_count(l->clients->table, place, above, 1, bytes);
}

/* Iterates over the limits that packet i was charged to; NULL at the end. */
static const struct limit *charged_next(const struct sy_balance *b, const struct limit_chain *chain,
                                        uint32_t *left, unsigned *at)
{
	while (*left) {
		*at = (unsigned)__builtin_ctz(*left);
		*left &= *left - 1;
		const struct limit *l = SY_RCU_READ(b->limits.limit[chain->id[*at]]);
		if (SY_LIKELY(l != NULL)) /* NULL: deleted meanwhile */
			return l;
	}
	return NULL;
}

static void police_refund(struct sy_worker *w, const struct charge *p,
                          const struct charged *charged)
{
	const struct limit *l;
	uint32_t left = p->limits;
	unsigned at;
	while ((l = charged_next(w->app, p->chain, &left, &at)))
		limit_refund(w, l, limit_cost(l, p->len), &charged->place[at]);
}

static void police_count(struct sy_worker *w, const struct charge *p, const struct charged *charged)
{
	const struct limit *l;
	uint32_t left = p->limits;
	unsigned at;
	while ((l = charged_next(w->app, p->chain, &left, &at)))
		limit_count(w, l, false, p->len, &charged->place[at]);
}

/* Does limit l apply to the packet? Sets *key to its client's. */
static inline bool police_concerns(const struct limit *l, const struct police_packet *p,
                                   struct sy_limit_key *key)
{
	return l && (l->unit == LIMIT_SESSIONS || l->sides >> p->from & 1) &&
	       (!l->clients || limit_client_key(l->clients, p->client, key));
}

/* Charges one limit that drops packets and has one bucket. */
static inline enum sy_drop police_check_one(struct sy_worker *w, const struct limit *l,
                                            const struct police_packet *packet, struct charge *p)
{
	if (SY_UNLIKELY(!(l->sides >> packet->from & 1)))
		return SY_DROP_NONE;
	const bool charged =
	        limit_charge(w, l, NULL, limit_cost(l, packet->len), NULL) == SY_LIMIT_CHARGED;
	struct limit_share *share = share_of(w, l);
	count(charged ? &share->passed : &share->above, 1, packet->len);
	p->limits = charged;
	return SY_LIKELY(charged) ? SY_DROP_NONE : SY_DROP_LIMIT_EXCEEDED;
}

/* Charges the limits first to end − 1 of the chain. */
static enum sy_drop police_check_some(struct sy_worker *w, struct rte_mbuf *m,
                                      const struct police_packet *packet, struct charge *p,
                                      unsigned first, unsigned end)
{
	const struct sy_balance *b = w->app;
	const struct limit_chain *chain = p->chain;
	const unsigned marks = chain->drops + chain->sessions;
	struct charged charged;
	for (unsigned k = first; k < end; k++) {
		if (k == chain->drops && !packet->begins)
			k = marks;
		if (k >= end)
			break;
		const struct limit *l = SY_RCU_READ(b->limits.limit[chain->id[k]]);
		struct sy_limit_key key;
		if (!police_concerns(l, packet, &key))
			continue;
		switch (limit_charge(w, l, &key, limit_cost(l, p->len), &charged.place[k])) {
		case SY_LIMIT_CHARGED:
			p->limits |= UINT32_C(1) << k;
			break;
		case SY_LIMIT_UNLIMITED:
			count(&share_of(w, l)->unlimited, 1, counted_bytes(l, p->len));
			break;
		case SY_LIMIT_ABOVE:
			limit_count(w, l, true, p->len, &charged.place[k]);
			if (l->marks) {
				sy_packet_set_dscp(sy_frame(m), l->dscp);
				break;
			}
			police_refund(w, p, &charged);
			p->limits = 0;
			return l->unit == LIMIT_SESSIONS ? SY_DROP_SESSION_RATE
			                                 : SY_DROP_LIMIT_EXCEEDED;
		}
	}
	police_count(w, p, &charged);
	return SY_DROP_NONE;
}

/* Charges the limits that drop packets. Most chains have one, with one bucket. */
static inline enum sy_drop police_check_drops(struct sy_worker *w, struct rte_mbuf *m,
                                              const struct police_packet *packet, struct charge *p,
                                              unsigned end)
{
	const struct sy_balance *b = w->app;
	const struct limit *one = p->chain->drops == 1 && end == 1
	                                  ? SY_RCU_READ(b->limits.limit[p->chain->id[0]])
	                                  : NULL;
	if (SY_LIKELY(one && !one->clients))
		return police_check_one(w, one, packet, p);
	return police_check_some(w, m, packet, p, 0, end);
}

/* ---- by the event device --------------------------------------------------------------------- */

/* Would the bucket refuse the packet now? Then the packet need not enter the device. Units that
 * workers hold locally (light lock) are not visible here. */
static bool limit_refuses(struct sy_worker *w, const struct limit *l,
                          const struct sy_limit_key *key, uint16_t len)
{
	const uint64_t volume = sy_limit_volume(&l->rate, w->now_ns), cost = limit_cost(l, len);
	struct sy_limit_entry place;
	const bool refuses =
	        l->clients ? !sy_limit_table_peek(l->clients->table, &l->rate, key, volume, cost,
	                                          &place)
	                   : l->engine != SY_LIMIT_LIGHT_LOCK &&
	                             !sy_limit_peek(bucket_of(w, l), &l->rate, volume, cost);
	if (refuses)
		limit_count(w, l, true, len, &place);
	return refuses;
}

/* Defers the limits to the consumer of the event device, except those that are decided at session
 * creation and the DSCP. */
static enum sy_drop police_queue(struct sy_worker *w, struct rte_mbuf *m, unsigned i,
                                 const struct police_packet *packet, struct charge *p)
{
	const struct sy_balance *b = w->app;
	const struct limit_chain *chain = p->chain;
	for (unsigned k = 0; k < chain->drops; k++) {
		const struct limit *l = SY_RCU_READ(b->limits.limit[chain->id[k]]);
		struct sy_limit_key key;
		if (police_concerns(l, packet, &key) && limit_refuses(w, l, &key, p->len))
			return SY_DROP_LIMIT_EXCEEDED;
	}
	enum sy_drop reason =
	        police_check_some(w, m, packet, p, chain->drops, limit_chain_count(chain));
	if (reason != SY_DROP_NONE)
		return reason;
	struct queued *q = queued_of(SY_RCU_READ(b->stage), m);
	q->server = packet->server;
	q->len = packet->len;
	q->from = (uint8_t)packet->from;
	memcpy(q->client, packet->client->b, sizeof(q->client));
	balance_worker_of(w)->burst.queued |= UINT64_C(1) << i;
	return SY_DROP_NONE;
}

enum sy_drop police_queued(struct sy_worker *w, struct rte_mbuf *m, const struct queued *q,
                           uint32_t flow)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	struct sy_addr client;
	struct charge p = {.chain = SY_RCU_READ(b->limits.chain[q->server]), .len = q->len};
	const struct police_packet packet = {q->server, &client, (enum session_direction)q->from,
	                                     q->len, false};
	if (!p.chain) /* all deleted meanwhile */
		return SY_DROP_NONE;
	memcpy(client.b, q->client, sizeof(q->client));
	bw->alone =
	        event_stage_is_alone(b->stage) && (flow == POLICE_NO_FLOW || flow == p.chain->lead);
	enum sy_drop reason = police_check_drops(w, m, &packet, &p, p.chain->drops);
	bw->alone = false;
	return reason;
}

enum sy_drop police_now(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	const uint64_t bit = UINT64_C(1) << i;
	if (SY_LIKELY(!(bw->burst.queued & bit)))
		return SY_DROP_NONE;
	bw->burst.queued &= ~bit;
	struct charge *p = &bw->burst.charge[i], drops = {p->chain, p->client, 0, p->len};
	const struct queued *q = queued_of(b->stage, burst->mbuf[i]);
	const struct police_packet packet = {q->server, &drops.client,
	                                     (enum session_direction)q->from, q->len, false};
	for (unsigned k = 0; k < p->chain->drops; k++) {
		uint8_t *by_workers = &b->limits.bucket[p->chain->id[k]].by_workers;
		__atomic_store_n(by_workers, LIMIT_BESIDE_NOW, __ATOMIC_RELAXED);
	}
	enum sy_drop reason =
	        police_check_some(w, burst->mbuf[i], &packet, &drops, 0, p->chain->drops);
	p->limits |= drops.limits;
	return reason;
}

/* ---- packets of a burst ---------------------------------------------------------------------- */

enum sy_drop police_check(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          const struct police_packet *packet)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	struct charge *p = &bw->burst.charge[i];
	const struct limit_chain *chain = SY_RCU_READ(b->limits.chain[packet->server]);

	if (!chain || originated_is_marked(b, burst->mbuf[i]))
		return SY_DROP_NONE;
	*p = (struct charge){chain, *packet->client, 0, packet->len};
	bw->burst.charged |= UINT64_C(1) << i;
	if (SY_UNLIKELY(chain->sides & LIMITED_QUEUED(packet->from)))
		return police_queue(w, burst->mbuf[i], i, packet, p);
	return police_check_drops(w, burst->mbuf[i], packet, p, limit_chain_count(chain));
}

void police_class(const struct sy_balance *b, struct rte_mbuf *m, const struct endpoint *e)
{
	const struct service *service =
	        SY_READ(e->limited) & LIMITED_DSCP ? endpoint_service(b, e) : NULL;
	if (service && service->policy.mark)
		sy_packet_set_dscp(sy_frame(m), service->policy.mark - 1);
}

bool police_session(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                    const struct session *s, enum session_direction from)
{
	const struct sy_view *v = &burst->view[i];
	const unsigned plain = burst->plain[i];
	const uint16_t len = plain ? sy_plain_len(sy_frame(burst->mbuf[i]), plain & SY_PLAIN_V4)
	                           : (uint16_t)(v->frame_len - v->l3);
	const struct police_packet p = {s->server, &s->client, from, len, false};
	const struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	police_mark(burst->mbuf[i], e);
	if (police_was_checked(balance_worker_of(w), i))
		return true;
	if (from == SESSION_CLIENT)
		police_class(b, burst->mbuf[i], e);
	if (!(SY_READ(e->limited) & 1u << from))
		return true;
	enum sy_drop reason = police_check(w, burst, i, &p);
	if (SY_LIKELY(reason == SY_DROP_NONE))
		return true;
	session_packet_drop(w, burst, i, s, reason);
	return false;
}

/* The bucket of the packet's client in a per-client limit. */
static struct sy_limit_entry bucket_find_again(const struct limit *l, const struct sy_addr *client)
{
	struct sy_limit_entry place = {0, SY_LIMIT_NO_ENTRY};
	struct sy_limit_key key;
	if (l->clients && limit_client_key(l->clients, client, &key))
		place = sy_limit_table_find(l->clients->table, &key);
	return place;
}

void police_undo(struct sy_worker *w, unsigned i)
{
	struct balance_worker *bw = balance_worker_of(w);
	struct charge *p = &bw->burst.charge[i];
	const struct limit *l;
	unsigned at;
	if (SY_LIKELY(!police_was_checked(bw, i)))
		return;
	bw->burst.charged &= ~(UINT64_C(1) << i);
	bw->burst.queued &= ~(UINT64_C(1) << i);
	while ((l = charged_next(w->app, p->chain, &p->limits, &at))) {
		const struct sy_limit_entry place = bucket_find_again(l, &p->client);
		const uint64_t less = -counted_bytes(l, p->len);
		limit_refund(w, l, limit_cost(l, p->len), &place);
		count(&share_of(w, l)->passed, UINT64_MAX, less);
		if (l->clients)
			sy_limit_table_count(l->clients->table, &place, false, UINT64_MAX, less);
	}
}

/* Was any packet not forwarded? May also be true for stale entries of a longer earlier burst. */
static inline bool any_not_forwarded(const struct sy_burst *burst)
{
	uint8_t max = 0;
	for (unsigned i = 0; i < SY_BURST;
	     i++) /* branch-free, so that the compiler vectorizes it */
		max = burst->next[i] > max ? burst->next[i] : max;
	return sy_next_is_not_forwarded(max);
}

static __attribute__((noinline)) void settle(struct sy_worker *w, const struct sy_burst *burst,
                                             uint64_t left)
{
	for (; left; left &= left - 1) {
		const unsigned i = (unsigned)__builtin_ctzll(left);
		if (SY_UNLIKELY(sy_next_is_not_forwarded(burst->next[i])))
			police_undo(w, i);
	}
}

void police_settle(struct sy_worker *w, const struct sy_burst *burst, unsigned end)
{
	const struct burst_state *s = &balance_worker_of(w)->burst;
	const uint64_t charged = s->charged & burst_bits_before(end);

	if (SY_UNLIKELY(charged) && any_not_forwarded(burst))
		settle(w, burst, charged);
}

void police_begun(struct sy_worker *w, unsigned i)
{
	struct balance_worker *bw = balance_worker_of(w);
	struct charge *p = &bw->burst.charge[i];
	if (SY_UNLIKELY(police_was_checked(bw, i))) {
		const uint64_t sessions = (UINT64_C(1) << p->chain->sessions) - 1;
		p->limits &= ~(uint32_t)(sessions << p->chain->drops);
	}
}

void sy_balance_refused(struct sy_worker *w, uint32_t service, enum sy_drop reason)
{
	service_count_drop(w, service - 1, reason); /* police_mark() stores the id + 1 */
}
