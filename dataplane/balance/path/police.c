// SPDX-License-Identifier: Apache-2.0
#include "police.h"

#include <sy_plain.h>

#include "own_packet.h"

/* What a packet took from a limit by clients. */
struct taken {
	struct sy_limit_place place[LIMIT_CHAIN];
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

/* The worker's first packet under a rate. */
static __attribute__((noinline)) void share_renew(struct sy_worker *w, const struct limit *l,
                                                  struct limit_share *share, uint64_t volume)
{
	if (share->first_line != l->first_line) /* another limit had this id */
		share->local = 0;
	share->first_line = l->first_line;
	share->line = l->line;
	if (l->engine == SY_LIMIT_OWN && !l->clients)
		sy_limit_settle(bucket_of(w, l), SY_LIMIT_OWN, volume);
}

static inline void count(struct sy_limit_counts *c, uint64_t packets, uint64_t bytes)
{
	SY_COUNT(c->packets, packets);
	SY_COUNT(c->bytes, bytes);
}

/* Bytes of a packet as they are counted. */
static inline uint64_t counted_bytes(const struct limit *l, uint16_t len)
{
	return l->unit == LIMIT_SESSIONS ? 0 : len;
}

static inline enum sy_limit_answer limit_take(struct sy_worker *w, const struct limit *l,
                                              const struct sy_limit_key *key, uint64_t cost,
                                              struct sy_limit_place *place)
{
	struct limit_share *share = share_of(w, l);
	uint64_t volume = sy_limit_volume(&l->rate, w->now_ns);
	if (SY_UNLIKELY(share->line != l->line))
		share_renew(w, l, share, volume);
	if (l->clients)
		return sy_limit_table_take(l->clients->table, &l->rate, key, volume, cost, place);
	return sy_limit_take(bucket_of(w, l), (enum sy_limit_engine)l->engine, &l->rate,
	                     &share->local, volume, cost)
	               ? SY_LIMIT_TAKEN
	               : SY_LIMIT_ABOVE;
}

static void limit_give_back(struct sy_worker *w, const struct limit *l, uint64_t cost,
                            const struct sy_limit_place *place)
{
	if (l->clients)
		sy_limit_table_give_back(l->clients->table, place, cost);
	else
		sy_limit_give_back(bucket_of(w, l), (enum sy_limit_engine)l->engine,
		                   &share_of(w, l)->local, cost);
}

static void limit_count(struct sy_worker *w, const struct limit *l, bool above, uint16_t len,
                        const struct sy_limit_place *place)
{
	struct limit_share *share = share_of(w, l);
	uint64_t bytes = counted_bytes(l, len);
	count(above ? &share->above : &share->passed, 1, bytes);
	if (l->clients)
		sy_limit_table_count(l->clients->table, place, above, 1, bytes);
}

/* The limits that packet i took from, one after the other; NULL: there is no further one. */
static const struct limit *took_next(const struct sy_balance *b, const struct limit_chain *chain,
                                     uint32_t *left, unsigned *at)
{
	while (*left) {
		*at = (unsigned)__builtin_ctz(*left);
		*left &= *left - 1;
		const struct limit *l = SY_RCU_READ(b->limits.limit[chain->id[*at]]);
		if (SY_LIKELY(l != NULL)) /* else it was deleted meanwhile */
			return l;
	}
	return NULL;
}

static void police_give_back(struct sy_worker *w, const struct policed *p,
                             const struct taken *taken)
{
	const struct limit *l;
	uint32_t left = p->took;
	unsigned at;
	while ((l = took_next(w->app, p->chain, &left, &at)))
		limit_give_back(w, l, limit_cost(l, p->len), &taken->place[at]);
}

static void police_count(struct sy_worker *w, const struct policed *p, const struct taken *taken)
{
	const struct limit *l;
	uint32_t left = p->took;
	unsigned at;
	while ((l = took_next(w->app, p->chain, &left, &at)))
		limit_count(w, l, false, p->len, &taken->place[at]);
}

/* Does a limit at this place of the chain concern the packet? *key: of its client. */
static inline bool police_concerns(const struct limit *l, const struct police_packet *p,
                                   struct sy_limit_key *key)
{
	return l && (l->unit == LIMIT_SESSIONS || l->sides >> p->from & 1) &&
	       (!l->clients || limit_client_key(l->clients, p->client, key));
}

/* police_ask_all() for a chain of one limit that drops packets and has one bucket, as most are. */
static inline enum sy_drop police_ask_one(struct sy_worker *w, const struct limit *l,
                                          const struct police_packet *packet, struct policed *p)
{
	if (SY_UNLIKELY(!(l->sides >> packet->from & 1)))
		return SY_DROP_NONE;
	const bool taken =
	        limit_take(w, l, NULL, limit_cost(l, packet->len), NULL) == SY_LIMIT_TAKEN;
	struct limit_share *share = share_of(w, l);
	count(taken ? &share->passed : &share->above, 1, packet->len);
	p->took = taken;
	return SY_LIKELY(taken) ? SY_DROP_NONE : SY_DROP_LIMIT_EXCEEDED;
}

static enum sy_drop police_ask_all(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                   const struct police_packet *packet, struct policed *p)
{
	const struct sy_balance *b = w->app;
	const struct limit_chain *chain = p->chain;
	struct taken taken;
	const unsigned n = limit_chain_count(chain), marks = n - chain->marks;
	for (unsigned k = 0; k < n; k++) {
		if (k == chain->drops && !packet->begins)
			k = marks;
		if (k == n)
			break;
		const struct limit *l = SY_RCU_READ(b->limits.limit[chain->id[k]]);
		struct sy_limit_key key;
		if (!police_concerns(l, packet, &key))
			continue;
		switch (limit_take(w, l, &key, limit_cost(l, p->len), &taken.place[k])) {
		case SY_LIMIT_TAKEN:
			p->took |= UINT32_C(1) << k;
			break;
		case SY_LIMIT_UNLIMITED:
			count(&share_of(w, l)->unlimited, 1, counted_bytes(l, p->len));
			break;
		case SY_LIMIT_ABOVE:
			limit_count(w, l, true, p->len, &taken.place[k]);
			if (l->marks) {
				sy_packet_set_dscp(sy_frame(burst->mbuf[i]), l->dscp);
				break;
			}
			police_give_back(w, p, &taken);
			p->took = 0;
			return l->unit == LIMIT_SESSIONS ? SY_DROP_SESSION_RATE
			                                 : SY_DROP_LIMIT_EXCEEDED;
		}
	}
	police_count(w, p, &taken);
	return SY_DROP_NONE;
}

enum sy_drop police_ask(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        const struct police_packet *packet)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	struct policed *p = &bw->police[i];
	const struct limit_chain *chain = SY_RCU_READ(b->limits.chain[packet->server]);

