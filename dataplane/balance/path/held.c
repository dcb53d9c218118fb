// SPDX-License-Identifier: Apache-2.0
#include "held.h"

#include <stdlib.h>

#define HELD_MAX     512
#define HELD_SESSION 4

/* In the order in which they came. */
struct held {
	unsigned count, due; /* due: entries that were released */
	struct {
		struct rte_mbuf *m;
		uint32_t record;
		uint8_t slot;
		bool due;
	} at[HELD_MAX];
};

struct held *held_create(void)
{
	return calloc(1, sizeof(struct held));
}

void held_destroy(struct held *h)
{
	for (unsigned n = 0; h && n < h->count; n++)
		rte_pktmbuf_free(h->at[n].m);
	free(h);
}

static struct held *held_of(struct sy_worker *w)
{
	return balance_worker_of(w)->held;
}

static void entry_remove(struct held *h, unsigned n)
{
	h->due -= h->at[n].due;
	h->count--;
	memmove(&h->at[n], &h->at[n + 1], (h->count - n) * sizeof(h->at[0]));
}

static void entry_drop(struct sy_worker *w, struct held *h, unsigned n)
{
	sy_packet_drop(w, h->at[n].m, SY_DROP_OPENING);
	entry_remove(h, n);
}

static bool entry_is_of(const struct held *h, unsigned n, uint8_t slot, uint32_t record)
{
	return h->at[n].record == record && h->at[n].slot == slot;
}

void held_keep(struct sy_worker *w, uint8_t slot, uint32_t record, struct rte_mbuf *m)
{
	struct held *h = held_of(w);
	unsigned count = 0, oldest = 0;

	for (unsigned n = h->count; n-- > 0;)
		if (entry_is_of(h, n, slot, record)) {
			count++;
			oldest = n;
		}
	if (count >= HELD_SESSION)
		entry_drop(w, h, oldest);
	else if (h->count == HELD_MAX)
		entry_drop(w, h, 0);
	h->at[h->count].m = m;
	h->at[h->count].record = record;
	h->at[h->count].slot = slot;
	h->at[h->count].due = false;
	h->count++;
}

void held_round(struct sy_worker *w)
{
	struct held *h = held_of(w);

	for (unsigned n = 0; h->due > 0 && n < h->count;) {
		if (!h->at[n].due) {
			n++;
			continue;
		}
		if (!sy_packet_again(w, h->at[n].m))
			return;
		entry_remove(h, n);
	}
}

void held_release(struct sy_worker *w, uint8_t slot, uint32_t record)
{
	struct held *h = held_of(w);

	for (unsigned n = 0; n < h->count; n++)
		if (entry_is_of(h, n, slot, record) && !h->at[n].due) {
			h->at[n].due = true;
			h->due++;
		}
	held_round(w);
}

void held_drop(struct sy_worker *w, uint8_t slot, uint32_t record)
{
	struct held *h = held_of(w);

	for (unsigned n = 0; n < h->count;) {
		if (entry_is_of(h, n, slot, record))
			entry_drop(w, h, n);
		else
			n++;
	}
}
