// SPDX-License-Identifier: Apache-2.0
/*
 * Interprets a session together with its endpoint: its tuples on both sides, whether it is alive,
 * how its packets are rewritten, and whether a packet belongs to it. Part of balance.h.
 */
#ifndef SESSION_MATCH_H
#define SESSION_MATCH_H

#include <sy_plain.h>

#include "balance.h"

/* The VIP's port of the session, and the server's. Most endpoints name them; otherwise they are in
 * the session's cold half, which is read only then. */
static inline uint16_t session_vport(const struct endpoint *e, const struct session_cold *cold)
{
	return SY_LIKELY(e->vport) ? e->vport : cold->vport;
}

static inline uint16_t session_port(const struct endpoint *e, const struct session_cold *cold)
{
	return SY_LIKELY(e->port) ? e->port : cold->vport;
}

/* A session's two tuples as received: client → VIP and server → local. Under NAT `local` is the
 * client, and local_port its port. Under SNAT they are inside → remote and remote → pool; s is the
 * first record of a pair, and its pair record names the remote. For an echo, the id takes the place
 * of the inside host's port, or of the pool's. */
static inline struct sy_tuple session_client_tuple(const struct session *s,
                                                   const struct session_cold *cold,
                                                   const struct endpoint *e)
{
	if (SY_UNLIKELY(e->mode == MODE_SNAT))
		return (struct sy_tuple){s->client, s[1].client, s->client_port, s[1].client_port,
		                         e->proto};
	return (struct sy_tuple){s->client, e->vip, s->client_port, session_vport(e, cold),
	                         e->proto};
}

static inline const struct sy_addr *session_local(const struct sy_balance *b,
                                                  const struct session *s, const struct endpoint *e)
{
	return e->mode == MODE_NAT ? &s->client : &b->local[s->local];
}

static inline struct sy_tuple session_server_tuple(const struct sy_balance *b,
                                                   const struct session *s,
                                                   const struct session_cold *cold,
                                                   const struct endpoint *e)
{
	if (SY_UNLIKELY(e->mode == MODE_SNAT))
		return (struct sy_tuple){s[1].client, b->local[s->local], s[1].client_port,
		                         s->local_port, e->proto};
	return (struct sy_tuple){e->addr, *session_local(b, s, e), session_port(e, cold),
	                         s->local_port, e->proto};
}

/* Do the server's packets bypass the forwarder? Then its sessions have no tuple for them, and their
 * states follow the client's packets alone. */
static inline bool endpoint_is_one_way(const struct endpoint *e)
{
	return e->mode == MODE_DR || e->mode == MODE_IPIP;
}

/* Is its server or local address gone? Then it ends at its next packet or at the next sweep. */
static inline bool session_is_dead(const struct sy_balance *b, const struct session *s)
{
	return SY_READ(b->endpoint[s->server].dead) || SY_READ(b->local_removed[s->local]);
}

/* In state SESSION_RESET_BY_*: the side in whose name the reset came. */
static inline enum session_direction session_challenged_side(const struct session *s)
{
	return s->state == SESSION_RESET_BY_CLIENT ? SESSION_CLIENT : SESSION_SERVER;
}

static inline bool session_is_challenged(const struct session *s)
{
	return s->state == SESSION_RESET_BY_CLIENT || s->state == SESSION_RESET_BY_SERVER;
}

/* Do plain packets from this side without SYN, FIN or RST leave the session's state unchanged? */
static inline bool session_is_steady(const struct session *s, enum session_direction from)
{
	const uint32_t both = 1u << SESSION_ESTABLISHED | 1u << SESSION_UDP_BOTH_WAYS;
	const uint32_t states = both | (from == SESSION_CLIENT ? 1u << SESSION_UDP_ONE_WAY
	                                                       : 1u << SESSION_UDP_ANSWERED);
	return states >> s->state & 1;
}

/* The session's idle timeout in seconds. A FIN without acknowledgement may be forged, and does not
 * shorten it. One-way sessions see no acknowledgements: there the FIN's number decides. */
static inline uint16_t session_timeout(const struct service *service, const struct session *s)
{
	bool closing = s->state == SESSION_FIN_WAIT || s->state == SESSION_CLOSING;
	bool acked = s->flags & (SESSION_CLIENT_FIN_ACKED | SESSION_SERVER_FIN_ACKED);
	return service->timeout[closing && !acked ? SESSION_ESTABLISHED : s->state];
}

/* Is its server down, and may the session begin again on another one? That is a UDP client that
 * keeps sending, or a SYN that was never answered. */
static inline bool session_is_lost(const struct sy_balance *b, const struct session *s,
                                   enum session_direction from)
{
	return from == SESSION_CLIENT && SY_READ(b->endpoint[s->server].down) &&
	       (s->state == SESSION_UDP_ONE_WAY || s->state == SESSION_UDP_ANSWERED ||
	        s->state == SESSION_UDP_BOTH_WAYS || s->state == SESSION_SYN_SENT);
}

/* A packet's new addresses and ports under FNAT and NAT, without l3_delta. */
static inline struct sy_rewrite session_rewrite(const struct sy_balance *b, const struct session *s,
                                                const struct session_cold *cold,
                                                const struct endpoint *e,
                                                enum session_direction from)
{
	if (from == SESSION_CLIENT)
		return (struct sy_rewrite){.src = *session_local(b, s, e),
		                           .dst = e->addr,
		                           .sport = s->local_port,
		                           .dport = session_port(e, cold),
		                           .l4_delta = s->delta};
	return (struct sy_rewrite){.src = e->vip,
	                           .dst = s->client,
	                           .sport = session_vport(e, cold),
	                           .dport = s->client_port,
	                           .l4_delta = sy_csum_inverse(s->delta)};
}

