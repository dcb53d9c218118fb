// SPDX-License-Identifier: Apache-2.0
/* Connections: hash table, ids, creation and end. */
#include "arrive.h"
#include "emit.h"
#include "priority.h"
#include "timer.h"
#include "window.h"

#define MIN_MSS      48 /* lower bound: a peer must not cause a flood of tiny segments */
#define TCP_HEADERS  20
#define MSS_DEFAULT4 536 /* RFC 9293 3.7.1 */
#define MSS_DEFAULT6 1220

const char *sy_stack_state_name(enum sy_stack_state state)
{
	static const char *const name[] = {
#define X(id, text) text,
	        SY_STACK_STATES(X)
#undef X
	};
	return state < SY_STACK_STATE_COUNT ? name[state] : "?";
}

/* ---- lists ----------------------------------------------------------------------------------- */

void list_append(struct sy_stack *s, struct list *l, enum list_kind kind, struct connection *c)
{
	uint32_t index = connection_index(s, c);

	c->place[kind] = (struct list_place){.before = l->last, .after = INDEX_NONE};
	if (l->last == INDEX_NONE)
		l->first = index;
	else
		s->connection[l->last].place[kind].after = index;
	l->last = index;
	l->count++;
}

void list_remove(struct sy_stack *s, struct list *l, enum list_kind kind, struct connection *c)
{
	struct list_place p = c->place[kind];

	if (p.before == INDEX_NONE)
		l->first = p.after;
	else
		s->connection[p.before].place[kind].after = p.after;
	if (p.after == INDEX_NONE)
		l->last = p.before;
	else
		s->connection[p.after].place[kind].before = p.before;
	c->place[kind].after = connection_index(s, c);
	l->count--;
}

/* ---- table and ids --------------------------------------------------------------------------- */

uint32_t connection_index(const struct sy_stack *s, const struct connection *c)
{
	return (uint32_t)(c - s->connection);
}

sy_stack_id connection_id(const struct sy_stack *s, const struct connection *c)
{
	return (uint32_t)c->generation << INDEX_BITS | connection_index(s, c);
}

struct connection *connection_of(struct sy_stack *s, sy_stack_id id)
{
	uint32_t index = id & INDEX_MASK;

	if (index >= s->fresh)
		return NULL;
	struct connection *c = &s->connection[index];
	return c->generation == id >> INDEX_BITS && c->flags & C_OWNED ? c : NULL;
}

uint32_t *bucket_of(struct sy_stack *s, const struct sy_tuple *from_peer)
{
	return &s->bucket[sy_hash_tuple(&s->hash_key, from_peer) & s->bucket_mask];
}

struct connection *bucket_find(struct sy_stack *s, const uint32_t *bucket,
                               const struct sy_tuple *from_peer)
{
	for (uint32_t at = *bucket; at; at = s->connection[at - 1].bucket_next) {
		struct connection *c = &s->connection[at - 1];
		if (SY_LIKELY(memcmp(&c->tuple, from_peer, sizeof(c->tuple)) == 0))
			return c;
	}
	return NULL;
}

void connection_prefetch(const struct sy_stack *s, uint32_t index)
{
	const char *c = (const char *)&s->connection[index];

	for (unsigned at = 0; at < sizeof(struct connection); at += SY_CACHE_LINE)
		__builtin_prefetch(c + at, 1);
}

struct connection *connection_find(struct sy_stack *s, const struct sy_tuple *from_peer)
{
	return bucket_find(s, bucket_of(s, from_peer), from_peer);
}

static void table_add(struct sy_stack *s, struct connection *c)
{
	uint32_t *bucket = bucket_of(s, &c->tuple);

	c->bucket_next = *bucket;
	*bucket = connection_index(s, c) + 1;
	s->port_uses[c->tuple.dport]++;
	c->flags |= C_HASHED;
}

