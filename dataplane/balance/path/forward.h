// SPDX-License-Identifier: Apache-2.0
/* Forwarding of plain packets in place, inline. */
#ifndef FORWARD_H
#define FORWARD_H

#include <sy_plain.h>

#include "balance.h"

#define IPV6_MTU_MIN 1280 /* RFC 8200 5 */

/* Bytes of IP packet that fit through a path, also through one that is stale. */
static inline uint16_t forward_room(struct sy_worker *w, uint16_t path)
{
	const struct sy_balance *b = w->app;
	uint16_t room = SY_RCU_READ(w->path_room[path]);
	return SY_LIKELY(room) ? room : sy_path_mtu(b->rt, path);
}

/* An IPv4 packet that routers may fragment. */
static inline bool packet_may_fragment(const uint8_t *frame, const struct sy_view *v)
{
	const struct sy_ipv4 *ip = (const struct sy_ipv4 *)(frame + v->l3);
	return v->v4 && !(ip->fragment & htons(0x4000));
}

/*
 * Bytes of IP packet that a packet from this side may have when it leaves, by a path of this MTU:
 * what its sender lets routers fragment must fit the least MTU of IPv6 when it becomes IPv6, where
 * none will, and its sender would not listen (RFC 7915 4).
 */
static inline uint16_t forward_mtu(const struct endpoint *e, const uint8_t *frame,
                                   const struct sy_view *v, uint16_t mtu)
{
	return e->form == FORM_TRANSLATE && mtu > IPV6_MTU_MIN && packet_may_fragment(frame, v)
	               ? IPV6_MTU_MIN
	               : mtu;
}

/* Fills in the view of packet i, if it is plain: whatever is no matter of the fast path reads that.
 */
static inline void forward_view(struct sy_burst *burst, unsigned i)
{
	if (SY_LIKELY(burst->plain[i]))
		sy_plain_view(sy_frame(burst->mbuf[i]), burst->plain[i], &burst->view[i]);
}

/* The port of a session whose endpoint names none. */
static __attribute__((noinline, unused)) uint16_t
forward_cold_port(const struct sy_balance *b, uint8_t slot, const struct session *s)
{
	return session_cold_beside(b->table[slot], s)->vport;
}

/* Flags of a session that want a closer look at each of its packets. */
#define SESSION_ODD (SESSION_UNTOLD | SESSION_SHIFTED | SESSION_ONE_PACKET)

/* Nothing about how its packets go wants a closer look. */
static inline bool session_is_common(const struct session *s, const struct endpoint *e)
{
	return !(s->flags & SESSION_ODD) && form_is_in_place(e->form);
}

/* Nothing about its endpoint does: it is neither dead nor lost. */
static inline bool session_is_well(const struct sy_balance *b, const struct session *s,
                                   const struct endpoint *e)
{
	return !(SY_READ(e->dead) | SY_READ(e->down) | SY_READ(b->local_removed[s->local]));
}

/* Rewrites a plain packet to what its session, of this slot, says, where that is done in place. */
static inline __attribute__((always_inline)) void
forward_plain(const struct sy_balance *b, uint8_t *frame, unsigned plain, uint8_t slot,
              const struct session *s, const struct endpoint *e, enum session_direction from)
{
	uint16_t port = from == SESSION_CLIENT ? e->port : e->vport;

	if (SY_UNLIKELY(!port))
		port = forward_cold_port(b, slot, s);
	if (from == SESSION_CLIENT)
		sy_plain_rewrite(frame, plain, session_local(b, s, e), &e->addr,
		                 s->local_port | (uint32_t)port << 16, s->delta);
	else
		sy_plain_rewrite(frame, plain, &e->vip, &s->client,
		                 port | (uint32_t)s->client_port << 16, sy_csum_inverse(s->delta));
}

/*
 * All that a plain packet i of a session that goes on takes, by its path, where it fits: rewritten,
 * counted, and READY by this way; else for TRANSMIT. share: its server's; now: the present tick.
 */
static inline __attribute__((always_inline)) enum sy_next
forward_ready(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s,
              const struct endpoint *e, enum session_direction from, struct server_share *share,
              struct sy_way *way, uint16_t path, uint16_t now)
{
	bool inwards = from == SESSION_CLIENT;
	struct sy_way_link client = {0}; /* nobody keeps those of clients */

	forward_plain(w->app, sy_frame(burst->mbuf[i]), burst->plain[i], burst->slot[i], s, e,
	              from);
	traffic_count(&share->traffic, from, burst->view[i].frame_len - SY_ETH_LEN);
	session_seen(s, s->seen, now);
	if (SY_LIKELY(sy_way_take(w, way, burst->mbuf[i], path, inwards ? &e->addr : &s->client,
	                          inwards ? &share->link : &client, false)))
		return SY_NEXT_READY;
	burst->path[i] = path;
	burst->flow[i] = (uint32_t)(burst->hash[i] >> 32);
	return SY_NEXT_TRANSMIT;
}

#endif
