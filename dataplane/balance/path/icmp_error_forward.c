// SPDX-License-Identifier: Apache-2.0
/*
 * ICMP errors from other hosts and routers. Each quotes a packet that the forwarder, or a server
 * whose answers bypass it, has sent. The packet's original sender must get the error, about the
 * packet as it sent it:
 *
 *     quoted             error sent to      forwarded to source
 *     VIP → client       VIP                server       the router; FNAT: local address; DR, IPIP:
 *                                                        unchanged, like a client's packet
 *     local → server     local   (FNAT)     client       VIP
 *     client → server    client  (NAT)      client       VIP
 *     local → server     local   (IPIP)     client       VIP, about the packet in the tunnel
 *     pool → remote      pool    (SNAT)     inside       the router
 *     remote → inside    remote  (SNAT)     remote       pool
 *
 * Clients do not see the network beyond the VIP, which may not be theirs. NAT, DR and IPIP servers
 * see the router's address: the forwarder is on their path to it.
 *
 * Errors are easy to forge, so no error changes its session, keeps it alive or counts as traffic.
 * Receivers check the quoted packet (RFC 5927), so it is forwarded unchanged.
 */
#include "address_set.h"
#include "balance.h"
#include "client_mtu.h"
#include "forward.h"
#include "icmp_packet.h"
#include "packet_relay.h"
#include "snat.h"
#include "splice.h"

struct error_packet {
	struct sy_quote quote;    /* the packet whose sender must get the error */
	struct sy_quote tunnel;   /* its tunnel header; proto 0: none */
	struct sy_tuple incoming; /* tuple that finds the packet's session */
	uint8_t slot;
	uint32_t record;
	enum session_direction from; /* the error is forwarded like packets from this side */
};

/* The tuple of an answer. */
static struct sy_tuple tuple_reversed(const struct sy_tuple *t)
{
	return (struct sy_tuple){t->dst, t->src, t->dport, t->sport, t->proto};
}

/* Was the quoted packet on its way to the session's client, whose port then gives the slot? Such
 * packets come from a VIP, or from a remote to an inside host. */
static bool is_towards_client(const struct sy_balance *b, const struct error_packet *c)
{
	switch (address_set_find(SY_RCU_READ(b->address_set), &c->quote.tuple.src)) {
	case ADDRESS_SET_VIP:
		return true;
	case ADDRESS_SET_LOCAL:
	case ADDRESS_SET_POOL:
		return false;
	default:
		return snat_is_of_inside(SY_RCU_READ(b->snat), &c->incoming);
	}
}

/* Sets all fields except record and from. */
static enum sy_drop error_read(const struct sy_balance *b, const uint8_t *frame,
                               const struct sy_view *v, struct error_packet *c)
{
	const struct sy_tuple *t = &c->quote.tuple;
	enum sy_drop reason = sy_packet_parse_quote(frame, v, &c->quote);
	if (reason != SY_DROP_NONE)
		return reason;
	/* errors are sent to the source of the quoted packet */
	if (!sy_addr_equal(&t->src, &v->tuple.dst))
		return SY_DROP_ICMP_NO_SESSION;
	c->tunnel.proto = 0;
	if (c->quote.proto == SY_PROTO_IPV4 || c->quote.proto == SY_PROTO_IPV6) {
		c->tunnel = c->quote;
		reason = sy_packet_parse_tunnelled(frame, &c->tunnel, &c->quote);
		c->incoming = *t;
		c->slot = sy_slot_of(&t->src, t->sport);
		return reason;
	}
	c->incoming = tuple_reversed(t);
	c->slot = is_towards_client(b, c) ? sy_slot_of(&t->dst, t->dport)
	                                  : sy_slot_of(&t->src, t->sport);
	return SY_DROP_NONE;
}

bool icmp_is_about_server(const struct sy_balance *b, const uint8_t *frame, const struct sy_view *v)
{
	struct sy_quote q;
	if ((v->proto != SY_PROTO_ICMP && v->proto != SY_PROTO_ICMPV6) ||
	    sy_packet_parse_quote(frame, v, &q) != SY_DROP_NONE)
		return false;
	const struct sy_tuple answer = tuple_reversed(&q.tuple);
	return address_set_find(SY_RCU_READ(b->address_set), &answer.src) == ADDRESS_SET_SERVER ||
	       snat_matches(SY_RCU_READ(b->snat), &answer);
}

