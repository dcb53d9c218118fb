// SPDX-License-Identifier: Apache-2.0
#include "load_schedule.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* ---- arrivals -------------------------------------------------------------------------------- */

/* Draws the next burst: its size, and the gap before it, which preserves the rate for any size. */
static void burst_next(struct arrivals *a, struct chance *c)
{
	uint64_t size = a->burst ? distribution_draw(a->burst, c) : 1;
	double gap;

	a->left = size ? size : 1;
	gap = (double)a->left / a->per_ns;
	a->next_ns += a->poisson ? -gap * log(chance_unit(c)) : gap;
}

void arrivals_start(struct arrivals *a, struct chance *c, uint64_t now_ns)
{
	a->next_ns = (double)now_ns;
	a->left = 0;
	if (a->per_ns > 0)
		burst_next(a, c);
}

bool arrivals_take(struct arrivals *a, struct chance *c, uint64_t now_ns, uint64_t *due_ns)
{
	if (a->per_ns <= 0 || a->next_ns > (double)now_ns)
		return false;
	*due_ns = (uint64_t)a->next_ns;
	if (--a->left == 0)
		burst_next(a, c);
	return true;
}

/* ---- agenda ---------------------------------------------------------------------------------- */

int agenda_add(struct agenda *a, struct due what)
{
	size_t at = a->count;

	if (a->count == a->capacity) {
		size_t capacity = a->capacity ? 2 * a->capacity : 1024;
		struct due *grown = realloc(a->entry, capacity * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		a->entry = grown;
		a->capacity = capacity;
	}
	a->count++;
	for (; at > 0 && a->entry[(at - 1) / 2].at_ns > what.at_ns; at = (at - 1) / 2)
		a->entry[at] = a->entry[(at - 1) / 2];
	a->entry[at] = what;
	return 0;
}

bool agenda_take(struct agenda *a, uint64_t now_ns, struct due *out)
{
	size_t at = 0, child;

	if (a->count == 0 || a->entry[0].at_ns > now_ns)
		return false;
	*out = a->entry[0];
	struct due last = a->entry[--a->count];
	while ((child = 2 * at + 1) < a->count) {
		if (child + 1 < a->count && a->entry[child + 1].at_ns < a->entry[child].at_ns)
			child++;
		if (a->entry[child].at_ns >= last.at_ns)
			break;
		a->entry[at] = a->entry[child];
		at = child;
	}
	a->entry[at] = last;
	return true;
}

uint64_t agenda_next(const struct agenda *a)
{
	return a->count ? a->entry[0].at_ns : UINT64_MAX;
}

void agenda_free(struct agenda *a)
{
	free(a->entry);
}

/* ---- backlog --------------------------------------------------------------------------------- */

int backlog_add(struct backlog *b, uint64_t due_ns)
{
	if (b->count == b->capacity) {
		size_t capacity = b->capacity ? 2 * b->capacity : 1024;
		uint64_t *grown = malloc(capacity * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		for (size_t i = 0; i < b->count; i++)
			grown[i] = b->time[(b->first + i) & (b->capacity - 1)];
		free(b->time);
		*b = (struct backlog){grown, 0, b->count, capacity};
	}
	b->time[(b->first + b->count++) & (b->capacity - 1)] = due_ns;
	return 0;
}

bool backlog_take(struct backlog *b, uint64_t *due_ns)
{
	if (b->count == 0)
		return false;
	*due_ns = b->time[b->first];
	b->first = (b->first + 1) & (b->capacity - 1);
	b->count--;
	return true;
}

void backlog_free(struct backlog *b)
{
	free(b->time);
}
