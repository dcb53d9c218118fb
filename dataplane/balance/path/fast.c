// SPDX-License-Identifier: Apache-2.0
/*
 * The third stage, sy_fast_stage(): verifies the candidate that look up proposes for each packet,
 * and forwards plain packets of established sessions and segments that only advance a session's
 * state. All others get their session's record, or SESSION_NONE, and are left to slow.c.
 *
 *   the common way    fast_candidate() → fast_packet() → forward_emit(): sent
 *   the general way   fast_general() → forward_packet(): to transmit, or to the slow path
 */
#include "client_options.h"
#include "delay.h"
#include "loss.h"
#include "overload.h"
#include "police.h"
#include "pressure.h"
#include "segment_shortcut.h"
#include "synced.h"

#define FAST_GROUP 16

/* The path id that the session stores. It may be stale. */
static inline uint16_t fast_path_of(const struct session *s, const struct endpoint *e,
                                    enum session_direction from)
{
	if (from == SESSION_SERVER)
		return s->path;
	if (SY_UNLIKELY(e->transmit_mode == TRANSMIT_SNAT)) /* the pair record has the path */
		return s[1].path;
	return SY_READ(e->path);
}

/* Does the packet leave the session's state as it is? */
static inline bool fast_keeps_state(unsigned plain, const struct session *s,
                                    enum session_direction from)
{
	return session_is_steady(s, from) && !(plain & SY_PLAIN_SYN_FIN_RST);
}

/* A candidate: the record that look up proposes, and which side sent the packet according to the
 * index. */
struct fast_candidate {
	struct session *session;
	const struct endpoint *endpoint;
	struct server_share *share;
	uint32_t entry; /* index entry: record number and side (session_index.h) */
	uint32_t i;     /* packet number in the burst */
};

/* State of one pass over a burst. */
struct fast_pass {
	struct sy_tx_cache tx;
	uint64_t waiting; /* sessions with packets left for the slow path: fast_bit() of their
	                     records */
};

static inline uint64_t fast_bit(uint32_t record)
{
	return UINT64_C(1) << (record % 64);
}

/* Advances the session's state by a server's first answer to a SYN. Returns false if the packet is
 * none. */
static __attribute__((noinline)) bool fast_answer(struct sy_worker *w, struct sy_burst *burst,
                                                  unsigned i, uint32_t record, struct session *s,
                                                  const struct endpoint *e)
{
	forward_view(burst, i);
	if (!segment_answer(s, e, sy_frame(burst->mbuf[i]), &burst->view[i],
	                    SY_RCU_READ(w->path_mtu[s->path]),
	                    SY_RCU_READ(w->path_mtu[SY_READ(e->path)])))
		return false;
	if (SY_LIKELY(e->mode != MODE_SNAT)) { /* as in slow_time() */
		delay_answer(w, burst->slot[i], record, s->server);
		loss_begin(w, burst->slot[i], record, s);
	}
	synced_change_known(w, burst->slot[i], record);
	return true;
}

/* The handshake is complete: the session is no longer embryonic. */
static __attribute__((noinline)) void fast_leave_embryonic(struct sy_worker *w, uint8_t slot,
                                                           uint32_t record)
{
	struct sy_balance *b = w->app;
	if (SY_UNLIKELY(overload_was_on(balance_worker_of(w))))
		overload_see_client(w, session_at(b->table[slot], record));
	pressure_add(w, b->table[slot], record, -1);
	pressure_complete(w, b->table[slot], record);
}

/* Does the service limit sessions per client? Then the slow path counts them. */
static __attribute__((noinline)) bool fast_counts(const struct sy_balance *b,
                                                  const struct endpoint *e)
{
	const struct service *service = endpoint_service(b, e);
	return service && service->policy.client_sessions;
}

/* Advances the session's state by a plain segment. Returns false if the slow path must do it, or
 * must first process an earlier packet of the session. */
static inline __attribute__((always_inline)) bool
fast_advance(struct sy_worker *w, struct sy_burst *burst, const struct fast_pass *pass,
             const struct fast_candidate *at, const uint8_t *frame, enum session_direction from,
             bool v4)
{
	const struct sy_balance *b = w->app;
	const struct sy_tcp *tcp = (const struct sy_tcp *)(frame + sy_plain_l4(v4));
	struct session *s = at->session;
	uint32_t record = at->entry >> 1;

	/* UDP changes its state once or twice per session; the slow path does it. */
	if (pass->waiting & fast_bit(record) || sy_plain_proto(burst->plain[at->i]) != SY_PROTO_TCP)
		return false;
	if (SY_UNLIKELY(SY_RCU_READ(b->client_counts) != NULL) && fast_counts(b, at->endpoint))
		return false;
	bool opens = from == SESSION_CLIENT && s->state == SESSION_SYN_RECEIVED;
	if (!segment_step(s, session_cold_at(b->table[burst->slot[at->i]], record), from, tcp,
	                  SY_ETH_LEN + sy_plain_len(frame, v4) - sy_plain_l4(v4)))
		return from == SESSION_SERVER &&
		       fast_answer(w, burst, at->i, record, s, at->endpoint);
	if (opens)
		fast_leave_embryonic(w, burst->slot[at->i], record);
	synced_change(w, burst->slot[at->i], record);
	return true;
}

