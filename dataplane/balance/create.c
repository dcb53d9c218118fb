// SPDX-License-Identifier: Apache-2.0
/* The birth and the end of a session. */
#include "balance.h"
#include "snat.h"

struct port_search {
	struct session_port_search search;
	const struct sy_balance *balance;
	const struct session_table *table;
};

/* Does this session hold the tuple that the search proposes? Two server ids may be one endpoint. */
static bool port_is_taken(const void *ctx, const struct session *s,
                          enum session_direction direction)
{
	const struct port_search *p = SY_CONTAINER_OF(ctx, struct port_search, search);
	const struct match_context match = {p->balance, p->table, &p->search.reply};
	return direction == SESSION_SERVER && match_session(&match, s, direction);
}

/* Chooses local address and port of s towards its server. */
static enum sy_drop create_local(struct sy_worker *w, struct session_table *t, struct session *s,
                                 const struct session_cold *cold, uint64_t *server_hash)
{
	struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	const struct local_set *set = SY_RCU_READ(b->locals[sy_addr_is_v4(&e->addr)]);
	if (set->count == 0)
		return SY_DROP_NO_LOCAL_ADDRESS;
	struct port_search p = {
	        .search = {.locals = set->addr,
	                   .local_ids = set->id,
	                   .local_count = set->count,
	                   .now = (uint16_t)balance_seconds(w),
	                   .reply = {.src = e->addr,
	                             .sport = session_port(e, cold),
	                             .proto = e->proto}},
	        .balance = b,
	        .table = t,
	};
	if (!session_find_port(t, &b->key, &p.search, port_is_taken))
		return SY_DROP_NO_LOCAL_PORT;
	if (p.search.held != SESSION_NONE)
		session_end(w, t, p.search.held);
	s->local = p.search.local;
	s->local_port = p.search.reply.dport;
	*server_hash = p.search.server_hash;
	return SY_DROP_NONE;
}

/* The server answers to the client itself, which may be talking with it by another VIP: there is
 * nothing to choose then. */
static enum sy_drop create_nat(struct sy_balance *b, const struct session_table *t,
                               struct session *s, const struct session_cold *cold,
                               uint64_t *server_hash)
{
	s->local_port = s->client_port;
	const struct endpoint *e = &b->endpoint[s->server];
	const struct sy_tuple reply = {e->addr, s->client, session_port(e, cold), s->local_port,
	                               e->proto};
	const struct match_context ctx = {b, t, &reply};
	enum session_direction side;
	*server_hash = sy_hash_tuple(&b->key, &reply);
	return session_find(t, *server_hash, match_session, &ctx, &side) == SESSION_NONE
	               ? SY_DROP_NONE
	               : SY_DROP_NAT_CLASH;
}

/* The local address that a tunnel begins at: its choice spreads packets over servers' cores. */
static enum sy_drop create_tunnel(struct sy_balance *b, struct session *s, uint64_t hash)
{
	const struct local_set *set =
	        SY_RCU_READ(b->locals[sy_addr_is_v4(&b->endpoint[s->server].addr)]);
	if (set->count == 0)
		return SY_DROP_NO_LOCAL_ADDRESS;
	s->local = set->id[(hash >> 32) * set->count >> 32];
	return SY_DROP_NONE;
}

/* What the server's answers need: a path, a tuple to be found by, and what it costs checksums. */
static enum sy_drop create_way_back(struct sy_worker *w, struct session_table *t,
                                    const struct sy_tuple *from, struct session *s,
                                    const struct session_cold *cold, uint64_t *server_hash)
{
	struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	struct sy_rewrite r;
	s->path = sy_path_lookup(b->rt, &from->src);
	if (s->path == SY_PATH_NONE)
		return SY_DROP_NO_ROUTE;
	enum sy_drop reason = e->mode == MODE_NAT ? create_nat(b, t, s, cold, server_hash)
	                                          : create_local(w, t, s, cold, server_hash);
	if (reason != SY_DROP_NONE)
		return reason;
	const struct sy_tuple to = {*session_local(b, s, e), e->addr, s->local_port,
	                            session_port(e, cold), e->proto};
	sy_rewrite_prepare(from, &to, &r);
	s->delta = r.l4_delta;
	return SY_DROP_NONE;
}

/*
 * The hash that its client's side is filed under. Of one client there may be any number of
 * one-packet sessions, none of which its next datagram may find: they lie where only their end
 * looks.
 */
static uint64_t client_hash(const struct session *s, uint64_t tuple_hash, uint64_t server_hash)
{
	return s->flags & SESSION_ONE_PACKET
	               ? sy_hash_mix(server_hash, UINT64_C(0x9fb21c651e98df25))
	               : tuple_hash;
}

