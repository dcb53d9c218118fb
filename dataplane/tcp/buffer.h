// SPDX-License-Identifier: Apache-2.0
/*
 * Bytes that wait.
 *
 * What is sent waits in chunks of the core's pool until it is acknowledged. A byte lies where its
 * sequence number says:
 *
 *     base                una            end
 *      │ chunk │ chunk │ ch▼nk │ chunk │ c▼   │
 *
 * What has arrived waits in its packets, chained by `next`. A segment that fits behind the one
 * before it is copied there, so that small segments do not take a packet each.
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
	uint32_t *next; /* of a chunk, and in the list of free ones */
	uint32_t free, fresh, count, used;
	uint32_t room;   /* those of send_buffer_room(), until the application has written */
	size_t room_len; /* bytes of it */
};

/* Returns 0 or -ENOMEM. */
int chunk_pool_init(struct chunk_pool *p, uint64_t bytes);
void chunk_pool_close(struct chunk_pool *p);

/* A place where reading went on, so that the next segment does not begin at the first chunk. */
struct send_cursor {
	uint32_t chunk, base;
};

struct send_buffer {
	uint32_t first, last; /* chunks */
	uint32_t base;        /* sequence number of the first chunk's first byte */
	uint32_t end;         /* sequence number after the last byte */
	struct send_cursor cursor;
};

/* Empty; the next byte has this sequence number. */
void send_buffer_init(struct send_buffer *b, uint32_t end);
/* Copies bytes behind the others. Returns how many: fewer if the pool has no chunk left. */
size_t send_buffer_add(struct send_buffer *b, struct chunk_pool *p, const uint8_t *bytes,
                       size_t len);
/* Points up to `count` vectors to room for at most len bytes behind the others, and returns for how
 * many. One room of the pool is open at a time; send_buffer_room_done() takes the first len bytes.
 */
size_t send_buffer_room(const struct send_buffer *b, struct chunk_pool *p, struct iovec *v,
                        int count, size_t len);
void send_buffer_room_done(struct send_buffer *b, struct chunk_pool *p, size_t len);
/* Reads len bytes from a sequence number on; they are there. */
void send_buffer_read(struct send_buffer *b, const struct chunk_pool *p, uint32_t from,
                      uint8_t *out, uint32_t len);
/* Frees what lies before una. */
void send_buffer_free(struct send_buffer *b, struct chunk_pool *p, uint32_t una);

struct receive_buffer {
	struct rte_mbuf *first, *last;
	uint32_t bytes; /* that wait */
	uint32_t held;  /* the size of what holds them, and of packets out of order */
};

/* What a packet takes, whatever is in it. */
static inline uint32_t packet_size(const struct rte_mbuf *m)
{
	return m->buf_len + (uint32_t)sizeof(*m);
}

/*
 * Packets that nobody needs any more. They go back to the pool when a turn's segments have been
 * made, or one of these finds no buffer; while buffers are scarce (struct sy_stack), at once. The
 * pool's cache gives first what it got last: so segments are made in buffers that have just been
 * sent, whose bytes are still in this core's cache, and the port's ring gets those of packets that
 * have arrived.
 */
#define SPENT_MOST 256

struct spent {
	struct rte_mbuf *packet[SPENT_MOST];
	unsigned count;
};

/* All of them go back to their pools. */
void spent_free(struct spent *p);

/* Takes a packet with all of its buffers. */
static inline void spent_add(struct spent *p, struct rte_mbuf *m)
{
	if (SY_UNLIKELY(p->count == SPENT_MOST))
		spent_free(p);
	p->packet[p->count++] = m;
}

/* Takes a packet whose data is a payload. Adds to *all what it takes. */
void receive_buffer_add(struct receive_buffer *b, struct rte_mbuf *m, uint64_t *all,
                        struct spent *spent);
/* Copies up to len bytes, whose packets are spent then; bytes NULL: copies nothing. */
size_t receive_buffer_read(struct receive_buffer *b, uint8_t *bytes, size_t len, uint64_t *all,
                           struct spent *spent);

#endif