/* Counts losses if the session is TCP and its segments are watched. */
static __attribute__((noinline)) void fast_watched(struct sy_worker *w, struct sy_burst *burst,
                                                   unsigned i, struct session *s)
{
	const struct sy_view *v = &burst->view[i];
	if (v->proto != SY_PROTO_TCP)
		return;
	const struct sy_tcp *tcp = sy_packet_tcp(sy_frame(burst->mbuf[i]), v);
	loss_count(w, burst->slot[i], burst->session[i], s, burst->direction[i], tcp,
	           v->l4_len - (tcp->offset >> 4) * 4u);
}

/* Handles what fast_packet() does not: packets that are not plain or not the candidate's, other
 * transmit modes, and ports that the endpoint does not name. Finds the session. Forwards the
 * packet, or leaves it to the slow path if there is no session, the state changes, there is no
 * route, or the packet exceeds the path MTU. */
static __attribute__((noinline)) enum sy_next
fast_general(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct fast_pass *pass)
{
	const struct sy_balance *b = w->app;
	const struct session_table *t = b->table[burst->slot[i]];
	const struct match_context ctx = {b, t, &burst->view[i].tuple};
	enum session_direction from = burst->direction[i];
	forward_view(burst, i);
	uint32_t record = session_find_guessed(t->index, burst->session[i], burst->hash[i],
	                                       match_session, &ctx, &from);
	burst->session[i] = record;
	burst->direction[i] = from;
	if (record == SESSION_NONE)
		return SY_NEXT_SLOW;

	struct session *s = session_at(t, record);
	const struct endpoint *e = &b->endpoint[s->server];
	uint16_t path = fast_path_of(s, e, from), len = burst->view[i].frame_len - SY_ETH_LEN;
	if (!burst->plain[i] || !fast_keeps_state(burst->plain[i], s, from) ||
	    !forward_may(b, s, e, from, SESSION_ADDRESS_PENDING) ||
	    len + e->overhead[from] > forward_mtu(e, sy_frame(burst->mbuf[i]), &burst->view[i],
	                                          SY_RCU_READ(w->path_mtu[path]))) {
		pass->waiting |= fast_bit(record);
		return SY_NEXT_SLOW;
	}
	if (!police_passes(w, burst, i, s, e, from))
		return SY_NEXT_DROPPED;
	if (SY_UNLIKELY(s->flags & SESSION_WATCHED))
		fast_watched(w, burst, i, s);
	if (from == SESSION_CLIENT)
		client_options_blank_plain(w, burst, i, sy_frame(burst->mbuf[i]), e,
		                           burst->view[i].v4);
	burst->path[i] = path;
	forward_packet(w, burst, i, s);
	return (enum sy_next)burst->next[i];
}

/* Checks the limits of a packet that forward_find() has a port for. Returns false if the packet was
 * dropped. A packet for the event device must not be sent here: with a full gather list it becomes
 * READY, like any packet behind one that has not left. */
static __attribute__((noinline)) bool fast_limited(struct sy_worker *w, struct sy_burst *burst,
                                                   struct fast_pass *pass, unsigned i,
                                                   const struct session *s,
                                                   enum session_direction from)
{
	static struct sy_gather full = {.count = SY_BURST}; /* never written to */
	if (!police_session(w, burst, i, s, from))
		return false;
	if (police_queues(balance_worker_of(w), i))
		pass->tx.gather = &full;
	return true;
}

/* Forwards a client's packet to a DR or IPIP server, unchanged or in a tunnel. */
static enum sy_next fast_one_way(struct sy_worker *w, struct sy_burst *burst,
                                 struct fast_pass *pass, const struct segment_common *c,
                                 const struct fast_candidate *at, bool behind);

/* Rewrites a packet for the endpoint's transmit mode. Returns false if there is no headroom for a
 * tunnel header. */
