// SPDX-License-Identifier: Apache-2.0
/*
 * The fourth stage, sy_slow_stage(): all packets that the fast path did not forward.
 *
 *   begins a session       slow_create()   create, forward
 *   other TCP, UDP, echo   slow_packet()   look up again, slow_advance(), create, forward
 *   other ICMP             icmp_packet()   (icmp_packet.c)
 *
 * slow_forward() passes the packet to transmit. The packet that creates a session usually takes
 * the shortcut segment_forward_first() instead (segment_shortcut.h).
 */
#include "access_check.h"
#include "address_set.h"
#include "client_address.h"
#include "client_mtu.h"
#include "client_options.h"
#include "create.h"
#include "end.h"
#include "icmp_packet.h"
#include "locate.h"
#include "loss.h"
#include "originated.h"
#include "overload.h"
#include "packet_relay.h"
#include "police.h"
#include "reset.h"
#include "segment_shortcut.h"
#include "service_drop.h"
#include "slow_advance.h"
#include "snat.h"
#include "splice_path.h"
#include "strict.h"
#include "sweep.h"
#include "synced.h"
#include "unavailable.h"

/* The path MTU in bytes that routers have reported for the client of a server's packet; 0: none.
 * Only sessions without a path have one: forward_path() runs first. */
static uint16_t slow_client_mtu(struct sy_worker *w, const struct session *s,
                                enum session_direction from)
{
	return SY_UNLIKELY(from == SESSION_SERVER && s->path == SY_PATH_NONE)
	               ? client_mtu_find(w, &s->client)
	               : 0;
}

/* The largest TCP segment without options that fits both directions. mtu: that of the path in this
 * packet's direction. */
static uint16_t slow_mss(struct sy_worker *w, struct session *s, enum session_direction from,
                         uint16_t mtu)
{
	const struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	const struct sy_addr *server =
	        SY_LIKELY(e->mode != MODE_SNAT) ? &e->addr : &session_pair_record(s)->client;
	uint16_t other = forward_path_mtu(w, forward_path(w, s, !from));
	uint16_t narrow = from == SESSION_CLIENT ? slow_client_mtu(w, s, SESSION_SERVER) : 0;
	if (SY_UNLIKELY(narrow && narrow < other))
		other = narrow;
	uint16_t to_server =
	        sy_tcp_mss(sy_addr_is_v4(server), from == SESSION_CLIENT ? mtu : other, 0);
	uint16_t to_client =
	        sy_tcp_mss(sy_addr_is_v4(&s->client), from == SESSION_CLIENT ? other : mtu, 0);
	return to_server < to_client ? to_server : to_client;
}

/* The MTU to report to a packet's sender. An IPv6 host may always send 1280 bytes (RFC 8200 5). */
static uint16_t slow_mtu_to_report(const struct sy_view *v, int mtu)
{
	return (uint16_t)(!v->v4 && mtu < IPV6_MTU_MIN ? IPV6_MTU_MIN : mtu);
}

/* Checks the TTL. If it has expired, drops the packet, notifies its sender and returns false. */
static bool slow_ttl_suffices(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                              uint32_t service)
{
	if (sy_packet_ttl(sy_frame(burst->mbuf[i]), &burst->view[i]) > 1)
		return true;
	icmp_send_error(w, burst, i, SY_ICMP_TTL_EXPIRED, 0);
	service_count_drop(w, service, SY_DROP_TTL_EXPIRED);
	sy_burst_drop(w, burst, i, SY_DROP_TTL_EXPIRED);
	return false;
}

/* Forwards packet i of session s: finds the path, checks TTL and MTU, clamps the MSS of a SYN,
 * inserts the client's address, rewrites. On failure drops the packet and notifies its sender. */
