// SPDX-License-Identifier: Apache-2.0
/*
 * Session creation, for slow.c: service (locate.c), server (schedule.c), local port
 * (session_port.c), record (session_table.c). create_prepare() finds the server for all packets of
 * a burst that begin sessions, and prefetches what port and record need.
 * session_create() does the rest, or all of it for a packet that was not prepared.
 */
#include "create.h"
#include "client_mtu.h"

#include <arpa/inet.h>

#include "access_check.h"
#include "away.h"
#include "challenge.h"
#include "delay.h"
#include "end.h"
#include "evict.h"
#include "locate.h"
#include "police.h"
#include "pressure.h"
#include "reset.h"
#include "snat.h"
#include "synced.h"
#include "unavailable.h"
#include "validated.h"

/* Begins the search for a local port towards this server. Protocols with several connections, such
 * as FTP, need one local address for all of them (RFC 4787 REQ-2). */
static void search_begin(struct sy_worker *w, struct session_table *t, const struct endpoint *e,
                         uint16_t port, const struct sy_addr *client, struct port_search *p)
{
	const struct sy_balance *b = w->app;
	const struct local_set *set = SY_RCU_READ(b->locals[sy_addr_is_v4(&e->addr)]);
	struct session_port_search *search = &p->search;

	p->balance = b;
	p->table = t;
	search->locals = set->addr;
	search->local_ids = set->id;
	search->local_count = set->count;
	search->home = set->home[local_bucket(client)];
	search->now = (uint16_t)balance_seconds(w);
	search->reply.src = e->addr;
	search->reply.sport = port;
	search->reply.proto = e->proto;
	search->cursor = NULL;
	search->cost = evict_port_cost;
	p->server = (uint32_t)(e - b->endpoint);
	p->load = balance_worker_of(w)->load;
}

/* Chooses the local address and port of s towards its server. */
static enum sy_drop create_local(struct sy_worker *w, struct session_table *t, struct session *s,
                                 struct port_search *p, uint64_t *server_hash)
{
	struct sy_balance *b = w->app;
	if (p->search.local_count == 0)
		return SY_DROP_NO_LOCAL_ADDRESS;
	if (!session_find_port(t, &b->key, &p->search, port_is_in_use))
		return SY_DROP_NO_LOCAL_PORT;
	if (SY_UNLIKELY(p->search.victim != SESSION_NONE))
		evict_for_port(w, t, p->search.victim);
	s->local = p->search.local;
	s->local_port = p->search.reply.dport;
	*server_hash = p->search.server_hash;
	return SY_DROP_NONE;
}

/* NAT: the server replies to the client's address, so there is no port to choose. The tuple clashes
 * if the client has a session with this server through another VIP. */
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
	return session_find(t->index, *server_hash, match_session, &ctx, &side) == SESSION_NONE
	               ? SY_DROP_NONE
	               : SY_DROP_NAT_CLASH;
}

/* IPIP: chooses the tunnel's local address. It varies, to spread packets over the server's
 * cores. */
static enum sy_drop create_tunnel(struct sy_balance *b, struct session *s, uint64_t hash)
{
	const struct local_set *set =
	        SY_RCU_READ(b->locals[sy_addr_is_v4(&b->endpoint[s->server].addr)]);
	if (set->count == 0)
		return SY_DROP_NO_LOCAL_ADDRESS;
	s->local = set->id[(hash >> 32) * set->count >> 32];
	return SY_DROP_NONE;
}

/* Sets what server-to-client packets need: path, reverse tuple, checksum delta. */
static enum sy_drop create_way_back(struct sy_worker *w, struct session_table *t,
                                    const struct sy_tuple *from, struct session *s,
                                    const struct session_cold *cold, struct port_search *p,
                                    uint64_t *server_hash)
{
	struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	s->path = sy_path_lookup(b->rt, &from->src);
	if (s->path == SY_PATH_NONE)
		return SY_DROP_NO_ROUTE;
	if (SY_UNLIKELY(e->mode == MODE_FNAT && client_mtu_find(w, &s->client)))
		s->path = SY_PATH_NONE; /* see forward_path() */
	enum sy_drop reason = e->mode == MODE_NAT ? create_nat(b, t, s, cold, server_hash)
	                                          : create_local(w, t, s, p, server_hash);
	if (reason != SY_DROP_NONE)
		return reason;
	s->delta = session_compute_delta(b, s, cold, e, from);
	return SY_DROP_NONE;
}

