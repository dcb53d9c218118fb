// SPDX-License-Identifier: Apache-2.0
/* Send and receive buffers. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "buffer.h"

/* ---- chunks ---------------------------------------------------------------------------------- */

int chunk_pool_init(struct chunk_pool *p, uint64_t bytes)
{
	uint32_t count = (uint32_t)(bytes / CHUNK_SIZE);

	*p = (struct chunk_pool){.free = CHUNK_NONE, .reserved = CHUNK_NONE, .count = count};
	p->next = malloc(count * sizeof(*p->next));
	p->memory = mmap(NULL, (size_t)count * CHUNK_SIZE, PROT_READ | PROT_WRITE,
	                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p->memory == MAP_FAILED)
		p->memory = NULL;
	if (p->next && p->memory)
		return 0;
	chunk_pool_close(p);
	return -ENOMEM;
}

void chunk_pool_close(struct chunk_pool *p)
{
	free(p->next);
	if (p->memory)
		munmap(p->memory, (size_t)p->count * CHUNK_SIZE);
	*p = (struct chunk_pool){.free = CHUNK_NONE, .reserved = CHUNK_NONE};
}

/* Never allocated chunks come last: their memory stays untouched. */
static uint32_t chunk_alloc(struct chunk_pool *p)
{
	uint32_t chunk = p->free;

	if (chunk != CHUNK_NONE)
		p->free = p->next[chunk];
	else if (p->fresh < p->count)
		chunk = p->fresh++;
	else
		return CHUNK_NONE;
	p->next[chunk] = CHUNK_NONE;
	p->used++;
	return chunk;
}

static void chunk_free(struct chunk_pool *p, uint32_t chunk)
{
	p->next[chunk] = p->free;
	p->free = chunk;
	p->used--;
}

/* ---- send buffer ----------------------------------------------------------------------------- */

void send_buffer_init(struct send_buffer *b, uint32_t end)
{
	*b = (struct send_buffer){.first = CHUNK_NONE,
	                          .last = CHUNK_NONE,
	                          .base = end,
	                          .end = end,
	                          .cursor = {CHUNK_NONE, end}};
}

static void chunk_append(struct send_buffer *b, struct chunk_pool *p, uint32_t chunk)
{
	if (b->first == CHUNK_NONE)
		b->first = chunk;
	else
		p->next[b->last] = chunk;
	b->last = chunk;
}

size_t send_buffer_add(struct send_buffer *b, struct chunk_pool *p, const uint8_t *bytes,
                       size_t len)
{
	size_t done = 0;

	while (done < len) {
		uint32_t at = (b->end - b->base) % CHUNK_SIZE, piece = CHUNK_SIZE - at;
		if (at == 0) { /* the last chunk is full, or there is none */
			uint32_t chunk = chunk_alloc(p);
			if (chunk == CHUNK_NONE)
				break;
			chunk_append(b, p, chunk);
		}
		if (piece > len - done)
			piece = (uint32_t)(len - done);
		memcpy(p->memory + (size_t)b->last * CHUNK_SIZE + at, bytes + done, piece);
		done += piece;
		b->end += piece;
	}
	return done;
}

static void reserved_free(struct chunk_pool *p)
{
	while (p->reserved != CHUNK_NONE) {
		uint32_t chunk = p->reserved;
		p->reserved = p->next[chunk];
		chunk_free(p, chunk);
	}
}

size_t send_buffer_reserve(const struct send_buffer *b, struct chunk_pool *p, struct iovec *v,
                           int count, size_t len)
{
	uint32_t at = (b->end - b->base) % CHUNK_SIZE, last = CHUNK_NONE;
	size_t done = 0;

	reserved_free(p);
	p->reserved_len = 0;
	for (; count > 0 && done < len; count--, at = 0) {
		uint32_t chunk = at ? b->last : chunk_alloc(p);
		size_t piece = CHUNK_SIZE - at < len - done ? CHUNK_SIZE - at : len - done;
		if (chunk == CHUNK_NONE)
			break;
		if (!at && last == CHUNK_NONE)
			p->reserved = chunk;
		else if (!at)
			p->next[last] = chunk;
		last = at ? last : chunk;
		*v++ = (struct iovec){p->memory + (size_t)chunk * CHUNK_SIZE + at, piece};
		done += piece;
	}
	p->reserved_len = done;
	return done;
}