static inline __attribute__((always_inline)) bool
fast_shape(struct sy_worker *w, struct sy_burst *burst, unsigned i, uint8_t *frame,
           const struct session *s, const struct endpoint *e, enum session_direction from,
           enum transmit_mode transmit_mode)
{
	const bool v4 = transmit_mode_is_v4(transmit_mode);
	unsigned plain = burst->plain[i];
	if (transmit_mode_is_in_place(transmit_mode)) {
		forward_plain(w->app, frame, v4 ? plain | SY_PLAIN_V4 : plain & ~SY_PLAIN_V4,
		              burst->slot[i], s, e, from);
		return true;
	}
	if (transmit_mode_is_tunnel(transmit_mode)) {
		forward_view(burst, i);
		return forward_tunnel(w, burst->mbuf[i], &burst->view[i], s, e,
		                      (uint32_t)(burst->hash[i] >> 32));
	}
	sy_plain_hop(frame, v4);
	return true;
}

/* Compares endpoint.flags with those of a healthy, unlimited endpoint of this transmit mode.
 * Returns 0, or the bits that differ. */
static inline uint32_t fast_differs(const struct endpoint *e, enum session_direction from,
                                    enum transmit_mode transmit_mode)
{
	const uint32_t compared =
	        ENDPOINT_TRANSMIT_MODE(0xf) | ENDPOINT_LIMITED(police_bits(from)) | ENDPOINT_UNWELL;
	return (SY_READ(e->flags) & compared) ^ ENDPOINT_TRANSMIT_MODE(transmit_mode);
}

/* Forwards a plain packet if the candidate is its session and the endpoint has this transmit mode.
 * Otherwise calls fast_one_way() or fast_general(). */
static inline __attribute__((always_inline)) enum sy_next
fast_packet(struct sy_worker *w, struct sy_burst *burst, struct fast_pass *pass,
            const struct segment_common c, const struct fast_candidate *at,
            enum session_direction from, enum transmit_mode transmit_mode, bool behind)
{
	struct sy_balance *b = c.b;
	struct session *s = at->session;
	const struct endpoint *e = at->endpoint;
	unsigned i = at->i, plain = burst->plain[i];
	struct rte_mbuf *m = burst->mbuf[i];
	uint8_t *frame = sy_frame(m);
	const bool v4 = transmit_mode_is_v4(transmit_mode), inwards = from == SESSION_CLIENT;
	uint64_t neighbour;
	const uint32_t differs = fast_differs(e, from, transmit_mode);

	if (SY_UNLIKELY(
	            differs & ENDPOINT_TRANSMIT_MODE(0xf) ||
	            !session_has_plain_tuple(b, s, e, frame, plain, v4, from) ||
	            s->flags & SESSION_SLOW_ONLY || SY_READ(b->local_removed[s->local]) ||
	            (differs & ENDPOINT_UNWELL && !forward_may(b, s, e, from, SESSION_SLOW_ONLY)) ||
	            !forward_find(w, &pass->tx, m, s, e, from, at->share,
	                          transmit_mode_is_direct(transmit_mode), &neighbour)))
		return inwards && transmit_mode_is_in_place(transmit_mode) &&
		                       !transmit_mode_is_in_place(e->transmit_mode)
		               ? fast_one_way(w, burst, pass, &c, at, behind)
		               : fast_general(w, burst, i, pass);
	const bool advances = !fast_keeps_state(plain, s, from);
	if (advances && !transmit_mode_is_in_place(transmit_mode))
		return fast_general(w, burst, i, pass);
	if (transmit_mode_is_tunnel(transmit_mode) &&
	    rte_pktmbuf_pkt_len(m) + (unsigned)e->overhead[from] > pass->tx.len_max)
		return fast_general(w, burst, i, pass);
	if (SY_UNLIKELY(differs) && police_applies(e, from) &&
	    !fast_limited(w, burst, pass, i, s, from))
		return SY_NEXT_DROPPED;
	if (advances && !fast_advance(w, burst, pass, at, frame, from, v4))
		return fast_general(w, burst, i, pass);
	if (inwards)
		client_options_blank_plain(w, burst, i, frame, e, v4);
	if (!fast_shape(w, burst, i, frame, s, e, from, transmit_mode)) {
		sy_burst_drop(w, burst, i, SY_DROP_NO_BUFFER);
		return SY_NEXT_DROPPED;
	}
	return forward_emit(&pass->tx, neighbour, m,
	                    transmit_mode_is_tunnel(transmit_mode) ? sy_frame(m) : frame, s,
	                    s->seen, c.now, from, at->share, sy_plain_len(frame, v4), behind);
}

