// SPDX-License-Identifier: Apache-2.0
/*
 * The slow path's short way: plain TCP segments of a session that goes on, which move its state and
 * are forwarded like any of an established one. Whatever is unusual is left to slow.c.
 */
#include <arpa/inet.h>

#include "forward.h"

#define FLAGS (SY_TCP_SYN | SY_TCP_RST | SY_TCP_ACK)

/* By enum session_direction, a bit a state: its segments with an ACK, without SYN or RST, are
 * nothing but a step in the life of their session. */
static const uint32_t segment_states[] = {
        [SESSION_CLIENT] = 1u << SESSION_SYN_SENT | 1u << SESSION_SYN_RECEIVED |
                           1u << SESSION_ESTABLISHED | 1u << SESSION_FIN_WAIT |
                           1u << SESSION_CLOSING | 1u << SESSION_TIME_WAIT,
        [SESSION_SERVER] = 1u << SESSION_SYN_RECEIVED | 1u << SESSION_ESTABLISHED |
                           1u << SESSION_FIN_WAIT | 1u << SESSION_CLOSING | 1u << SESSION_TIME_WAIT,
};

/* A server's first answer to a SYN. */
static inline bool segment_is_answer(const struct session *s, enum session_direction from,
                                     uint8_t flags)
{
	return from == SESSION_SERVER && s->state == SESSION_SYN_SENT &&
	       (flags & FLAGS) == (SY_TCP_SYN | SY_TCP_ACK);
}

static inline bool segment_is_step(const struct session *s, enum session_direction from,
                                   uint8_t flags)
{
	return (flags & FLAGS) == SY_TCP_ACK && segment_states[from] >> s->state & 1;
}

/* Its session lives, and nothing about it or its endpoint wants a closer look. */
static inline bool session_is_common(const struct sy_balance *b, const struct session *s,
                                     const struct endpoint *e)
{
	return !(s->flags & (SESSION_UNTOLD | SESSION_SHIFTED | SESSION_ONE_PACKET)) &&
	       e->form == FORM_IN_PLACE && !endpoint_is_one_way(e) &&
	       /* of dead and lost sessions none of these is 0 */
	       !(SY_READ(e->dead) | SY_READ(e->down) | SY_READ(b->local_removed[s->local]));
}

/* The largest segment that fits both ways, without options. */
static uint16_t segment_mss(const struct endpoint *e, uint16_t room, uint16_t other)
{
	return sy_tcp_mss(sy_addr_is_v4(&e->vip), room < other ? room : other, 0);
}

bool segment_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct sy_balance *b = w->app;
	const struct sy_view *v = &burst->view[i];
	struct session_table *t = b->table[burst->slot[i]];
	struct session *s = session_at(t, burst->session[i]);
	const struct endpoint *e = &b->endpoint[s->server];
	enum session_direction from = burst->direction[i];
	uint8_t *frame = sy_frame(burst->mbuf[i]), flags = v->tcp_flags;
	uint16_t path[2] = {[SESSION_CLIENT] = SY_READ(e->path), [SESSION_SERVER] = s->path};
	uint16_t room = SY_RCU_READ(w->path_room[path[from]]), len = v->frame_len - SY_ETH_LEN;
	const struct sy_tcp *tcp = sy_packet_tcp(frame, v);

	if (v->proto != SY_PROTO_TCP || !burst->plain[i] || !session_is_common(b, s, e) ||
	    len > room || sy_packet_ttl(frame, v) <= 1)
		return false;
	if (SY_LIKELY(segment_is_step(s, from, flags))) {
		uint32_t payload = v->l4_len - (tcp->offset >> 4) * 4u;
		tcp_state_advance(s, session_cold_at(t, burst->session[i]), from, flags,
		                  ntohl(tcp->seq), ntohl(tcp->ack), payload, 0);
	} else if (segment_is_answer(s, from, flags)) {
		uint16_t other = SY_RCU_READ(w->path_room[path[!from]]);
		if (!other || sy_packet_check_l4(frame, v) == SY_CSUM_UNFINISHED)
			return false;
		s->state = SESSION_SYN_RECEIVED;
		sy_packet_clamp_mss(frame, v, segment_mss(e, room, other));
	} else {
		return false;
	}
	burst->path[i] = path[from];
	forward_plain(b, burst, i, s, e, from);
	traffic_count(&balance_worker_of(w)->share[s->server].traffic, from, len);
	s->seen = (uint16_t)balance_seconds(w);
	burst->flow[i] = (uint32_t)(burst->hash[i] >> 32);
	burst->next[i] = SY_NEXT_TRANSMIT;
	return true;
}