	if (!chain || own_packet_is_marked(b, burst->mbuf[i]))
		return SY_DROP_NONE;
	*p = (struct policed){chain, *packet->client, 0, packet->len};
	bw->policed |= UINT64_C(1) << i;
	const struct limit *one = chain->drops == 1 && chain->sessions + chain->marks == 0
	                                  ? SY_RCU_READ(b->limits.limit[chain->id[0]])
	                                  : NULL;
	if (SY_LIKELY(one && !one->clients))
		return police_ask_one(w, one, packet, p);
	return police_ask_all(w, burst, i, packet, p);
}

bool police_session(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                    const struct session *s, enum session_direction from)
{
	const struct sy_view *v = &burst->view[i];
	const unsigned plain = burst->plain[i];
	const uint16_t len = plain ? sy_plain_len(sy_frame(burst->mbuf[i]), plain & SY_PLAIN_V4)
	                           : (uint16_t)(v->frame_len - v->l3);
	const struct police_packet p = {s->server, &s->client, from, len, false};
	if (police_asked(balance_worker_of(w), i))
		return true;
	enum sy_drop reason = police_ask(w, burst, i, &p);
	if (SY_LIKELY(reason == SY_DROP_NONE))
		return true;
	sy_burst_drop(w, burst, i, reason);
	return false;
}

/* Where a limit by clients has the bucket of a packet's client. */
static struct sy_limit_place place_again(const struct limit *l, const struct sy_addr *client)
{
	struct sy_limit_place place = {0, SY_LIMIT_NO_PLACE};
	struct sy_limit_key key;
	if (l->clients && limit_client_key(l->clients, client, &key))
		place = sy_limit_table_find(l->clients->table, &key);
	return place;
}

void police_undo(struct sy_worker *w, unsigned i)
{
	struct balance_worker *bw = balance_worker_of(w);
	struct policed *p = &bw->police[i];
	const struct limit *l;
	unsigned at;
	if (SY_LIKELY(!police_asked(bw, i)))
		return;
	bw->policed &= ~(UINT64_C(1) << i);
	while ((l = took_next(w->app, p->chain, &p->took, &at))) {
		const struct sy_limit_place place = place_again(l, &p->client);
		const uint64_t less = -counted_bytes(l, p->len);
		limit_give_back(w, l, limit_cost(l, p->len), &place);
		count(&share_of(w, l)->passed, UINT64_MAX, less);
		if (l->clients)
			sy_limit_table_count(l->clients->table, &place, false, UINT64_MAX, less);
	}
}

void police_begun(struct sy_worker *w, unsigned i)
{
	struct balance_worker *bw = balance_worker_of(w);
	struct policed *p = &bw->police[i];
	if (SY_UNLIKELY(police_asked(bw, i))) {
		const uint64_t sessions = (UINT64_C(1) << p->chain->sessions) - 1;
		p->took &= ~(uint32_t)(sessions << p->chain->drops);
	}
}
