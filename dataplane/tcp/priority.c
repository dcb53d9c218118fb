// SPDX-License-Identifier: Apache-2.0
/* Priorities of connections: segment hooks, private areas, levels of unread data. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_mbuf_dyn.h>

#include "priority.h"

#define MAX_WAITING   4096u /* buffers */
#define WAITING_SHARE 4     /* at most 1/4 of the driver's buffers */
#define WAITING_MIN   64u

/* ---- level in the packet --------------------------------------------------------------------- */

static int level_offset = -1; /* written before the first use */

static bool level_register(void)
{
	static const struct rte_mbuf_dynfield field = {
	        .name = "steelyard_level", .size = sizeof(uint8_t), .align = sizeof(uint8_t)};

	if (level_offset < 0)
		level_offset = rte_mbuf_dynfield_register(&field);
	return level_offset >= 0;
}

unsigned packet_level(const struct rte_mbuf *m)
{
	return *RTE_MBUF_DYNFIELD(m, level_offset, const uint8_t *) % SY_PRIORITIES;
}

void packet_set_level(struct rte_mbuf *m, unsigned level)
{
	*RTE_MBUF_DYNFIELD(m, level_offset, uint8_t *) = (uint8_t)level;
}

/* ---- start and end --------------------------------------------------------------------------- */

/* Memory stays untouched until used. */
static void *table_make(struct sy_stack *s, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	s->fixed += bytes;
	return p;
}

static size_t own_bytes(const struct sy_stack *s)
{
	return (s->options.connections + 1ul) * SY_CACHE_LINE;
}

static size_t rank_bytes(const struct sy_stack *s)
{
	return s->options.connections * sizeof(struct rank);
}

void priority_close(struct sy_stack *s)
{
	struct priority *p = s->priority;

	if (!p)
		return;
	receive_levels_close(&p->waiting);
	sy_hooks_destroy(p->hooks);
	if (p->rank)
		munmap(p->rank, rank_bytes(s));
	if (p->own.cells)
		munmap(p->own.cells, own_bytes(s));
	free(p);
	s->priority = s->ranked = NULL;
}

/* Includes out-of-order packets. */
static void packets_usual(struct sy_stack *s, const struct connection *c)
{
	for (struct rte_mbuf *m = c->received.first; m; m = m->next)
		packet_set_level(m, SY_USUAL);
	for (uint32_t at = c->arrived.first; at != POOL_NONE;) {
		const struct arrived_block *b = (const void *)pool_at(&s->arrived, at);
		for (uint32_t i = b->first; i != POOL_NONE;) {
			const struct arrived_piece *piece = (const void *)pool_at(&s->arrived, i);
			packet_set_level(piece->buffer, SY_USUAL);
			i = piece->next;
		}
		at = b->next;
	}
}

/* Existing connections' data was received without levels: it is SY_USUAL. */
static void ranks_begin(struct sy_stack *s)
{
	struct priority *p = s->priority;

	if (s->ranked)
		return;
	for (uint32_t i = 0; i < s->fresh; i++) {
		const struct connection *c = &s->connection[i];
		struct rank *r = &p->rank[i];
		r->level = r->listed = SY_USUAL;
		r->until = c->rcv_nxt;
		r->known = false;
		r->unread = c->received.bytes > 0;
		p->unread[SY_USUAL] += r->unread;
		packets_usual(s, c);
	}
	s->event_levels = s->event[SY_USUAL].count > 0 ? 1u << SY_USUAL : 0;
	s->ranked = p;
}

static bool hook_is_asked(unsigned hook)
{
	return hook != SY_HOOK_NONE && hook != SY_STACK_HOOK_OFF;
}

void priority_disable(struct sy_stack *s)
{
	struct priority *p = s->ranked;

	if (!p || p->packet_hook != SY_HOOK_NONE || hook_is_asked(p->segment_hook) || p->named ||
	    p->waiting.count > 0)
		return;
	memset(p->unread, 0, sizeof(p->unread));
	memset(p->waits, 0, sizeof(p->waits));
	memset(p->stuck, 0, sizeof(p->stuck));
	memset(p->idle, 0, sizeof(p->idle));
	events_unranked(s);
	s->ranked = NULL;
}

static struct priority *priority_of(struct sy_stack *s)
{
	struct priority *p;
	void *cells;

	if (s->priority)
		return s->priority;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	s->priority = p;
	p->hooks = sy_hooks_create();
	p->rank = table_make(s, rank_bytes(s));
	cells = table_make(s, own_bytes(s));
	pool_init(&p->own, cells, SY_CACHE_LINE, s->options.connections + 1);
	if (!p->hooks || !p->rank || !cells || !level_register()) {
		priority_close(s);
		return NULL;
	}
	for (uint32_t i = 0; i < s->fresh; i++)
		p->rank[i].born_ms = s->now_ms;
	return p;
}

