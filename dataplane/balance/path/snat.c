// SPDX-License-Identifier: Apache-2.0
/*
 * SNAT's packets: who is inside, a new session's address and port, both rewrites.
 *
 *     inside host:port → remote     slot of (inside host, port): as a client's
 *     remote → pool:port            the same slot, by the choice of the port
 */
#include "snat.h"

#include "evict.h"

#include <arpa/inet.h>
#include <stdlib.h>

#define FIRST_PORT     1024 /* host order; as in session_port.c */
#define POOL_ADDRESSES 4    /* that one search tries: SESSION_PORT_PROBES in all */

/* ---- inside or not ----------------------------------------------------------------------------
 */

static struct sy_addr network_of(const struct sy_addr *addr, unsigned bits)
{
	struct sy_addr first = *addr;
	for (unsigned byte = bits / 8; byte < 16; byte++)
		first.b[byte] &= byte == bits / 8 ? (uint8_t)(0xff00 >> bits % 8) : 0;
	return first;
}

const struct snat_rule *snat_find(const struct snat *snat, const struct sy_addr *addr)
{
	for (unsigned i = 0; snat && i < snat->lengths; i++) {
		const struct sy_addr first = network_of(addr, snat->length[i]);
		for (uint32_t at = ours_hash(&first);; at++) {
			const struct snat_place *p = &snat->place[at & snat->mask];
			if (!p->bits)
				break;
			if (p->bits == snat->length[i] && sy_addr_equal(&p->first, &first))
				return &snat->rule[p->rule];
		}
	}
	return NULL;
}

static bool is_of_link(const struct sy_addr *a)
{
	bool group = sy_addr_is_v4(a) ? a->b[12] >= 224 : a->b[0] == 0xff;
	return group || sy_addr_is_link_local(a);
}

bool snat_takes(const struct snat *snat, const struct sy_tuple *t)
{
	return snat && snat_find(snat, &t->src) && !is_of_link(&t->dst) &&
	       !snat_find(snat, &t->dst);
}

static int source_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct sy_source));
}

static bool is_source(const struct snat *snat, const struct sy_addr *addr, uint16_t port,
                      uint32_t proto)
{
	const struct sy_source key = {*addr, port, (uint16_t)proto, 0};
	return bsearch(&key, snat->source, snat->sources, sizeof(key), source_compare) != NULL;
}

bool snat_is_of_inside(const struct snat *snat, const struct sy_tuple *t)
{
	return snat_takes(snat, t) && !is_source(snat, &t->src, t->sport, t->proto) &&
	       !is_source(snat, &t->src, 0, t->proto); /* of all ports */
}

bool snat_is_echo(const struct sy_view *v, bool to_pool)
{
	uint8_t request = v->v4 ? 8 : 128, reply = v->v4 ? 0 : 129;
	return (v->proto == SY_PROTO_ICMP || v->proto == SY_PROTO_ICMPV6) && v->icmp_code == 0 &&
	       v->icmp_type == (to_pool ? reply : request);
}

void snat_echo_ports(struct sy_view *v, bool to_pool)
{
	if (to_pool)
		v->tuple.dport = v->icmp_id;
	else
		v->tuple.sport = v->icmp_id;
}

/* ---- birth ------------------------------------------------------------------------------------
 */

struct pool_search {
	struct session_port_search search;
	const struct sy_balance *balance;
	const struct session_table *table;
};

static bool port_is_taken(const void *ctx, const struct session *s,
                          enum session_direction direction)
{
	const struct pool_search *p = SY_CONTAINER_OF(ctx, struct pool_search, search);
	const struct match_context match = {p->balance, p->table, &p->search.reply};
	return direction == SESSION_SERVER && match_session(&match, s, direction);
}

/*
 * The pool's addresses in an order that is each inside host's own (rendezvous hashing), so that it
 * is seen under one address (RFC 4787 REQ-2) and few change theirs when the pool does. Returns the
 * one behind `weight`, and its weight.
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

/* The port that belongs to an inside port as long as nobody else has it: in the inside tuple's slot
 * by construction, and no other port of that host has it. Its first byte is the inside port's,
 * moved by the last bytes of both addresses, so that neighbours of one /24 never want the same. */
static bool own_port(const struct sy_balance *b, struct session_table *t, struct pool_search *p,
                     const struct session *s)
{
	enum session_direction side;
	struct sy_tuple *reply = &p->search.reply;
	reply->dst = p->search.locals[0];
	reply->dport = sy_slot_port(t->slot, &reply->dst,
	                            (s->client_port & 0xff) ^ s->client.b[15] ^ reply->dst.b[15]);
	p->search.local = p->search.local_ids[0];
	p->search.server_hash = sy_hash_tuple(&b->key, reply);
	return ntohs(reply->dport) >= FIRST_PORT &&
	       session_find(t, p->search.server_hash, port_is_taken, &p->search, &side) ==
	               SESSION_NONE;
}