static void slow_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s)
{
	struct sy_balance *b = w->app;
	const struct sy_view *v = &burst->view[i];
	uint8_t *frame = sy_frame(burst->mbuf[i]);
	uint16_t path = forward_path(w, s, burst->direction[i]);

	if (path == SY_PATH_NONE) {
		session_packet_drop(w, burst, i, s, SY_DROP_NO_ROUTE);
		return;
	}
	if (!slow_ttl_suffices(w, burst, i, b->endpoint[s->server].service))
		return;
	const struct endpoint *e = &b->endpoint[s->server];
	uint16_t path_mtu = forward_path_mtu(w, path), mtu = forward_mtu(e, frame, v, path_mtu);
	uint16_t narrow = slow_client_mtu(w, s, burst->direction[i]);
	if (SY_UNLIKELY(narrow && narrow < mtu))
		mtu = narrow;
	int overhead = oversize_overhead(e, v, burst->direction[i]);
	bool fits = v->frame_len - v->l3 + overhead <= mtu;
	if (!fits && !narrow && !oversize_may_fragment(e, frame, v, burst->direction[i])) {
		/* The sender retransmits it in smaller segments: not a loss. */
		if (v->proto == SY_PROTO_TCP && s->flags & SESSION_WATCHED)
			loss_forget(w, burst->slot[i], burst->session[i], s);
		icmp_send_error(w, burst, i, SY_ICMP_TOO_BIG,
		                slow_mtu_to_report(v, mtu - overhead));
		session_packet_drop(w, burst, i, s, SY_DROP_TOO_BIG);
		return;
	}
	/* Do not clamp the MSS for servers whose answers bypass the forwarder. */
	if (v->proto == SY_PROTO_TCP && (v->tcp_flags & SY_TCP_SYN) && !endpoint_is_one_way(e))
		sy_packet_clamp_mss(frame, v, slow_mss(w, s, burst->direction[i], path_mtu));
	burst->path[i] = path;
	if (burst->direction[i] == SESSION_CLIENT)
		client_options_blank(w, burst, i, e);
	if (burst->direction[i] == SESSION_CLIENT && v->proto == SY_PROTO_TCP) {
		if (v->tcp_flags & SY_TCP_SYN)
			client_address_begin(w, burst, i, s);
		if ((s->flags & SESSION_ADDRESS_PENDING) &&
		    !client_address_insert(w, burst, i, s, mtu - overhead))
			return;
	}
	if (SY_LIKELY(fits))
		forward_packet(w, burst, i, s);
	else
		oversize_forward(w, burst, i, s, mtu);
}

/* Is this the last fragment of its datagram, or no fragment? */
static bool packet_is_whole(const struct sy_view *v)
{
	return v->fragment == SY_FRAGMENT_NONE || v->completes;
}

/* The worker's counts of created and ended sessions when the burst was looked up. */
struct lookup_snapshot {
	uint32_t created, ended;
};

/* Repeats the look-up of packet i if an earlier packet of the burst may have created or ended its
 * session. Sets burst->session[i]. Returns the side that sent the packet. */
static enum session_direction slow_look_up(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                           const struct lookup_snapshot *snapshot)
{
	const struct balance_worker *bw = balance_worker_of(w);
	enum session_direction from = burst->direction[i];
	if (burst->session[i] != SESSION_NONE ? bw->ended == snapshot->ended
	                                      : bw->created == snapshot->created)
		return from;
	struct sy_balance *b = w->app;
	const struct session_table *t = b->table[burst->slot[i]];
	const struct match_context ctx = {b, t, &burst->view[i].tuple};
	burst->session[i] = session_find(t->index, burst->hash[i], match_session, &ctx, &from);
	return from;
}

/* Resets the server that sent a packet without a session, if configured. Returns the drop
 * reason. */
static enum sy_drop slow_refuse_server(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	const struct sy_balance *b = w->app;
	switch (address_set_find(SY_RCU_READ(b->address_set), &burst->view[i].tuple.dst)) {
	case ADDRESS_SET_LOCAL:
		if (SY_READ(b->reset_unknown_services))
			reset_unknown(w, burst, i);
		return SY_DROP_NO_SESSION;
	case ADDRESS_SET_POOL:
		return SY_DROP_SNAT_STRAY;
	default:
		return SY_DROP_NAT_STRAY;
	}
}

/* Checks the limits of a session's packet, then advances the session's state. Returns false if the
 * packet was dropped or has left the burst. */
static bool slow_session_update(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                enum session_direction from)
{
	const struct sy_balance *b = w->app;
	const struct session_table *t = b->table[burst->slot[i]];
	const struct session *s = session_at(t, burst->session[i]);
	if (!police_passes(w, burst, i, s, &b->endpoint[s->server], from))
		return false;
	const struct synced_state before = synced_state_of(b, t, burst->session[i]);
	bool goes_on = slow_advance(w, burst, i);
	synced_compare(w, t, burst->session[i], &before);
	if (burst->session[i] == SESSION_NONE) /* its session has ended: it may begin a new one */
		police_undo(w, i);
	return goes_on;
}

/* A client's packet has no session here. Returns true if it was relayed to a node that may have
 * it. */
