// SPDX-License-Identifier: Apache-2.0
/* The pools of ranges that were sent or came out of order, and what connections hold of them. */
#include <errno.h>
#include <sys/mman.h>

#include "priority.h"

#define RANGES_LEAST 4096u
#define RANGES_MOST  (1u << 22)

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

/* As many ranges as full segments fit the buffers, and twice. */
int pools_make(struct sy_stack *s)
{
	const struct sy_stack_options *o = &s->options;
	uint64_t all = (o->send_all + o->receive_all) / 1024 + o->connections / 4 + RANGES_LEAST;
	uint32_t count = all < RANGES_MOST ? (uint32_t)all : RANGES_MOST;

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

/* Out of order, three quarters of the memory are used at most: in order there is always room. And
 * of a connection no more than twice its window, however little is in each packet. */
bool range_may_hold(const struct sy_stack *s, const struct connection *c, const struct rte_mbuf *m)
{
	uint32_t size = packet_size(m);

	return s->receive_held + size <= s->options.receive_all / 4 * 3 &&
	       c->received.held + size <= 2 * (uint64_t)c->receive_limit + 64 * size;
}

void range_hold(struct sy_stack *s, struct connection *c, const struct rte_mbuf *m)
{
	c->received.held += packet_size(m);
	s->receive_held += packet_size(m);
}

void range_unhold(struct sy_stack *s, struct connection *c, const struct rte_mbuf *m)
{
	c->received.held -= packet_size(m);
	s->receive_held -= packet_size(m);
}

/* ---- what is under way ----------------------------------------------------------------------- */

union flight *flight_of(const struct sy_stack *s, const struct connection *c)
{
	return (union flight *)pool_at(&s->flights, c->flight);
}

union flight *flight_begin(struct sy_stack *s, struct connection *c)
{
	if (c->flight)
		return flight_of(s, c);
	c->flight = pool_take(&s->flights);
	union flight *f = flight_of(s, c);
	sent_init(&f->sent, c->snd_nxt);
	return f;
}

void flight_end(struct sy_stack *s, struct connection *c)
{
	if (!c->flight)
		return;
	sent_clear(&flight_of(s, c)->sent, &s->sent);
	pool_give(&s->flights, c->flight);
	c->flight = 0;
}

uint32_t flight_bytes(const struct sy_stack *s, const struct connection *c)
{
	return c->flight ? sent_in_flight(&flight_of(s, c)->sent) : 0;
}

/* ---- space for what is to be sent ------------------------------------------------------------ */

bool space_tell_next(struct sy_stack *s)
{
	struct connection *c = list_first(s, &s->space);

	if (!c || s->chunks.used == s->chunks.count)
		return false;
	list_remove(s, &s->space, LIST_ROLE, c);
	c->flags &= ~(uint32_t)C_WANTS_SPACE;
	if (c->flags & C_OWNED) {
		s->space_told += !(c->events & EVENT_SPACE);
		connection_tell(s, c, SY_STACK_WRITABLE | EVENT_SPACE);
	}
	return true;
}

/* One for each free chunk. If all who wait were told of each chunk, nearly all would only wait
 * again: with many of them a stack would do nothing else. */
void space_tell(struct sy_stack *s)
{
	while (s->chunks.used + s->space_told < s->chunks.count && space_tell_next(s))
		;
}

void space_heard(struct sy_stack *s, struct connection *c)
{
	s->space_told -= !!(c->events & EVENT_SPACE);
	c->events &= (uint8_t)~EVENT_SPACE;
}

/* ---- the end of a connection ----------------------------------------------------------------- */

void connection_drop_sent(struct sy_stack *s, struct connection *c)
{
	flight_end(s, c);
	send_buffer_free(&c->unsent, &s->chunks, c->unsent.end);
	space_tell(s);
}

void connection_drop_later(struct sy_stack *s, struct connection *c)
{
	struct rte_mbuf *m;

	while ((m = arrived_drop(&c->arrived, &s->arrived)) != NULL) {
		if (rte_mbuf_refcnt_read(m) == 1)
			range_unhold(s, c, m);
		rte_pktmbuf_free_seg(m);
	}
}

void connection_drop_buffers(struct sy_stack *s, struct connection *c)
{
	connection_drop_sent(s, c);
	receive_buffer_read(&c->received, NULL, c->received.bytes, &s->receive_held, &s->spent);
	if (s->ranked)
		priority_read(s, c);
	connection_drop_later(s, c);
}