static void table_remove(struct sy_stack *s, struct connection *c)
{
	uint32_t *at = bucket_of(s, &c->tuple), wanted = connection_index(s, c) + 1;

	if (!(c->flags & C_HASHED))
		return;
	while (*at != wanted)
		at = &s->connection[*at - 1].bucket_next;
	*at = c->bucket_next;
	s->port_uses[c->tuple.dport]--;
	c->flags &= ~(uint32_t)C_HASHED;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Returns the oldest connection in TIME-WAIT without an application, or NULL. */
static struct connection *time_wait_oldest(struct sy_stack *s)
{
	uint32_t at = s->time_wait.first;

	for (unsigned i = 0; i < 8 && at != INDEX_NONE; i++) {
		struct connection *c = &s->connection[at];
		if (!(c->flags & C_OWNED))
			return c;
		at = c->place[LIST_ROLE].after;
	}
	return NULL;
}

static struct connection *slot_alloc(struct sy_stack *s)
{
	if (s->free == INDEX_NONE && s->fresh == s->options.connections) {
		struct connection *old = time_wait_oldest(s);
		if (!old) {
			s->counters.refused_memory++;
			return NULL;
		}
		s->counters.time_wait_reused++;
		connection_end(s, old, 0);
	}
	if (s->free == INDEX_NONE)
		return &s->connection[s->fresh++];
	struct connection *c = &s->connection[s->free];
	s->free = c->bucket_next;
	return c;
}

struct connection *connection_make(struct sy_stack *s, const struct sy_tuple *from_peer)
{
	struct connection *c = slot_alloc(s);
	uint16_t generation;

	if (!c)
		return NULL;
	generation = (c->generation + 1) & GENERATION_MASK;
	*c = (struct connection){
	        .tuple = *from_peer,
	        .generation = generation ? generation : 1,
	        .listener = LISTENER_NONE,
	        .alive_ms = s->now_ms,
	        .flags = s->options.pacing ? C_PACED : 0,
	        .keepalive_interval_s = 75,
	        .keepalive_probes = 9,
	        .delay.patience = DELAY_FIRST,
	        .ts_offset = connection_ts_offset(s, from_peer),
	};
	for (unsigned i = 0; i < LIST_KINDS; i++)
		c->place[i].after = connection_index(s, c);
	send_buffer_init(&c->unsent, 0);
	rtt_init(&c->rtt);
	path_mtu_init(&c->path_mtu, s->options.mtu, connection_v4(c));
	window_init(s, c);
	if (s->client)
		s->client[connection_index(s, c)].port = 0;
	if (s->priority)
		priority_begin(s, c);
	s->used++;
	table_add(s, c);
	return c;
}

uint32_t connection_iss(const struct sy_stack *s, const struct sy_tuple *from_peer)
{
	uint32_t clock = (uint32_t)(s->now_ns / 4000); /* RFC 6528 3: ticks of 4 µs */
	return clock + (uint32_t)sy_siphash(&s->iss_key, from_peer, sizeof(*from_peer));
}

/* Hashes the addresses only: timestamps are monotonic across a host's connections, as RFC 6191
 * requires. */
uint32_t connection_ts_offset(const struct sy_stack *s, const struct sy_tuple *from_peer)
{
	return (uint32_t)sy_siphash(&s->ts_key, from_peer, 2 * sizeof(from_peer->src));
}

void connection_begin(struct sy_stack *s, struct connection *c, uint32_t iss)
{
	c->snd_una = c->snd_nxt = c->recover = iss;
	c->small_end = c->cork_from = iss;
	send_buffer_init(&c->unsent, iss + 1);
	connection_update_mss(c);
	congestion_init(&c->congestion, s->congestion, c->mss, iss, time_ms64(s));
}

uint16_t connection_local_mss(const struct sy_stack *s, const struct connection *c)
{
	uint16_t mss = sy_tcp_mss(connection_v4(c), s->options.mtu, 0);
	return c->user_mss && c->user_mss < mss ? c->user_mss : mss;
}

/* Do not probe path MTUs beyond the peer's MSS. */
static void path_mtu_limit(const struct sy_stack *s, struct connection *c)
{
	uint32_t mss = c->peer_mss > MIN_MSS ? c->peer_mss : MIN_MSS;
	uint32_t max = mss + TCP_HEADERS +
	               (connection_v4(c) ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6));

	if (max < c->path_mtu.link)
		path_mtu_link(&c->path_mtu, (uint16_t)max, time_ms64(s));
}

void connection_apply_options(struct sy_stack *s, struct connection *c,
                              const struct sy_tcp_options *o)
{
	if (o->sack && !s->options.no_sack)
		c->flags |= C_SACK;
	if (o->timestamps && !s->options.no_timestamps)
		c->flags |= C_TIMESTAMPS;
	if (o->scale != SY_TCP_NO_SCALE && !s->options.no_scale) {
		c->flags |= C_SCALE;
		c->snd_scale = o->scale;
		c->rcv_scale = s->receive_scale;
	}
	c->peer_mss = o->mss ? o->mss : connection_v4(c) ? MSS_DEFAULT4 : MSS_DEFAULT6;
	path_mtu_limit(s, c);
	connection_update_mss(c);
}

void connection_update_mss(struct connection *c)
{
	uint16_t headers =
	        (connection_v4(c) ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6)) + TCP_HEADERS;
	uint16_t size = path_mtu_size(&c->path_mtu), mss = size - headers;

	if (c->peer_mss && c->peer_mss < mss)
		mss = c->peer_mss;
	if (c->user_mss && c->user_mss < mss)
		mss = c->user_mss;
	if (mss < MIN_MSS)
		mss = MIN_MSS;
	if (c->flags & C_TIMESTAMPS)
		mss -= TCP_TIMESTAMPS_LEN;
	c->mss = mss;
	congestion_mss(&c->congestion, mss);
}

void connection_established(struct sy_stack *s, struct connection *c)
{
	c->state = SY_STACK_ESTABLISHED;
	c->flags |= C_ESTABLISHED;
	if (s->priority)
		priority_born(s, c);
	window_begin(s, c);
	if (c->keepalive_s)
		timer_set(s, c, TIMER_KEEPALIVE, c->keepalive_s * 1000u);
	connection_notify(s, c, SY_STACK_WRITABLE);
}