/* Address and port of the pool for s. Where nothing remembers a connection that has ended, an
 * inside socket keeps its port towards all others (RFC 4787 REQ-1); TCP's come back as late as
 * possible. */
static enum sy_drop choose_port(struct sy_worker *w, struct session_table *t,
                                const struct snat_pool *pool, struct session *s,
                                uint64_t *server_hash)
{
	const struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	uint64_t weight = UINT64_MAX;
	for (unsigned n = 0; n < pool->count && n < POOL_ADDRESSES; n++) {
		unsigned i = pool_next(pool, &s->client, &weight);
		struct pool_search p = {
		        .search = {.held = SESSION_NONE,
		                   .locals = &pool->addr[i],
		                   .local_ids = &pool->id[i],
		                   .local_count = 1,
		                   .now = (uint16_t)balance_seconds(w),
		                   .reply = {.src = s[1].client,
		                             .sport = s[1].client_port,
		                             .proto = e->proto}},
		        .balance = b,
		        .table = t,
		};
		if ((e->proto == SY_PROTO_TCP || !own_port(b, t, &p, s)) &&
		    !session_find_port(t, &b->key, &p.search, port_is_taken))
			continue;
		if (p.search.held != SESSION_NONE)
			session_end(w, t, p.search.held);
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

/* A session of packet i under this rule, with its companion. */
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
	const struct session_cold cold = {.created = balance_seconds(w) & SESSION_CREATED_MASK};
	uint64_t server_hash;
	struct sy_rewrite r;

	*reason = s[0].path == SY_PATH_NONE || s[1].path == SY_PATH_NONE
	                  ? SY_DROP_NO_ROUTE
	                  : choose_port(w, t, &rule->pool[sy_addr_is_v4(&from->src)], s,
	                                &server_hash);
	if (*reason != SY_DROP_NONE)
		return SESSION_NONE;
	const struct sy_tuple to = {b->local[s[0].local], from->dst, s[0].local_port, from->dport,
	                            from->proto};
	sy_rewrite_prepare(from, &to, &r);
	s[0].delta = r.l4_delta;
	uint32_t record = session_insert_pair(t, s, &cold, burst->hash[i], server_hash);
	if (SY_UNLIKELY(record == SESSION_NONE) && evict_session(w, t, true))
		record = session_insert_pair(t, s, &cold, burst->hash[i], server_hash);
	if (record == SESSION_NONE)
		*reason = SY_DROP_TABLE_FULL;
	return record;
}

uint32_t snat_create(struct sy_worker *w, struct sy_burst *burst, unsigned i, enum sy_drop *reason)
{
	struct sy_balance *b = w->app;
	const struct sy_tuple *from = &burst->view[i].tuple;
	const struct snat *snat = SY_RCU_READ(b->snat);
	enum ours_kind to = ours_find(SY_RCU_READ(b->ours), &from->dst);

	*reason = SY_DROP_NO_SERVICE;
	/* An inside host is a client like others to a VIP. */
	if (to == OURS_VIP || !snat_takes(snat, from))
		return SESSION_NONE;
	const struct snat_rule *rule = snat_find(snat, &from->src);
	uint32_t server = rule->server[protocol_of(from->proto)];
	struct endpoint *e = &b->endpoint[server];
	if (SY_READ(e->removed) || !endpoint_service(b, e))
		return SESSION_NONE;
	*reason = create_check(burst, i);
	if (*reason != SY_DROP_NONE)
		return SESSION_NONE;
	uint32_t record = create_pair(w, burst, i, rule, server, reason);
	if (record == SESSION_NONE)
		return SESSION_NONE;
	load_take(&b->server_active[server], UINT32_MAX);
	load_take(&b->service_active[e->service], UINT32_MAX);
	SY_COUNT(balance_worker_of(w)->share[server].traffic.created, 1);
	return record;
}

/* ---- on the way -------------------------------------------------------------------------------
 */

void snat_rewrite(const struct sy_balance *b, struct sy_burst *burst, unsigned i,
                  const struct session *s)
{
	const struct sy_view *v = &burst->view[i];
	const struct sy_tuple *t = &v->tuple;
	struct sy_rewrite r = {.src = t->src, .dst = t->dst, .sport = t->sport, .dport = t->dport};
	uint16_t id;

	if (burst->direction[i] == SESSION_CLIENT) {
		r.src = b->local[s->local];
		r.sport = id = s->local_port;
		r.l4_delta = s->delta;
	} else {
		r.dst = s->client;
		r.dport = id = s->client_port;
		r.l4_delta = sy_csum_inverse(s->delta);
	}
	if (v->echo) {
		r.sport = id;
		sy_packet_rewrite_echo(sy_frame(burst->mbuf[i]), v, &r);
		return;
	}
	if (v->v4)
		r.l3_delta = sy_csum_delta(sy_csum_addr(&t->src) + sy_csum_addr(&t->dst),
		                           sy_csum_addr(&r.src) + sy_csum_addr(&r.dst));
	sy_packet_rewrite(sy_frame(burst->mbuf[i]), v, &r);
}
