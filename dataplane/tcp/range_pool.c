// SPDX-License-Identifier: Apache-2.0
/* Pools of sent and out-of-order ranges, and the ranges of connections. */
#include <errno.h>
#include <sys/mman.h>

#include "priority.h"

#define RANGES_MIN 4096u
#define RANGES_MAX (1u << 22)

static int pool_make(struct sy_stack *s, struct pool *p, uint32_t size, uint32_t count)
{
	size_t bytes = (size_t)size * count;
	void *cells = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (cells == MAP_FAILED)
		return -ENOMEM;
	s->fixed += bytes;
	pool_init(p, cells, size, count);
	return 0;
}

static void pool_close(struct pool *p)
{
	if (p->cells)
		munmap(p->cells, (size_t)p->size * p->count);
}

/* Twice as many ranges as the buffers have full segments. */
int pools_make(struct sy_stack *s)
{
	const struct sy_stack_options *o = &s->options;
	uint64_t all = (o->send_all + o->receive_all) / 1024 + o->connections / 4 + RANGES_MIN;
	uint32_t count = all < RANGES_MAX ? (uint32_t)all : RANGES_MAX;

	if (pool_make(s, &s->sent, sizeof(struct sent_range), count) ||
	    pool_make(s, &s->flights, sizeof(union flight), o->connections + 1))
		return -ENOMEM;
	return pool_make(s, &s->arrived, sizeof(union arrived_cell), count);
}

void pools_close(struct sy_stack *s)
{
	pool_close(&s->flights);
	pool_close(&s->sent);
	pool_close(&s->arrived);
}

uint32_t pools_used(const struct sy_stack *s)
{
	return s->sent.taken + s->arrived.taken;
}

/* Limits out-of-order data to 3/4 of the memory, so that in-order data always fits; and per
 * connection to twice its window, however small the payloads are. */
bool range_fits(const struct sy_stack *s, const struct connection *c, const struct rte_mbuf *m)
{
	uint32_t size = packet_size(m);

	return s->receive_queued + size <= s->options.receive_all / 4 * 3 &&
	       c->received.memory + size <= 2 * (uint64_t)c->receive_limit + 64 * size;
}

void range_charge(struct sy_stack *s, struct connection *c, const struct rte_mbuf *m)
{
	c->received.memory += packet_size(m);
	s->receive_queued += packet_size(m);
}

void range_uncharge(struct sy_stack *s, struct connection *c, const struct rte_mbuf *m)
{
	c->received.memory -= packet_size(m);
	s->receive_queued -= packet_size(m);
}

/* ---- data in flight -------------------------------------------------------------------------- */

union flight *flight_of(const struct sy_stack *s, const struct connection *c)
{
	return (union flight *)pool_at(&s->flights, c->flight);
}

union flight *flight_begin(struct sy_stack *s, struct connection *c)
{
	if (c->flight)
		return flight_of(s, c);
	c->flight = pool_alloc(&s->flights);
	union flight *f = flight_of(s, c);
	sent_init(&f->sent, c->snd_nxt);
	return f;
}

void flight_end(struct sy_stack *s, struct connection *c)
{
	if (!c->flight)
		return;
	sent_clear(&flight_of(s, c)->sent, &s->sent);
	pool_free(&s->flights, c->flight);
	c->flight = 0;
}

uint32_t flight_bytes(const struct sy_stack *s, const struct connection *c)
{
	return c->flight ? sent_in_flight(&flight_of(s, c)->sent) : 0;
}

/* ---- send space ------------------------------------------------------------------------------ */

bool space_notify_next(struct sy_stack *s)
{
	struct connection *c = list_first(s, &s->space);

	if (!c || s->chunks.used == s->chunks.count)
		return false;
	list_remove(s, &s->space, LIST_ROLE, c);
	c->flags &= ~(uint32_t)C_WANTS_SPACE;
	if (c->flags & C_OWNED) {
		s->space_notified += !(c->events & EVENT_SPACE);
		connection_notify(s, c, SY_STACK_WRITABLE | EVENT_SPACE);
	}
	return true;
}

/* Notifies one connection per free chunk; notifying all of them would be a thundering herd. */
void space_notify(struct sy_stack *s)
{
	while (s->chunks.used + s->space_notified < s->chunks.count && space_notify_next(s))
		;
}

void space_acknowledge(struct sy_stack *s, struct connection *c)
{
	s->space_notified -= !!(c->events & EVENT_SPACE);
	c->events &= (uint8_t)~EVENT_SPACE;
}

/* ---- end of a connection --------------------------------------------------------------------- */

void connection_drop_sent(struct sy_stack *s, struct connection *c)
{
	flight_end(s, c);
	send_buffer_free(&c->unsent, &s->chunks, c->unsent.end);
	space_notify(s);
}

void connection_drop_later(struct sy_stack *s, struct connection *c)
{
	struct rte_mbuf *m;

	while ((m = arrived_drop(&c->arrived, &s->arrived)) != NULL) {
		if (rte_mbuf_refcnt_read(m) == 1)
			range_uncharge(s, c, m);
		rte_pktmbuf_free_seg(m);
	}
}

void connection_drop_buffers(struct sy_stack *s, struct connection *c)
{
	connection_drop_sent(s, c);
	receive_buffer_read(&c->received, NULL, c->received.bytes, &s->receive_queued, &s->spent);
	if (s->ranked)
		priority_read(s, c);
	connection_drop_later(s, c);
}
