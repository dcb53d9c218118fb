// SPDX-License-Identifier: Apache-2.0
/*
 * SNAT: chooses a new session's address and port.
 *
 *     inside host:port → remote     slot of (inside host, port), like a client's
 *     remote → pool:port            the same slot: the port is chosen for it
 */
#include <arpa/inet.h>

#include "create.h"
#include "end.h"
#include "evict.h"
#include "pressure.h"
#include "snat.h"
#include "synced.h"
#include "tcp_state.h"

#define POOL_ADDRESSES 4 /* addresses per search; together they get SESSION_PORT_PROBES probes */

/*
 * Rendezvous hashing: each inside host has its own order of the pool's addresses. Remotes see it
 * under one address (RFC 4787 REQ-2), and few hosts change address when the pool changes. Returns
 * the address after `weight`, and its weight.
 */
static unsigned pool_next(const struct snat_pool *pool, const struct sy_addr *inside,
                          uint64_t *weight)
{
	uint64_t own =
	        sy_hash_mix(inside->d[0] ^ 0x9e3779b97f4a7c15, inside->d[1] ^ 0xbf58476d1ce4e5b9);
	uint64_t best = 0, below = *weight;
	unsigned found = 0;
	for (unsigned i = 0; i < pool->count; i++) {
		uint64_t w = sy_hash_mix(own ^ pool->addr[i].d[0],
		                         pool->addr[i].d[1] ^ 0x94d049bb133111eb);
		if (w < below && w >= best) {
			best = w;
			found = i;
		}
	}
	*weight = best;
	return found;
}

/*
 * The preferred first byte of the pool port for an inside port (network order): the inside port's,
 * XORed with the last bytes of both addresses, so that neighbours in one /24 prefer different
 * ports. If that port is below SESSION_PORT_FIRST: the inside port's own byte, which no other
 * inside port from 1024 up gets. If the inside port is below it too (echo): with the highest bit
 * set.
 */
static unsigned own_first_byte(uint16_t port, const struct sy_addr *inside,
                               const struct sy_addr *pool)
{
	const unsigned low = SESSION_PORT_FIRST >> 8;
	unsigned n = (port & 0xff) ^ inside->b[15] ^ pool->b[15];

	if (n < low)
		n = port & 0xff;
	return n < low ? n | 0x80 : n;
}

/* Finds the preferred pool port of an inside port, if it is free. It lies in the inside tuple's
 * slot by construction, and is the same towards all remotes. */
static bool own_port(const struct sy_balance *b, struct session_table *t, struct port_search *p,
                     const struct session *s)
{
	enum session_direction side;
	struct sy_tuple *reply = &p->search.reply;
	reply->dst = p->search.locals[0];
	reply->dport = sy_slot_port(t->slot, &reply->dst,
	                            own_first_byte(s->client_port, &s->client, &reply->dst));
	p->search.local = p->search.local_ids[0];
	p->search.server_hash = sy_hash_tuple(&b->key, reply);
	return session_find(t->index, p->search.server_hash, port_is_in_use, &p->search, &side) ==
	       SESSION_NONE;
}

/* Chooses a pool address and port for s. UDP and echo: an inside socket keeps its port towards all
 * remotes (RFC 4787 REQ-1). TCP: ports are reused as late as possible. */
static enum sy_drop choose_port(struct sy_worker *w, struct session_table *t,
                                const struct snat_pool *pool, struct session *s,
                                uint64_t *server_hash)
{
	const struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	uint64_t weight = UINT64_MAX;
	for (unsigned n = 0; n < pool->count && n < POOL_ADDRESSES; n++) {
		unsigned i = pool_next(pool, &s->client, &weight);
		struct port_search p = {
		        .search = {.victim = SESSION_NONE,
		                   .locals = &pool->addr[i],
		                   .local_ids = &pool->id[i],
		                   .local_count = 1,
		                   .now = (uint16_t)balance_seconds(w),
		                   .cost = evict_port_cost,
		                   .reply = {.src = s[1].client,
		                             .sport = s[1].client_port,
		                             .proto = e->proto}},
		        .balance = b,
		        .table = t,
		        .load = balance_worker_of(w)->load,
		        .server = s->server,
		};
		if ((e->proto == SY_PROTO_TCP || !own_port(b, t, &p, s)) &&
		    !session_find_port(t, &b->key, &p.search, port_is_in_use))
			continue;
		if (p.search.victim != SESSION_NONE)
			evict_for_port(w, t, p.search.victim);
		s->local = p.search.local;
		s->local_port = p.search.reply.dport;
		*server_hash = p.search.server_hash;
		return SY_DROP_NONE;
	}
	return SY_DROP_NO_POOL_PORT;
}

