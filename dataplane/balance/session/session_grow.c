// SPDX-License-Identifier: Apache-2.0
/*
 * Enlarges one slot's table while the forwarder runs (docs/design/0019-slots.md). The larger table
 * is built elsewhere in the file: at its end, or in a region that another slot has left. One word
 * in the file points to it, stored last: after a crash, adoption finds the old table unchanged, or
 * the larger one complete.
 */
#include <errno.h>

#include "session_file.h"
#include "session_size.h"
#include "session_walk.h"

/* Min bytes by which the file is extended: each extension costs system calls. */
#define EXTEND_STEP (UINT64_C(4) << 20)

/* ---- regions in use -------------------------------------------------------------------------- */

/* Slots, regions that slots have left, and the dictionary. */
#define REGIONS_MAX (2 * SY_SLOTS + 1)

/* All regions that must not be overwritten, sorted. Returns their number. */
static unsigned regions_used(const struct session_store *s, struct session_region out[REGIONS_MAX])
{
	unsigned n = 0;

	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		out[n++] = session_slot_location(s->now.file, (uint8_t)slot);
	for (unsigned i = 0; i < s->left_count; i++)
		out[n++] = s->left[i];
	out[n++] = session_dictionary_location(s->now.file);
	session_regions_sort(out, n);
	return n;
}

/* The first free range of this many lines, between the used regions or after them. */
static uint64_t region_find(const struct session_store *s, uint64_t lines)
{
	struct session_region used[REGIONS_MAX];
	unsigned n = regions_used(s, used);
	uint64_t from = SESSION_FILE_FIRST / SY_CACHE_LINE;

	for (unsigned i = 0; i < n; i++) {
		if (used[i].line >= from + lines)
			return from;
		if (used[i].line + used[i].lines > from)
			from = used[i].line + used[i].lines;
	}
	return from;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int memory_extend(struct session_store *s, uint64_t needed, struct sy_error *err)
{
	uint64_t wanted = needed - s->now.length;

	if (wanted < EXTEND_STEP && s->now.length + EXTEND_STEP <= s->now.reserved)
		wanted = EXTEND_STEP;
	const char *directory = s->directory[0] ? s->directory : NULL;
	if (session_memory_left("", directory) < 2 * wanted)
		return sy_fail(err, ENOMEM,
		               "session table: too little free memory to grow: free some, or add "
		               "huge pages");
	return session_map_extend(&s->now, s->path, s->now.length + wanted, err);
}

/* ---- growth ---------------------------------------------------------------------------------- */

static uint64_t store_capacity(const struct session_store *s)
{
	uint64_t sum = 0;

	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		sum += s->tables[slot].capacity;
	return sum;
}

bool session_grow_is_possible(const struct session_store *s, uint8_t slot)
{
	uint32_t records = s->tables[slot].capacity;

	return s->mine && !s->due && s->left_count < SY_SLOTS &&
	       records <= SESSION_RECORDS_MAX / 2 && store_capacity(s) + records <= s->limit;
}

int session_grow_prepare(struct session_store *s, uint8_t slot, struct session_growth *out,
                         struct sy_error *err)
{
	struct session_geometry g;

	if (!session_grow_is_possible(s, slot))
		return sy_fail(err, ENOSPC, "session table: the table has its maximum size");
	session_geometry_of(&g, 2 * s->tables[slot].capacity);
	uint64_t lines = g.size / SY_CACHE_LINE, line = region_find(s, lines);
	uint64_t end = (line + lines) * SY_CACHE_LINE;
	if (end > s->now.reserved || line + lines > UINT32_MAX)
		return sy_fail(err, ENOSPC, "session table: no address space is left to grow into");
	if (end > s->now.length) {
		int rc = memory_extend(s, end, err);
		if (rc != 0)
			return rc;
	}
	void *region = (uint8_t *)s->now.file + line * SY_CACHE_LINE;
	memset(region, 0, g.size);
	session_table_init(&out->table, &out->index, slot, region, &g);
	out->region = (struct session_region){line, lines, g.records};
	return 0;
}

void session_grow_copy(const struct session_table *from, struct session_growth *g)
{
	struct session_table *to = &g->table;

	memcpy(to->cursors, from->cursors, SESSION_PORT_CURSORS * sizeof(uint16_t));
	memcpy(to->index->hot, from->index->hot, from->top * sizeof(*to->index->hot));
	memcpy(to->cold, from->cold, from->top * sizeof(*to->cold));
	to->top = from->top;
	to->live = from->live;
	to->free_head = from->free_head;
	to->sweep_at = from->sweep_at;
	to->evict_at = from->evict_at;
	to->embryonic = from->embryonic;
	to->counted = from->counted;
}

bool session_grow_enter(struct session_growth *g, uint32_t record, uint64_t client_hash,
                        uint64_t server_hash)
{
	return session_walk_enter(&g->index, record, client_hash, server_hash);
}

void session_grow_finish(struct session_store *s, struct session_growth *g)
{
	struct session_table *t = &s->tables[g->table.slot];
	struct session_region before = session_slot_location(s->now.file, t->slot);

	/* the larger table is complete before the file points to it */
	__atomic_store_n(&session_file_locations(s->now.file)[t->slot],
	                 session_location_pack(&g->region), __ATOMIC_RELEASE);
	*t = g->table;
	t->index = &s->index[t->slot];
	session_index_set(t->index, session_buckets(&g->index), session_bucket_count(&g->index),
	                  g->index.hot);
	g->region = before;
}

void session_grow_leave(struct session_store *s, const struct session_growth *g)
{
	s->left[s->left_count++] = g->region;
}

void session_grow_release(struct session_store *s, unsigned count)
{
	s->left_count -= count;
	memmove(s->left, s->left + count, s->left_count * sizeof(*s->left));
}