void icmp_error_steer(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct sy_balance *b = w->app;
	struct error_packet c;
	enum sy_drop reason = error_read(b, sy_frame(burst->mbuf[i]), &burst->view[i], &c);
	if (reason != SY_DROP_NONE) {
		sy_burst_drop(w, burst, i, reason);
		return;
	}
	burst->slot[i] = c.slot;
	if (sy_slot_worker(b->rt, c.slot) != w->id)
		sy_burst_steer(w, burst, i);
}

/* The session of the error; NULL: none. */
static struct session *error_session(struct sy_balance *b, struct error_packet *c, uint64_t hash)
{
	struct session_table *t = b->table[c->slot];
	const struct match_context ctx = {b, t, &c->incoming};
	c->record = session_find(t->index, hash, match_session, &ctx, &c->from);
	if (c->record == SESSION_NONE)
		return NULL;
	struct session *s = session_at(t, c->record);
	const struct endpoint *e = &b->endpoint[s->server];
	if (session_is_dead(b, s))
		return NULL;
	if (c->tunnel.proto == 0)
		return s;
	/* The encapsulated packet was the client's: was the tunnel this session's? */
	if (c->from != SESSION_CLIENT || e->mode != MODE_IPIP ||
	    !sy_addr_equal(&c->tunnel.tuple.dst, &e->addr) ||
	    !sy_addr_equal(&c->tunnel.tuple.src, session_local(b, s, e)))
		return NULL;
	c->from = SESSION_SERVER;
	return s;
}

/* Forwards the error to a server whose answers bypass the forwarder, like the client's packets. */
static enum sy_drop error_pass(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                               const struct session *s, const struct endpoint *e)
{
	if (sy_addr_is_link_local(&burst->view[i].tuple.src))
		return SY_DROP_LINK_LOCAL;
	if (e->mode == MODE_IPIP)
		return forward_tunnel(w, burst->mbuf[i], &burst->view[i], s, e,
		                      (uint32_t)(burst->hash[i] >> 32))
		               ? SY_DROP_NONE
		               : SY_DROP_NO_BUFFER;
	sy_packet_hop(sy_frame(burst->mbuf[i]), &burst->view[i]);
	burst->via[i] = &e->addr;
	return SY_DROP_NONE;
}

/* Replaces packet i by a new error about *known, the packet as its sender sent it. */
static enum sy_drop error_rebuild(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                  const struct error_packet *c, const struct sy_tuple *known,
                                  const struct sy_addr *src)
{
	struct rte_mbuf *in = burst->mbuf[i], *out = sy_packet_alloc(w);
	if (!out)
		return SY_DROP_NO_BUFFER;
	uint32_t len =
	        sy_packet_rebuild_error(sy_frame(out), rte_pktmbuf_tailroom(out), sy_frame(in),
	                                &burst->view[i], &c->quote, known, src);
	if (len == 0) {
		rte_pktmbuf_free(out);
		return SY_DROP_ICMP_UNHANDLED;
	}
	rte_pktmbuf_append(out, (uint16_t)len);
	burst->mbuf[i] = out;
	rte_pktmbuf_free(in);
	return SY_DROP_NONE;
}

