// SPDX-License-Identifier: Apache-2.0
/*
 * A waiting packet is in two lists: its session's (a hash bucket, shared by several sessions), and
 * a list of all waiting packets by age. A due packet is in neither: the list `due` has the order in
 * which packets go to the pipeline.
 *
 *     opening_queue_add() ──▶ waiting ── opening_queue_release() ──▶ pipeline, or due if it is full
 *     opening_queue_resubmit() ────────────────────────────────────▶ likewise
 *     opening_queue_poll()    due ─────────────────────────────────▶ pipeline
 */
#include "opening_queue.h"

#include <stdlib.h>

#include "service_drop.h"

#define OPENING_QUEUE_PACKETS         512
#define OPENING_QUEUE_SESSION_PACKETS 4
#define OPENING_QUEUE_BUCKETS         512
#define NONE                          UINT16_MAX

struct entry {
	struct rte_mbuf *m;
	uint32_t record;
	uint32_t service; /* id, or SERVICE_NONE */
	uint8_t slot;
	uint16_t next;         /* next in its bucket, in `due`, or in the free list */
	uint16_t older, newer; /* in the list of all waiting packets */
};

struct opening_queue {
	uint16_t oldest, newest; /* waiting packets */
	uint16_t due, due_last;
	uint16_t free;
	uint16_t bucket[OPENING_QUEUE_BUCKETS];
	struct entry at[OPENING_QUEUE_PACKETS];
};

struct opening_queue *opening_queue_create(void)
{
	struct opening_queue *h = malloc(sizeof(*h));
	if (!h)
		return NULL;
	h->oldest = h->newest = h->due = h->due_last = NONE;
	memset(h->bucket, 0xff, sizeof(h->bucket)); /* NONE */
	for (uint16_t n = 0; n < OPENING_QUEUE_PACKETS; n++)
		h->at[n].next = n + 1 < OPENING_QUEUE_PACKETS ? n + 1 : NONE;
	h->free = 0;
	return h;
}

void opening_queue_destroy(struct opening_queue *h)
{
	for (uint16_t n = h ? h->oldest : NONE; n != NONE; n = h->at[n].newer)
		rte_pktmbuf_free(h->at[n].m);
	for (uint16_t n = h ? h->due : NONE; n != NONE; n = h->at[n].next)
		rte_pktmbuf_free(h->at[n].m);
	free(h);
}

static struct opening_queue *opening_queue_of(struct sy_worker *w)
{
	return balance_worker_of(w)->opening_queue;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static uint16_t *bucket_of(struct opening_queue *h, uint8_t slot, uint32_t record)
{
	return &h->bucket[(record * 2654435761u ^ slot * 97u) % OPENING_QUEUE_BUCKETS];
}

static bool entry_is_of(const struct entry *e, uint8_t slot, uint32_t record)
{
	return e->record == record && e->slot == slot;
}

static void entry_free(struct opening_queue *h, uint16_t n)
{
	h->at[n].next = h->free;
	h->free = n;
}

/* Unlinks the entry at *from in its bucket's list from both lists. Does not free the packet. */
static uint16_t entry_unlink(struct opening_queue *h, uint16_t *from)
{
	uint16_t n = *from;
	struct entry *e = &h->at[n];
	*from = e->next;
	*(e->older == NONE ? &h->oldest : &h->at[e->older].newer) = e->newer;
	*(e->newer == NONE ? &h->newest : &h->at[e->newer].older) = e->older;
	return n;
}

static void opening_packet_drop(struct sy_worker *w, struct rte_mbuf *m, uint32_t service)
{
	service_count_drop(w, service, SY_DROP_OPENING);
	sy_packet_drop(w, m, SY_DROP_OPENING);
}

static void entry_drop(struct sy_worker *w, struct opening_queue *h, uint16_t *from)
{
	uint16_t n = entry_unlink(h, from);
	opening_packet_drop(w, h->at[n].m, h->at[n].service);
	entry_free(h, n);
}

static void oldest_drop(struct sy_worker *w, struct opening_queue *h)
{
	const struct entry *e = &h->at[h->oldest];
	uint16_t *from = bucket_of(h, e->slot, e->record);
	while (*from != h->oldest)
		from = &h->at[*from].next;
	entry_drop(w, h, from);
}

/* Returns a free entry, if necessary that of the oldest waiting packet. NONE: all are due. */
static uint16_t entry_new(struct sy_worker *w, struct opening_queue *h)
{
	if (h->free == NONE && h->oldest != NONE)
		oldest_drop(w, h);
	uint16_t n = h->free;
	if (n != NONE)
		h->free = h->at[n].next;
	return n;
}

static void due_add(struct opening_queue *h, uint16_t n)
{
	h->at[n].next = NONE;
	*(h->due == NONE ? &h->due : &h->at[h->due_last].next) = n;
	h->due_last = n;
}

/* ---- packets --------------------------------------------------------------------------------- */

void opening_queue_add(struct sy_worker *w, uint8_t slot, uint32_t record, uint32_t service,
                       struct rte_mbuf *m)
{
	struct opening_queue *h = opening_queue_of(w);
	unsigned count = 0;
	uint16_t *first = NULL;

	for (uint16_t *at = bucket_of(h, slot, record); *at != NONE; at = &h->at[*at].next)
		if (entry_is_of(&h->at[*at], slot, record) && count++ == 0)
			first = at;
	if (count >= OPENING_QUEUE_SESSION_PACKETS)
		entry_drop(w, h, first);
	uint16_t n = entry_new(w, h);
	if (n == NONE) {
		opening_packet_drop(w, m, service);
		return;
	}
	uint16_t *last = bucket_of(h, slot, record);
	while (*last != NONE)
		last = &h->at[*last].next;
	h->at[n] = (struct entry){m, record, service, slot, NONE, h->newest, NONE};
	*(h->newest == NONE ? &h->oldest : &h->at[h->newest].newer) = n;
	h->newest = *last = n;
}

void opening_queue_poll(struct sy_worker *w)
{
	struct opening_queue *h = opening_queue_of(w);

	while (h->due != NONE) {
		uint16_t n = h->due;
		if (!sy_packet_resubmit(w, h->at[n].m))
			return;
		h->due = h->at[n].next;
		entry_free(h, n);
	}
}

void opening_queue_resubmit(struct sy_worker *w, uint32_t service, struct rte_mbuf *m)
{
	struct opening_queue *h = opening_queue_of(w);

	if (h->due == NONE && sy_packet_resubmit(w, m))
		return;
	uint16_t n = entry_new(w, h);
	if (n == NONE) {
		opening_packet_drop(w, m, service);
		return;
	}
	h->at[n].m = m;
	due_add(h, n);
}

void opening_queue_release(struct sy_worker *w, uint8_t slot, uint32_t record)
{
	struct opening_queue *h = opening_queue_of(w);

	for (uint16_t *at = bucket_of(h, slot, record); *at != NONE;)
		if (entry_is_of(&h->at[*at], slot, record))
			due_add(h, entry_unlink(h, at));
		else
			at = &h->at[*at].next;
	opening_queue_poll(w);
}

void opening_queue_drop(struct sy_worker *w, uint8_t slot, uint32_t record)
{
	struct opening_queue *h = opening_queue_of(w);

	for (uint16_t *at = bucket_of(h, slot, record); *at != NONE;)
		if (entry_is_of(&h->at[*at], slot, record))
			entry_drop(w, h, at);
		else
			at = &h->at[*at].next;
}
