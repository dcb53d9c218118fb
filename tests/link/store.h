// SPDX-License-Identifier: Apache-2.0
/* Where packets are until they are due: a pool of fixed size, queues, and heaps over it. */
#ifndef LINK_STORE_H
#define LINK_STORE_H

#include <stdbool.h>
#include <stdint.h>

#define STORE_NONE UINT32_MAX

/* Metadata of a packet in the pool. */
struct packet {
	uint64_t arrived; /* ns of CLOCK_MONOTONIC */
	uint64_t due;     /* ns; from when it is on the wire */
	uint32_t next;    /* in a queue, or among the free ones */
	uint32_t length;
	uint64_t follow; /* reordered packets: the count of later packets to wait for */
};

struct pool {
	struct packet *packet;
	uint8_t *bytes;
	uint32_t count, slot, free, used, max;
};

/* Slots for `count` packets of up to `slot` bytes. Memory is touched when it is first used. */
int pool_open(struct pool *p, uint32_t count, uint32_t slot);
void pool_close(struct pool *p);
/* A packet's index, or STORE_NONE. */
uint32_t pool_take(struct pool *p);
void pool_give(struct pool *p, uint32_t index);

static inline uint8_t *pool_bytes(const struct pool *p, uint32_t index)
{
	return p->bytes + (uint64_t)index * p->slot;
}

/* First in, first out. */
struct queue {
	uint32_t head, tail, packets;
	uint64_t bytes;
};

void queue_clear(struct queue *q);
void queue_put(struct queue *q, struct pool *p, uint32_t index);
/* The first one leaves; STORE_NONE if there is none. */
uint32_t queue_take(struct queue *q, struct pool *p);

/* The earliest first; of those at the same time the one that was put in first. */
struct heap_entry {
	uint64_t due, order;
	uint32_t index;
};

struct heap {
	struct heap_entry *entry;
	uint32_t count, room;
	uint64_t order;
};

int heap_open(struct heap *h, uint32_t room);
void heap_close(struct heap *h);
/* Never full: a heap is as large as its pool. */
void heap_put(struct heap *h, uint64_t due, uint32_t index);
uint32_t heap_take(struct heap *h);

/* When the first one is due; UINT64_MAX: never. */
static inline uint64_t heap_due(const struct heap *h)
{
	return h->count ? h->entry[0].due : UINT64_MAX;
}

#endif
