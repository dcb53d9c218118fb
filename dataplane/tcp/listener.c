// SPDX-License-Identifier: Apache-2.0
/*
 * Listeners (RFC 9293 3.10.7.2):
 *
 *     SYN ──▶ half-open, SYN-ACK ──ACK──▶ accept queue ──accept()──▶ application
 *      └──▶ too many half-open: SYN cookie as ISN, no state (RFC 4987)
 *                                ──ACK──▶ accept queue
 */
#include <arpa/inet.h>
#include <errno.h>

#include "arrive.h"
#include "emit.h"
#include "priority.h"

#define COOKIE_EPOCH_S 64 /* valid in its epoch and the next */

/* ---- table ----------------------------------------------------------------------------------- */

/* at: an index + 1; 0: none. */
static struct listener *listener_at(const struct sy_stack *s, uint16_t at)
{
	return at ? &s->listeners.slot[at - 1] : NULL;
}

static uint16_t listener_place(const struct sy_stack *s, const struct listener *l)
{
	return (uint16_t)(l - s->listeners.slot + 1);
}

/* Neighbouring ports have buckets of their own. */
static uint16_t *port_bucket(const struct sy_stack *s, uint16_t port)
{
	return &s->listeners.bucket[ntohs(port) & s->listeners.mask];
}

/* The first and the next listener that may have the port. */
static struct listener *port_first(const struct sy_stack *s, uint16_t port)
{
	return listener_at(s, *port_bucket(s, port));
}

static struct listener *port_next(const struct sy_stack *s, const struct listener *l)
{
	return listener_at(s, l->next);
}

struct listener *listener_add(struct sy_stack *s, const struct sy_stack_endpoint *local)
{
	struct listener_table *t = &s->listeners;
	uint16_t *bucket = port_bucket(s, local->port);
	struct listener *l = listener_at(s, t->free);

	if (l)
		t->free = l->next;
	else if (t->fresh < s->options.listeners)
		l = &t->slot[t->fresh++];
	else
		return NULL;
	uint16_t generation = (l->generation + 1) & GENERATION_MASK;
	*l = (struct listener){.local = *local,
	                       .used = true,
	                       .next = *bucket,
	                       .generation = generation ? generation : 1};
	list_init(&l->half);
	list_init(&l->ready);
	*bucket = listener_place(s, l);
	t->count++;
	return l;
}

static void news_add(struct sy_stack *s, struct listener *l)
{
	struct listener *last = listener_at(s, s->listeners.last_news);
	uint16_t place = listener_place(s, l);

	if (l->has_news)
		return;
	l->has_news = true;
	l->next_news = 0;
	if (last)
		last->next_news = place;
	else
		s->listeners.first_news = place;
	s->listeners.last_news = place;
}

struct listener *listener_next_news(struct sy_stack *s)
{
	struct listener *l = listener_at(s, s->listeners.first_news);

	if (!l)
		return NULL;
	l->has_news = false;
	s->listeners.first_news = l->next_news;
	if (!l->next_news)
		s->listeners.last_news = 0;
	return l;
}

static void news_remove(struct sy_stack *s, const struct listener *l)
{
	uint16_t last = s->listeners.last_news;
	struct listener *other;

	if (!l->has_news)
		return;
	do { /* each one is removed; all but this one are added again */
		other = listener_next_news(s);
		if (other != l)
			news_add(s, other);
	} while (listener_place(s, other) != last);
}