/* Does policy routing refuse packets of the session, to the server or to the client? */
static bool create_is_refused(const struct sy_balance *b, const struct sy_burst *burst, unsigned i,
                              const struct session *s, const struct session_cold *cold)
{
	const struct endpoint *e = &b->endpoint[s->server];
	const struct sy_view *v = &burst->view[i];
	const uint8_t tos = packet_tos(burst, i);
	const struct sy_tuple back = {v->tuple.dst, v->tuple.src, v->tuple.dport, v->tuple.sport,
	                              v->tuple.proto};
	struct sy_tuple to = {s->local == LOCAL_NONE ? s->client : *session_local(b, s, e), e->addr,
	                      s->local == LOCAL_NONE ? s->client_port : s->local_port,
	                      endpoint_is_one_way(e) ? v->tuple.dport : session_port(e, cold),
	                      v->tuple.proto};
	if (e->mode == MODE_IPIP) { /* the kernel would route the tunnel's packet */
		to.proto = v->v4 ? SY_PROTO_IPV4 : SY_PROTO_IPV6;
		to.sport = to.dport = 0;
	}
	return sy_policy_refuses(b->rt, &to, tos) ||
	       (!endpoint_is_one_way(e) && sy_policy_refuses(b->rt, &back, tos));
}

/* Inserts a session that is to be spliced, with its pair record. */
static uint32_t insert_spliced(struct session_table *t, const struct session *s,
                               const struct session_cold *cold,
                               const struct splice_opening *opening, uint64_t hash,
                               uint64_t server_hash)
{
	struct session pair[2] = {*s};
	struct session_cold both[2] = {*cold};
	const struct session_splice splice = {.echo = opening->echo};
	memcpy(&pair[1].client, &opening->begin, sizeof(opening->begin));
	memcpy(&both[1], &splice, sizeof(splice));
	return session_insert_pair(t, pair, both, hash, server_hash);
}

static uint32_t create_insert(struct session_table *t, const struct session *s,
                              const struct session_cold *cold, const struct splice_opening *opening,
                              uint64_t hash, uint64_t server_hash)
{
	return SY_LIKELY(!opening) ? session_insert(t, s, cold, hash, server_hash)
	                           : insert_spliced(t, s, cold, opening, hash, server_hash);
}

/* Creates the session of packet i with the server that was acquired for it. */
static uint32_t create_with_server(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                   struct creation *creation, const struct splice_opening *opening,
                                   enum sy_drop *reason)
{
	struct sy_balance *b = w->app;
	const struct service *service = locate_packet(w, burst, i);
	uint32_t server = creation->server;
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
	        /* The other fragments of the datagram must find the session. */
	        .flags = service->policy.one_packet && v->fragment == SY_FRAGMENT_NONE
	                         ? SESSION_ONE_PACKET
	                         : 0,
	};
	struct session_cold cold = {
	        .created = balance_seconds(w) & SESSION_CREATED_MASK,
	        .vport = e->vport ? 0 : v->tuple.dport,
	};
	uint64_t server_hash = SESSION_ONE_WAY;
	if (endpoint_is_one_way(e) && v->proto == SY_PROTO_TCP)
		cold.client_first = ntohl(sy_packet_tcp(sy_frame(burst->mbuf[i]), v)->seq);
	*reason = SY_READ(e->path) == SY_PATH_NONE ? SY_DROP_NO_ROUTE : SY_DROP_NONE;
	if (*reason == SY_DROP_NONE && e->mode == MODE_IPIP)
		*reason = create_tunnel(b, &s, burst->hash[i]);
	else if (*reason == SY_DROP_NONE && !endpoint_is_one_way(e))
		*reason =
		        create_way_back(w, t, &v->tuple, &s, &cold, &creation->port, &server_hash);
	if (*reason == SY_DROP_NONE && SY_UNLIKELY(sy_policies_exist(b->rt)) &&
	    create_is_refused(b, burst, i, &s, &cold))
		*reason = SY_DROP_NO_ROUTE;
	if (*reason != SY_DROP_NONE)
		return SESSION_NONE;
	uint64_t hash = session_client_hash(&s, burst->hash[i], server_hash);
	if (SY_UNLIKELY(pressure_is_full(t)) && !opening)
		evict_embryonic(w, t, server);
	uint32_t record = create_insert(t, &s, &cold, opening, hash, server_hash);
	if (SY_UNLIKELY(record == SESSION_NONE) && evict_session(w, t, server, opening != NULL))
		record = create_insert(t, &s, &cold, opening, hash, server_hash);
	if (record == SESSION_NONE)
		*reason = SY_DROP_TABLE_FULL;
	else
		pressure_begin(w, t, record);
	return record;
}

