// SPDX-License-Identifier: Apache-2.0
#include "cores.h"

static uint32_t all_workers(const struct cores *c)
{
	return (uint32_t)((UINT64_C(1) << c->workers) - 1);
}

static uint32_t spillway(const struct cores *c)
{
	return 1u << (c->workers - 1);
}

void cores_init(struct cores *c, unsigned workers, unsigned types, const uint8_t *level,
                uint32_t window)
{
	*c = (struct cores){.workers = workers, .types = types, .window = window};
	for (unsigned i = 0; level && i < types; i++)
		c->level[i] = level[i];
	for (unsigned i = 0; i <= types; i++)
		c->order[i] = (uint8_t)i;
}

/* ---- reservation ----------------------------------------------------------------------------- */

/* Order: by level, then service time; unmeasured types last in their level; unknown ones last of
 * all. */
static bool is_before(const struct cores *c, unsigned a, unsigned b)
{
	uint64_t mean_a = c->type[a].mean_ns, mean_b = c->type[b].mean_ns;

	if (a == c->types || b == c->types)
		return b == c->types && a != b;
	if (c->level[a] != c->level[b])
		return c->level[a] < c->level[b];
	if (!mean_a || !mean_b)
		return mean_a && !mean_b;
	return mean_a < mean_b;
}

static void order_sort(struct cores *c)
{
	for (unsigned i = 0; i <= c->types; i++)
		c->order[i] = (uint8_t)i;
	for (unsigned i = 1; i <= c->types; i++) /* insertion sort: few, and stable */
		for (unsigned k = i; k > 0 && is_before(c, c->order[k], c->order[k - 1]); k--) {
			uint8_t moved = c->order[k];
			c->order[k] = c->order[k - 1];
			c->order[k - 1] = moved;
		}
}

/* Returns the end of the group: equal level, similar service times. Within a group, types are
 * ordered by number. */
static unsigned group_end(struct cores *c, unsigned first)
{
	uint64_t min = c->type[c->order[first]].mean_ns;
	unsigned end = first;

	while (end < c->types && c->type[c->order[end]].mean_ns &&
	       c->level[c->order[end]] == c->level[c->order[first]] &&
	       c->type[c->order[end]].mean_ns <= CORES_ALIKE * min)
		end++;
	for (unsigned i = first + 1; i < end; i++)
		for (unsigned k = i; k > first && c->order[k] < c->order[k - 1]; k--) {
			uint8_t moved = c->order[k];
			c->order[k] = c->order[k - 1];
			c->order[k - 1] = moved;
		}
	return end;
}

static uint64_t group_work(const struct cores *c, unsigned first, unsigned end)
{
	uint64_t ns = 0;

	for (unsigned i = first; i < end; i++)
		ns += c->type[c->order[i]].ns;
	return ns;
}

/* Each group gets workers by its share of the work, rounded, at least one; if they are too few, the
 * last one is shared. */
static void reserve(struct cores *c)
{
	uint64_t work = group_work(c, 0, c->types);
	unsigned next = 0, end;

	for (unsigned first = 0; first <= c->types; first = end) {
		end = first + 1;
		if (!c->type[c->order[first]].mean_ns ||
		    first == c->types) { /* not measured, or unknown */
			c->type[c->order[first]].own = spillway(c);
			c->type[c->order[first]].steal = 0;
			continue;
		}
		end = group_end(c, first);
		uint64_t share = work ? group_work(c, first, end) * c->workers : 0;
		unsigned wanted = work ? (unsigned)((share + work / 2) / work) : 0;
		uint32_t own = 0;
		for (unsigned i = 0; i < (wanted ? wanted : 1); i++)
			own |= next < c->workers ? 1u << next++ : spillway(c);
		for (unsigned i = first; i < end; i++) {
			struct cores_type *t = &c->type[c->order[i]];
			t->own = own;
			t->steal = all_workers(c) & ~(uint32_t)((UINT64_C(1) << next) - 1);
		}
	}
}

static void window_end(struct cores *c)
{
	for (unsigned i = 0; i <= c->types; i++)
		if (c->type[i].count)
			c->type[i].mean_ns = c->type[i].ns / c->type[i].count | 1;
	order_sort(c);
	reserve(c);
	for (unsigned i = 0; i <= c->types; i++)
		c->type[i].count = c->type[i].ns = 0;
	c->seen = 0;
	c->reserved = true;
}

void cores_served(struct cores *c, unsigned worker, unsigned type, uint64_t ns)
{
	c->busy &= ~(1u << worker);
	c->type[type].count++;
	c->type[type].ns += ns;
	if (++c->seen >= c->window)
		window_end(c);
}

/* ---- dispatch -------------------------------------------------------------------------------- */

uint32_t cores_first(const struct cores *c, uint32_t waiting)
{
	uint32_t first = 0;
	unsigned level = UINT8_MAX + 1;

	for (uint32_t left = waiting; left; left &= left - 1) {
		unsigned type = (unsigned)__builtin_ctz(left);
		unsigned own = type < c->types ? c->level[type] : UINT8_MAX;
		if (own < level)
			first = 0;
		level = own < level ? own : level;
		first |= own == level ? 1u << type : 0;
	}
	return first;
}

static bool take(struct cores *c, uint32_t workers, unsigned *worker)
{
	if (!workers)
		return false;
	*worker = (unsigned)__builtin_ctz(workers);
	c->busy |= 1u << *worker;
	return true;
}

bool cores_pick(struct cores *c, uint32_t waiting, unsigned oldest, unsigned *type,
                unsigned *worker)
{
	uint32_t free = all_workers(c) & ~c->busy;

	if (!waiting || !free)
		return false;
	if (!c->reserved) {
		*type = oldest;
		return take(c, free, worker);
	}
	for (unsigned i = 0; i <= c->types; i++) {
		const struct cores_type *t = &c->type[c->order[i]];
		*type = c->order[i];
		if (waiting & 1u << *type &&
		    (take(c, free & t->own, worker) || take(c, free & t->steal, worker)))
			return true;
	}
	return false;
}
