// SPDX-License-Identifier: Apache-2.0
/* How packets of sessions leave; of plain ones in place, inline. */
#ifndef FORWARD_H
#define FORWARD_H

#include <sy_plain.h>

#include "balance.h"

#define IPV6_MTU_MIN 1280 /* RFC 8200 5 */

/* Bytes of IP packet that fit through a path, also through one that is stale. */
static inline uint16_t forward_path_mtu(struct sy_worker *w, uint16_t path)
{
	const struct sy_balance *b = w->app;
	uint16_t mtu = SY_RCU_READ(w->path_mtu[path]);
	return SY_LIKELY(mtu) ? mtu : sy_path_mtu(b->rt, path);
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
#define SESSION_SLOW_ONLY (SESSION_ADDRESS_PENDING | SESSION_SHIFTED | SESSION_ONE_PACKET)

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

/* May a packet leave at once, by its session's record alone? Nothing about how it goes wants a
 * closer look, which flags of `odd` do, and its server can have it: where that is down the session
 * need not be lost. Of whether it changes the session's state this says nothing. */
static inline bool forward_may(const struct sy_balance *b, const struct session *s,
                               const struct endpoint *e, enum session_direction from, uint8_t odd)
{
	return !SY_UNLIKELY(s->flags & odd) &&
	       (SY_LIKELY(session_is_well(b, s, e)) ||
	        (!session_is_dead(b, s) && !session_is_lost(b, s, from)));
}

/* The way that it leaves by, and its neighbour there, as sy_tx_cache_find(). share: its server's.
 */
static inline __attribute__((always_inline)) bool
forward_find(struct sy_worker *w, struct sy_tx_cache *tx, const struct rte_mbuf *m,
             const struct session *s, const struct endpoint *e, enum session_direction from,
             struct server_share *share, bool direct, uint64_t *neighbour)
{
	const bool inwards = from == SESSION_CLIENT;
	struct sy_tx_cache_link client = {0}; /* nobody keeps those of clients */
	return sy_tx_cache_find(w, tx, m, inwards ? SY_READ(e->path) : s->path,
	                        inwards ? &e->addr : &s->client, inwards ? &share->link : &client,
	                        direct, neighbour);
}

/*
 * Sends a frame that is what its server or client shall have, by what forward_find() found, and
 * counts it: `len` bytes of IP packet before they were changed. It is READY instead where packets
 * before it have not gone (behind). record: its session's, whose tick is `seen`; now: the present
 * one.
 */
static inline __attribute__((always_inline)) enum sy_next
forward_emit(const struct sy_tx_cache *tx, uint64_t neighbour, struct rte_mbuf *m, uint8_t *frame,
             struct session *record, uint16_t seen, uint16_t now, enum session_direction from,
             struct server_share *share, uint16_t len, bool behind)
{
	traffic_count(&share->traffic, from, len);
	session_seen(record, seen, now);
	sy_tx_cache_write(tx, m, frame, neighbour);
	return SY_LIKELY(!behind) && sy_tx_cache_send(tx, m) ? SY_NEXT_GONE : SY_NEXT_READY;
}

/* ---- forward.c, translate.c: whatever is not plain, or not in place -----------------------------
 */

/* Rewrites packet i for its session and sends it on to transmit; counts it. TTL and MTU have been
 * checked. */
void forward_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s);
/* Puts a packet, *v of it, into its session's tunnel; false: there is no room for its header. flow:
 * a hash of its flow. */
bool forward_tunnel(struct sy_worker *w, struct rte_mbuf *m, const struct sy_view *v,
                    const struct session *s, const struct endpoint *e, uint32_t flow);
/* The path packet i of session s leaves by, looked up again if stale. An FNAT session whose
 * client's path is narrow keeps none, so that no packet to it takes the fast path. */
uint16_t forward_path(struct sy_worker *w, struct session *s, uint8_t direction);
/* Turns packet i into the other family, where it fits. NONE, or why it is dropped. */
enum sy_drop forward_translate(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                               const struct session *s, const struct endpoint *e);

/* ---- oversize.c: packets that do not fit their path (docs/design/0012-fragments.md) --------- */

/* Bytes that packet *v from this side gains on its way. */
int oversize_growth(const struct endpoint *e, const struct sy_view *v, enum session_direction from);
/* May a packet from this side, which does not fit, leave in fragments? Else its sender is told. */
bool oversize_may_fragment(const struct endpoint *e, const uint8_t *frame, const struct sy_view *v,
                           enum session_direction from);
/* Forwards packet i of session s in fragments of at most mtu bytes of IP packet, which routers may
 * fragment further. */
void oversize_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s,
                      uint16_t mtu);

/* How many bytes of the client's stream its server counts and the client does not. */
static inline uint32_t session_shift(const struct session *s, const struct session_cold *cold)
{
	return s->flags & SESSION_SHIFTED ? cold->inserted : 0;
}

#endif
