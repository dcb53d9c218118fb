// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "store.h"

/* ---- pool ------------------------------------------------------------------------------------ */

int pool_open(struct pool *p, uint32_t count, uint32_t slot)
{
	*p = (struct pool){.count = count, .slot = slot, .free = STORE_NONE};
	p->packet = calloc(count, sizeof(*p->packet));
	p->bytes = mmap(NULL, (uint64_t)count * slot, PROT_READ | PROT_WRITE,
	                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!p->packet || p->bytes == MAP_FAILED) {
		free(p->packet);
		return -ENOMEM;
	}
	return 0;
}

void pool_close(struct pool *p)
{
	munmap(p->bytes, (uint64_t)p->count * p->slot);
	free(p->packet);
}

/* A slot used before is preferred: its memory is mapped, and may be in the cache. */
uint32_t pool_take(struct pool *p)
{
	uint32_t index = p->free;
	if (index != STORE_NONE)
		p->free = p->packet[index].next;
	else if (p->max < p->count)
		index = p->max++;
	else
		return STORE_NONE;
	p->packet[index] = (struct packet){.next = STORE_NONE};
	p->used++;
	return index;
}

void pool_give(struct pool *p, uint32_t index)
{
	p->packet[index].next = p->free;
	p->free = index;
	p->used--;
}

/* ---- queue ----------------------------------------------------------------------------------- */

void queue_clear(struct queue *q)
{
	*q = (struct queue){.head = STORE_NONE, .tail = STORE_NONE};
}

void queue_put(struct queue *q, struct pool *p, uint32_t index)
{
	p->packet[index].next = STORE_NONE;
	if (q->tail == STORE_NONE)
		q->head = index;
	else
		p->packet[q->tail].next = index;
	q->tail = index;
	q->packets++;
	q->bytes += p->packet[index].length;
}

uint32_t queue_take(struct queue *q, struct pool *p)
{
	uint32_t index = q->head;
	if (index == STORE_NONE)
		return STORE_NONE;
	q->head = p->packet[index].next;
	if (q->head == STORE_NONE)
		q->tail = STORE_NONE;
	q->packets--;
	q->bytes -= p->packet[index].length;
	return index;
}

/* ---- heap ------------------------------------------------------------------------------------ */

#define WAYS 4 /* children of an entry: they share one or two cache lines */

int heap_open(struct heap *h, uint32_t room)
{
	*h = (struct heap){.room = room, .entry = calloc(room, sizeof(*h->entry))};
	return h->entry ? 0 : -ENOMEM;
}

void heap_close(struct heap *h)
{
	free(h->entry);
}

static bool is_before(const struct heap_entry *a, const struct heap_entry *b)
{
	return a->due != b->due ? a->due < b->due : a->order < b->order;
}

void heap_put(struct heap *h, uint64_t due, uint32_t index)
{
	struct heap_entry new = {.due = due, .order = h->order++, .index = index};
	uint32_t at = h->count++;
	while (at > 0 && is_before(&new, &h->entry[(at - 1) / WAYS])) {
		h->entry[at] = h->entry[(at - 1) / WAYS];
		at = (at - 1) / WAYS;
	}
	h->entry[at] = new;
}

uint32_t heap_take(struct heap *h)
{
	if (h->count == 0)
		return STORE_NONE;
	uint32_t index = h->entry[0].index, at = 0;
	struct heap_entry last = h->entry[--h->count];
	for (;;) {
		uint32_t first = at * WAYS + 1, best = first;
		for (uint32_t child = first + 1; child < first + WAYS && child < h->count; child++)
			if (is_before(&h->entry[child], &h->entry[best]))
				best = child;
		if (best >= h->count || !is_before(&h->entry[best], &last))
			break;
		h->entry[at] = h->entry[best];
		at = best;
	}
	h->entry[at] = last;
	return index;
}
