// SPDX-License-Identifier: Apache-2.0
/* Finds the path of a session's packet and rewrites the packet for its endpoint's transmit mode;
 * for slow.c and fast_general(). Transmit sends it. */
#include "forward.h"
#include "client_mtu.h"
#include "police.h"
#include "service_drop.h"
#include "snat.h"
#include "splice_path.h"

/* The path to a server whose endpoint's path is unknown or stale, or to a remote host of SNAT,
 * which no server id names. */
static uint16_t path_to_server(const struct sy_balance *b, struct session *s,
                               const struct endpoint *e)
{
	if (e->mode != MODE_SNAT)
		return sy_path_lookup(b->rt, &e->addr);
	struct session *remote = session_pair_record(s);
	if (sy_path_is_stale(b->rt, remote->path))
		remote->path = sy_path_lookup(b->rt, &remote->client);
	return remote->path;
}

uint16_t forward_path(struct sy_worker *w, struct session *s, uint8_t direction)
{
	struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	if (direction == SESSION_CLIENT) {
		uint16_t path = SY_READ(e->path);
		/* The control thread refreshes endpoints soon after the routes change. */
		return SY_LIKELY(SY_RCU_READ(w->path_mtu[path])) ? path : path_to_server(b, s, e);
	}
	if (SY_LIKELY(SY_RCU_READ(w->path_mtu[s->path])))
		return s->path;
	uint16_t path = sy_path_lookup(b->rt, &s->client);
	bool narrow = e->mode == MODE_FNAT && client_mtu_find(w, &s->client);
	s->path = narrow ? SY_PATH_NONE : path;
	return path;
}

bool forward_tunnel(struct sy_worker *w, struct rte_mbuf *m, const struct sy_view *v,
                    const struct session *s, const struct endpoint *e, uint32_t flow)
{
	struct sy_balance *b = w->app;
	uint8_t *frame = sy_frame(m), *at = NULL;
	if (rte_pktmbuf_headroom(m) >= SY_PACKET_HEADROOM)
		at = sy_packet_encapsulate(frame, v, &b->local[s->local], &e->addr,
		                           ++balance_worker_of(w)->ipv4_id, flow);
	if (SY_UNLIKELY(!at))
		return false;
	rte_pktmbuf_prepend(m, (uint16_t)(frame - at));
	return true;
}

static void forward_rewrite(const struct sy_balance *b, struct sy_burst *burst, unsigned i,
                            const struct session *s, const struct endpoint *e)
{
	const struct sy_view *v = &burst->view[i];
	const struct session_cold *cold = session_cold_beside(b->table[burst->slot[i]], s);
	struct sy_rewrite r = session_rewrite(b, s, cold, e, burst->direction[i]);

	if (v->v4)
		r.l3_delta =
		        sy_csum_delta(sy_csum_addr(&v->tuple.src) + sy_csum_addr(&v->tuple.dst),
		                      sy_csum_addr(&r.src) + sy_csum_addr(&r.dst));
	sy_packet_rewrite(sy_frame(burst->mbuf[i]), v, &r);
}

/* DR: changes the TTL only. It ends the loop if a server forwards the VIP's packets instead of
 * accepting them. */
static void forward_direct(struct sy_burst *burst, unsigned i, const struct endpoint *e)
{
	const struct sy_view *v = &burst->view[i];
	const struct sy_tuple *t = &v->tuple;
	const struct sy_rewrite same = {
	        .src = t->src, .dst = t->dst, .sport = t->sport, .dport = t->dport};

	burst->via[i] = &e->addr;
	if (burst->plain[i])
		sy_plain_hop(sy_frame(burst->mbuf[i]), burst->plain[i] & SY_PLAIN_V4);
	else
		sy_packet_rewrite(sy_frame(burst->mbuf[i]), v, &same);
}

/* SNAT: the pair record names the remote host. */
static void forward_snat(const struct sy_balance *b, struct sy_burst *burst, unsigned i,
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

/* Rewrites a packet whose transmit mode is not in place. Returns NONE or the drop reason. */
static enum sy_drop forward_not_in_place(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                         const struct session *s, const struct endpoint *e)
{
	const struct sy_balance *b = w->app;
	if (transmit_mode_is_direct(e->transmit_mode)) {
		forward_direct(burst, i, e);
		return SY_DROP_NONE;
	}
	if (e->transmit_mode == TRANSMIT_SNAT) {
		forward_snat(b, burst, i, s);
		return SY_DROP_NONE;
	}
	if (e->transmit_mode == TRANSMIT_TRANSLATE)
		return forward_translate(w, burst, i, s, e);
	return forward_tunnel(w, burst->mbuf[i], &burst->view[i], s, e,
	                      (uint32_t)(burst->hash[i] >> 32))
	               ? SY_DROP_NONE
	               : SY_DROP_NO_BUFFER;
}

/* Converts the sequence numbers of a SESSION_SHIFTED session's packet to the receiver's
 * numbering. */
static void forward_shift(const struct sy_balance *b, struct sy_burst *burst, unsigned i,
                          const struct session *s)
{
	const struct session_table *t = b->table[burst->slot[i]];
	const struct session_cold *cold = session_cold_at(t, burst->session[i]);
	const struct session_splice *splice =
	        session_splice_of(t, burst->session[i], &b->endpoint[s->server]);
	const struct sy_view *v = &burst->view[i];
	uint8_t *frame = sy_frame(burst->mbuf[i]);

	if (v->tcp_flags & SY_TCP_SYN)
		return;
	if (cold->inserted == 0)
		;
	else if (burst->direction[i] == SESSION_CLIENT)
		sy_tcp_shift_seq(frame, v, cold->inserted);
	else
		sy_tcp_shift_ack(frame, v, cold->inserted);
	if (splice && splice->spliced)
		splice_convert(burst, i, s, splice);
}

void forward_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s)
{
	struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	struct traffic *traffic = &balance_worker_of(w)->share[s->server].traffic;
	uint16_t len = burst->view[i].frame_len - burst->view[i].l3;
	enum sy_drop reason = SY_DROP_NONE;

	police_mark(burst->mbuf[i], e);

	if (SY_UNLIKELY(s->flags & SESSION_SHIFTED))
		forward_shift(b, burst, i, s);
	if (SY_LIKELY(transmit_mode_is_in_place(e->transmit_mode) && burst->plain[i]))
		forward_plain(b, sy_frame(burst->mbuf[i]), burst->plain[i], burst->slot[i], s, e,
		              burst->direction[i]);
	else if (transmit_mode_is_in_place(e->transmit_mode))
		forward_rewrite(b, burst, i, s, e);
	else
		reason = forward_not_in_place(w, burst, i, s, e);
	if (SY_UNLIKELY(reason != SY_DROP_NONE)) {
		session_packet_drop(w, burst, i, s, reason);
		return;
	}
	traffic_count(traffic, burst->direction[i], len);
	session_touch(s, s->seen, (uint16_t)balance_seconds(w));
	burst->flow[i] = (uint32_t)(burst->hash[i] >> 32);
	burst->next[i] = SY_NEXT_TRANSMIT;
}
