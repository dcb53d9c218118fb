// SPDX-License-Identifier: Apache-2.0
#include "ranges.h"

#include <stdlib.h>

/*
 * Links each range to the one that encloses it. A port's range is the last one that begins at or
 * before it, or one that encloses that. A range that ended before another begins encloses neither
 * that one nor any later one, even if ranges overlap, as between two steps of a transaction.
 */
static void ranges_nest(struct ranges *r)
{
	for (uint32_t i = 0; i < r->count; i++) {
		uint32_t outer = i > 0 ? i - 1 : RANGE_NONE;
		while (outer != RANGE_NONE && r->range[outer].last < r->range[i].first)
			outer = r->range[outer].outer;
		r->range[i].outer = outer;
	}
}

static struct ranges *ranges_make(uint32_t capacity)
{
	return calloc(1, sizeof(struct ranges) + capacity * sizeof(struct range));
}

struct ranges *ranges_with(const struct ranges *from, uint16_t first, uint16_t last, uint32_t id)
{
	uint32_t count = from ? from->count : 0, i = 0;
	struct ranges *r = ranges_make(count + 1);
	int order = -1;
	if (!r)
		return NULL;
	for (; i < count; i++) {
		const struct range *old = &from->range[i];
		order = range_compare(first, last, old->first, old->last);
		if (order <= 0)
			break;
		r->range[r->count++] = *old;
	}
	r->range[r->count++] = (struct range){.first = first, .last = last, .id = id};
	for (i += i < count && order == 0; i < count; i++)
		r->range[r->count++] = from->range[i];
	ranges_nest(r);
	return r;
}

struct ranges *ranges_without(const struct ranges *from, uint16_t first, uint16_t last, uint32_t id)
{
	uint32_t count = from ? from->count : 0;
	struct ranges *r = ranges_make(count);
	for (uint32_t i = 0; r && i < count; i++) {
		const struct range *old = &from->range[i];
		if (old->id != id || old->first != first || old->last != last)
			r->range[r->count++] = *old;
	}
	if (r)
		ranges_nest(r);
	return r;
}

uint32_t ranges_find(const struct ranges *r, uint16_t port)
{
	uint32_t low = 0, high = r->count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (r->range[middle].first <= port)
			low = middle + 1;
		else
			high = middle;
	}
	uint32_t i = low > 0 ? low - 1 : RANGE_NONE;
	while (i != RANGE_NONE && r->range[i].last < port)
		i = r->range[i].outer;
	return i == RANGE_NONE ? RANGE_NONE : r->range[i].id;
}
