// SPDX-License-Identifier: Apache-2.0
/* Input: edits of a valid session file, or a whole file. It is opened, adopted and used; adopted
 * sessions behave like sessions created here.
 *
 *     mode │ edits: offset (3 bytes, modulo the file's size), length (1), bytes │ … */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../folder.h"
#include "fuzz.h"
#include "network.h"
#include "session_file.h"

#define SESSIONS 1024
#define LIVE     300
#define SERVERS  16
#define TICKET   42

enum mode {
	FIX_CHECKS = 1, /* correct the checksums after the edits */
	REPLACE = 2,    /* the rest of the input is the file */
	SEALED = 4,     /* for this process, which takes it over */
	RESIZE = 8,     /* into tables of another size */
	FIX_COMMITS = 16,
};

struct image {
	uint8_t *bytes;
	size_t size;
};

static char directory[FOLDER_NAME], path[FOLDER_NAME + 8];
static struct network network;
static struct image crashed, sealed;

/* ---- files ----------------------------------------------------------------------------------- */

static struct session_store_options options(bool resize)
{
	return (struct session_store_options){.sessions = resize ? 2 * SESSIONS : SESSIONS,
	                                      .servers = resize ? SERVERS / 2 : SERVERS,
	                                      .directory = directory,
	                                      .name = "table"};
}

static void file_write(const uint8_t *bytes, size_t size)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	close(fd);
}

static struct image file_read(void)
{
	struct image i = {.bytes = malloc(1 << 20)};
	int fd = open(path, O_RDONLY);
	CHECK(i.bytes && fd >= 0);
	i.size = (size_t)read(fd, i.bytes, 1 << 20);
	close(fd);
	return i;
}

static void directory_remove(void)
{
	char refused[80];
	snprintf(refused, sizeof(refused), "%s.refused", path);
	unlink(refused);
	unlink(path);
	rmdir(directory);
}

static struct session_store *store_open(bool resize, bool inherit)
{
	struct session_store_options o = options(resize);
	struct session_store *s;
	struct sy_error err;
	o.inherit = inherit;
	int rc = session_store_open(&o, &s, &err);
	CHECK(rc == 0 || inherit);
	return rc == 0 ? s : NULL;
}

static void images_make(void)
{
	struct session_table *t;
	uint32_t record;
	if (crashed.bytes)
		return;
	sy_slot_init();
	sy_log_set_level(SY_LOG_ERROR);
	CHECK(folder_make(directory, "/dev/shm"));
	atexit(directory_remove);
	snprintf(path, sizeof(path), "%s/table", directory);
	CHECK(network_init(&network, 4, SESSIONS, 1));
	network_use(&network, store_open(false, false));
	for (unsigned live = 0; live < LIVE;)
		live += network_create(&network, &t, &record) == NETWORK_INSERTED;
	for (uint32_t id = 0; id < SERVERS; id++)
		session_name_server(
		        network.store, id,
		        &(struct session_server_name){.addr = network.servers[id], .port = 80});
	crashed = file_read();
	session_store_seal(network.store, TICKET, true);
	sealed = file_read();
}

/* ---- changes --------------------------------------------------------------------------------- */

static void checks_fix(struct session_file *f)
{
	f->seal.states = session_states_check(session_file_states(f));
	f->seal.check = f->seal.check ? session_seal_check(&f->seal) : 0;
	f->check = session_file_check(f);
}

static void commits_fix(struct image *i)
{
	struct session_geometry g;
	session_geometry_choose(&g, SESSIONS);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		uint8_t *region = i->bytes + SESSION_FILE_FIRST + g.size * slot;
		const struct session *hot = (const struct session *)(region + g.hot_at);
		struct session_cold *cold = (struct session_cold *)(region + g.cold_at);
		for (uint32_t r = 0; r < g.records; r++)
			if (cold[r].commit)
				cold[r].commit = session_check(&hot[r]);
	}
}

