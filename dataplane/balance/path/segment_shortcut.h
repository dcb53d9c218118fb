// SPDX-License-Identifier: Apache-2.0
/*
 * Two inline shortcuts past slow_advance() and slow_forward(). fast.c calls segment_step() and
 * segment_answer() for plain TCP segments that only advance a session's state. slow.c calls
 * segment_forward_first() for the packet that has just created its session.
 */
#ifndef SEGMENT_SHORTCUT_H
#define SEGMENT_SHORTCUT_H

#include <arpa/inet.h>

#include "client_options.h"
#include "forward.h"
#include "tcp_step.h"

#define SEGMENT_FLAGS (SY_TCP_SYN | SY_TCP_RST | SY_TCP_ACK)

/* Common to all packets of a burst. */
struct segment_common {
	struct sy_balance *b;
	struct server_share *share; /* by server id: this worker's */
	const uint16_t *mtu;        /* sy_worker.path_mtu */
	uint16_t now;               /* tick */
};

static inline struct segment_common segment_common_of(struct sy_worker *w)
{
	return (struct segment_common){.b = w->app,
	                               .share = balance_worker_of(w)->share,
	                               .mtu = w->path_mtu,
	                               .now = (uint16_t)balance_seconds(w)};
}

/* By enum session_direction, one bit per state: states in which a segment with ACK, without SYN or
 * RST, only advances the session. */
static const uint32_t segment_states[] = {
        [SESSION_CLIENT] = 1u << SESSION_SYN_RECEIVED | 1u << SESSION_ESTABLISHED |
                           1u << SESSION_FIN_WAIT | 1u << SESSION_CLOSING | 1u << SESSION_TIME_WAIT,
        [SESSION_SERVER] = 1u << SESSION_ESTABLISHED | 1u << SESSION_FIN_WAIT |
                           1u << SESSION_CLOSING | 1u << SESSION_TIME_WAIT,
};

/* The largest TCP segment without options, in bytes, that fits both directions. mtu, other: of the
 * two paths. */
static inline uint16_t segment_mss(const struct endpoint *e, uint16_t mtu, uint16_t other)
{
	return sy_tcp_mss(sy_addr_is_v4(&e->vip), mtu < other ? mtu : other, 0);
}

/* Advances the session's state by a segment of l4_len bytes. Returns false if the slow path must do
 * it. */
static inline __attribute__((always_inline)) bool
segment_step(struct session *s, struct session_cold *cold, enum session_direction from,
             const struct sy_tcp *tcp, uint32_t l4_len)
{
	if (SY_UNLIKELY(!(segment_states[from] >> s->state & 1) ||
	                (tcp->flags & SEGMENT_FLAGS) != SY_TCP_ACK))
		return false;
	tcp_note_fins(s, cold, from, tcp->flags, ntohl(tcp->seq), ntohl(tcp->ack),
	              l4_len - (tcp->offset >> 4) * 4u);
	s->state = tcp_state_of_fins(s);
	return true;
}

/* The same for a server's SYN-ACK. mtu: of this packet's path; other: of the path of the client's
 * packets; 0: the path has become stale. */
static inline bool segment_answer(struct session *s, const struct endpoint *e, uint8_t *frame,
                                  const struct sy_view *v, uint16_t mtu, uint16_t other)
{
	if (s->state != SESSION_SYN_SENT ||
	    (v->tcp_flags & SEGMENT_FLAGS) != (SY_TCP_SYN | SY_TCP_ACK) || !mtu || !other ||
	    sy_packet_is_unfinished(frame, v))
		return false;
	s->state = SESSION_SYN_RECEIVED;
	sy_packet_clamp_mss(frame, v, segment_mss(e, mtu, other));
	return true;
}

/* Forwards the packet that has just created session s by its record alone, without inserting
 * the client's address. Returns false, with no effect, if the slow path must do it. */
static inline __attribute__((always_inline)) bool
segment_forward_first(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s,
                      struct sy_tx_cache *tx, const struct segment_common *c)
{
	const struct endpoint *e = &c->b->endpoint[s->server];
	const struct sy_view *v = &burst->view[i];
	struct rte_mbuf *m = burst->mbuf[i];
	struct server_share *share = &c->share[s->server];
	const enum session_direction from = SESSION_CLIENT;
	uint64_t neighbour;

	if (!burst->plain[i] || !transmit_mode_is_in_place(e->transmit_mode) ||
	    !forward_may(c->b, s, e, from, SESSION_SLOW_ONLY))
		return false;
	if (SY_LIKELY(v->proto == SY_PROTO_TCP)) {
		uint16_t mtu = SY_RCU_READ(c->mtu[SY_READ(e->path)]);
		uint16_t other = SY_RCU_READ(c->mtu[s->path]);
		if (!mtu || !other || !forward_find(w, tx, m, s, e, from, share, false, &neighbour))
			return false;
		sy_packet_clamp_mss(sy_frame(m), v, segment_mss(e, mtu, other));
	} else if (!forward_find(w, tx, m, s, e, from, share, false, &neighbour)) {
		return false;
	}
	client_options_blank_plain(w, burst, i, sy_frame(m), e, v->v4);
	forward_plain(c->b, sy_frame(m), burst->plain[i], burst->slot[i], s, e, from);
	/* true: READY for transmit, behind packets that have not left */
	burst->next[i] = (uint8_t)forward_emit(tx, neighbour, m, sy_frame(m), s, s->seen, c->now,
	                                       from, share, v->frame_len - SY_ETH_LEN, true);
	return true;
}

#endif
