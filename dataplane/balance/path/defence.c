// SPDX-License-Identifier: Apache-2.0
/*
 * The SYN defence of FNAT and NAT (docs/design/0025-syn-defence.md); challenge.c has that of DR and
 * IPIP.
 *
 *     SYN                 defence_answer()   answered by a cookie, nothing is stored
 *     ACK with a cookie   defence_check()    becomes the client's SYN, which creates a session
 *     what follows        splice.c
 */
#include "defence.h"

#include <arpa/inet.h>

#include "access_check.h"
#include "away.h"
#include "challenge.h"
#include "create.h"
#include "locate.h"
#include "originated.h"
#include "reset.h"
#include "service_drop.h"
#include "unavailable.h"
#include "validated.h"

#define EPOCH_NS UINT64_C(64000000000)
/* Seconds after the last cookie for which cookies are accepted. */
#define COOKIE_LIFE 128
/* The window that clients get before the server's answer, in multiples of the MSS. */
#define WINDOW_SEGMENTS 4
/* The window scale announced to clients: the server's is not known yet, so windows are
 * converted. */
#define SCALE_ANNOUNCED 7
/* MSS without an MSS option (RFC 9293 3.7.1, RFC 8200 5). */
#define MSS_DEFAULT_V4 536
#define MSS_DEFAULT_V6 1220

bool defence_has_outstanding_cookies(const struct sy_worker *w, const struct service *service)
{
	const struct sy_balance *b = w->app;
	uint32_t at = SY_READ(b->cookies_at[service->id]);
	if (at != 0)
		return balance_seconds(w) - at <= COOKIE_LIFE;
	/* The predecessor process may have sent cookies, or the former master, or a node that has
	 * just left the group. */
	uint32_t began = SY_READ(b->watches_since), served = SY_READ(b->serves_since);
	return service->policy.syn_defence == DEFENCE_AUTO &&
	       (began == 0 || balance_seconds(w) - began <= COOKIE_LIFE ||
	        (served != 0 && balance_seconds(w) - served <= COOKIE_LIFE) ||
	        (group_is_ecmp(b) && sync_node_has_changed(b->sync, w->now_ns)));
}