static bool slow_asks_others(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                             const struct service *service)
{
	const struct sy_balance *b = w->app;
	const struct sy_view *v = &burst->view[i];
	if (SY_LIKELY(!group_is_ecmp(b)) || (v->proto == SY_PROTO_TCP && packet_may_create(v)) ||
	    (v->proto != SY_PROTO_TCP && !relay_asks(service)) ||
	    (!service && !snat_matches(SY_RCU_READ(b->snat), &v->tuple)))
		return false;
	return relay_to_home(w, burst, i, v->proto != SY_PROTO_TCP);
}

/* Handles TCP, UDP and echo packets except those of slow_create(). */
static void slow_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        const struct lookup_snapshot *snapshot)
{
	struct sy_balance *b = w->app;
	struct session_table *t = b->table[burst->slot[i]];
	const uint32_t before = burst->session[i];
	enum session_direction from = slow_look_up(w, burst, i, snapshot);
	bool had_session = burst->session[i] != SESSION_NONE;
	enum defence_result how = DEFENCE_PASSES;
	struct splice_opening opening;

	if (SY_UNLIKELY(burst->session[i] != before))
		police_undo(w,
		            i); /* the fast path charged limits of a session that has ended since */
	if (burst->session[i] != SESSION_NONE &&
	    session_is_away(session_at(t, burst->session[i])) && relay_to_owner(w, burst, i))
		return;
	if (burst->session[i] != SESSION_NONE && !slow_session_update(w, burst, i, from))
		return;
	if (burst->session[i] == SESSION_NONE) {
		enum sy_drop reason = SY_DROP_NO_SESSION;
		if (SY_UNLIKELY(originated_is_marked(b, burst->mbuf[i]))) {
			sy_burst_drop(w, burst, i, SY_DROP_OPENING);
			return;
		}
		if (from == SESSION_SERVER) {
			if (!had_session && relay_to_home(w, burst, i, false))
				return;
			sy_burst_drop(w, burst, i,
			              had_session ? SY_DROP_SERVER_REMOVED
			                          : slow_refuse_server(w, burst, i));
			return;
		}
		const struct service *service = locate_packet(w, burst, i);
		if (!slow_ttl_suffices(w, burst, i, service ? service->id : SERVICE_NONE))
			return; /* traceroute packets get no session */
		how = defence_check(w, burst, i, &opening);
		if (how == DEFENCE_CONSUMED)
			return;
		if (how != DEFENCE_OPENS && !had_session && slow_asks_others(w, burst, i, service))
			return;
		burst->session[i] = session_create(w, burst, i,
		                                   how == DEFENCE_OPENS ? &opening : NULL, &reason);
		if (burst->session[i] == SESSION_NONE) {
			if (how == DEFENCE_OPENS)
				defence_refuse(w, burst, i, service, &opening);
			else
				unavailable_answer(w, burst, i, service, reason);
			if (how == DEFENCE_WRONG && reason == SY_DROP_NO_SESSION)
				reason = SY_DROP_BAD_COOKIE;
			else if (had_session &&
			         (reason == SY_DROP_NO_SESSION || reason == SY_DROP_NO_SERVICE))
				reason = SY_DROP_SERVER_REMOVED;
			service_packet_drop(w, burst, i, service, reason);
			return;
		}
	}
	struct session *s = session_at(t, burst->session[i]);
	const struct synced_state known = synced_state_of(b, t, burst->session[i]);
	if (SY_UNLIKELY(b->sync != NULL) && how != DEFENCE_OPENS && strict_holds(w, burst, i, s))
		return;
	slow_forward(w, burst, i, s);
	synced_compare(w, t, burst->session[i], &known); /* if the client's address was inserted */
	if (SY_UNLIKELY(how == DEFENCE_OPENS))
		splice_open(w, burst, i, burst->session[i], &opening);
	if (from == SESSION_SERVER && session_is_one_packet(s) && packet_is_whole(&burst->view[i]))
		session_end(w, t, burst->session[i]);
}

/* Prefetches the cold half: it has the sequence numbers of FINs. */
static SY_PREFETCH_INLINE void slow_prefetch(const struct session_table *t, uint32_t record,
                                             const struct sy_view *v)
{
	if (session_at(t, record)->flags || v->tcp_flags & SY_TCP_FIN)
		__builtin_prefetch(session_cold_at(t, record), 1);
}

