// SPDX-License-Identifier: Apache-2.0
/*
 * Resizing: creates and fills a new file beside the old one, which it only reads. The complete file
 * takes the old one's name.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "session_file.h"

#define NEXT_SUFFIX ".next"

bool session_store_has_size(const struct session_store *s)
{
	return s->now.file->servers == s->servers_wanted &&
	       memcmp(&s->now.file->slot, &s->wanted, sizeof(s->wanted)) == 0;
}

void session_resize_clean(const struct session_store *s)
{
	char path[PATH_MAX];

	session_store_beside(s, NEXT_SUFFIX, path);
	unlink(path);
}

/* A slot that has grown beyond the desired size keeps its size: its sessions may need it. */
static int next_keep_growth(struct session_store *s, struct session_map *next, const char *path,
                            struct sy_error *err)
{
	uint64_t line = next->file->file_size / SY_CACHE_LINE;

	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		struct session_region r = session_slot_location(s->now.file, (uint8_t)slot);
		if (session_file_locations(s->now.file)[slot] == 0 ||
		    r.records <= s->wanted.records)
			continue;
		r.line = line;
		line += r.lines;
		session_file_locations(next->file)[slot] = session_location_pack(&r);
	}
	return line * SY_CACHE_LINE > next->length
	               ? session_map_extend(next, path, line * SY_CACHE_LINE, err)
	               : 0;
}

static int next_make(struct session_store *s, struct session_map *next, struct sy_error *err)
{
	char path[PATH_MAX];

	session_store_beside(s, NEXT_SUFFIX, path);
	unlink(path);
	next->fd = session_file_open(path, O_CREAT | O_EXCL, err);
	if (next->fd < 0)
		return next->fd;
	/* The same keys, as other modules may have copied them already. */
	int rc = session_store_make(s, next, path, session_store_key(s), session_store_slot_key(s),
	                            err);
	if (rc == 0)
		rc = next_keep_growth(s, next, path, err);
	if (rc != 0)
		unlink(path);
	return rc;
}

void session_resize_begin(struct session_store *s)
{
	struct session_map next = {.fd = -1};
	struct sy_error err = {0};

	if (session_store_has_size(s))
		return;
	if (next_make(s, &next, &err) != 0) {
		session_map_drop(&next);
		sy_log(SY_LOG_WARN, "sessions",
		       "the tables keep their old size of %" PRIu64 " sessions and %" PRIu32
		       " servers until there is memory for the old and new tables together: %s",
		       (uint64_t)s->now.file->slot.records * SY_SLOTS, s->now.file->servers,
		       err.text);
		return;
	}
	session_dictionary_copy(next.file, s->now.file);
	s->old = s->now;
	s->now = next;
	s->found.resized = true;
	session_store_tables(s);
}

int session_resize_finish(struct session_store *s, struct sy_error *err)
{
	char path[PATH_MAX];

	session_store_beside(s, NEXT_SUFFIX, path);
	session_file_finish(s->now.file);
	if (rename(path, s->path) != 0)
		return sy_fail(err, errno, "session table: %.100s cannot take its name: %s", path,
		               strerror(errno));
	session_map_drop(&s->old);
	return 0;
}

void session_resize_cancel(struct session_store *s)
{
	session_resize_clean(s);
	session_map_drop(&s->now);
	s->now = s->old;
	s->old = (struct session_map){.fd = -1};
}
