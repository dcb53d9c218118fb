// SPDX-License-Identifier: Apache-2.0
/* A private directory for session files, and the file in it: opened, copied and damaged. */
#ifndef SESSION_PLACE_H
#define SESSION_PLACE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../../tests/folder.h"
#include "network.h"
#include "session_fixture.h"

static char place[FOLDER_NAME];

static inline void place_path(const char *suffix, char out[static PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s/table%s", place, suffix);
}

static inline bool place_has(const char *suffix)
{
	char path[PATH_MAX];
	place_path(suffix, path);
	return access(path, F_OK) == 0;
}

static inline void place_remove(const char *suffix)
{
	char path[PATH_MAX];
	place_path(suffix, path);
	unlink(path);
}

static inline int place_make(void **state)
{
	sy_slot_init();
	sy_log_set_level(SY_LOG_ERROR); /* the tests provoke refusals */
	return !folder_make(place, folder_large());
}

static inline int position_clear(void **state)
{
	place_remove("");
	place_remove(".refused");
	place_remove(".next");
	place_remove(".copy");
	return 0;
}

static inline int place_unmake(void **state)
{
	position_clear(state);
	return rmdir(place); /* fails if a test left something else behind */
}

/* The whole file in memory; free() it. */
static inline uint8_t *place_read(const char *suffix, size_t *size)
{
	char path[PATH_MAX];
	struct stat st;
	place_path(suffix, path);
	int fd = open(path, O_RDONLY);
	assert_int_equal(fstat(fd, &st), 0);
	uint8_t *bytes = malloc((size_t)st.st_size + 1);
	assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
	close(fd);
	*size = (size_t)st.st_size;
	return bytes;
}

static inline void place_write(const char *suffix, const void *bytes, size_t size)
{
	char path[PATH_MAX];
	place_path(suffix, path);
	unlink(path);
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(write(fd, bytes, size), size);
	close(fd);
}

#define PLACE_SESSIONS 4096
#define PLACE_SERVERS  32
#define PLACE_OWNER    77

static inline struct session_store_options place_options(void)
{
	return (struct session_store_options){.sessions = PLACE_SESSIONS,
	                                      .servers = PLACE_SERVERS,
	                                      .directory = place,
	                                      .name = "table",
	                                      .owner = PLACE_OWNER};
}

static inline struct session_store_options inherit_options(void)
{
	struct session_store_options o = place_options();
	o.inherit = true;
	return o;
}

static inline struct session_store *place_open_as(struct session_store_options o)
{
	struct session_store *s = NULL;
	struct sy_error err = {0};

	if (session_store_open(&o, &s, &err) != 0)
		fail_msg("%s", err.text);
	return s;
}

static inline struct session_store *place_open(void)
{
	return place_open_as(place_options());
}

static inline void place_adopt(struct session_store *s, const struct network *n, unsigned threads,
                               uint64_t count[SESSION_RESULT_COUNT])
{
	struct session_validator validator = network_validator(n);
	struct sy_error err = {0};

	if (session_store_adopt(s, &validator, threads, count, &err) != 0)
		fail_msg("%s", err.text);
}

static inline uint64_t place_live(struct session_store *s)
{
	uint64_t live = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		live += session_count(session_store_table(s, (uint8_t)slot));
	return live;
}

/* Checks that live sessions are found from both sides, that the index has no other entries, and
 * that each free record is on the list once. Returns the number of live sessions. */
static inline uint64_t place_check(const struct network *n)
{
	uint64_t live = 0;

	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = session_store_table(n->store, (uint8_t)slot);
		uint32_t cursor = 0, listed = 0, free = 0, last = SESSION_NONE;
		for (uint32_t r; (r = session_next(t, &cursor)) != SESSION_NONE; listed++) {
			assert_true(network_verify(n, t, r));
			assert_int_equal(t->cold[r].commit, session_check(&t->index->hot[r]));
		}
		assert_int_equal(listed, session_count(t));
		assert_int_equal(index_used(t), 2 * listed);
		assert_true(t->top <= t->capacity);
		for (uint32_t r = t->free_head; r != SESSION_NONE; r = t->cold[r].free_next) {
			assert_true(r < t->top && free < t->top);
			assert_int_equal(t->index->hot[r].state, SESSION_FREE);
			if (last != SESSION_NONE) /* no meaning in the first record */
				assert_int_equal(t->cold[r].free_prev, last);
			assert_int_equal(t->cold[r].commit, 0);
			last = r;
			free++;
		}
		assert_int_equal(free + listed, t->top);
		live += listed;
	}
	return live;
}

/* Adds `sessions` random sessions. */
static inline void place_fill(struct network *n, uint64_t sessions)
{
	struct session_table *t;
	uint32_t record;

	for (uint64_t done = 0; done < sessions;)
		done += network_create(n, &t, &record) == NETWORK_INSERTED;
}

#endif
