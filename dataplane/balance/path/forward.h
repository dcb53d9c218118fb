// SPDX-License-Identifier: Apache-2.0
/*
 * Forwarding the packets of sessions.
 *
 *   - plain packets, sent at once: forward_may(), forward_find(), forward_plain(), forward_emit(),
 *     all inline; for fast.c, remote.c, segment_shortcut.h
 *   - any packet, sent by transmit: forward_path(), forward_packet() of forward.c; for slow.c and
 *     fast_general()
 */
#ifndef FORWARD_H
#define FORWARD_H

#include <sy_plain.h>

#include "balance.h"

#define IPV6_MTU_MIN 1280 /* RFC 8200 5 */

/* MTU of a path in bytes of IP packet, even of a stale one. */
static inline uint16_t forward_path_mtu(struct sy_worker *w, uint16_t path)
{
	const struct sy_balance *b = w->app;
	uint16_t mtu = SY_RCU_READ(w->path_mtu[path]);
	return SY_LIKELY(mtu) ? mtu : sy_path_mtu(b->rt, path);
}

/* Is this an IPv4 packet without DF? */
static inline bool packet_may_fragment(const uint8_t *frame, const struct sy_view *v)
{
	const struct sy_ipv4 *ip = (const struct sy_ipv4 *)(frame + v->l3);
	return v->v4 && !(ip->fragment & htons(0x4000));
}

/*
 * The max size in bytes that an IP packet from this side may have after rewriting, on a path of
 * this MTU. A packet that is translated to IPv6 and may be fragmented must fit IPv6's minimum MTU:
 * IPv6 routers do not fragment, and its sender would ignore an error (RFC 7915 4).
 */
static inline uint16_t forward_mtu(const struct endpoint *e, const uint8_t *frame,
                                   const struct sy_view *v, uint16_t mtu)
{
	return e->transmit_mode == TRANSMIT_TRANSLATE && mtu > IPV6_MTU_MIN &&
	                       packet_may_fragment(frame, v)
	               ? IPV6_MTU_MIN
	               : mtu;
}

/* Parses packet i into its view if it is plain: code outside the fast path reads the view. */
static inline void forward_view(struct sy_burst *burst, unsigned i)
{
	if (SY_LIKELY(burst->plain[i]))
		sy_plain_view(sy_frame(burst->mbuf[i]), burst->plain[i], &burst->view[i]);
}

/* The port of a session whose endpoint has many. */
static __attribute__((noinline, unused)) uint16_t
forward_cold_port(const struct sy_balance *b, uint8_t slot, const struct session *s)
{
	return session_cold_beside(b->table[slot], s)->vport;
}

/* Flags of slow-only sessions: all of their packets take the slow path. */
#define SESSION_SLOW_ONLY (SESSION_ADDRESS_PENDING | SESSION_SHIFTED | SESSION_ONE_PACKET)

/* Is the server neither dead nor down, and the local address not removed? */
static inline bool session_is_well(const struct sy_balance *b, const struct session *s,
                                   const struct endpoint *e)
{
	return !(SY_READ(e->unwell) | SY_READ(b->local_removed[s->local]));
}

/* Rewrites a plain packet of this slot in place. */
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

/* May the packet be forwarded by its session's record alone? Not if the session has any of
 * slow_flags, is dead, or is lost with its server. Callers check whether the packet changes the
 * state. */
static inline bool forward_may(const struct sy_balance *b, const struct session *s,
                               const struct endpoint *e, enum session_direction from,
                               uint8_t slow_flags)
{
	return !SY_UNLIKELY(s->flags & slow_flags) &&
	       (SY_LIKELY(session_is_well(b, s, e)) ||
	        (!session_is_dead(b, s) && !session_is_lost(b, s, from)));
}

/* Finds the packet's path and next hop, like sy_tx_cache_find(). share: of its server. */
static inline __attribute__((always_inline)) bool
forward_find(struct sy_worker *w, struct sy_tx_cache *tx, const struct rte_mbuf *m,
             const struct session *s, const struct endpoint *e, enum session_direction from,
             struct server_share *share, bool direct, uint64_t *neighbour)
{
	const bool inwards = from == SESSION_CLIENT;
	struct sy_tx_cache_link client = {0}; /* links of clients are not cached */
	return sy_tx_cache_find(w, tx, m, inwards ? SY_READ(e->path) : s->path,
	                        inwards ? &e->addr : &s->client, inwards ? &share->link : &client,
	                        direct, neighbour);
}

/*
 * Sends and counts a rewritten frame, by the results of forward_find(). len: bytes of IP packet
 * before rewriting. If earlier packets have not left (behind), marks it READY instead. record: of
 * the session, with tick `seen`; now: current tick.
 */
static inline __attribute__((always_inline)) enum sy_next
forward_emit(const struct sy_tx_cache *tx, uint64_t neighbour, struct rte_mbuf *m, uint8_t *frame,
             struct session *record, uint16_t seen, uint16_t now, enum session_direction from,
             struct server_share *share, uint16_t len, bool behind)
{
	traffic_count(&share->traffic, from, len);
	session_touch(record, seen, now);
	sy_tx_cache_write(tx, m, frame, neighbour);
	return SY_LIKELY(!behind) && sy_tx_cache_send(tx, m) ? SY_NEXT_SENT : SY_NEXT_READY;
}

/* ---- forward.c, forward_translate.c ---------------------------------------------------------- */

/* Rewrites and counts packet i, and marks it for transmit. The caller has checked TTL and MTU. */
void forward_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s);
/* Encapsulates a packet with view *v for its session. Returns false without headroom for the tunnel
 * header. flow: hash of its flow. */
bool forward_tunnel(struct sy_worker *w, struct rte_mbuf *m, const struct sy_view *v,
                    const struct session *s, const struct endpoint *e, uint32_t flow);
/* The path of packet i of session s; looks it up again if stale. FNAT sessions whose client has a
 * narrow path store no path, so that packets to the client take the slow path. */
uint16_t forward_path(struct sy_worker *w, struct session *s, uint8_t direction);
/* Translates packet i to the other address family. Returns NONE or the drop reason. */
enum sy_drop forward_translate(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                               const struct session *s, const struct endpoint *e);

/* ---- oversize.c: packets that do not fit their path (docs/design/0012-fragments.md) ---------- */

/* Bytes that forwarding adds to a packet from this side. */
int oversize_overhead(const struct endpoint *e, const struct sy_view *v,
                      enum session_direction from);
/* May a packet from this side that exceeds the MTU be fragmented? Otherwise its sender gets an ICMP
 * error. */
bool oversize_may_fragment(const struct endpoint *e, const uint8_t *frame, const struct sy_view *v,
                           enum session_direction from);
/* Forwards packet i of session s in fragments of at most mtu bytes. */
void oversize_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s,
                      uint16_t mtu);

/* Bytes inserted into the client's stream, in the server's numbering only. */
static inline uint32_t session_shift(const struct session *s, const struct session_cold *cold)
{
	return s->flags & SESSION_SHIFTED ? cold->inserted : 0;
}

#endif
