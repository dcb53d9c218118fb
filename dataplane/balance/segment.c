// SPDX-License-Identifier: Apache-2.0
/*
 * The slow path's short way: plain TCP segments of a session that goes on, which move its state and
 * are forwarded like any of an established one. Whatever is unusual is left to slow.c.
 */
#include <arpa/inet.h>

#include "forward.h"
#include "tcp_step.h"

#define FLAGS (SY_TCP_SYN | SY_TCP_RST | SY_TCP_ACK)

/* By enum session_direction, a bit a state: its segments with an ACK, without SYN or RST, are
 * nothing but a step in the life of their session. */
static const uint32_t step_states[] = {
        [SESSION_CLIENT] = 1u << SESSION_SYN_RECEIVED | 1u << SESSION_ESTABLISHED |
                           1u << SESSION_FIN_WAIT | 1u << SESSION_CLOSING | 1u << SESSION_TIME_WAIT,
        [SESSION_SERVER] = 1u << SESSION_ESTABLISHED | 1u << SESSION_FIN_WAIT |
                           1u << SESSION_CLOSING | 1u << SESSION_TIME_WAIT,
};

/* The largest segment that fits both ways, without options. */
static uint16_t segment_mss(const struct endpoint *e, uint16_t room, uint16_t other)
{
	return sy_tcp_mss(sy_addr_is_v4(&e->vip), room < other ? room : other, 0);
}

/* Moves the session's state by a segment; false: that takes more. */
static inline bool segment_step(struct session *s, struct session_cold *cold,
                                enum session_direction from, const struct sy_view *v,
                                const struct sy_tcp *tcp)
{
	if (SY_UNLIKELY((v->tcp_flags & FLAGS) != SY_TCP_ACK ||
	                !(step_states[from] >> s->state & 1)))
		return false;
	tcp_note_fins(s, cold, from, v->tcp_flags, ntohl(tcp->seq), ntohl(tcp->ack),
	              v->l4_len - (tcp->offset >> 4) * 4u);
	s->state = tcp_state_of_fins(s);
	return true;
}

/* The same for a server's first answer to a SYN. other: what fits on the way back. */
static bool segment_answer(struct session *s, const struct endpoint *e, uint8_t *frame,
                           const struct sy_view *v, uint16_t room, uint16_t other)
{
	if (s->state != SESSION_SYN_SENT || (v->tcp_flags & FLAGS) != (SY_TCP_SYN | SY_TCP_ACK) ||
	    !other || sy_packet_is_unfinished(frame, v))
		return false;
	s->state = SESSION_SYN_RECEIVED;
	sy_packet_clamp_mss(frame, v, segment_mss(e, room, other));
	return true;
}

bool segment_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct sy_way *way)
{
	struct sy_balance *b = w->app;
	const struct sy_view *v = &burst->view[i];
	struct session_table *t = b->table[burst->slot[i]];
	struct session *s = session_at(t, burst->session[i]);
	const struct endpoint *e = &b->endpoint[s->server];
	enum session_direction from = burst->direction[i];
	uint8_t *frame = sy_frame(burst->mbuf[i]);
	uint16_t there = SY_READ(e->path), back = s->path;
	uint16_t path = from == SESSION_CLIENT ? there : back;
	uint16_t room = SY_RCU_READ(w->path_room[path]), len = v->frame_len - SY_ETH_LEN;

	if (v->proto != SY_PROTO_TCP || !burst->plain[i] || !session_is_common(s, e) ||
	    !session_is_well(b, s, e) || len > room)
		return false;
	if (!segment_step(s, session_cold_at(t, burst->session[i]), from, v,
	                  sy_packet_tcp(frame, v)) &&
	    (from == SESSION_CLIENT ||
	     !segment_answer(s, e, frame, v, room, SY_RCU_READ(w->path_room[there]))))
		return false;
	struct server_share *share = &balance_worker_of(w)->share[s->server];
	burst->next[i] = (uint8_t)forward_ready(w, burst, i, s, e, from, share, way, path,
	                                        (uint16_t)balance_seconds(w));
	return true;
}