static void file_make(const uint8_t *data, size_t size, unsigned mode)
{
	const struct image *from = mode & SEALED ? &sealed : &crashed;
	struct image i = {malloc(from->size), from->size};
	CHECK(i.bytes);
	memcpy(i.bytes, from->bytes, i.size);
	if (mode & REPLACE) {
		file_write(data, size);
		free(i.bytes);
		return;
	}
	while (size > 4) {
		size_t at = ((size_t)data[0] << 16 | (size_t)data[1] << 8 | data[2]) % i.size;
		size_t count = data[3], max = size - 4 < i.size - at ? size - 4 : i.size - at;
		count = count < max ? count : max;
		memcpy(i.bytes + at, data + 4, count);
		data += 4 + count;
		size -= 4 + count;
	}
	if (mode & FIX_COMMITS)
		commits_fix(&i);
	if (mode & FIX_CHECKS)
		checks_fix((struct session_file *)i.bytes);
	file_write(i.bytes, i.size);
	free(i.bytes);
}

/* ---- invariants ------------------------------------------------------------------------------ */

/* Returns whether records, index and free list of a table agree, and adds its live sessions. */
static bool table_is_consistent(const struct session_table *t, uint64_t *sum)
{
	uint32_t cursor = 0, live = 0, entries = 0, free = 0;
	for (uint32_t r; (r = session_next(t, &cursor)) != SESSION_NONE; live++)
		HOLDS(network_verify(&network, t, r));
	for (uint32_t b = 0; b < session_bucket_count(t->index); b++)
		entries += SESSION_BUCKET_ENTRIES -
		           (uint32_t)__builtin_popcount(
		                   session_bucket_match(&session_buckets(t->index)[b], 0));
	HOLDS(live == session_count(t) && entries == 2 * live && t->top <= t->capacity);
	for (uint32_t r = t->free_head; r != SESSION_NONE; r = t->cold[r].free_next)
		HOLDS(r < t->top && t->index->hot[r].state == SESSION_FREE && free++ < t->top);
	HOLDS(free + live == t->top);
	*sum += live;
	return true;
}

static bool store_is_consistent(uint64_t *live)
{
	*live = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		HOLDS(table_is_consistent(session_store_table(network.store, (uint8_t)slot), live));
	return true;
}

/* Creates and removes sessions. */
static void store_use(void)
{
	struct session_table *t, *last = NULL;
	uint32_t record, last_record = 0;
	for (unsigned i = 0; i < 40; i++) {
		if (network_create(&network, &t, &record) != NETWORK_INSERTED)
			continue;
		if (last)
			network_remove(&network, last, last_record);
		last = t;
		last_record = record;
	}
}

static void id_dictionary_read(const struct session_store *s)
{
	struct session_server_name name;
	struct sy_addr addr;
	for (uint32_t id = 0; id < session_servers(s); id++)
		session_server_named(s, id, &name);
	for (unsigned id = 0; id < SESSION_LOCALS; id++)
		session_local_named(s, (uint8_t)id, &addr);
}

static struct session_store *store_get(unsigned mode)
{
	if (!(mode & SEALED))
		return store_open(mode & RESIZE, false);
	struct session_store *s = store_open(mode & RESIZE, true);
	if (s && session_store_acquire(s, TICKET, NULL) == 0)
		return s;
	session_store_close(s);
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	images_make();
	unsigned mode = size > 0 ? *data : 0;
	file_make(data + (size > 0), size > 0 ? size - 1 : 0, mode);
	network.random = 7;
	struct session_store *s = store_get(mode);
	if (!s)
		return 0;
	id_dictionary_read(s);
	network_use(&network, s);
	enum session_source source = session_store_found(s)->source;
	uint64_t count[SESSION_RESULT_COUNT], live;
	const struct session_validator validator = network_validator(&network);
	if (source == SESSION_SOURCE_STOPPED || source == SESSION_SOURCE_CRASHED) {
		CHECK(session_store_adopt(s, &validator, 1, count, NULL) == 0);
		CHECK(store_is_consistent(&live));
		CHECK(live == count[SESSION_KEPT]);
	}
	/* A handed-over file is trusted without a check of its indices: an edited one is not used.
	 */
	if (source != SESSION_SOURCE_HANDED_OVER) {
		store_use();
		CHECK(store_is_consistent(&live));
	}
	session_store_discard(s);
	return 0;
}