/* The session of packet i with this server, whose place is taken. */
static uint32_t create_at(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          const struct service *service, uint32_t server, enum sy_drop *reason)
{
	struct sy_balance *b = w->app;
	const struct sy_view *v = &burst->view[i];
	struct session_table *t = b->table[burst->slot[i]];
	const struct endpoint *e = &b->endpoint[server];
	struct session s = {
	        .client = v->tuple.src,
	        .client_port = v->tuple.sport,
	        .server = server,
	        .local = LOCAL_NONE,
	        .seen = (uint16_t)balance_seconds(w),
	        .state = v->proto == SY_PROTO_TCP ? SESSION_SYN_SENT : SESSION_UDP_ONE_WAY,
	        /* The other fragments of a datagram must find it. */
	        .flags = service->policy.one_packet && v->fragment == SY_FRAGMENT_NONE
	                         ? SESSION_ONE_PACKET
	                         : 0,
	};
	const struct session_cold cold = {
	        .created = balance_seconds(w) & SESSION_CREATED_MASK,
	        .vport = e->vport ? 0 : v->tuple.dport,
	};
	uint64_t server_hash = SESSION_ONE_WAY;
	*reason = SY_READ(e->path) == SY_PATH_NONE ? SY_DROP_NO_ROUTE : SY_DROP_NONE;
	if (*reason == SY_DROP_NONE && e->mode == MODE_IPIP)
		*reason = create_tunnel(b, &s, burst->hash[i]);
	else if (*reason == SY_DROP_NONE && !endpoint_is_one_way(e))
		*reason = create_way_back(w, t, &v->tuple, &s, &cold, &server_hash);
	if (*reason != SY_DROP_NONE)
		return SESSION_NONE;
	uint32_t record = session_insert(t, &s, &cold, client_hash(&s, burst->hash[i], server_hash),
	                                 server_hash);
	if (record == SESSION_NONE)
		*reason = SY_DROP_TABLE_FULL;
	return record;
}

enum sy_drop create_check(struct sy_burst *burst, unsigned i)
{
	const struct sy_view *v = &burst->view[i];
	if (!sy_view_has_l4(v) ||
	    (v->proto == SY_PROTO_TCP && (v->tcp_flags & (SY_TCP_SYN | SY_TCP_ACK)) != SY_TCP_SYN))
		return SY_DROP_NO_SESSION;
	switch (sy_packet_check_l4(sy_frame(burst->mbuf[i]), v)) {
	case SY_CSUM_OK:
	case SY_CSUM_UNKNOWN:
		return SY_DROP_NONE;
	case SY_CSUM_UNFINISHED:
		return SY_DROP_UNFINISHED_CHECKSUM;
	default:
		return SY_DROP_BAD_L4_CHECKSUM;
	}
}

uint32_t session_create(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        enum sy_drop *reason)
{
	struct sy_balance *b = w->app;
	const struct sy_view *v = &burst->view[i];

	const struct service *service = directory_find(b, &v->tuple);
	if (!service)
		return snat_create(w, burst, i, reason);
	*reason = create_check(burst, i);
	if (*reason == SY_DROP_NO_SESSION && service->policy.resets & RESETS_UNKNOWN)
		reset_unknown(w, burst, i);
	if (*reason != SY_DROP_NONE)
		return SESSION_NONE;
	uint32_t server;
	*reason = schedule(w, service, &v->tuple, &server);
	if (*reason != SY_DROP_NONE)
		return SESSION_NONE;
	uint32_t record = create_at(w, burst, i, service, server, reason);
	if (record == SESSION_NONE)
		load_give(b, server);
	else
		SY_COUNT(balance_worker_of(w)->traffic[server].created, 1);
	return record;
}

void session_end(struct sy_worker *w, struct session_table *t, uint32_t record)
{
	struct sy_balance *b = w->app;
	const struct session *s = session_at(t, record);
	const struct session_cold *cold = session_cold_at(t, record);
	const struct endpoint *e = &b->endpoint[s->server];
	const struct sy_tuple client = session_client_tuple(s, cold, e);
	const struct sy_tuple server = session_server_tuple(b, s, cold, e);
	uint64_t server_hash =
	        endpoint_is_one_way(e) ? SESSION_ONE_WAY : sy_hash_tuple(&b->key, &server);
	uint64_t hash = sy_hash_tuple(&b->key, &client);
	reset_time_wait(w, session_at(t, record), cold);
	SY_COUNT(balance_worker_of(w)->traffic[s->server].ended, 1);
	load_give(b, s->server);
	session_remove(t, record, client_hash(s, hash, server_hash), server_hash);
}
