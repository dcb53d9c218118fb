// SPDX-License-Identifier: Apache-2.0
#include "wheel.h"

#include <string.h>

#define SLOT       (UINT32_C(1) << 31)
#define LEVEL_BITS 8
#define LAST       (WHEEL_SLOTS - 1)

static struct wheel_link *link_at(struct wheel *w, uint32_t ref)
{
	return ref & SLOT ? &w->slots[ref & ~SLOT] : &w->links[ref - 1];
}

void wheel_init(struct wheel *w, struct wheel_link *links, uint64_t now_ms)
{
	memset(w, 0, sizeof(*w));
	w->links = links;
	w->now = now_ms;
	w->tick = now_ms + 1;
	for (uint32_t n = 0; n < WHEEL_LEVELS * WHEEL_SLOTS; n++)
		w->slots[n] = (struct wheel_link){.next = SLOT | n, .prev = SLOT | n};
}

static void slot_mark(struct wheel *w, uint32_t slot, bool used)
{
	uint64_t *word = &w->used[slot / WHEEL_SLOTS][slot % WHEEL_SLOTS / 64];
	uint64_t bit = UINT64_C(1) << slot % 64;
	*word = used ? *word | bit : *word & ~bit;
}

/* Returns the slot of a time, in the lowest level that reaches it. */
static uint32_t slot_of(const struct wheel *w, uint64_t due)
{
	uint32_t level = 0;
	while (level < WHEEL_LEVELS &&
	       (due >> LEVEL_BITS * level) - (w->tick >> LEVEL_BITS * level) > LAST)
		level++;
	if (level == WHEEL_LEVELS) {
		level--;
		due = w->tick + ((uint64_t)LAST << LEVEL_BITS * level);
	}
	return level * WHEEL_SLOTS + (uint32_t)(due >> LEVEL_BITS * level) % WHEEL_SLOTS;
}

void wheel_clear(struct wheel *w, uint32_t index)
{
	struct wheel_link *l = &w->links[index];
	if (l->next == 0)
		return;
	link_at(w, l->next)->prev = l->prev;
	link_at(w, l->prev)->next = l->next;
	if (l->next == l->prev && l->next & SLOT)
		slot_mark(w, l->next & ~SLOT, false);
	*l = (struct wheel_link){0};
	w->count--;
}

void wheel_set(struct wheel *w, uint32_t index, uint64_t due_ms)
{
	wheel_clear(w, index);
	uint32_t slot = slot_of(w, due_ms > w->now ? due_ms : w->now + 1);
	struct wheel_link *head = &w->slots[slot];
	w->links[index] = (struct wheel_link){.next = SLOT | slot, .prev = head->prev};
	link_at(w, head->prev)->next = index + 1;
	head->prev = index + 1;
	slot_mark(w, slot, true);
	w->count++;
}

/* Returns the distance from `from` to the first used slot, circularly; WHEEL_SLOTS: none. */
static unsigned used_after(const uint64_t used[WHEEL_SLOTS / 64], unsigned from)
{
	uint64_t word = used[from / 64] >> from % 64;
	if (word)
		return (unsigned)__builtin_ctzll(word);
	for (unsigned n = 1; n <= WHEEL_SLOTS / 64; n++) {
		word = used[(from / 64 + n) % (WHEEL_SLOTS / 64)];
		if (word)
			return 64 * n - from % 64 + (unsigned)__builtin_ctzll(word);
	}
	return WHEEL_SLOTS;
}

/* Returns when the first used slot begins, and its number. */
static uint64_t slot_next(const struct wheel *w, uint32_t *slot)
{
	uint64_t next = WHEEL_NEVER;
	for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
		unsigned shift = LEVEL_BITS * level;
		uint64_t at = w->tick >> shift;
		unsigned after = used_after(w->used[level], at % WHEEL_SLOTS);
		if (after == WHEEL_SLOTS)
			continue;
		uint64_t begins = (at + after) << shift;
		if (begins >= next)
			continue;
		next = begins;
		*slot = level * WHEEL_SLOTS + (uint32_t)(at + after) % WHEEL_SLOTS;
	}
	return next;
}

uint64_t wheel_next(const struct wheel *w)
{
	uint32_t slot;
	return w->count ? slot_next(w, &slot) : WHEEL_NEVER;
}

uint32_t wheel_take(struct wheel *w, uint64_t now_ms)
{
	uint32_t slot = 0;
	w->now = now_ms > w->now ? now_ms : w->now;
	uint64_t next = w->count ? slot_next(w, &slot) : WHEEL_NEVER;
	if (next > w->now) {
		w->tick = w->now + 1;
		return WHEEL_NONE;
	}
	w->tick = next;
	uint32_t index = w->slots[slot].next - 1;
	wheel_clear(w, index);
	return index;
}

unsigned wheel_peek(const struct wheel *w, uint64_t now_ms, uint32_t *index, unsigned max)
{
	uint32_t slot = 0, ref;
	unsigned count = 0;

	if (!w->count || slot_next(w, &slot) > now_ms)
		return 0;
	for (ref = w->slots[slot].next; !(ref & SLOT) && count < max; ref = w->links[ref - 1].next)
		index[count++] = ref - 1;
	return count;
}