static enum sy_drop error_translate(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                    const struct error_packet *c, const struct session *s,
                                    const struct endpoint *e)
{
	struct sy_balance *b = w->app;
	uint8_t *frame = sy_frame(burst->mbuf[i]);
	const struct sy_view *v = &burst->view[i];
	bool to_client = c->from == SESSION_SERVER;
	const struct session_cold *cold = session_cold_at(b->table[c->slot], c->record);
	struct sy_tuple known =
	        to_client ? session_client_tuple(s, cold, e) : session_server_tuple(b, s, cold, e);
	/* Is the router on the receiver's own path? Then the receiver sees the router's address,
	 * unless it is link-local. */
	bool beyond = to_client ? e->mode == MODE_SNAT : e->mode == MODE_NAT;
	bool shown = beyond && !sy_addr_is_link_local(&v->tuple.src);
	struct sy_addr src = shown ? v->tuple.src : known.dst;
	struct sy_rewrite r;

	if (to_client && s->flags & SESSION_SHIFTED)
		sy_packet_shift_quote(frame, v, &c->quote, -cold->inserted);
	else if (s->flags & SESSION_SHIFTED)
		sy_packet_shift_quote(frame, v, &c->quote,
		                      session_number(b->table[c->slot], c->record, e));
	if (c->tunnel.proto != 0 || sy_addr_is_v4(&known.src) != (c->quote.v4 != 0))
		return error_rebuild(w, burst, i, c, &known, &src);
	sy_rewrite_prepare(&c->quote.tuple, &known, &r);
	sy_packet_translate_error(frame, v, &c->quote, &r, &src);
	return SY_DROP_NONE;
}

/*
 * FNAT: the server stores path MTUs by the local address, so one client's path MTU would apply to
 * all clients. An MTU below CLIENT_MTU_FLOOR is not passed to the server: packets to the client are
 * fragmented here. The error may be forged, but only about a packet that exists and exceeds the MTU
 * that it reports (RFC 5927 7.2).
 */
static bool error_keep(struct sy_worker *w, const struct error_packet *c, struct session *s,
                       const struct endpoint *e)
{
	const struct sy_quote *q = &c->quote;
	if (q->kind != SY_QUOTE_TOO_BIG || c->from != SESSION_CLIENT || e->mode != MODE_FNAT ||
	    q->mtu >= CLIENT_MTU_FLOOR)
		return false;
	/* IPv4: sy_packet_parse_quote() refuses such MTUs of IPv6. */
	if (q->ip_len > q->mtu) {
		client_mtu_note(w, &s->client, q->mtu);
		s->path = SY_PATH_NONE;
	}
	return true;
}

static enum sy_drop error_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct sy_balance *b = w->app;
	const uint8_t *frame = sy_frame(burst->mbuf[i]);
	const struct sy_view *v = &burst->view[i];
	struct error_packet c;
	enum sy_drop reason;

	if (sy_packet_check_l4(frame, v) != SY_CSUM_OK)
		return SY_DROP_BAD_L4_CHECKSUM;
	reason = error_read(b, frame, v, &c);
	if (reason != SY_DROP_NONE)
		return reason;
	/* the configuration has changed since the error was steered: another worker owns the
	 * slot */
	if (c.slot != burst->slot[i])
		return SY_DROP_ICMP_NO_SESSION;
	burst->hash[i] = sy_hash_tuple(&b->key, &c.incoming);
	struct session *s = error_session(b, &c, burst->hash[i]);
	burst->session[i] = c.record;
	if (s ? session_is_away(s) && relay_to_owner(w, burst, i)
	      : relay_to_home(w, burst, i, false))
		return SY_DROP_NONE;
	if (!s)
		return SY_DROP_ICMP_NO_SESSION;
	if (sy_packet_ttl(frame, v) <= 1)
		return SY_DROP_TTL_EXPIRED;
	const struct endpoint *e = &b->endpoint[s->server];
	if (error_keep(w, &c, s, e))
		return SY_DROP_PATH_MTU_KEPT;
	burst->path[i] = forward_path(w, s, c.from);
	if (burst->path[i] == SY_PATH_NONE)
		return SY_DROP_NO_ROUTE;
	burst->flow[i] = (uint32_t)(burst->hash[i] >> 32);
	return c.from == SESSION_CLIENT && endpoint_is_one_way(e)
	               ? error_pass(w, burst, i, s, e)
	               : error_translate(w, burst, i, &c, s, e);
}

void icmp_error_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	enum sy_drop reason = error_forward(w, burst, i);
	if (sy_next_has_left(burst->next[i]))
		return;
	if (reason == SY_DROP_NONE)
		burst->next[i] = SY_NEXT_TRANSMIT;
	else
		sy_burst_drop(w, burst, i, reason);
}