/* Creates the session that create_prepare() has prepared for packet i, and forwards the packet. */
static void slow_create(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        struct sy_tx_cache *tx, const struct segment_common *c)
{
	const struct service *service = locate_packet(w, burst, i);
	enum sy_drop reason;
	uint32_t record = session_create(w, burst, i, NULL, &reason);

	if (record == SESSION_NONE) {
		unavailable_answer(w, burst, i, service, reason);
		service_packet_drop(w, burst, i, service, reason);
		return;
	}
	burst->session[i] = record;
	struct session *s = session_at(c->b->table[burst->slot[i]], record);
	police_mark(burst->mbuf[i], &c->b->endpoint[s->server]);
	if (SY_UNLIKELY(service->policy.sync == SYNC_STRICT) && strict_holds(w, burst, i, s))
		return;
	if (service->policy.client_address || !segment_forward_first(w, burst, i, s, tx, c))
		slow_forward(w, burst, i, s);
}

/* Packets for the slow path: all, those without a session, and of these the ones that may begin
 * one. */
struct slow_packets {
	unsigned all, without, begin;
	uint8_t at[SY_BURST], at_without[SY_BURST], at_begin[SY_BURST];
};

static inline void slow_gather(const struct sy_balance *b, const struct sy_burst *burst,
                               struct slow_packets *slow)
{
	slow->all = slow->without = 0;
	for (unsigned i = 0; i < burst->count; i++) {
		if (SY_LIKELY(burst->next[i] != SY_NEXT_SLOW))
			continue;
		slow->at[slow->all++] = (uint8_t)i;
		if (burst->session[i] != SESSION_NONE)
			slow_prefetch(b->table[burst->slot[i]], burst->session[i], &burst->view[i]);
		else
			slow->at_without[slow->without++] = (uint8_t)i;
	}
}

/* Does packet i still need the session that create_prepare() prepared? An unprepared packet before
 * it may have created the session: sloppy_tcp accepts an ACK, and the SYN arrives late. unprepared:
 * bitmap of the upper six bits of the hashes of such packets. */
static inline bool slow_begins_session(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                       uint64_t unprepared, const struct lookup_snapshot *snapshot)
{
	if (SY_LIKELY(!(unprepared >> (burst->hash[i] >> 58) & 1)))
		return true;
	slow_look_up(w, burst, i, snapshot);
	if (burst->session[i] == SESSION_NONE)
		return true;
	create_cancel(w, i);
	return false;
}

void sy_slow_stage(struct sy_worker *w, struct sy_burst *burst)
{
	struct balance_worker *bw = balance_worker_of(w);
	const struct lookup_snapshot snapshot = {bw->created, bw->ended};
	const struct segment_common common = segment_common_of(w);
	struct sy_tx_cache tx = {.path = SY_TX_CACHE_NONE};
	struct slow_packets slow;
	uint64_t unprepared = 0; /* see slow_begins_session() */

	slow_gather(common.b, burst, &slow);
	if (SY_LIKELY(slow.all == 0))
		return;
	if (SY_UNLIKELY(bw->burst.lookup_begun))
		access_lookup_continue(w, burst);
	slow.begin = locate_burst(w, burst, slow.at_without, slow.without, slow.at_begin);
	if (SY_UNLIKELY(overload_is_on(bw, burst)) && slow.begin * OVERLOAD_PART >= burst->count)
		slow.begin = overload_drop_burst(w, burst, slow.at_begin, slow.begin);
	if (SY_UNLIKELY(SY_RCU_READ(common.b->access)))
		slow.begin = access_check_burst(w, burst, slow.at_begin, slow.begin);
	if (group_is_ecmp(common.b))
		slow.begin = relay_burst(w, burst, slow.at_begin, slow.begin);
	create_prepare(w, burst, slow.at_begin, slow.begin);
	for (unsigned k = 0; k < slow.all; k++) {
		unsigned i = slow.at[k];
		const struct sy_view *v = &burst->view[i];
		if (SY_UNLIKELY(burst->next[i] !=
		                SY_NEXT_SLOW)) /* refused, or answered by a cookie */
			continue;
		bool without = burst->session[i] == SESSION_NONE;
		if (without && bw->burst.prepared >> i & 1 &&
		    slow_begins_session(w, burst, i, unprepared, &snapshot)) {
			slow_create(w, burst, i, &tx, &common);
			continue;
		}
		if (without)
			unprepared |= UINT64_C(1) << (burst->hash[i] >> 58);
		if (v->proto == SY_PROTO_TCP || v->proto == SY_PROTO_UDP || v->echo)
			slow_packet(w, burst, i, &snapshot);
		else
			icmp_packet(w, burst, i);
	}
	sweep_for_creations(w);
}