/* Is this a segment of a connection whose SYN another forwarder may have seen? */
static bool is_midstream(const struct sy_view *v)
{
	return v->proto == SY_PROTO_TCP && sy_view_has_l4(v) &&
	       (v->tcp_flags & (SY_TCP_SYN | SY_TCP_RST | SY_TCP_ACK)) == SY_TCP_ACK;
}

/* ---- creations of a burst: their memory is prefetched for all of them together --------------- */

_Static_assert(SY_BURST <= 64, "a bit per packet");

/* Does an earlier packet of the burst create this flow's session? pending: bitmap of packets whose
 * creation is prepared. *hashes: bitmap of the upper six bits of their hashes; adds this
 * packet's. */
static inline bool creation_is_duplicate(const struct sy_burst *burst, unsigned i, uint64_t pending,
                                         uint64_t *hashes)
{
	const uint64_t bit = UINT64_C(1) << (burst->hash[i] >> 58);

	if (SY_LIKELY(!(*hashes & bit))) {
		*hashes |= bit;
		return false;
	}
	for (; pending; pending &= pending - 1)
		if (burst->hash[__builtin_ctzll(pending)] == burst->hash[i])
			return true;
	return false;
}

/* Does the session need its own local port? */
static bool creation_needs_port(const struct endpoint *e)
{
	return e->mode == MODE_FNAT;
}

/* Begins the search for the session's local port towards its server. */
static inline void creation_search_port(struct sy_worker *w, const struct sy_burst *burst,
                                        unsigned i, struct creation *creation)
{
	const struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[creation->server];
	if (creation_needs_port(e))
		search_begin(w, b->table[burst->slot[i]], e,
		             e->port ? e->port : burst->view[i].tuple.dport,
		             &burst->view[i].tuple.src, &creation->port);
}

/* Prefetches the table's free records and its next port towards the server. */
static SY_PREFETCH_INLINE void creation_prefetch_table(const struct sy_balance *b,
                                                       const struct sy_burst *burst, unsigned i,
                                                       struct creation *creation)
{
	struct session_table *t = b->table[burst->slot[i]];
	__builtin_prefetch(&t->live, 1);
	if (creation_needs_port(&b->endpoint[creation->server]))
		session_port_prefetch_cursor(t, &creation->port.search);
}

/* Prefetches the records and the index buckets of the first candidate ports. Prefetches wait for
 * address translation and overlap only with each other: compute all addresses first. */
static SY_PREFETCH_INLINE void creations_prefetch(const struct sy_balance *b,
                                                  const struct sy_burst *burst,
                                                  struct creation *creation, uint64_t with_server)
{
	uint64_t searches = 0;
	for (uint64_t left = with_server; left; left &= left - 1)
		session_prefetch_free(b->table[burst->slot[__builtin_ctzll(left)]]);
	for (; with_server; with_server &= with_server - 1) {
		unsigned i = (unsigned)__builtin_ctzll(with_server);
		if (!creation_needs_port(&b->endpoint[creation[i].server]) ||
		    creation[i].port.search.local_count == 0)
			continue;
		session_port_look_ahead(b->table[burst->slot[i]], &b->key,
		                        &creation[i].port.search);
		searches |= UINT64_C(1) << i;
	}
	for (; searches; searches &= searches - 1) {
		unsigned i = (unsigned)__builtin_ctzll(searches);
		session_prefetch_bucket(&b->index[burst->slot[i]],
		                        creation[i].port.search.server_hash);
	}
}

/* Results of create_prepare() so far. */
struct preparation {
	uint64_t hashes;      /* see creation_is_duplicate() */
	uint64_t with_server; /* bitmap by packet */
	/* SYNs of defended one-way services, and the hashes of their clients. Only validated
	 * clients get a session. */
	unsigned defended;
	uint8_t defended_at[SY_BURST];
	uint64_t defended_client[SY_BURST];
};