struct sy_hooks *sy_stack_hooks(struct sy_stack *s)
{
	const struct priority *p = priority_of(s);
	return p ? p->hooks : NULL;
}

/* ---- assignment of hooks --------------------------------------------------------------------- */

int sy_stack_packet_hook(struct sy_stack *s, unsigned hook)
{
	struct priority *p = priority_of(s);
	uint32_t max = s->options.pool->size / WAITING_SHARE;

	if (!p)
		return -ENOMEM;
	max = max > MAX_WAITING ? MAX_WAITING : max < WAITING_MIN ? WAITING_MIN : max;
	if (hook != SY_HOOK_NONE && !p->waiting.max && receive_levels_init(&p->waiting, max))
		return -ENOMEM;
	if (hook != SY_HOOK_NONE)
		ranks_begin(s);
	p->packet_hook = hook;
	priority_disable(s);
	return 0;
}

int sy_stack_segment_hook(struct sy_stack *s, sy_stack_id id, unsigned hook)
{
	struct listener *l = listener_of(s, id);
	struct connection *c = connection_of(s, id);
	struct priority *p = priority_of(s);

	if (id != SY_STACK_NONE && !l && !c)
		return -EBADF;
	if (hook > SY_HOOKS && hook != SY_STACK_HOOK_OFF)
		return -EINVAL;
	if (!p)
		return -ENOMEM;
	if (hook_is_asked(hook)) {
		ranks_begin(s);
		p->named |= l || c;
	}
	if (l)
		l->options.hook = (uint8_t)hook;
	else if (c)
		rank_of(s, c)->hook = (uint8_t)hook;
	else
		p->segment_hook = hook;
	priority_disable(s);
	return 0;
}

/* ---- private areas --------------------------------------------------------------------------- */

/* Returns the private area. NULL: the pool of one per connection could not be allocated. */
static void *own_of(struct priority *p, struct rank *r)
{
	if (r->own == POOL_NONE) {
		r->own = pool_alloc(&p->own);
		if (r->own == POOL_NONE)
			return NULL;
		memset(pool_at(&p->own, r->own), 0, SY_CACHE_LINE);
	}
	return pool_at(&p->own, r->own);
}

void *sy_stack_private_area(struct sy_stack *s, sy_stack_id id)
{
	const struct connection *c = connection_of(s, id);

	if (!c || !priority_of(s))
		return NULL;
	return own_of(s->priority, rank_of(s, c));
}

/* ---- creation and end ------------------------------------------------------------------------ */

void priority_begin(struct sy_stack *s, const struct connection *c)
{
	*rank_of(s, c) = (struct rank){
	        .level = SY_USUAL, .listed = SY_USUAL, .born_ms = s->now_ms, .own = POOL_NONE};
}

void priority_born(struct sy_stack *s, const struct connection *c)
{
	rank_of(s, c)->born_ms = s->now_ms;
}

void priority_lost(struct sy_stack *s, const struct connection *c)
{
	rank_of(s, c)->lost++;
}

void priority_end(struct sy_stack *s, const struct connection *c)
{
	struct rank *r = rank_of(s, c);

	if (r->own != POOL_NONE)
		pool_free(&s->priority->own, r->own);
	r->own = POOL_NONE;
}

/* ---- running the segment hook ---------------------------------------------------------------- */

static void segment_see(const struct sy_stack *s, const struct connection *c,
                        const struct rte_mbuf *m, const struct segment *seg,
                        struct sy_hook_segment *view)
{
	const struct rank *r = rank_of(s, c);

	view->packet = (struct sy_hook_packet){
	        .frame_len = (uint16_t)(seg->data + m->data_len),
	        .payload_len = m->data_len,
	        .sport = rte_be_to_cpu_16(c->tuple.sport),
	        .dport = rte_be_to_cpu_16(c->tuple.dport),
	        .version = connection_v4(c) ? 4 : 6,
	        .proto = SY_PROTO_TCP,
	        .dscp = seg->dscp,
	        .flags = seg->flags,
	        .priority = (uint8_t)packet_level(m),
	};
	view->received = view->offset = c->bytes_received;
	view->sent = c->bytes_acked;
	view->srtt_us = rtt_smoothed_us(&c->rtt);
	view->rttvar_us = rtt_variation_us(&c->rtt);
	view->resent = c->retransmitted;
	view->lost = r->lost;
	view->age_ms = s->now_ms - r->born_ms;
	view->become = SY_HOOK_NONE;
	view->unused = 0;
}

static unsigned hook_of(const struct priority *p, const struct rank *r)
{
	unsigned hook = r->hook != SY_HOOK_NONE ? r->hook : p->segment_hook;
	return hook != SY_STACK_HOOK_OFF ? hook : SY_HOOK_NONE;
}