static enum snat_protocol protocol_of(uint32_t proto)
{
	switch (proto) {
	case SY_PROTO_TCP:
		return SNAT_TCP;
	case SY_PROTO_UDP:
		return SNAT_UDP;
	case SY_PROTO_ICMP:
		return SNAT_ICMP;
	default:
		return SNAT_ICMPV6;
	}
}

static uint8_t first_state(uint32_t proto)
{
	return proto == SY_PROTO_TCP   ? SESSION_SYN_SENT
	       : proto == SY_PROTO_UDP ? SESSION_UDP_ONE_WAY
	                               : SESSION_ECHO;
}

/* Creates a session for packet i under this rule, with its pair record. */
static uint32_t create_pair(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                            const struct snat_rule *rule, uint32_t server, enum sy_drop *reason)
{
	struct sy_balance *b = w->app;
	const struct sy_tuple *from = &burst->view[i].tuple;
	struct session_table *t = b->table[burst->slot[i]];
	struct session s[2] = {
	        {.client = from->src,
	         .client_port = from->sport,
	         .server = server,
	         .seen = (uint16_t)balance_seconds(w),
	         .path = sy_path_lookup(b->rt, &from->src),
	         .state = first_state(from->proto)},
	        {.client = from->dst,
	         .client_port = from->dport,
	         .path = sy_path_lookup(b->rt, &from->dst)},
	};
	struct session_cold cold[2] = {{.created = balance_seconds(w) & SESSION_CREATED_MASK}};
	uint64_t server_hash;
	struct sy_rewrite r;

	if (from->proto == SY_PROTO_TCP) {
		const struct sy_view *v = &burst->view[i];
		const struct sy_tcp *tcp = sy_packet_tcp(sy_frame(burst->mbuf[i]), v);
		tcp_state_note_snat_syn(&cold[1], ntohl(tcp->seq),
		                        v->l4_len - (tcp->offset >> 4) * 4u);
	}
	*reason = s[0].path == SY_PATH_NONE || s[1].path == SY_PATH_NONE
	                  ? SY_DROP_NO_ROUTE
	                  : choose_port(w, t, &rule->pool[sy_addr_is_v4(&from->src)], s,
	                                &server_hash);
	if (*reason != SY_DROP_NONE)
		return SESSION_NONE;
	const struct sy_tuple to = {b->local[s[0].local], from->dst, s[0].local_port, from->dport,
	                            from->proto};
	const struct sy_tuple back = {from->dst, from->src, from->dport, from->sport, from->proto};
	const uint8_t tos = packet_tos(burst, i);
	if (SY_UNLIKELY(sy_policies_exist(b->rt)) &&
	    (sy_policy_refuses(b->rt, &to, tos) || sy_policy_refuses(b->rt, &back, tos))) {
		*reason = SY_DROP_NO_ROUTE;
		return SESSION_NONE;
	}
	sy_rewrite_prepare(from, &to, &r);
	s[0].delta = r.l4_delta;
	if (SY_UNLIKELY(pressure_is_full(t)))
		evict_embryonic(w, t, server);
	uint32_t record = session_insert_pair(t, s, cold, burst->hash[i], server_hash);
	if (SY_UNLIKELY(record == SESSION_NONE) && evict_session(w, t, server, true))
		record = session_insert_pair(t, s, cold, burst->hash[i], server_hash);
	if (record == SESSION_NONE)
		*reason = SY_DROP_TABLE_FULL;
	else
		pressure_begin(w, t, record);
	return record;
}

uint32_t snat_create(struct sy_worker *w, struct sy_burst *burst, unsigned i, enum sy_drop *reason)
{
	struct sy_balance *b = w->app;
	const struct sy_tuple *from = &burst->view[i].tuple;
	const struct snat *snat = SY_RCU_READ(b->snat);
	enum address_set_kind to = address_set_find(SY_RCU_READ(b->address_set), &from->dst);

	*reason = SY_DROP_NO_SERVICE;
	/* an inside host's packet to a VIP is handled like a client's */
	if (to == ADDRESS_SET_VIP || !snat_matches(snat, from))
		return SESSION_NONE;
	const struct snat_rule *rule = snat_find(snat, &from->src);
	uint32_t server = rule->server[protocol_of(from->proto)];
	struct endpoint *e = &b->endpoint[server];
	if (SY_READ(e->removed) || !endpoint_service(b, e))
		return SESSION_NONE;
	/* the master chooses pool ports: two nodes could choose the same one */
	*reason = synced_is_backup(b) ? SY_DROP_BACKUP : create_check(b, burst, i);
	if (*reason != SY_DROP_NONE)
		return SESSION_NONE;
	uint32_t record = create_pair(w, burst, i, rule, server, reason);
	if (record == SESSION_NONE)
		return SESSION_NONE;
	load_force(b, server);
	SY_COUNT(balance_worker_of(w)->share[server].traffic.created, 1);
	return record;
}