/* Prepares the session of packet i, the first packet of a client's flow. */
static inline void create_prepare_one(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                      const struct service *service, struct preparation *p)
{
	struct balance_worker *bw = balance_worker_of(w);
	struct creation *creation = &bw->burst.creation[i];
	if (creation_is_duplicate(burst, i, bw->burst.prepared, &p->hashes) ||
	    create_check(w->app, burst, i) != SY_DROP_NONE)
		return;
	creation->reason = schedule(w, service, &burst->view[i].tuple, &creation->server);
	bw->burst.prepared |= UINT64_C(1) << i;
	if (creation->reason != SY_DROP_NONE)
		return;
	p->with_server |= UINT64_C(1) << i;
	creation_search_port(w, burst, i, creation);
	creation_prefetch_table(w->app, burst, i, creation);
}

/* Packet i is for a service under SYN defence: answers a SYN, or leaves it to
 * create_prepare_validated(). */
static __attribute__((noinline)) void create_prepare_defended(struct sy_worker *w,
                                                              struct sy_burst *burst, unsigned i,
                                                              const struct service *service,
                                                              struct preparation *p)
{
	const struct sy_balance *b = w->app;
	const struct sy_view *v = &burst->view[i];
	if (v->proto != SY_PROTO_TCP || v->fragment != SY_FRAGMENT_NONE ||
	    create_check(b, burst, i) != SY_DROP_NONE)
		return;
	if (unavailable_refuses(w, burst, i, service)) /* no server: a cookie would lead nowhere */
		return;
	if (!service->one_way) {
		defence_answer(w, burst, i, service);
		return;
	}
	p->defended_at[p->defended] = (uint8_t)i;
	p->defended_client[p->defended] = challenge_client(b, service, &v->tuple.src);
	validated_prefetch(b->validated, p->defended_client[p->defended++]);
}

/* Prepares the sessions of validated clients; answers the SYNs of all other clients by a
 * challenge. */
static __attribute__((noinline)) void
create_prepare_validated(struct sy_worker *w, struct sy_burst *burst, struct preparation *p)
{
	for (unsigned k = 0; k < p->defended && k < SY_BURST; k++) {
		const unsigned i = p->defended_at[k];
		const struct service *service = balance_worker_of(w)->burst.service[i];
		if (!creation_is_duplicate(burst, i, balance_worker_of(w)->burst.prepared,
		                           &p->hashes) &&
		    challenge_passes(w, burst, i, service, p->defended_client[k]))
			create_prepare_one(w, burst, i, service, p);
	}
}

void create_prepare(struct sy_worker *w, struct sy_burst *burst, const uint8_t *at, unsigned count)
{
	struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	struct preparation p;
	p.hashes = p.with_server = p.defended = 0;
	for (unsigned k = 0; k < count; k++) {
		unsigned i = at[k];
		const struct sy_view *v = &burst->view[i];
		/* A traceroute packet creates no session, so it must not evict one. */
		if (!burst->plain[i] && sy_packet_ttl(sy_frame(burst->mbuf[i]), v) <= 1)
			continue;
		const struct service *service = bw->burst.service[i];
		if (SY_UNLIKELY(defence_is_on(b, service)))
			create_prepare_defended(w, burst, i, service, &p);
		else
			create_prepare_one(w, burst, i, service, &p);
	}
	if (SY_UNLIKELY(p.defended))
		create_prepare_validated(w, burst, &p);
	if (p.with_server)
		creations_prefetch(b, burst, bw->burst.creation, p.with_server);
}

/* Finds a server for packet i and acquires a session on it. */
static enum sy_drop creation_find_server(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                         const struct service *service, uint32_t *server)
{
	enum sy_drop reason = create_check(w->app, burst, i);
	if (reason == SY_DROP_NO_SESSION && service->policy.sloppy_tcp &&
	    is_midstream(&burst->view[i]))
		reason = create_check_origin(w->app, burst, i);
	if (reason == SY_DROP_NO_SESSION && service->policy.resets & RESETS_UNKNOWN)
		reset_unknown(w, burst, i);
	if (reason == SY_DROP_NONE)
		reason = access_check_packet(w, burst, i, service);
	return reason == SY_DROP_NONE ? schedule(w, service, &burst->view[i].tuple, server)
	                              : reason;
}