static __attribute__((noinline)) enum sy_next
fast_one_way(struct sy_worker *w, struct sy_burst *burst, struct fast_pass *pass,
             const struct segment_common *c, const struct fast_candidate *at, bool behind)
{
	const enum session_direction from = SESSION_CLIENT;
	const enum transmit_mode transmit_mode = at->endpoint->transmit_mode;
	if (transmit_mode_is_v4(transmit_mode) != !!(burst->plain[at->i] & SY_PLAIN_V4))
		return fast_general(w, burst, at->i, pass);
	switch (transmit_mode) {
	case TRANSMIT_DIRECT_V4:
		return fast_packet(w, burst, pass, *c, at, from, TRANSMIT_DIRECT_V4, behind);
	case TRANSMIT_DIRECT_V6:
		return fast_packet(w, burst, pass, *c, at, from, TRANSMIT_DIRECT_V6, behind);
	case TRANSMIT_TUNNEL_V4:
		return fast_packet(w, burst, pass, *c, at, from, TRANSMIT_TUNNEL_V4, behind);
	case TRANSMIT_TUNNEL_V6:
		return fast_packet(w, burst, pass, *c, at, from, TRANSMIT_TUNNEL_V6, behind);
	default:
		return fast_general(w, burst, at->i, pass);
	}
}

/* Calls fast_packet() with constant arguments: the compiler specializes it for each combination. */
static inline __attribute__((always_inline)) enum sy_next
fast_candidate(struct sy_worker *w, struct sy_burst *burst, struct fast_pass *pass,
               const struct segment_common c, const struct fast_candidate *at, bool behind)
{
	const enum session_direction client = SESSION_CLIENT, server = SESSION_SERVER;
	unsigned plain = burst->plain[at->i], from = at->entry & 1;
	if (SY_LIKELY(plain & SY_PLAIN_V4))
		return from == server
		               ? fast_packet(w, burst, pass, c, at, server, TRANSMIT_V4, behind)
		               : fast_packet(w, burst, pass, c, at, client, TRANSMIT_V4, behind);
	if (SY_UNLIKELY(!plain))
		return fast_general(w, burst, at->i, pass);
	return from == server ? fast_packet(w, burst, pass, c, at, server, TRANSMIT_V6, behind)
	                      : fast_packet(w, burst, pass, c, at, client, TRANSMIT_V6, behind);
}

/* Gathers the candidates of a group of packets in at[] and prefetches their endpoints. Returns
 * their number. Packets without a candidate go to the slow path. Processing packets one by one
 * would stall on each record and then on each endpoint. */
static inline unsigned fast_gather(struct sy_worker *w, const struct segment_common c,
                                   struct sy_burst *burst, unsigned first, unsigned end,
                                   struct fast_candidate *at, bool *behind)
{
	const struct sy_balance *b = c.b;
	unsigned n = 0;
	for (unsigned i = first; i < end; i++) {
		if (SY_UNLIKELY(burst->next[i] != SY_NEXT_LOOKUP)) {
			*behind |= !sy_next_has_left(burst->next[i]);
			continue;
		}
		const struct session_index *x = &b->index[burst->slot[i]];
		uint32_t entry = burst->session[i];
		if (SY_UNLIKELY(entry == SESSION_NONE)) {
			forward_view(burst, i);
			burst->next[i] = SY_NEXT_SLOW;
			*behind = true;
			continue;
		}
		struct session *s = &x->hot[entry >> 1];
		const struct endpoint *e = &b->endpoint[s->server];
		struct server_share *share = &c.share[s->server];
		at[n++] = (struct fast_candidate){s, e, share, entry, i};
		__builtin_prefetch(e);
		__builtin_prefetch(share, 1);
	}
	return n;
}

void sy_fast_stage(struct sy_worker *w, struct sy_burst *burst)
{
	struct fast_candidate at[FAST_GROUP];
	struct fast_pass pass = {.tx = {.path = SY_TX_CACHE_NONE}};
	bool behind = false; /* an earlier packet, maybe of the same flow, has not left */
	const struct segment_common c = segment_common_of(w);

	for (unsigned first = 0; first < burst->count; first += FAST_GROUP) {
		unsigned end =
		        first + FAST_GROUP < burst->count ? first + FAST_GROUP : burst->count;
		unsigned n = fast_gather(w, c, burst, first, end, at, &behind);
		sy_steer_prefetch(w, end - first);
		for (unsigned k = 0; k < n; k++) {
			enum sy_next next = fast_candidate(w, burst, &pass, c, &at[k], behind);
			burst->next[at[k].i] = (uint8_t)next;
			behind |= !sy_next_has_left((uint8_t)next);
		}
	}
	if (SY_LIKELY(!behind)) /* all packets have left */
		burst->count = 0;
}
