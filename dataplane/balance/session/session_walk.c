// SPDX-License-Identifier: Apache-2.0
/* Changes to the index, for session_table.c: see session_index.h for the buckets. */
#include "session_walk.h"

/* A bucket reached by the search, through the entry at `index` of its parent bucket. */
struct node {
	uint32_t bucket;
	uint16_t parent; /* index in the queue; roots have none */
	uint8_t index;
	uint8_t depth; /* moves from the root */
};

/* Writes an entry. home: its first bucket. */
static void position_set(const struct session_index *x, struct session_position p, uint16_t tag,
                         uint32_t entry, uint32_t home)
{
	struct session_bucket *b = &session_buckets(x)[p.bucket];

	b->tags[p.index] = tag;
	b->entries[p.index] = entry;
	if (SY_UNLIKELY(p.bucket != home)) {
		b->guests |= (uint16_t)(1u << p.index);
		session_buckets(x)[home].absent++;
	}
}

/* Returns the first bucket of the entry at this position. */
static uint32_t place_home(const struct session_index *x, struct session_position p)
{
	const struct session_bucket *b = &session_buckets(x)[p.bucket];

	return SY_UNLIKELY(b->guests >> p.index & 1)
	               ? session_bucket_other(x, p.bucket, b->tags[p.index])
	               : p.bucket;
}

static void position_clear(const struct session_index *x, struct session_position p)
{
	struct session_bucket *b = &session_buckets(x)[p.bucket];
	uint32_t home = place_home(x, p);

	if (SY_UNLIKELY(p.bucket != home)) {
		b->guests &= (uint16_t) ~(1u << p.index);
		session_buckets(x)[home].absent--;
	}
	b->tags[p.index] = 0;
	b->entries[p.index] = 0;
}

static void position_move(const struct session_index *x, struct session_position from,
                          struct session_position to)
{
	const struct session_bucket *b = &session_buckets(x)[from.bucket];
	uint16_t tag = b->tags[from.index];
	uint32_t entry = b->entries[from.index], home = place_home(x, from);

	position_clear(x, from);
	position_set(x, to, tag, entry, home);
}

static uint32_t bucket_empty(const struct session_index *x, uint32_t bucket)
{
	return session_bucket_match(&session_buckets(x)[bucket], 0);
}

/* Fills *walk with the path from a root to an empty position in bucket queue[at]. empty: bitmap of
 * the bucket's empty positions. */
static void walk_trace(const struct node *queue, uint32_t at, uint32_t empty,
                       struct session_walk *walk)
{
	uint32_t i = queue[at].depth;

	walk->length = i + 1;
	walk->position[i] =
	        (struct session_position){queue[at].bucket, (uint32_t)__builtin_ctz(empty)};
	for (; i > 0; at = queue[at].parent)
		walk->position[--i] =
		        (struct session_position){queue[queue[at].parent].bucket, queue[at].index};
}

/*
 * Breadth-first from both buckets: finds a path with the fewest moves. Such a path crosses no
 * bucket twice, which would move an entry that has already left. Buckets are prefetched when
 * enqueued and examined later.
 */
static bool walk_search(const struct session_index *x, uint32_t first, uint32_t second,
                        struct session_walk *walk)
{
	struct node queue[SESSION_WALK_BUCKETS];
	uint32_t queued = 0;

	queue[queued++] = (struct node){.bucket = first};
	queue[queued++] = (struct node){.bucket = second};
	for (uint32_t at = 0; at < queued; at++) {
		const struct node *n = &queue[at];
		uint32_t empty = bucket_empty(x, n->bucket);
		if (empty != 0) {
			walk_trace(queue, at, empty, walk);
			return true;
		}
		for (uint8_t i = 0; i < SESSION_BUCKET_ENTRIES && queued < SESSION_WALK_BUCKETS;
		     i++) {
			uint32_t next = session_bucket_other(x, n->bucket,
			                                     session_buckets(x)[n->bucket].tags[i]);
			__builtin_prefetch(&session_buckets(x)[next]);
			queue[queued++] = (struct node){.bucket = next,
			                                .parent = (uint16_t)at,
			                                .index = i,
			                                .depth = (uint8_t)(n->depth + 1)};
		}
	}
	return false;
}

bool session_walk_insert(const struct session_index *x, uint64_t hash, uint32_t entry,
                         struct session_walk *walk)
{
	uint16_t tag = session_tag(hash);
	uint32_t first = session_bucket_of(x, hash);

	uint32_t empty = bucket_empty(x, first);
	if (empty != 0) {
		walk->length = 1;
		walk->position[0] =
		        (struct session_position){first, (uint32_t)__builtin_ctz(empty)};
		position_set(x, walk->position[0], tag, entry, first);
		return true;
	}
	if (!walk_search(x, first, session_bucket_other(x, first, tag), walk))
		return false;
	for (uint32_t i = walk->length - 1; i > 0; i--)
		position_move(x, walk->position[i - 1], walk->position[i]);
	position_set(x, walk->position[0], tag, entry, first);
	return true;
}

void session_walk_undo(const struct session_index *x, const struct session_walk *walk)
{
	position_clear(x, walk->position[0]);
	for (uint32_t i = 1; i < walk->length; i++)
		position_move(x, walk->position[i], walk->position[i - 1]);
}

bool session_walk_enter(const struct session_index *x, uint32_t record, uint64_t client_hash,
                        uint64_t server_hash)
{
	struct session_walk client, server;

	if (!session_walk_insert(x, client_hash, record << 1 | SESSION_CLIENT, &client))
		return false;
	if (server_hash == SESSION_ONE_WAY ||
	    session_walk_insert(x, server_hash, record << 1 | SESSION_SERVER, &server))
		return true;
	session_walk_undo(x, &client);
	return false;
}

void session_walk_remove(const struct session_index *x, uint64_t hash, uint32_t entry)
{
	uint16_t tag = session_tag(hash);
	uint32_t bucket = session_bucket_of(x, hash);

	for (unsigned choice = 0; choice < 2; choice++) {
		const struct session_bucket *b = &session_buckets(x)[bucket];
		uint32_t mask = session_bucket_match(b, tag);
		for (; mask != 0; mask &= mask - 1) {
			uint32_t index = (uint32_t)__builtin_ctz(mask);
			if (b->entries[index] == entry) {
				position_clear(x, (struct session_position){bucket, index});
				return;
			}
		}
		if (!b->absent)
			return;
		bucket = session_bucket_other(x, bucket, tag);
	}
}