void create_cancel(struct sy_worker *w, unsigned i)
{
	struct balance_worker *bw = balance_worker_of(w);
	bw->burst.prepared &= ~(UINT64_C(1) << i);
	if (bw->burst.creation[i].reason == SY_DROP_NONE)
		load_release(w->app, bw->burst.creation[i].server);
}

/* Charges the limits of new sessions. Returns NONE or the drop reason. */
static enum sy_drop create_check_limits(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                        uint32_t server)
{
	const struct sy_balance *b = w->app;
	const struct sy_view *v = &burst->view[i];
	if (SY_LIKELY(!(SY_READ(b->endpoint[server].limited) & ~LIMITED_SHAPED)))
		return SY_DROP_NONE;
	const struct police_packet p = {server, &v->tuple.src, SESSION_CLIENT,
	                                (uint16_t)(v->frame_len - v->l3), true};
	police_class(b, burst->mbuf[i], &b->endpoint[server]);
	return police_check(w, burst, i, &p);
}

enum sy_drop create_recheck(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                            uint32_t server)
{
	const struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[server];
	const struct service *service = e->mode == MODE_SNAT ? NULL : endpoint_service(b, e);
	enum sy_drop reason = SY_DROP_NONE;
	if (SY_UNLIKELY(!service))
		return SY_DROP_NONE;
	reason = access_check_packet(w, burst, i, service);
	if (reason == SY_DROP_NONE && SY_READ(e->limited) & LIMITED_SESSIONS) {
		police_undo(w, i); /* charged again below, together with the session's limits */
		reason = create_check_limits(w, burst, i, server);
	}
	if (reason != SY_DROP_NONE)
		SY_COUNT(balance_worker_of(w)->counts[service->id].refused[refusal_of(reason)], 1);
	return reason;
}

/* Starts the timer for the server's answer to the SYN that created the session. */
static void create_delay_begin(struct sy_worker *w, const struct sy_burst *burst, unsigned i,
                               uint32_t record, uint32_t server)
{
	const struct sy_balance *b = w->app;
	if (burst->view[i].tcp_flags & SY_TCP_SYN && !endpoint_is_one_way(&b->endpoint[server]))
		delay_begin(w, burst->slot[i], record);
}

uint32_t session_create(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        const struct splice_opening *opening, enum sy_drop *reason)
{
	struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	struct creation *creation = &bw->burst.creation[i];
	const struct service *service = locate_packet(w, burst, i);
	uint64_t bit = UINT64_C(1) << i;

	if (bw->burst.prepared & bit) {
		bw->burst.prepared &= ~bit;
	} else {
		if (!service) {
			uint32_t pair = snat_create(w, burst, i, reason);
			bw->created += pair != SESSION_NONE;
			return pair;
		}
		creation->reason = creation_find_server(w, burst, i, service, &creation->server);
		if (creation->reason == SY_DROP_NONE)
			creation_search_port(w, burst, i, creation);
	}
	struct service_counts *counts = &bw->counts[service->id];
	*reason = (enum sy_drop)creation->reason;
	if (*reason != SY_DROP_NONE) {
		SY_COUNT(counts->refused[refusal_of(*reason)], 1);
		return SESSION_NONE;
	}
	uint32_t record = SESSION_NONE;
	*reason = create_check_limits(w, burst, i, creation->server);
	if (*reason == SY_DROP_NONE)
		record = create_with_server(w, burst, i, creation, opening, reason);
	if (record == SESSION_NONE) {
		SY_COUNT(counts->refused[refusal_of(*reason)], 1);
		load_release(b, creation->server);
		return SESSION_NONE;
	}
	police_begun(w, i);
	if (SY_LIKELY(burst->view[i].proto == SY_PROTO_TCP && !opening))
		create_delay_begin(w, burst, i, record, creation->server);
	bw->created++;
	SY_COUNT(counts->begun, 1);
	SY_COUNT(bw->share[creation->server].traffic.created, 1);
	if (SY_UNLIKELY(b->sync != NULL) &&
	    synced_at_creation(b, service, &b->endpoint[creation->server])) {
		synced_change(w, burst->slot[i], record);
		if (group_is_ecmp(b))
			bw->sync_ns = w->now_ns; /* before the server answers */
	}
	return record;
}
