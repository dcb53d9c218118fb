// SPDX-License-Identifier: Apache-2.0
/* The file that holds all tables: its size, its memory, its header. */
#include "session_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Entry numbers have 31 bits for the record, in each of the slots. */
#define SESSIONS_MAX ((uint64_t)SY_SLOTS << 30)

/* Index load, in percent, when all records are in use: 0002-session-table.md has the arithmetic. */
#define INDEX_LOAD_PERCENT 97

struct session_store {
	void *memory;
	uint64_t length;
	int fd; /* keeps the file locked; -1: there is none */
	char path[PATH_MAX];
	struct session_table tables[SY_SLOTS];
};

/* ---- layout ---------------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t value, uint64_t step)
{
	return (value + step - 1) / step * step;
}

void session_geometry_init(struct session_geometry *g, uint32_t records, uint32_t buckets)
{
	g->records = records;
	g->buckets = buckets;
	g->cursors_at = 0;
	g->buckets_at = round_up(SESSION_PORT_CURSORS * sizeof(uint16_t), SY_CACHE_LINE);
	g->hot_at = g->buckets_at + (uint64_t)buckets * sizeof(struct session_bucket);
	g->cold_at = g->hot_at + (uint64_t)records * sizeof(struct session);
	g->size = g->cold_at + (uint64_t)records * sizeof(struct session_cold);
}

void session_geometry_choose(struct session_geometry *g, uint64_t sessions)
{
	uint64_t records = round_up((sessions + SY_SLOTS - 1) / SY_SLOTS, SESSION_RECORDS_STEP);
	uint64_t places = (2 * records * 100 + INDEX_LOAD_PERCENT - 1) / INDEX_LOAD_PERCENT;
	uint64_t buckets = (places + SESSION_BUCKET_PLACES - 1) / SESSION_BUCKET_PLACES;

	session_geometry_init(g, (uint32_t)records, (uint32_t)buckets);
}

uint64_t session_file_check(const struct session_file *f)
{
	const uint8_t *bytes = (const uint8_t *)f;
	uint64_t h = 0x9e3779b97f4a7c15;

	for (size_t i = 0; i < offsetof(struct session_file, check); i += sizeof(uint64_t)) {
		uint64_t word;
		memcpy(&word, bytes + i, sizeof(word));
		h = sy_hash_mix(h ^ word, 0xbf58476d1ce4e5b9);
	}
	return h | 1; /* never 0, which is what an unfinished file has */
}
_Static_assert(offsetof(struct session_file, check) % sizeof(uint64_t) == 0, "whole words");

/* ---- memory ---------------------------------------------------------------------------------- */

/* Ordinary memory: huge pages where the kernel has them, and all of it there before the first
 * packet, which must not fault. Both are improvements that an older kernel may not know. */
static void memory_settle(void *memory, uint64_t length)
{
	(void)madvise(memory, length, MADV_HUGEPAGE);
	(void)madvise(memory, length, MADV_POPULATE_WRITE);
}

static int store_map_anonymous(struct session_store *s, struct sy_error *err)
{
	s->length = round_up(s->length, (uint64_t)sysconf(_SC_PAGESIZE));
	s->memory =
	        mmap(NULL, s->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->memory == MAP_FAILED)
		return sy_fail(err, errno,
		               "session table: no %" PRIu64 " MiB of memory: lower --sessions",
		               s->length >> 20);
	memory_settle(s->memory, s->length);
	return 0;
}

/* Makes sure that the file is ours alone, and empties it: what an earlier process left in it is
 * given up. */
static int file_claim(int fd, const char *path, struct sy_error *err)
{
	struct stat st;

	if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &st) != 0 || st.st_nlink == 0)
		return sy_fail(err, EBUSY,
		               "session table: %s belongs to another running forwarder: stop it or "
		               "give this one another name",
		               path);
	if (!S_ISREG(st.st_mode))
		return sy_fail(err, EINVAL, "session table: %s is no regular file: remove it",
		               path);
	if (fchmod(fd, 0600) != 0 || ftruncate(fd, 0) != 0)
		return sy_fail(err, errno, "session table: cannot empty %s: %s", path,
		               strerror(errno));
	return 0;
}

static int store_open_file(struct session_store *s, struct sy_error *err)
{
	int fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return sy_fail(err, errno, "session table: cannot create %s: %s", s->path,
		               strerror(errno));
	int rc = file_claim(fd, s->path, err);
	if (rc != 0)
		close(fd);
	else
		s->fd = fd;
	return rc;
}