void defence_note(const struct sy_worker *w, const struct service *service)
{
	const struct sy_balance *b = w->app;
	uint32_t now = balance_seconds(w);
	if (SY_UNLIKELY(SY_READ(b->cookies_at[service->id]) != now))
		__atomic_store_n(&b->cookies_at[service->id], now, __ATOMIC_RELAXED);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* The key of an epoch, derived from the secret. */
static struct sy_siphash_key epoch_key(const struct sy_siphash_key *secret, uint64_t epoch)
{
	const uint64_t even = 2 * epoch, odd = even + 1;
	return (struct sy_siphash_key){
	        {sy_siphash(secret, &even, sizeof(even)), sy_siphash(secret, &odd, sizeof(odd))}};
}

const struct cookie_keys *defence_keys(struct sy_worker *w)
{
	struct balance_worker *bw = balance_worker_of(w);
	struct cookie_keys *keys = &bw->cookies;
	const struct sy_balance *b = w->app;
	/* 0: no keys yet */
	uint64_t epoch = (w->now_ns + SY_READ(b->cookie_clock_ns)) / EPOCH_NS + 1;

	if (SY_UNLIKELY(keys->epoch != epoch)) {
		keys->epoch = epoch;
		for (unsigned i = 0; i < b->secrets; i++) {
			keys->key[i][epoch & 1] = epoch_key(&b->secret[i], epoch);
			keys->key[i][(epoch & 1) ^ 1] = epoch_key(&b->secret[i], epoch - 1);
		}
	}
	return keys;
}

/* ---- SYNs ------------------------------------------------------------------------------------ */

/* The MSS for the path to the service's first server. */
static uint16_t service_mss(const struct sy_worker *w, const struct service *service, bool v4)
{
	const struct sy_balance *b = w->app;
	const struct pool *pool = service->pool->members ? service->pool : service->backups;
	uint16_t mtu = 0;

	if (pool && pool->members) {
		const struct endpoint *e = &b->endpoint[pool->candidate[0].server];
		mtu = SY_RCU_READ(w->path_mtu[SY_READ(e->path)]);
		v4 = sy_addr_is_v4(&e->addr) && v4;
	}
	return sy_tcp_mss(v4, mtu ? mtu : 1500, 0);
}

void defence_send(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                  const struct sy_tcp_segment *s)
{
	struct rte_mbuf *m = burst->mbuf[i];
	uint32_t cap = rte_pktmbuf_data_len(m) + rte_pktmbuf_tailroom(m);
	uint32_t len = sy_tcp_segment_answer(sy_frame(m), cap, &burst->view[i], s);

	if (len == 0) {
		sy_burst_drop(w, burst, i, SY_DROP_NO_BUFFER);
		return;
	}
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	burst->next[i] = SY_NEXT_ANSWERED;
	sy_transmit_back(w, m, m->port);
}

void defence_answer(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                    const struct service *service)
{
	const struct cookie_keys *keys = defence_keys(w);
	struct service_load *load = &balance_worker_of(w)->load[service->id];
	const struct sy_view *v = &burst->view[i];
	uint32_t number = ntohl(sy_packet_tcp(sy_frame(burst->mbuf[i]), v)->seq);
	unsigned epoch = keys->epoch & 1;
	struct sy_tcp_options o;

	sy_tcp_options_read(sy_frame(burst->mbuf[i]), v, &o);
	uint8_t withheld = load_withholds(
	        load,
	        (uint8_t)((o.sack ? REFUSED_SACK : 0) | (o.timestamps ? REFUSED_TIMESTAMPS : 0)),
	        balance_seconds(w));
	o.sack &= !(withheld & REFUSED_SACK);
	o.timestamps &= !(withheld & REFUSED_TIMESTAMPS);
	uint64_t hash = sy_cookie_hash(&keys->key[0][epoch], &v->tuple, number);
	uint16_t ours = service_mss(w, service, v->v4);
	uint16_t fallback = v->v4 ? MSS_DEFAULT_V4 : MSS_DEFAULT_V6;
	uint32_t window = WINDOW_SEGMENTS * (o.mss ? ours : fallback);
	const struct sy_tcp_segment answer = {
	        .seq = sy_cookie_make(hash, epoch, v->v4, &o),
	        .ack = number + 1,
	        .flags = SY_TCP_SYN | SY_TCP_ACK,
	        .window = window < UINT16_MAX ? (uint16_t)window : UINT16_MAX,
	        .options = {.mss = o.mss ? ours : 0,
	                    .scale = o.scale == SY_TCP_NO_SCALE ? SY_TCP_NO_SCALE : SCALE_ANNOUNCED,
	                    .sack = o.sack,
	                    .timestamps = o.timestamps,
	                    .time = sy_cookie_time(hash, w->now_ns, &o),
	                    .echo = o.time},
	};
	SY_COUNT(balance_worker_of(w)->counts[service->id].answered, 1);
	defence_note(w, service);
	defence_send(w, burst, i, &answer);
}

/* ---- ACKs ------------------------------------------------------------------------------------ */

/* Does the packet acknowledge a valid cookie? */
static bool cookie_is_valid(struct sy_worker *w, const struct sy_view *v, const struct sy_tcp *tcp,
                            struct sy_tcp_options *o)
{
	const struct sy_balance *b = w->app;
	const struct cookie_keys *keys = defence_keys(w);
	uint32_t cookie = ntohl(tcp->ack) - 1;
	const struct sy_tcp_options options = *o;
	for (unsigned i = 0; i < b->secrets; i++) {
		const struct sy_siphash_key *key = &keys->key[i][sy_cookie_epoch(cookie)];
		*o = options;
		if (sy_cookie_check(sy_cookie_hash(key, &v->tuple, ntohl(tcp->seq) - 1), cookie,
		                    v->v4, o))
			return true;
	}
	return false;
}

static void opening_fill(struct splice_opening *opening, const struct sy_view *v,
                         const struct sy_tcp *tcp, const struct sy_tcp_options *o)
{
	uint8_t announced = o->scale == SY_TCP_NO_SCALE ? SY_TCP_NO_SCALE : SCALE_ANNOUNCED;
	*opening = (struct splice_opening){
	        .begin = {.cookie = ntohl(tcp->ack) - 1,
	                  .number = ntohl(tcp->seq) - 1,
	                  .time = o->time,
	                  .window = ntohs(tcp->window),
	                  .options = (uint8_t)(sy_cookie_mss_code(v->v4, o->mss) |
	                                       (o->sack ? SPLICE_SACK : 0) |
	                                       (o->timestamps ? SPLICE_TIMESTAMPS : 0)),
	                  .scales = (uint8_t)(o->scale | announced << 4)},
	        .echo = o->echo,
	};
}

struct sy_tcp_segment splice_syn(const struct splice_begin *begin, bool v4)
{
	uint8_t scale = begin->scales & 15;
	uint32_t window = (uint32_t)begin->window << (scale == SY_TCP_NO_SCALE ? 0 : scale);
	return (struct sy_tcp_segment){
	        .seq = begin->number,
	        .flags = SY_TCP_SYN,
	        .window = window < UINT16_MAX ? (uint16_t)window : UINT16_MAX,
	        .options = {.mss = sy_cookie_mss(v4, begin->options & SPLICE_MSS),
	                    .scale = scale,
	                    .sack = begin->options & SPLICE_SACK,
	                    .timestamps = begin->options & SPLICE_TIMESTAMPS,
	                    .time = begin->time},
	};
}

struct rte_mbuf *splice_syn_packet(struct sy_worker *w, const struct sy_tuple *t,
                                   const struct splice_begin *begin)
{
	const struct sy_tcp_segment s = splice_syn(begin, sy_addr_is_v4(&t->src));
	struct rte_mbuf *m = originated_alloc(w);
	if (!m)
		return NULL;
	uint32_t len = sy_tcp_syn_make(sy_frame(m), rte_pktmbuf_tailroom(m), t, &s);
	rte_pktmbuf_append(m, (uint16_t)len);
	m->port = 0;
	return m;
}

/* Parses packet i after it was rewritten. */
static bool packet_reparse(struct sy_burst *burst, unsigned i)
{
	struct rte_mbuf *m = burst->mbuf[i];
	burst->plain[i] = 0;
	return sy_packet_parse(sy_frame(m), rte_pktmbuf_data_len(m), &burst->view[i]) ==
	       SY_DROP_NONE;
}

bool splice_syn_write_over(struct sy_burst *burst, unsigned i, const struct splice_begin *begin)
{
	const struct sy_tuple tuple = burst->view[i].tuple;
	const struct sy_tcp_segment s = splice_syn(begin, burst->view[i].v4);
	return splice_syn_write(burst->mbuf[i], &tuple, &s) && packet_reparse(burst, i);
}

/* Replaces packet i by the client's SYN. An ACK with data or a FIN moves to opening->data. Returns
 * false if no buffer is free. */
static bool opening_syn_make(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                             struct splice_opening *opening)
{
	struct rte_mbuf *m = burst->mbuf[i];
	const struct sy_view *v = &burst->view[i];
	const struct sy_tcp *tcp = sy_packet_tcp(sy_frame(m), v);

	if (v->l4_len <= (tcp->offset >> 4) * 4u && !(v->tcp_flags & SY_TCP_FIN))
		return splice_syn_write_over(burst, i, &opening->begin);
	struct rte_mbuf *syn = splice_syn_packet(w, &v->tuple, &opening->begin);
	if (!syn)
		return false;
	memcpy(sy_frame(syn), sy_frame(m), 2 * sizeof(((struct sy_eth *)0)->src));
	syn->port = m->port;
	opening->data = m;
	burst->mbuf[i] = syn;
	return packet_reparse(burst, i);
}

bool splice_syn_write(struct rte_mbuf *m, const struct sy_tuple *t, const struct sy_tcp_segment *s)
{
	uint32_t cap = rte_pktmbuf_data_len(m) + rte_pktmbuf_tailroom(m);
	uint32_t len = sy_tcp_segment_make(sy_frame(m), cap, t, s);
	if (len == 0)
		return false;
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	return true;
}

/* Checks the access lists for packet i before a session is created. again: the SYN of this
 * connection already passed the lists. Returns false if the packet was refused and dropped. */
static bool defence_access_check(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                 const struct service *service, bool again)
{
	struct balance_worker *bw = balance_worker_of(w);
	enum sy_drop reason = again ? access_recheck_packet(w, burst, i, service)
	                            : access_check_packet(w, burst, i, service);
	if (SY_LIKELY(reason == SY_DROP_NONE)) {
		bw->burst.accepted |= UINT64_C(1) << i;
		return true;
	}
	SY_COUNT(bw->counts[service->id].refused[refusal_of(reason)], 1);
	service_packet_drop(w, burst, i, service, reason);
	return false;
}

/* defence_check() for a client's packet of DR or IPIP. */
static enum defence_result defence_check_one_way(struct sy_worker *w, struct sy_burst *burst,
                                                 unsigned i, const struct service *service, bool on)
{
	const struct sy_view *v = &burst->view[i];
	if (v->tcp_flags & SY_TCP_RST)
		return challenge_reset(w, burst, i, service);
	if (!on || (v->tcp_flags & (SY_TCP_SYN | SY_TCP_ACK)) != SY_TCP_SYN)
		return DEFENCE_PASSES;
	return defence_access_check(w, burst, i, service, false) &&
	                       !unavailable_refuses(w, burst, i, service) &&
	                       challenge_passes(w, burst, i, service,
	                                        challenge_client(w->app, service, &v->tuple.src))
	               ? DEFENCE_PASSES
	               : DEFENCE_CONSUMED;
}

/* Fragmented SYNs are dropped: real clients send none, they cannot be answered by a cookie, and a
 * forged one would create a session. */
static enum defence_result defence_check_fragment(struct sy_worker *w, struct sy_burst *burst,
                                                  unsigned i, const struct service *service)
{
	const struct sy_view *v = &burst->view[i];
	/* without a server, session_create() refuses it */
	if (!sy_view_has_l4(v) || !packet_may_create(v) || !service_has_server(service))
		return DEFENCE_PASSES;
	SY_COUNT(balance_worker_of(w)->counts[service->id].refused[REFUSED_NO_SESSION], 1);
	service_packet_drop(w, burst, i, service, SY_DROP_NO_SESSION);
	return DEFENCE_CONSUMED;
}

/* Drops the data that came with a cookie. */
static void opening_drop(struct sy_worker *w, const struct service *service,
                         struct splice_opening *opening)
{
	if (!opening->data)
		return;
	service_count_drop(w, service ? service->id : SERVICE_NONE, SY_DROP_OPENING);
	sy_packet_drop(w, opening->data, SY_DROP_OPENING);
}

enum defence_result defence_check(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                  struct splice_opening *opening)
{
	const struct sy_balance *b = w->app;
	struct sy_view *v = &burst->view[i];
	const uint8_t kinds = SY_TCP_SYN | SY_TCP_ACK | SY_TCP_RST;

	if (v->proto != SY_PROTO_TCP)
		return DEFENCE_PASSES;
	const struct service *service = locate_packet(w, burst, i);
	bool on = service && defence_is_on(b, service);
	if (SY_UNLIKELY(v->fragment != SY_FRAGMENT_NONE))
		return on ? defence_check_fragment(w, burst, i, service) : DEFENCE_PASSES;
	if (!service || !(on || defence_has_outstanding_cookies(w, service)) ||
	    create_check_origin(b, burst, i) != SY_DROP_NONE)
		return DEFENCE_PASSES;
	if (service->one_way)
		return defence_check_one_way(w, burst, i, service, on);
	if (v->tcp_flags & SY_TCP_RST)
		return DEFENCE_PASSES;
	if (on && (v->tcp_flags & kinds) == SY_TCP_SYN) {
		if (defence_access_check(w, burst, i, service, false) &&
		    !unavailable_refuses(w, burst, i, service))
			defence_answer(w, burst, i, service);
		return DEFENCE_CONSUMED;
	}
	if ((v->tcp_flags & kinds) != SY_TCP_ACK)
		return DEFENCE_PASSES;
	struct service_counts *counts = &balance_worker_of(w)->counts[service->id];
	const struct sy_tcp *tcp = sy_packet_tcp(sy_frame(burst->mbuf[i]), v);
	struct sy_tcp_options o;
	sy_tcp_options_read(sy_frame(burst->mbuf[i]), v, &o);
	if (!cookie_is_valid(w, v, tcp, &o)) {
		if (!on)
			return DEFENCE_PASSES;
		SY_COUNT(counts->wrong, 1);
		return DEFENCE_WRONG;
	}
	SY_COUNT(counts->right, 1);
	/* The cookie validates the client: overload_drop_burst() accepts its sessions. */
	validated_add_seen(b->validated, challenge_client(b, service, &v->tuple.src),
	                   VALIDATED_CREDITS, balance_seconds(w));
	if (!defence_access_check(w, burst, i, service, true))
		return DEFENCE_CONSUMED;
	if (o.timestamps)
		sy_cookie_time_options(o.echo, &o);
	opening_fill(opening, v, tcp, &o);
	if (opening_syn_make(w, burst, i, opening))
		return DEFENCE_OPENS;
	service_packet_drop(w, burst, i, service, SY_DROP_NO_BUFFER);
	opening_drop(w, service, opening);
	return DEFENCE_CONSUMED;
}

void defence_refuse(struct sy_worker *w, const struct sy_burst *burst, unsigned i,
                    const struct service *service, struct splice_opening *opening)
{
	const struct sy_tuple *t = &burst->view[i].tuple;
	const struct sy_tuple back = {t->dst, t->src, t->dport, t->sport, t->proto};
	reset_refused(w, burst->mbuf[i], &back, opening->begin.cookie + 1);
	opening_drop(w, service, opening);
}