/* Unfolded sum of the tuple's fields in network order. Both addresses are of one family. */
static inline uint64_t session_tuple_sum(const struct sy_tuple *t)
{
	uint64_t sum = (uint64_t)t->src.w[3] + t->dst.w[3] + t->sport + t->dport;
	if (!sy_addr_is_v4(&t->src))
		for (unsigned i = 0; i < 3; i++)
			sum += (uint64_t)t->src.w[i] + t->dst.w[i];
	return sum;
}

/* session.delta of a session that has all else; client: session_client_tuple(). Not for SNAT. */
static inline uint16_t session_compute_delta(const struct sy_balance *b, const struct session *s,
                                             const struct session_cold *cold,
                                             const struct endpoint *e,
                                             const struct sy_tuple *client)
{
	const struct sy_tuple to = {*session_local(b, s, e), e->addr, s->local_port,
	                            session_port(e, cold), e->proto};
	return sy_csum_delta(session_tuple_sum(client), session_tuple_sum(&to));
}

/*
 * ---- checking a candidate of the index against a packet's tuple
 *
 *   match_session()              for session_find(): any session
 *     session_has_tuple_with()     with ports that are known
 *     session_has_tuple()        any session; reads the cold half if it must
 *   session_has_plain_tuple()    fast: a plain packet, ports that the endpoint names
 */

struct match_context {
	const struct sy_balance *balance;
	const struct session_table *table; /* of the candidates */
	const struct sy_tuple *tuple;
};

/* Does a SNAT session have this tuple? Its endpoint names no server: the pair record has the other
 * end. */
static inline bool session_has_snat_tuple(const struct sy_balance *b, const struct session *s,
                                          const struct session_cold *cold,
                                          const struct sy_tuple *tuple, enum session_direction side)
{
	const struct endpoint *e = &b->endpoint[s->server];
	if (SY_LIKELY(e->mode != MODE_SNAT))
		return false;
	const struct sy_tuple t = side == SESSION_CLIENT ? session_client_tuple(s, cold, e)
	                                                 : session_server_tuple(b, s, cold, e);
	return memcmp(&t, tuple, sizeof(t)) == 0;
}

/* Does the session have this tuple on this side? vport, port: its service's and server's, network
 * order. */
static inline __attribute__((always_inline)) bool
session_has_tuple_with(const struct sy_balance *b, const struct session *s,
                       const struct endpoint *e, uint16_t vport, uint16_t port,
                       const struct sy_tuple *t, enum session_direction side)
{
	if (side == SESSION_CLIENT)
		return t->sport == s->client_port && t->dport == vport && t->proto == e->proto &&
		       sy_addr_equal(&t->src, &s->client) && sy_addr_equal(&t->dst, &e->vip) &&
		       !session_is_one_packet(s);
	return t->dport == s->local_port && t->sport == port && t->proto == e->proto &&
	       sy_addr_equal(&t->src, &e->addr) && sy_addr_equal(&t->dst, session_local(b, s, e));
}

/* The same for a plain packet, if its family is that of the endpoint's transmit mode. */
static inline __attribute__((always_inline)) bool
session_has_plain_tuple(const struct sy_balance *b, const struct session *s,
                        const struct endpoint *e, const uint8_t *frame, unsigned plain, bool v4,
                        enum session_direction side)
{
	const bool client = side == SESSION_CLIENT;
	const struct sy_addr *src = client ? &s->client : &e->addr;
	const struct sy_addr *dst = client ? &e->vip : session_local(b, s, e);
	uint32_t ports = client ? s->client_port | (uint32_t)e->vport << 16
	                        : e->port | (uint32_t)s->local_port << 16;
	const struct sy_ipv6 *ip6 = (const struct sy_ipv6 *)(frame + SY_ETH_LEN);

	if (sy_plain_ports(frame, v4) != ports || sy_plain_proto(plain) != e->proto)
		return false;
	if (v4)
		return sy_plain_addrs_v4(frame) == (src->w[3] | (uint64_t)dst->w[3] << 32);
	return memcmp(ip6->src, src, sizeof(*src)) == 0 && memcmp(ip6->dst, dst, sizeof(*dst)) == 0;
}

/* Does the session, of any mode, have this tuple on this side? */
static inline bool session_has_tuple(const struct sy_balance *b, const struct session *s,
                                     const struct session_cold *cold, const struct sy_tuple *t,
                                     enum session_direction side)
{
	const struct endpoint *e = &b->endpoint[s->server];
	return session_has_tuple_with(b, s, e, session_vport(e, cold), session_port(e, cold), t,
	                              side) ||
	       session_has_snat_tuple(b, s, cold, t, side);
}

static inline __attribute__((always_inline)) bool
match_session(const void *ctx, const struct session *s, enum session_direction direction)
{
	const struct match_context *m = ctx;
	const struct endpoint *e = &m->balance->endpoint[s->server];
	if (SY_LIKELY(session_has_tuple_with(m->balance, s, e, e->vport, e->port, m->tuple,
	                                     direction)))
		return true;
	return session_has_tuple(m->balance, s, session_cold_beside(m->table, s), m->tuple,
	                         direction);
}

#endif