/* ---- end ------------------------------------------------------------------------------------- */

/* Removes the connection from its LIST_ROLE list. */
static void role_leave(struct sy_stack *s, struct connection *c)
{
	if (c->listener != LISTENER_NONE)
		listener_forget(s, c);
	else if (list_has(s, LIST_ROLE, c))
		list_remove(s, c->state == SY_STACK_TIME_WAIT ? &s->time_wait : &s->space,
		            LIST_ROLE, c);
}

static bool orphans_are_many(const struct sy_stack *s)
{
	return s->orphans > s->options.orphans || s->chunks.used > s->chunks.count / 8 * 7;
}

void connection_orphan_over(struct sy_stack *s, struct connection *c)
{
	s->orphans -= !!(c->flags & C_ORPHAN);
	c->flags &= ~(uint32_t)C_ORPHAN;
}

void connection_orphan(struct sy_stack *s, struct connection *c)
{
	c->flags |= C_ORPHAN;
	s->orphans++;
	if (!orphans_are_many(s)) {
		timer_set(s, c, TIMER_END, ORPHAN_MS);
		return;
	}
	s->counters.orphans_ended++;
	emit_reset(s, c);
	connection_end(s, c, 0);
}

/* Do not restart the deadline under memory pressure: a peer that acknowledges a byte now and then
 * must not pin memory. */
void connection_orphan_progress(struct sy_stack *s, struct connection *c)
{
	if (!orphans_are_many(s))
		timer_set(s, c, TIMER_END, ORPHAN_MS);
}

void connection_time_wait(struct sy_stack *s, struct connection *c)
{
	connection_orphan_over(s, c);
	role_leave(s, c);
	c->state = SY_STACK_TIME_WAIT;
	timer_clear(c, TIMER_RETRANSMIT);
	timer_clear(c, TIMER_KEEPALIVE);
	timer_set(s, c, TIMER_END, s->options.time_wait_ms);
	list_append(s, &s->time_wait, LIST_ROLE, c);
	connection_notify(s, c, SY_STACK_HANG_UP);
}

void connection_end(struct sy_stack *s, struct connection *c, int error)
{
	bool kept = c->flags & C_OWNED || connection_is_ready(c);

	connection_orphan_over(s, c);
	if (!connection_is_ready(c))
		role_leave(s, c);
	table_remove(s, c);
	connection_unschedule(s, c);
	if (c->in_wheel)
		wheel_clear(&s->wheel, connection_index(s, c));
	c->in_wheel = false;
	c->armed = 0;
	c->state = SY_STACK_CLOSED;
	connection_drop_sent(s, c);
	if (c->flags & C_SOFT_ERROR) /* discard a soft error */
		c->error = 0;
	connection_drop_later(s, c);
	if (error)
		c->error = (uint16_t)error;
	c->flags &= ~(uint32_t)(C_SOFT_ERROR | C_ACK_NOW | C_ACK_LATER);
	if (!kept) {
		connection_free(s, c);
		return;
	}
	connection_notify(s, c,
	                  SY_STACK_HANG_UP | SY_STACK_READABLE | SY_STACK_WRITABLE |
	                          (error ? SY_STACK_ERROR : 0));
}

void connection_free(struct sy_stack *s, struct connection *c)
{
	event_leave(s, c);
	connection_drop_buffers(s, c);
	if (s->priority)
		priority_end(s, c);
	c->flags = 0;
	c->bucket_next = s->free;
	s->free = connection_index(s, c);
	s->used--;
}

/* ---- scheduling and events ------------------------------------------------------------------- */

void connection_notify(struct sy_stack *s, struct connection *c, unsigned events)
{
	if (!(c->flags & C_OWNED))
		return;
	c->events |= (uint8_t)events;
	event_add(s, c);
}

/* Responses have the level of their requests. */
static unsigned send_level(const struct sy_stack *s, const struct connection *c)
{
	if (c->band != BAND_USUAL)
		return c->band == BAND_FIRST ? 0 : SY_PRIORITIES - 1;
	return s->ranked ? priority_send_level(s, c) : SY_USUAL;
}

void connection_unschedule(struct sy_stack *s, struct connection *c)
{
	if (!list_has(s, LIST_SEND, c))
		return;
	list_remove(s, &s->send[c->sending], LIST_SEND, c);
	if (s->send[c->sending].count == 0)
		s->send_levels &= ~(1u << c->sending);
}

void connection_schedule(struct sy_stack *s, struct connection *c)
{
	unsigned level = SY_USUAL;

	if (list_has(s, LIST_SEND, c))
		return;
	if (SY_UNLIKELY(s->ranked != NULL || c->band != BAND_USUAL))
		level = send_level(s, c);
	c->sending = level & 7;
	list_append(s, &s->send[level], LIST_SEND, c);
	s->send_levels |= 1u << level;
}

void connection_reschedule(struct sy_stack *s, struct connection *c)
{
	if (!list_has(s, LIST_SEND, c) || send_level(s, c) >= c->sending)
		return;
	connection_unschedule(s, c);
	connection_schedule(s, c);
}