static int store_map_file(struct session_store *s, struct sy_error *err)
{
	struct statfs fs;
	int rc = store_open_file(s, err);

	if (rc != 0)
		return rc;
	if (fstatfs(s->fd, &fs) != 0)
		return sy_fail(err, errno, "session table: %s: %s", s->path, strerror(errno));
	bool huge = fs.f_type == HUGETLBFS_MAGIC;
	uint64_t page = huge ? (uint64_t)fs.f_bsize : (uint64_t)sysconf(_SC_PAGESIZE);
	s->length = round_up(s->length, page);
	/* elsewhere than on hugetlbfs, where mmap() reserves, room must be taken now: a full file
	 * system would kill the process at the first touch */
	rc = huge ? ftruncate(s->fd, (off_t)s->length) : fallocate(s->fd, 0, 0, (off_t)s->length);
	if (rc == 0)
		s->memory = mmap(NULL, s->length, PROT_READ | PROT_WRITE,
		                 MAP_SHARED | (huge ? MAP_POPULATE : 0), s->fd, 0);
	if (rc != 0 || s->memory == MAP_FAILED)
		return sy_fail(err, errno,
		               "session table: %s needs %" PRIu64 " pages of %" PRIu64
		               " kB: %s: %s or lower --sessions",
		               s->path, s->length / page, page >> 10, strerror(errno),
		               huge ? "raise sysctl vm.nr_hugepages" : "free some space");
	if (!huge)
		memory_settle(s->memory, s->length);
	return 0;
}

/* ---- the store ------------------------------------------------------------------------------- */

static int store_write_header(struct session_store *s, const struct session_geometry *g,
                              struct sy_error *err)
{
	struct session_file *f = s->memory;
	int rc = sy_hash_key_random(&f->key);

	if (rc != 0)
		return sy_fail(err, -rc, "session table: the kernel gives no random key: %s",
		               strerror(-rc));
	memcpy(f->magic, SESSION_FILE_MAGIC, sizeof(f->magic));
	f->version = SESSION_FILE_VERSION;
	f->bucket_size = sizeof(struct session_bucket);
	f->hot_size = sizeof(struct session);
	f->cold_size = sizeof(struct session_cold);
	f->cursors = SESSION_PORT_CURSORS;
	f->slots = SY_SLOTS;
	f->file_size = s->length;
	f->slot = *g;
	__atomic_store_n(&f->check, session_file_check(f), __ATOMIC_RELEASE);
	return 0;
}

/* Port searches begin anywhere, so that a restarted forwarder does not go through the ports that
 * servers still hold in TIME_WAIT. */
static void store_scatter_cursors(struct session_store *s, uint8_t slot)
{
	for (uint32_t i = 0; i < SESSION_PORT_CURSORS; i++) {
		const struct sy_tuple place = {.sport = slot, .proto = i};
		*session_port_cursor(&s->tables[slot], i) =
		        (uint16_t)(sy_hash_tuple(session_store_key(s), &place) % SY_SLOT_PORTS);
	}
}

static int store_fill(struct session_store *s, const struct session_store_options *options,
                      struct sy_error *err)
{
	struct session_geometry g;

	session_geometry_choose(&g, options->sessions);
	s->length = SESSION_FILE_FIRST + g.size * SY_SLOTS;
	int rc = options->directory ? store_map_file(s, err) : store_map_anonymous(s, err);
	if (rc == 0)
		rc = store_write_header(s, &g, err);
	if (rc != 0)
		return rc;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		session_table_init(&s->tables[slot], (uint8_t)slot,
		                   (uint8_t *)s->memory + SESSION_FILE_FIRST + g.size * slot, &g);
		store_scatter_cursors(s, (uint8_t)slot);
	}
	return 0;
}

int session_store_open(const struct session_store_options *options, struct session_store **out,
                       struct sy_error *err)
{
	if (options->sessions == 0 || options->sessions > SESSIONS_MAX)
		return sy_fail(err, EINVAL,
		               "session table: --sessions must be between 1 and %" PRIu64,
		               SESSIONS_MAX);

	struct session_store *s = aligned_alloc(SY_CACHE_LINE, round_up(sizeof(*s), SY_CACHE_LINE));
	if (s == NULL)
		return sy_fail(err, ENOMEM, "session table: out of memory");
	s->memory = MAP_FAILED;
	s->fd = -1;
	if (options->directory != NULL &&
	    snprintf(s->path, sizeof(s->path), "%s/%s", options->directory, options->name) >=
	            (int)sizeof(s->path)) {
		free(s);
		return sy_fail(err, ENAMETOOLONG,
		               "session table: the path below %.60s… is too long",
		               options->directory);
	}
	int rc = store_fill(s, options, err);
	if (rc != 0) {
		session_store_close(s);
		return rc;
	}
	*out = s;
	return 0;
}

void session_store_close(struct session_store *s)
{
	if (s == NULL)
		return;
	if (s->memory != MAP_FAILED)
		munmap(s->memory, s->length);
	if (s->fd >= 0) {
		unlink(s->path);
		close(s->fd);
	}
	free(s);
}

struct session_table *session_store_table(struct session_store *s, uint8_t slot)
{
	return &s->tables[slot];
}

uint64_t session_store_mapped(const struct session_store *s)
{
	return s->length + sizeof(*s);
}

const struct sy_hash_key *session_store_key(const struct session_store *s)
{
	return &((const struct session_file *)s->memory)->key;
}