void send_buffer_commit(struct send_buffer *b, struct chunk_pool *p, size_t len)
{
	while (len > 0) {
		uint32_t at = (b->end - b->base) % CHUNK_SIZE, piece = CHUNK_SIZE - at;
		if (at == 0) {
			uint32_t chunk = p->reserved;
			if (chunk == CHUNK_NONE)
				break;
			p->reserved = p->next[chunk];
			p->next[chunk] = CHUNK_NONE;
			chunk_append(b, p, chunk);
		}
		piece = piece < len ? piece : (uint32_t)len;
		len -= piece;
		b->end += piece;
	}
	reserved_free(p);
	p->reserved_len = 0;
}

void send_buffer_read(struct send_buffer *b, const struct chunk_pool *p, uint32_t from,
                      uint8_t *out, uint32_t len)
{
	struct send_cursor at = b->cursor;

	if (at.chunk == CHUNK_NONE || sy_seq_before(from, at.base))
		at = (struct send_cursor){b->first, b->base};
	while (from - at.base >= CHUNK_SIZE && p->next[at.chunk] != CHUNK_NONE)
		at = (struct send_cursor){p->next[at.chunk], at.base + CHUNK_SIZE};
	while (len > 0) {
		uint32_t offset = from - at.base, piece = CHUNK_SIZE - offset;
		if (piece > len)
			piece = len;
		memcpy(out, p->memory + (size_t)at.chunk * CHUNK_SIZE + offset, piece);
		out += piece;
		from += piece;
		len -= piece;
		if (len > 0)
			at = (struct send_cursor){p->next[at.chunk], at.base + CHUNK_SIZE};
	}
	b->cursor = at;
}

void send_buffer_free(struct send_buffer *b, struct chunk_pool *p, uint32_t una)
{
	while (b->first != CHUNK_NONE && una - b->base >= CHUNK_SIZE) {
		uint32_t chunk = b->first;
		b->first = p->next[chunk];
		b->base += CHUNK_SIZE;
		if (b->cursor.chunk == chunk)
			b->cursor = (struct send_cursor){b->first, b->base};
		chunk_free(p, chunk);
	}
	if (una != b->end)
		return;
	/* Everything is acknowledged: free the last chunk, too. */
	if (b->first != CHUNK_NONE)
		chunk_free(p, b->first);
	send_buffer_init(b, b->end);
}

/* ---- receive buffer -------------------------------------------------------------------------- */

void spent_free(struct spent *p)
{
	rte_pktmbuf_free_bulk(p->packet, p->count);
	p->count = 0;
}

/* Adds one buffer without the rest of its chain. */
static void spent_add_one(struct spent *p, struct rte_mbuf *m)
{
	m->next = NULL;
	m->nb_segs = 1;
	spent_add(p, m);
}

void receive_buffer_add(struct receive_buffer *b, struct rte_mbuf *m, uint64_t *all,
                        struct spent *spent)
{
	b->bytes += m->data_len;
	if (b->last && rte_pktmbuf_tailroom(b->last) >= m->data_len) {
		struct rte_mbuf *last = b->last;
		memcpy(rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len),
		       rte_pktmbuf_mtod(m, uint8_t *), m->data_len);
		last->data_len = (uint16_t)(last->data_len + m->data_len);
		spent_add_one(spent, m);
		return;
	}
	m->next = NULL;
	if (b->last)
		b->last->next = m;
	else
		b->first = m;
	b->last = m;
	b->memory += packet_size(m);
	*all += packet_size(m);
}

size_t receive_buffer_read(struct receive_buffer *b, uint8_t *bytes, size_t len, uint64_t *all,
                           struct spent *spent)
{
	size_t done = 0;

	while (done < len && b->first) {
		struct rte_mbuf *m = b->first;
		uint16_t piece = m->data_len;
		if (piece > len - done)
			piece = (uint16_t)(len - done);
		if (bytes)
			memcpy(bytes + done, rte_pktmbuf_mtod(m, uint8_t *), piece);
		done += piece;
		m->data_off = (uint16_t)(m->data_off + piece);
		m->data_len = (uint16_t)(m->data_len - piece);
		if (m->data_len > 0)
			break;
		b->first = m->next;
		if (!b->first)
			b->last = NULL;
		b->memory -= packet_size(m);
		*all -= packet_size(m);
		spent_add_one(spent, m);
	}
	b->bytes -= (uint32_t)done;
	return done;
}
