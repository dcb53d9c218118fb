// SPDX-License-Identifier: Apache-2.0
/* The desired size of a store; getters for its properties. */
#include <stdio.h>
#include <sys/stat.h>

#include "session_file.h"
#include "session_size.h"

/* Bytes of the file of an earlier process; 0: none. */
static uint64_t found_bytes(const struct session_store *s)
{
	struct stat st;

	return s->path[0] != '\0' && stat(s->path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* Sets the desired size and the growth limit. The memory of an existing file counts as free, so
 * that the limit is the same at every start, and never below what the file has. */
void session_store_size(struct session_store *s, const struct session_store_options *o)
{
	struct session_size size = {o->sessions, o->limit};

	if (o->directory != NULL)
		snprintf(s->directory, sizeof(s->directory), "%s", o->directory);
	if (o->sessions == 0 || o->limit == 0) {
		uint64_t found = found_bytes(s);
		uint64_t left = session_memory_left("", o->directory);
		session_size_choose(found + (left > o->reserved ? left - o->reserved : 0), &size);
		if (size.limit < found / SESSION_BYTES)
			size.limit = found / SESSION_BYTES;
	}
	s->any_size = o->sessions == 0;
	session_geometry_choose(&s->wanted, o->sessions ? o->sessions : size.begin);
	s->limit = o->limit ? o->limit : size.limit;
	if (s->limit > SESSIONS_MAX)
		s->limit = SESSIONS_MAX;
}

const struct session_found *session_store_found(const struct session_store *s)
{
	return &s->found;
}

unsigned session_store_path_half(const struct session_store *s)
{
	return s->path_half;
}

struct session_table *session_store_table(struct session_store *s, uint8_t slot)
{
	return &s->tables[slot];
}

const struct session_index *session_store_indexes(const struct session_store *s)
{
	return s->index;
}

uint64_t session_store_limit(const struct session_store *s)
{
	return s->limit;
}

uint64_t session_store_mapped(const struct session_store *s)
{
	return s->now.length + sizeof(*s);
}

const struct sy_hash_key *session_store_key(const struct session_store *s)
{
	return &s->now.file->key;
}

struct sy_siphash_key session_store_secret(const struct session_store *s)
{
	return session_file_secret(s->now.file)->key;
}

const struct sy_slot_key *session_store_slot_key(const struct session_store *s)
{
	return &s->now.file->slot_key;
}
