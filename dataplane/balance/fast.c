// SPDX-License-Identifier: Apache-2.0
/* fast path: whose session? Plain packets of established ones: rewrite, note the time, count, and
 * they are ready to be sent. Nothing else. */
#include <sy_plain.h>

#include "balance.h"

#define FAST_GROUP 16

/* The path of a session's packets, which may be stale. */
static inline uint16_t fast_path_of(const struct session *s, const struct endpoint *e,
                                    enum session_direction from)
{
	if (from == SESSION_SERVER)
		return s->path;
	if (SY_UNLIKELY(e->form == FORM_SNAT)) /* its companion has it */
		return s[1].path;
	return SY_READ(e->path);
}

/* By enum session_direction, a bit a state: its packets may take the fast path. */
static const uint32_t fast_states[] = {
        [SESSION_CLIENT] =
                1u << SESSION_ESTABLISHED | 1u << SESSION_UDP_BOTH_WAYS | 1u << SESSION_UDP_ONE_WAY,
        [SESSION_SERVER] = 1u << SESSION_ESTABLISHED | 1u << SESSION_UDP_BOTH_WAYS,
};

/* Only what is plain and changes no state may take the fast path. */
static inline bool fast_may(const struct sy_balance *b, const struct session *s,
                            const struct endpoint *e, enum session_direction from, bool plain,
                            uint8_t tcp_flags)
{
	return plain && fast_states[from] >> s->state & 1 &&
	       !(tcp_flags & (SY_TCP_SYN | SY_TCP_FIN | SY_TCP_RST)) &&
	       !(s->flags & SESSION_UNTOLD) &&
	       /* of dead and lost sessions one of these is not 0 */
	       (SY_LIKELY(!(SY_READ(e->dead) | SY_READ(e->down) |
	                    SY_READ(b->local_removed[s->local]))) ||
	        (!session_is_dead(b, s) && !session_is_lost(b, s, from)));
}

/* Of an endpoint that leaves its ports to its sessions. */
static __attribute__((noinline)) uint16_t fast_cold_vport(const struct sy_balance *b,
                                                          const struct sy_burst *burst, unsigned i)
{
	return session_cold_at(b->table[burst->slot[i]], burst->session[i])->vport;
}

/* To what its session says, where the frame stays where it is. Returns the neighbour to send it to
 * where its path is on link. */
static inline __attribute__((always_inline)) const struct sy_addr *
fast_rewrite(const struct sy_balance *b, const struct sy_burst *burst, unsigned i,
             const struct session *s, const struct endpoint *e, enum session_direction from)
{
	const struct sy_view *v = &burst->view[i];
	uint8_t *frame = sy_frame(burst->mbuf[i]);
	if (from == SESSION_SERVER) {
		uint16_t vport = SY_LIKELY(e->vport) ? e->vport : fast_cold_vport(b, burst, i);
		sy_plain_rewrite(frame, v, &e->vip, &s->client,
		                 vport | (uint32_t)s->client_port << 16, sy_csum_inverse(s->delta));
		return &s->client;
	}
	if (SY_UNLIKELY(e->mode == MODE_DR)) {
		/* Only the TTL changes: it ends a loop where a server sends the VIP's packets on
		 * instead of taking them. */
		sy_plain_rewrite(frame, v, &v->tuple.src, &v->tuple.dst,
		                 v->tuple.sport | (uint32_t)v->tuple.dport << 16, 0);
		return &e->addr;
	}
	uint16_t port = SY_LIKELY(e->port) ? e->port : fast_cold_vport(b, burst, i);
	sy_plain_rewrite(frame, v, session_local(b, s, e), &e->addr,
	                 s->local_port | (uint32_t)port << 16, s->delta);
	return &e->addr;
}

/* The candidate of look up is not it: one of the others, or there is no session. */
static __attribute__((noinline)) struct session *fast_search(const struct sy_balance *b,
                                                             struct sy_burst *burst, unsigned i)
{
	const struct session_table *t = b->table[burst->slot[i]];
	const struct match_context ctx = {b, t, &burst->view[i].tuple};
	enum session_direction from = burst->direction[i];
	burst->session[i] = session_find(t, burst->hash[i], match_session, &ctx, &from);
	burst->direction[i] = from;
	return burst->session[i] != SESSION_NONE ? session_at(t, burst->session[i]) : NULL;
}

