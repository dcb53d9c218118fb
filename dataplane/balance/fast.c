// SPDX-License-Identifier: Apache-2.0
/* fast path: plain packets of established sessions. Rewrite, note the time, count. Nothing else. */
#include <sy_plain.h>

#include "balance.h"

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

/* The ports that an endpoint names, and a session's cold half otherwise. */
static inline uint16_t session_vport_of(const struct endpoint *e, const struct session_table *t,
                                        const struct session *s)
{
	return SY_LIKELY(e->vport) ? e->vport : session_cold_beside(t, s)->vport;
}

static inline uint16_t session_port_of(const struct endpoint *e, const struct session_table *t,
                                       const struct session *s)
{
	return SY_LIKELY(e->port) ? e->port : session_cold_beside(t, s)->vport;
}

/* To what its session says, where the frame stays where it is. */
static inline __attribute__((always_inline)) void
fast_rewrite(struct sy_balance *b, struct sy_burst *burst, unsigned i, const struct session *s,
             const struct endpoint *e, enum session_direction from)
{
	const struct session_table *t = b->table[burst->slot[i]];
	const struct sy_view *v = &burst->view[i];
	uint8_t *frame = sy_frame(burst->mbuf[i]);

	if (SY_UNLIKELY(e->mode == MODE_DR)) {
		/* Only the TTL changes: it ends a loop where a server sends the VIP's packets on
		 * instead of taking them. */
		burst->via[i] = &e->addr;
		sy_plain_rewrite(frame, v, &v->tuple.src, &v->tuple.dst,
		                 v->tuple.sport | (uint32_t)v->tuple.dport << 16, 0);
	} else if (from == SESSION_CLIENT) {
		sy_plain_rewrite(frame, v, session_local(b, s, e), &e->addr,
		                 s->local_port | (uint32_t)session_port_of(e, t, s) << 16,
		                 s->delta);
	} else {
		sy_plain_rewrite(frame, v, &e->vip, &s->client,
		                 session_vport_of(e, t, s) | (uint32_t)s->client_port << 16,
		                 sy_csum_inverse(s->delta));
	}
}

void sy_fast_stage(struct sy_worker *w, struct sy_burst *burst)
{
	struct sy_balance *b = w->app;
	struct traffic *traffic = balance_worker_of(w)->traffic;
	const uint16_t now = (uint16_t)balance_seconds(w);

	for (unsigned i = 0; i < burst->count; i++) {
		if (burst->next[i] != SY_NEXT_FAST)
			continue;
		const struct sy_view *v = &burst->view[i];
		struct session *s = session_at(b->table[burst->slot[i]], burst->session[i]);
		const struct endpoint *e = &b->endpoint[s->server];
		enum session_direction from = burst->direction[i];
		uint16_t path = fast_path_of(s, e, from), len = v->frame_len - SY_ETH_LEN;
		/* What has to look for its path, what a router must answer with ICMP, or cannot
		 * route, is for the slow path. */
		if (SY_UNLIKELY(len + e->growth[from] > SY_RCU_READ(w->path_room[path]) ||
		                sy_packet_ttl(sy_frame(burst->mbuf[i]), v) <= 1)) {
			burst->next[i] = SY_NEXT_SLOW;
			continue;
		}
		burst->path[i] = path;
		if (SY_UNLIKELY(e->form != FORM_IN_PLACE || s->flags & SESSION_SHIFTED)) {
			forward_packet(w, burst, i, s);
			continue;
		}
		fast_rewrite(b, burst, i, s, e, from);
		traffic_count(&traffic[s->server], from, len);
		s->seen = now;
		burst->flow[i] = (uint32_t)(burst->hash[i] >> 32);
		burst->next[i] = SY_NEXT_TRANSMIT;
	}
}