static void listener_remove(struct sy_stack *s, struct listener *l)
{
	uint16_t *at = port_bucket(s, l->local.port);

	news_remove(s, l);
	while (*at != listener_place(s, l))
		at = &listener_at(s, *at)->next;
	*at = l->next;
	l->used = false;
	l->next = s->listeners.free;
	s->listeners.free = listener_place(s, l);
	s->listeners.count--;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static bool addr_is_any(const struct sy_addr *a)
{
	static const struct sy_addr none;
	return sy_addr_equal(a, &none) || (sy_addr_is_v4(a) && a->w[3] == 0);
}

/* Returns how specific the address match is; 0: none. */
static unsigned address_fit(const struct listener *l, const struct sy_addr *addr, uint16_t port)
{
	if (l->local.port != port)
		return 0;
	if (sy_addr_equal(&l->local.addr, addr))
		return 3;
	if (!addr_is_any(&l->local.addr))
		return 0;
	if (sy_addr_is_v4(&l->local.addr)) /* IPv4 wildcard */
		return sy_addr_is_v4(addr) ? 2 : 0;
	if (l->only_v6 && sy_addr_is_v4(addr))
		return 0;
	return 1; /* dual-stack wildcard */
}

/* A retired one comes last. */
static unsigned listener_fit(const struct listener *l, const struct sy_addr *addr, uint16_t port)
{
	unsigned fit = address_fit(l, addr, port);

	return fit && !l->retired ? fit + 3 : fit;
}

/* One of the `count` listeners that fit as well as the first of them. Its order among them changes
 * only when one is opened or closed. */
static struct listener *listener_choose(struct sy_stack *s, struct listener *first, unsigned fit,
                                        uint32_t count, const struct sy_tuple *t)
{
	uint32_t left =
	        (uint32_t)((uint64_t)(uint32_t)sy_hash_tuple(&s->hash_key, t) * count >> 32);
	struct listener *l = first;

	for (; left > 0; left--)
		do
			l = port_next(s, l);
		while (listener_fit(l, &t->dst, t->dport) != fit);
	return l;
}

struct listener *listener_find(struct sy_stack *s, const struct sy_tuple *t)
{
	struct listener *best = NULL;
	unsigned fit = 0;
	uint32_t count = 0;

	for (struct listener *l = port_first(s, t->dport); l; l = port_next(s, l)) {
		unsigned now = listener_fit(l, &t->dst, t->dport);
		if (now > fit) {
			best = l;
			fit = now;
			count = 0;
		}
		count += now && now == fit;
	}
	return SY_LIKELY(count <= 1) ? best : listener_choose(s, best, fit, count, t);
}

bool listener_is_retired(const struct sy_stack *s, const struct sy_addr *addr, uint16_t port)
{
	for (const struct listener *l = port_first(s, port); l; l = port_next(s, l))
		if (l->retired && address_fit(l, addr, port))
			return true;
	return false;
}

bool listener_conflicts(const struct sy_stack *s, const struct sy_stack_endpoint *local,
                        bool shared)
{
	for (const struct listener *l = port_first(s, local->port); l; l = port_next(s, l))
		if (!l->retired && !(shared && l->shared) && l->local.port == local->port &&
		    sy_addr_equal(&l->local.addr, &local->addr))
			return true;
	return false;
}

sy_stack_id listener_id(const struct sy_stack *s, const struct listener *l)
{
	return (uint32_t)l->generation << INDEX_BITS |
	       (s->options.connections + (uint32_t)(l - s->listeners.slot));
}

struct listener *listener_of(struct sy_stack *s, sy_stack_id id)
{
	uint32_t index = (id & INDEX_MASK) - s->options.connections;

	if ((id & INDEX_MASK) < s->options.connections || index >= s->options.listeners)
		return NULL;
	struct listener *l = &s->listeners.slot[index];
	return l->used && l->generation == id >> INDEX_BITS ? l : NULL;
}

/* ---- half-open ------------------------------------------------------------------------------- */

static void listener_options_inherit(struct sy_stack *s, struct connection *c,
                                     const struct listener *l)
{
	const struct listener_options *w = &l->options;

	c->listener = (uint16_t)(l - s->listeners.slot);
	c->flags |= C_PASSIVE | w->flags;
	c->keepalive_s = w->keepalive_s;
	if (w->keepalive_interval_s)
		c->keepalive_interval_s = w->keepalive_interval_s;
	if (w->keepalive_probes)
		c->keepalive_probes = w->keepalive_probes;
	c->user_timeout_ms = w->user_timeout_ms;
	c->user_mss = w->mss;
	c->tos = w->tos;
	c->band = w->band & 3;
	if (s->priority)
		rank_of(s, c)->hook = w->hook;
	c->max_pace = w->max_pace;
	if (w->send_limit)
		c->send_limit = w->send_limit;
	if (w->receive_limit)
		c->receive_limit = w->receive_limit;
}

static struct connection *connection_of_syn(struct sy_stack *s, struct listener *l,
                                            const struct segment *seg, uint32_t irs)
{
	struct connection *c = connection_make(s, &seg->view->tuple);

	if (!c)
		return NULL;
	listener_options_inherit(s, c, l);
	c->rcv_nxt = c->rcv_edge = c->rcv_acked = irs + 1;
	c->state = SY_STACK_SYN_RECEIVED;
	if (seg->options.timestamps) {
		c->ts_recent = seg->options.time;
		c->ts_recent_ms = s->now_ms;
	}
	return c;
}

/* Creates a half-open connection. NULL: no slot. */
static struct connection *syn_keep(struct sy_stack *s, struct listener *l,
                                   const struct segment *seg)
{
	struct connection *c = connection_of_syn(s, l, seg, seg->seq);

	if (!c)
		return NULL;
	connection_apply_options(s, c, &seg->options);
	/* RFC 3168 6.1.1: an ECN-setup SYN has both flags */
	if ((seg->flags & (TCP_ECE | TCP_CWR)) == (TCP_ECE | TCP_CWR))
		c->flags |= C_ECN;
	connection_begin(s, c, connection_iss(s, &c->tuple));
	c->snd_wnd = c->snd_wnd_max = seg->window;
	c->snd_wl1 = seg->seq;
	list_append(s, &l->half, LIST_ROLE, c);
	s->half_open++;
	connection_schedule(s, c);
	return c;
}

/* Never sends a cookie, even if the half-open connections exceed the backlog: a cookie's ISN would
 * not be beyond the old sequence numbers, as RFC 9293 3.6.1 requires. The excess uses no more
 * memory than the connections in TIME-WAIT did. No other connection can allocate the freed slot in
 * between. */
struct connection *listener_replace(struct sy_stack *s, struct listener *l, struct connection *old,
                                    const struct segment *seg)
{
	bool owned = old->flags & C_OWNED;
	struct connection *c;

	if (l->ready.count >= l->backlog) {
		s->counters.refused_backlog++; /* the peer will retransmit */
		return NULL;
	}
	if (!owned)
		connection_end(s, old, 0);
	c = syn_keep(s, l, seg);
	if (c && owned) /* remains allocated until the application closes it */
		connection_end(s, old, 0);
	return c;
}

/* ---- cookies --------------------------------------------------------------------------------- */

static struct sy_siphash_key cookie_key(const struct sy_stack *s, uint64_t epoch)
{
	struct sy_siphash_key key;

	for (uint64_t i = 0; i < 2; i++) {
		const uint64_t words[2] = {epoch, i};
		key.k[i] = sy_siphash(&s->cookie_key, words, sizeof(words));
	}
	return key;
}

static uint64_t cookie_epoch(const struct sy_stack *s)
{
	return s->now_ns / (COOKIE_EPOCH_S * UINT64_C(1000000000));
}

/* Offset of timestamps in cookies; the connection continues with it. */
static uint64_t cookie_ts_hash(const struct sy_stack *s, const struct sy_tuple *t)
{
	return (uint64_t)connection_ts_offset(s, t) << 32;
}

static void cookie_send(struct sy_stack *s, const struct segment *seg)
{
	const struct sy_tuple *t = &seg->view->tuple;
	uint64_t epoch = cookie_epoch(s);
	struct sy_siphash_key key = cookie_key(s, epoch);
	struct sy_tcp_options o = seg->options;
	struct rte_mbuf *m;

	if (s->options.no_sack)
		o.sack = false;
	if (s->options.no_scale)
		o.scale = SY_TCP_NO_SCALE;
	if (!o.mss)
		o.mss = seg->view->v4 ? 536 : 1220;
	struct segment_plan plan = {
	        .from_peer = t,
	        .seq = sy_cookie_make(sy_cookie_hash(&key, t, seg->seq), (unsigned)epoch,
	                              seg->view->v4, &o),
	        .ack = seg->seq + 1,
	        .flags = SY_TCP_SYN | SY_TCP_ACK,
	        .window = UINT16_MAX,
	        .options = {.mss = sy_tcp_mss(seg->view->v4, s->options.mtu, 0),
	                    .sack = o.sack,
	                    .scale = o.scale == SY_TCP_NO_SCALE ? o.scale : s->receive_scale},
	};
	if (o.timestamps && !s->options.no_timestamps) {
		plan.options.timestamps = true;
		plan.options.time = sy_cookie_time(cookie_ts_hash(s, t), s->now_ns, &o);
		plan.options.echo = o.time;
	}
	do {
		m = segment_make(s->options.pool, &plan, NULL);
	} while (!m && stack_reclaim(s));
	if (m)
		segment_finish(m, &plan, s->options.offload_checksum);
	s->cookie_ns = s->now_ns;
	s->counters.cookies_sent++;
	stack_send_control(s, m);
}

/* Returns true if cookies that are still valid were sent. */
static bool cookies_live(const struct sy_stack *s)
{
	return s->counters.cookies_sent > 0 &&
	       s->now_ns - s->cookie_ns < 2 * COOKIE_EPOCH_S * UINT64_C(1000000000);
}

static bool cookie_read(const struct sy_stack *s, const struct segment *seg,
                        struct sy_tcp_options *o)
{
	const struct sy_tuple *t = &seg->view->tuple;
	uint32_t cookie = seg->ack - 1;
	uint64_t epoch = cookie_epoch(s);

	if ((epoch & 1) != sy_cookie_epoch(cookie))
		epoch--;
	struct sy_siphash_key key = cookie_key(s, epoch);
	*o = seg->options;
	if (!sy_cookie_check(sy_cookie_hash(&key, t, seg->seq - 1), cookie, seg->view->v4, o))
		return false;
	if (seg->options.timestamps)
		sy_cookie_time_options(seg->options.echo, o);
	return true;
}

/* Creates an established connection from a cookie. */
static struct connection *cookie_open(struct sy_stack *s, struct listener *l,
                                      const struct segment *seg)
{
	struct sy_tcp_options o;
	struct connection *c;

	if (!cookie_read(s, seg, &o)) {
		s->counters.cookies_wrong++;
		stack_refuse(s, seg);
		return NULL;
	}
	if (l->ready.count >= l->backlog) { /* the peer will retransmit */
		s->counters.refused_backlog++;
		return NULL;
	}
	c = connection_of_syn(s, l, seg, seg->seq - 1);
	if (!c)
		return NULL;
	s->counters.cookies_right++;
	connection_apply_options(s, c, &o);
	connection_begin(s, c, seg->ack - 1);
	c->snd_una = c->snd_nxt = c->recover = c->small_end = seg->ack;
	c->snd_wnd = c->snd_wnd_max = (uint32_t)seg->window << c->snd_scale;
	c->snd_wl1 = seg->seq;
	c->snd_wl2 = seg->ack;
	c->rcv_edge = c->rcv_nxt + UINT16_MAX; /* as advertised in the SYN-ACK */
	list_append(s, &l->half, LIST_ROLE, c);
	s->half_open++;
	listener_complete(s, c);
	connection_established(s, c);
	return c;
}

/* ---- RFC 9293 3.10.7.2 ----------------------------------------------------------------------- */

struct connection *listener_arrive(struct sy_stack *s, struct listener *l,
                                   const struct segment *seg)
{
	if (seg->flags & SY_TCP_RST)
		return NULL;
	if (seg->flags & SY_TCP_ACK) {
		if (!(seg->flags & SY_TCP_SYN) && cookies_live(s))
			return cookie_open(s, l, seg);
		stack_refuse(s, seg);
		return NULL;
	}
	if (!(seg->flags & SY_TCP_SYN))
		return NULL;
	if (l->retired)
		stack_refuse(s, seg);
	else if (l->ready.count >= l->backlog)
		s->counters.refused_backlog++; /* the peer will retransmit */
	else if (l->half.count >= l->backlog)
		cookie_send(s, seg);
	else
		syn_keep(s, l, seg);
	return NULL;
}

/* ---- accept queue ---------------------------------------------------------------------------- */

bool listener_complete(struct sy_stack *s, struct connection *c)
{
	struct listener *l = &s->listeners.slot[c->listener];

	if (l->ready.count >= l->backlog) {
		s->counters.refused_backlog++;
		return false;
	}
	list_remove(s, &l->half, LIST_ROLE, c);
	s->half_open--;
	list_append(s, &l->ready, LIST_ROLE, c);
	c->flags |= C_ESTABLISHED;
	s->counters.accepted++;
	news_add(s, l); /* for each connection: edge-triggered applications need it */
	return true;
}

void listener_forget(struct sy_stack *s, struct connection *c)
{
	struct listener *l = &s->listeners.slot[c->listener];
	bool ready = c->flags & C_ESTABLISHED;

	list_remove(s, ready ? &l->ready : &l->half, LIST_ROLE, c);
	s->half_open -= !ready;
	c->listener = LISTENER_NONE;
}

int sy_stack_listener_set(struct sy_stack *s, sy_stack_id id, unsigned backlog, bool only_v6)
{
	struct listener *l = listener_of(s, id);

	if (!l)
		return -EBADF;
	l->backlog = backlog ? backlog : 1;
	l->only_v6 = only_v6;
	return 0;
}

void listener_close(struct sy_stack *s, struct listener *l)
{
	struct connection *c;

	/* Drop half-open connections silently, as on Linux: the SYN is retransmitted to the next
	 * listener, e.g. of another worker after a reload. */
	while ((c = list_first(s, &l->half)) != NULL)
		connection_end(s, c, 0);
	while ((c = list_first(s, &l->ready)) != NULL) {
		bool over = c->state == SY_STACK_CLOSED;
		if (!over)
			emit_reset(s, c);
		listener_forget(s, c);
		if (over)
			connection_free(s, c);
		else
			connection_end(s, c, 0);
	}
	listener_remove(s, l);
}