unsigned priority_hook_run(struct sy_stack *s, struct connection *c, struct rte_mbuf *m,
                           const struct segment *seg)
{
	struct priority *p = s->priority;
	struct rank *r = rank_of(s, c);
	unsigned hook = hook_of(p, r);
	struct sy_hook_segment view;
	uint8_t answer;
	void *own;

	if (hook == SY_HOOK_NONE || !(own = own_of(p, r)))
		return packet_level(m);
	segment_see(s, c, m, seg, &view);
	memcpy(view.own, own, sizeof(view.own));
	answer = sy_hook_run_segment(p->hooks, hook, &view, rte_pktmbuf_mtod(m, const uint8_t *));
	memcpy(own, view.own, sizeof(view.own));
	if (view.become != SY_HOOK_NONE) {
		r->hook = (uint8_t)view.become;
		p->named = true;
	}
	if (answer != SY_KEEP)
		packet_set_level(m, answer);
	return packet_level(m);
}

/* ---- levels of unread data ------------------------------------------------------------------- */

static void unread_more(struct priority *p, const struct rank *r)
{
	p->unread[r->level]++;
	p->waits[r->level] += r->known;
}

static void unread_less(struct priority *p, const struct rank *r)
{
	p->unread[r->level]--;
	p->waits[r->level] -= r->known;
	if (p->waits[r->level] < p->stuck[r->level])
		p->stuck[r->level] = p->waits[r->level];
}

static void rank_level(struct priority *p, struct rank *r, unsigned level)
{
	if (r->unread)
		unread_less(p, r);
	r->level = (uint8_t)level;
	if (r->unread)
		unread_more(p, r);
}

void priority_added(struct sy_stack *s, struct connection *c, struct rte_mbuf *last, unsigned level)
{
	struct priority *p = s->priority;
	struct rank *r = rank_of(s, c);

	/* The packet was copied into its predecessor, which takes the more urgent level. */
	if (c->received.last == last && level < packet_level(last))
		packet_set_level(last, level);
	if (!r->unread) {
		r->unread = true;
		r->level = (uint8_t)level;
		unread_more(p, r);
		r->until = c->rcv_nxt;
	} else if (level <= r->level) {
		rank_level(p, r, level);
		r->until = c->rcv_nxt;
	}
	connection_reschedule(s, c);
}

/* All bytes up to `until` are read: computes the level of the rest. Each packet is visited at most
 * once per level. */
static void rank_again(struct sy_stack *s, struct connection *c, struct rank *r, uint32_t seq)
{
	unsigned level = SY_PRIORITIES;

	for (const struct rte_mbuf *m = c->received.first; m; m = m->next) {
		unsigned this = packet_level(m);
		seq += m->data_len;
		if (this <= level) {
			level = this;
			r->until = seq;
		}
	}
	rank_level(s->priority, r, level);
	if (list_has(s, LIST_EVENT, c))
		event_place(s, c);
}

void priority_read(struct sy_stack *s, struct connection *c)
{
	struct rank *r = rank_of(s, c);
	uint32_t seq = c->rcv_nxt - !!(c->flags & C_FIN_ARRIVED) - c->received.bytes;

	if (!r->unread)
		return;
	s->priority->idle[r->level] = 0;
	s->priority->waits[r->level] += !r->known;
	r->known = true;
	if (c->received.bytes == 0) {
		r->unread = false;
		unread_less(s->priority, r);
	} else if (!sy_seq_before(seq, r->until)) {
		rank_again(s, c, r, seq);
	}
}

unsigned sy_stack_level(struct sy_stack *s, sy_stack_id id)
{
	const struct connection *c;

	if (!s->ranked)
		return SY_USUAL;
	c = connection_of(s, id);
	if (c)
		return rank_of(s, c)->level;
	return listener_of(s, id) ? 0 : SY_USUAL;
}

/* ---- reports --------------------------------------------------------------------------------- */

void sy_stack_levels(const struct sy_stack *s, struct sy_stack_levels *out)
{
	const struct priority *p = s->priority;

	*out = (struct sy_stack_levels){0};
	memcpy(out->events, s->event_counts, sizeof(out->events));
	if (!p)
		return;
	memcpy(out->unread, p->unread, sizeof(out->unread));
	memcpy(out->taken, p->waiting.taken, sizeof(out->taken));
	memcpy(out->dropped, p->waiting.dropped, sizeof(out->dropped));
	for (unsigned i = 0; i < SY_PRIORITIES; i++)
		out->waiting[i] = p->waiting.level[i].count;
	out->risen = p->waiting.risen;
	out->max = p->waiting.max;
	out->own = p->own.taken;
}