struct fast_context {
	struct server_share *share;
	struct sy_way way;
	uint16_t now;
};

/* s: the candidate. */
static inline __attribute__((always_inline)) enum sy_next fast_packet(struct sy_worker *w,
                                                                      struct sy_burst *burst,
                                                                      unsigned i, struct session *s,
                                                                      struct fast_context *c)
{
	struct sy_balance *b = w->app;
	const struct sy_view *v = &burst->view[i];
	const struct endpoint *e = &b->endpoint[s->server];
	enum session_direction from = (enum session_direction)(burst->session[i] & 1);
	if (SY_LIKELY(session_is_of(b, s, e, e->vport, e->port, &v->tuple, from))) {
		burst->session[i] >>= 1;
		burst->direction[i] = from;
	} else {
		s = fast_search(b, burst, i);
		if (!s)
			return SY_NEXT_SLOW;
		from = burst->direction[i];
		e = &b->endpoint[s->server];
	}
	if (SY_UNLIKELY(!fast_may(b, s, e, from, burst->plain[i], v->tcp_flags)))
		return SY_NEXT_SLOW;
	struct rte_mbuf *m = burst->mbuf[i];
	uint16_t path = fast_path_of(s, e, from), len = v->frame_len - SY_ETH_LEN;
	/* What has to look for its path, what a router must answer with ICMP, or cannot route, is
	 * for the slow path. */
	if (SY_UNLIKELY(len + e->growth[from] > SY_RCU_READ(w->path_room[path]) ||
	                sy_packet_ttl(sy_frame(m), v) <= 1))
		return SY_NEXT_SLOW;
	burst->path[i] = path;
	if (SY_UNLIKELY(e->form != FORM_IN_PLACE || s->flags & SESSION_SHIFTED)) {
		forward_packet(w, burst, i, s);
		return (enum sy_next)burst->next[i];
	}
	const struct sy_addr *to = fast_rewrite(b, burst, i, s, e, from);
	struct server_share *share = &c->share[s->server];
	struct sy_way_link client = {0}, *link = from == SESSION_CLIENT ? &share->link : &client;
	traffic_count(&share->traffic, from, len);
	s->seen = c->now;
	if (SY_LIKELY(sy_way_take(w, &c->way, m, path, to, link, e->mode == MODE_DR)))
		return SY_NEXT_READY;
	if (e->mode == MODE_DR)
		burst->via[i] = to;
	burst->flow[i] = (uint32_t)(burst->hash[i] >> 32);
	return SY_NEXT_TRANSMIT;
}

/* From the second cache to the first, where one packet would wait for its record, then for what
 * the record names, while the next ones cannot begin. */
static inline void fast_fetch(const struct sy_balance *b, const struct sy_burst *burst,
                              unsigned first, unsigned end, struct session **s)
{
	for (unsigned i = first; i < end; i++) {
		const struct session_table t = session_table_of(&b->space, burst->slot[i]);
		s[i - first] = NULL;
		if (SY_UNLIKELY(burst->next[i] != SY_NEXT_LOOKUP ||
		                burst->session[i] == SESSION_NONE))
			continue;
		s[i - first] = session_at(&t, burst->session[i] >> 1);
		__builtin_prefetch(&b->endpoint[s[i - first]->server]);
	}
}

void sy_fast_stage(struct sy_worker *w, struct sy_burst *burst)
{
	const struct sy_balance *b = w->app;
	struct session *s[FAST_GROUP];
	struct fast_context c = {.share = balance_worker_of(w)->share,
	                         .way = {.path = SY_PATH_NONE},
	                         .now = (uint16_t)balance_seconds(w)};

	for (unsigned first = 0; first < burst->count; first += FAST_GROUP) {
		unsigned end =
		        first + FAST_GROUP < burst->count ? first + FAST_GROUP : burst->count;
		fast_fetch(b, burst, first, end, s);
		sy_burst_fetch_next(burst, first, end);
		for (unsigned i = first; i < end; i++) {
			if (SY_LIKELY(s[i - first] != NULL))
				burst->next[i] =
				        (uint8_t)fast_packet(w, burst, i, s[i - first], &c);
			else if (burst->next[i] == SY_NEXT_LOOKUP)
				burst->next[i] = SY_NEXT_SLOW;
		}
	}
}
