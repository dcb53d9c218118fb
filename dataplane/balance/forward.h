// SPDX-License-Identifier: Apache-2.0
/* Forwarding of plain packets in place, inline. */
#ifndef FORWARD_H
#define FORWARD_H

#include <sy_plain.h>

#include "balance.h"

/* Bytes of IP packet that fit through a path, also through one that is stale. */
static inline uint16_t forward_room(struct sy_worker *w, uint16_t path)
{
	const struct sy_balance *b = w->app;
	uint16_t room = SY_RCU_READ(w->path_room[path]);
	return SY_LIKELY(room) ? room : sy_path_mtu(b->rt, path);
}

/* The ports that an endpoint names, and a session's cold half otherwise. */
static inline uint16_t plain_vport(const struct endpoint *e, const struct session_table *t,
                                   const struct session *s)
{
	return SY_LIKELY(e->vport) ? e->vport : session_cold_beside(t, s)->vport;
}

static inline uint16_t plain_port(const struct endpoint *e, const struct session_table *t,
                                  const struct session *s)
{
	return SY_LIKELY(e->port) ? e->port : session_cold_beside(t, s)->vport;
}

/* Nothing about how its packets go wants a closer look. */
static inline bool session_is_common(const struct session *s, const struct endpoint *e)
{
	return !(s->flags & (SESSION_UNTOLD | SESSION_SHIFTED | SESSION_ONE_PACKET)) &&
	       e->form == FORM_IN_PLACE && e->mode != MODE_DR;
}

/* Nothing about its endpoint does: it is neither dead nor lost. */
static inline bool session_is_well(const struct sy_balance *b, const struct session *s,
                                   const struct endpoint *e)
{
	return !(SY_READ(e->dead) | SY_READ(e->down) | SY_READ(b->local_removed[s->local]));
}

/* Rewrites plain packet i to what its session says, where the frame stays where it is. */
static inline __attribute__((always_inline)) void
forward_plain(struct sy_balance *b, struct sy_burst *burst, unsigned i, const struct session *s,
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
		                 s->local_port | (uint32_t)plain_port(e, t, s) << 16, s->delta);
	} else {
		sy_plain_rewrite(frame, v, &e->vip, &s->client,
		                 plain_vport(e, t, s) | (uint32_t)s->client_port << 16,
		                 sy_csum_inverse(s->delta));
	}
}

#endif
