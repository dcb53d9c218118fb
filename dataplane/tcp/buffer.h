// SPDX-License-Identifier: Apache-2.0
/*
 * Send and receive buffers.
 *
 * Sent data stays in chunks of the stack's pool until it is acknowledged. A byte's position follows
 * from its sequence number:
 *
 *     base                una            end
 *      │ chunk │ chunk │ ch▼nk │ chunk │ c▼   │
 *
 * Received data stays in its packets, chained by `next`. A segment that fits behind the previous
 * one is copied there, so that small segments do not occupy a packet each.
 */
#ifndef BUFFER_H
#define BUFFER_H

#include <sys/uio.h>

#include <rte_mbuf.h>

#include <sy_base.h>

#define CHUNK_SIZE 2048
#define CHUNK_NONE UINT32_MAX

struct chunk_pool {
	uint8_t *memory;
	uint32_t *next; /* next chunk of a buffer or of the free list */
	uint32_t free, fresh, count, used;
	uint32_t reserved;   /* chunks reserved by send_buffer_reserve() */
	size_t reserved_len; /* bytes reserved */
};

/* Fails with -ENOMEM. */
int chunk_pool_init(struct chunk_pool *p, uint64_t bytes);
void chunk_pool_close(struct chunk_pool *p);

/* Cached read position, so that the next segment does not walk from the first chunk. */
struct send_cursor {
	uint32_t chunk, base;
};

struct send_buffer {
	uint32_t first, last; /* chunks */
	uint32_t base;        /* sequence number of the first chunk's first byte */
	uint32_t end;         /* sequence number after the last byte */
	struct send_cursor cursor;
};

/* Initializes an empty buffer; the next byte has sequence number `end`. */
void send_buffer_init(struct send_buffer *b, uint32_t end);
/* Appends bytes. Returns their number, fewer if the pool is exhausted. */
size_t send_buffer_add(struct send_buffer *b, struct chunk_pool *p, const uint8_t *bytes,
                       size_t len);
/* Reserves up to len bytes at the end in up to `count` vectors. Returns the number of bytes. One
 * reservation at a time; send_buffer_commit() commits the first len bytes. */
size_t send_buffer_reserve(const struct send_buffer *b, struct chunk_pool *p, struct iovec *v,
                           int count, size_t len);
void send_buffer_commit(struct send_buffer *b, struct chunk_pool *p, size_t len);
/* Copies len bytes from sequence number `from`; they must be in the buffer. */
void send_buffer_read(struct send_buffer *b, const struct chunk_pool *p, uint32_t from,
                      uint8_t *out, uint32_t len);
/* Frees the bytes before una. */
void send_buffer_free(struct send_buffer *b, struct chunk_pool *p, uint32_t una);

struct receive_buffer {
	struct rte_mbuf *first, *last;
	uint32_t bytes;  /* unread */
	uint32_t memory; /* bytes of these packets and of out-of-order ones */
};

/* Memory of a packet, however small its payload. */
static inline uint32_t packet_size(const struct rte_mbuf *m)
{
	return m->buf_len + (uint32_t)sizeof(*m);
}

/*
 * Consumed packets, to be freed in batches: after the segments of a poll iteration were built, or
 * if building one finds no buffer, or immediately while buffers are scarce (struct sy_stack). The
 * pool's cache is LIFO: so segments are built in buffers that were just sent, still in this core's
 * cache, and the port's ring is refilled with those of received packets.
 */
#define MAX_SPENT 256

struct spent {
	struct rte_mbuf *packet[MAX_SPENT];
	unsigned count;
};

/* Frees all of them. */
void spent_free(struct spent *p);

/* Adds a packet with all of its buffers. */
static inline void spent_add(struct spent *p, struct rte_mbuf *m)
{
	if (SY_UNLIKELY(p->count == MAX_SPENT))
		spent_free(p);
	p->packet[p->count++] = m;
}

/* Appends a packet trimmed to its payload. Adds its memory to *all. */
void receive_buffer_add(struct receive_buffer *b, struct rte_mbuf *m, uint64_t *all,
                        struct spent *spent);
/* Consumes up to len bytes; copies them unless bytes is NULL. */
size_t receive_buffer_read(struct receive_buffer *b, uint8_t *bytes, size_t len, uint64_t *all,
                           struct spent *spent);

#endif
