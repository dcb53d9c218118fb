// SPDX-License-Identifier: Apache-2.0
/*
 * The file's lifecycle: found or created, owned, sealed, released. Every function holds the file's
 * lock from validation to release; session_store_acquire() gets the lock from a running process.
 */
#include "session_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sy_lock.h>

#define REFUSED_SUFFIX ".refused"
#define ACQUIRE_TRIES  1000 /* tries of 1 ms each, for the lock of a process that is stopping */

/* ---- files ----------------------------------------------------------------------------------- */

void session_store_beside(const struct session_store *s, const char *suffix,
                          char out[static PATH_MAX])
{
	/* session_store_open() has checked that it fits */
	memcpy(out, s->path, strlen(s->path));
	memcpy(out + strlen(s->path), suffix, strlen(suffix) + 1);
}

/* Does the path still name this file? Another process may have replaced it since the open. */
static bool file_has_path(int fd, const char *path)
{
	struct stat file, named;

	return fstat(fd, &file) == 0 && lstat(path, &named) == 0 && file.st_ino == named.st_ino &&
	       file.st_dev == named.st_dev;
}

static int file_check_and_lock(int fd, const char *path, struct sy_error *err)
{
	struct stat st;

	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return sy_fail(err, EINVAL,
		               "session table: %.200s is not a regular file: remove it", path);
	if (!sy_lock(fd, 0) || !file_has_path(fd, path))
		return sy_fail(err, EBUSY,
		               "session table: %.150s belongs to another running forwarder: stop "
		               "it or give this one another name",
		               path);
	return 0;
}

int session_file_open(const char *path, int flags, struct sy_error *err)
{
	int fd = open(path, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return sy_fail(err, errno == EEXIST ? EBUSY : errno,
		               "session table: cannot open %.200s: %s%s", path, strerror(errno),
		               errno == EISDIR || errno == ELOOP ? "; remove it" : "");
	int rc = file_check_and_lock(fd, path, err);
	if (rc != 0) {
		close(fd);
		return rc;
	}
	return fd;
}

/* Checks a header read from a file that has `size` bytes. */
static enum session_file_state header_examine(struct session_store *s, int fd,
                                              const struct session_file *header, uint64_t size)
{
	uint64_t locations[SY_SLOTS] = {0};
	enum session_file_state state =
	        session_file_examine(header, size, s->boot, s->owner, s->reason);
	if (state == SESSION_FILE_USABLE &&
	    (pread(fd, locations, sizeof(locations), SESSION_FILE_LOCATIONS) != sizeof(locations) ||
	     !session_locations_are_possible(header, locations, size))) {
		snprintf(s->reason, sizeof(s->reason), "its slots lie where they cannot");
		return SESSION_FILE_REFUSED;
	}
	if (state == SESSION_FILE_USABLE && s->slot_key_wanted != NULL &&
	    memcmp(&header->slot_key, s->slot_key_wanted, sizeof(header->slot_key)) != 0) {
		snprintf(s->reason, sizeof(s->reason), "its slots are of another key");
		return SESSION_FILE_REFUSED;
	}
	return state;
}

/* Reads and checks a file. USABLE: its size is in *size. */
static enum session_file_state file_examine(struct session_store *s, int fd, uint64_t *size)
{
	struct session_file header = {0};
	struct stat st;

	if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 07077) != 0 ||
	    st.st_nlink != 1) {
		snprintf(s->reason, sizeof(s->reason),
		         "it was not made private: owner, mode or another name lets others in");
		return SESSION_FILE_REFUSED;
	}
	if (pread(fd, &header, sizeof(header), 0) < 0) {
		snprintf(s->reason, sizeof(s->reason), "it cannot be read: %s", strerror(errno));
		return SESSION_FILE_REFUSED;
	}
	*size = (uint64_t)st.st_size;
	enum session_file_state state = header_examine(s, fd, &header, *size);
	sy_secret_wipe(&header, sizeof(header)); /* it has keys */
	return state;
}

/* ---- a new file ------------------------------------------------------------------------------ */

/* Removes the file that was put aside: it may occupy the missing memory. */
static bool refused_drop(struct session_store *s)
{
	char refused[PATH_MAX];

	if (s->path[0] == '\0')
		return false;
	session_store_beside(s, REFUSED_SUFFIX, refused);
	if (unlink(refused) != 0)
		return false;
	sy_log(SY_LOG_WARN, "sessions", "%s was removed: its memory was needed", refused);
	if (s->found.refused[0] != '\0')
		snprintf(s->found.refused, sizeof(s->found.refused),
		         "%.70s cannot be adopted: %s: removed, as its memory was needed", s->path,
		         s->reason);
	return true;
}

/* Address space for slots that each grow to their share of the limit by doubling, with all their
 * earlier regions unused: three times the bytes. */
static uint64_t store_reserve(const struct session_store *s)
{
	uint64_t bytes = 3 * 64 * s->limit + s->wanted.size * SY_SLOTS + s->now.length;
	return bytes < SESSION_FILE_MAX ? bytes : SESSION_FILE_MAX;
}

int session_store_make(struct session_store *s, struct session_map *m, const char *path,
                       const struct sy_hash_key *key, const struct sy_slot_key *slot_key,
                       struct sy_error *err)
{
	struct session_file header = {0};

	session_file_layout(&header, &s->wanted, s->servers_wanted);
	m->reserved = store_reserve(s);
	if (m->fd >= 0 && (fchmod(m->fd, 0600) != 0 || ftruncate(m->fd, 0) != 0))
		return sy_fail(err, errno, "session table: cannot empty %.200s: %s", path,
		               strerror(errno));
	int rc = session_map_memory(m, path, header.file_size, err);
	if ((rc == -ENOMEM || rc == -ENOSPC) && refused_drop(s))
		rc = session_map_memory(m, path, header.file_size, err);
	if (rc != 0)
		return rc;
	header.file_size = m->length;
	header.key = *key;
	header.slot_key = *slot_key;
	memcpy(header.boot, s->boot, sizeof(header.boot));
	header.owner = s->owner;
	header.alive_ns = sy_clock_ns();
	header.path_half = s->path_half;
	if (m != &s->now) /* a file of another size: session_store_started() renames it */
		header.version = s->now.file->version;
	*m->file = header;
	sy_secret_wipe(&header, sizeof(header));
	if (m != &s->now) /* keeps cookies valid that were sent before */
		*session_file_secret(m->file) = *session_file_secret(s->now.file);
	rc = session_file_renew(m->file);
	return rc == 0 ? 0
	               : sy_fail(err, -rc, "session table: the kernel gives no random key: %s",
	                         strerror(-rc));
}

void session_store_tables(struct session_store *s)
{
	struct session_geometry g;

	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		session_slot_geometry(s->now.file, (uint8_t)slot, &g);
		session_table_init(&s->tables[slot], &s->index[slot], (uint8_t)slot,
		                   session_slot_region(s->now.file, (uint8_t)slot), &g);
	}
}

/* Starts port searches at random ports: after a restart, the next ports may be in TIME_WAIT at the
 * servers. */
static void store_scatter_cursors(struct session_store *s, uint8_t slot)
{
	for (uint32_t i = 0; i < SESSION_PORT_CURSORS; i++) {
		const struct sy_tuple location = {.sport = slot, .proto = i};
		*session_port_cursor(&s->tables[slot], i) =
		        (uint16_t)(sy_hash_tuple(session_store_key(s), &location) % SY_SLOT_PORTS);
	}
}

static int store_new(struct session_store *s, struct sy_error *err)
{
	struct sy_hash_key key;
	struct sy_slot_key slot_key;
	int rc = sy_hash_key_random(&key);

	if (s->slot_key_wanted != NULL)
		slot_key = *s->slot_key_wanted;
	else if (rc == 0)
		rc = sy_slot_key_random(&slot_key);
	if (rc != 0)
		return sy_fail(err, -rc, "session table: the kernel gives no random key: %s",
		               strerror(-rc));
	rc = session_store_make(s, &s->now, s->path, &key, &slot_key, err);
	sy_secret_wipe(&key, sizeof(key));
	sy_secret_wipe(&slot_key, sizeof(slot_key));
	if (rc != 0)
		return rc;
	session_file_finish(s->now.file);
	session_store_tables(s);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		store_scatter_cursors(s, (uint8_t)slot);
	s->mine = true;
	return 0;
}

/* ---- a file that was found ------------------------------------------------------------------- */

static int store_map_found(struct session_store *s, uint64_t size, struct sy_error *err)
{
	s->now.reserved = store_reserve(s);
	int rc = session_map_memory(&s->now, s->path, size, err);

	if (rc != 0)
		return rc;
	if (s->any_size)
		s->wanted = s->now.file->slot;
	s->path_half = 1 - (s->now.file->path_half & 1);
	s->due = true;
	session_store_tables(s);
	return 0;
}

static bool seal_is_whole(const struct session_seal *seal)
{
	return __atomic_load_n(&seal->check, __ATOMIC_ACQUIRE) == session_seal_check(seal);
}

/* Acquires ownership: notes how the last process left the file, and breaks its seal, so that a
 * crash of this process does not look like a clean stop. */
static void store_own(struct session_store *s)
{
	struct session_file *f = s->now.file;
	uint64_t now = sy_clock_ns();

	if (seal_is_whole(&f->seal)) {
		s->found.source = SESSION_SOURCE_STOPPED;
		f->alive_ns = f->seal.at_ns;
	} else {
		s->found.source = SESSION_SOURCE_CRASHED;
	}
	s->left_ns = f->alive_ns;
	s->found.away_ns = now > s->left_ns ? now - s->left_ns : 0;
	__atomic_store_n(&f->seal.check, 0, __ATOMIC_RELEASE);
	f->path_half = s->path_half;
	if (session_file_renew(f) != 0)
		sy_log(SY_LOG_WARN, "sessions", "the kernel gives no random key for cookies");
	s->mine = true;
}

static int store_put_aside(struct session_store *s, struct sy_error *err)
{
	char refused[PATH_MAX];

	session_store_beside(s, REFUSED_SUFFIX, refused);
	if (rename(s->path, refused) != 0)
		return sy_fail(err, errno,
		               "session table: %.100s cannot be adopted (%s), nor put aside: %s",
		               s->path, s->reason, strerror(errno));
	snprintf(s->found.refused, sizeof(s->found.refused),
	         "%.70s cannot be adopted: %s: kept as %.70s", s->path, s->reason, refused);
	sy_log(SY_LOG_WARN, "sessions", "%s", s->found.refused);
	close(s->now.fd);
	s->now.fd = session_file_open(s->path, O_CREAT | O_EXCL, err);
	return s->now.fd < 0 ? s->now.fd : 0;
}

static int store_open_file(struct session_store *s, struct sy_error *err)
{
	uint64_t size = 0;
	bool found = access(s->path, F_OK) == 0;
	int rc = session_file_open(s->path, O_CREAT, err);

	if (rc < 0)
		return rc;
	s->now.fd = rc;
	session_resize_clean(s);
	switch (file_examine(s, s->now.fd, &size)) {
	case SESSION_FILE_USABLE:
		rc = store_map_found(s, size, err);
		if (rc != 0)
			return rc;
		store_own(s);
		session_resize_begin(s);
		return 0;
	case SESSION_FILE_REFUSED:
		rc = store_put_aside(s, err);
		if (rc != 0)
			return rc;
		break;
	case SESSION_FILE_UNFINISHED:
		if (found)
			sy_log(SY_LOG_WARN, "sessions",
			       "%s was %s: an interrupted start, or damage; beginning without "
			       "sessions",
			       s->path, size == 0 ? "empty" : "unfinished");
		break;
	}
	rc = store_new(s, err);
	if (rc != 0)
		unlink(s->path);
	return rc;
}

/* A running process owns the file: only examines and maps it. */
static int store_inherit(struct session_store *s, struct sy_error *err)
{
	uint64_t size = 0;

	s->now.fd = open(s->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (s->now.fd < 0)
		return sy_fail(err, ENOENT, "session table: cannot open %.200s: %s", s->path,
		               strerror(errno));
	switch (file_examine(s, s->now.fd, &size)) {
	case SESSION_FILE_USABLE:
		break;
	case SESSION_FILE_UNFINISHED:
		snprintf(s->reason, sizeof(s->reason), "it is not finished");
		/* fall through */
	case SESSION_FILE_REFUSED:
		return sy_fail(err, ENOENT, "session table: %.100s cannot be taken over: %s",
		               s->path, s->reason);
	}
	int rc = store_map_found(s, size, err);
	if (rc == 0)
		s->found.source = SESSION_SOURCE_STOPPED;
	return rc;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int options_check(const struct session_store_options *o, struct sy_error *err)
{
	if (o->sessions > SESSIONS_MAX || o->limit > SESSIONS_MAX)
		return sy_fail(err, EINVAL,
		               "session table: --sessions must be between 1 and %" PRIu64,
		               SESSIONS_MAX);
	if (o->servers > SESSION_SERVERS_MAX)
		return sy_fail(err, EINVAL, "session table: --max-servers must be at most %" PRIu32,
		               SESSION_SERVERS_MAX);
	if (o->directory != NULL &&
	    strlen(o->directory) + strlen(o->name) + sizeof("/" REFUSED_SUFFIX) > PATH_MAX)
		return sy_fail(err, ENAMETOOLONG,
		               "session table: the path below %.60s… is too long", o->directory);
	if (o->directory == NULL && o->inherit)
		return sy_fail(err, ENOENT, "session table: there is no session file to take over");
	return 0;
}

static int store_open(struct session_store *s, const struct session_store_options *o,
                      struct sy_error *err)
{
	if (o->directory != NULL)
		snprintf(s->path, sizeof(s->path), "%s/%s", o->directory, o->name);
	session_store_size(s, o);
	s->servers_wanted = o->servers;
	s->owner = o->owner;
	s->slot_key_wanted = o->slot_key;
	if (o->directory == NULL)
		return store_new(s, err);
	int rc = session_boot_id(s->boot, err);
	if (rc != 0)
		return rc;
	return o->inherit ? store_inherit(s, err) : store_open_file(s, err);
}

int session_store_open(const struct session_store_options *options, struct session_store **out,
                       struct sy_error *err)
{
	int rc = options_check(options, err);
	if (rc != 0)
		return rc;
	size_t size = (sizeof(struct session_store) + SY_CACHE_LINE - 1) & -(size_t)SY_CACHE_LINE;
	struct session_store *s = aligned_alloc(SY_CACHE_LINE, size);
	if (s == NULL)
		return sy_fail(err, ENOMEM, "session table: out of memory");
	memset(s, 0, size);
	s->now.fd = s->old.fd = -1;
	rc = store_open(s, options, err);
	if (rc != 0) {
		session_store_close(s);
		return rc;
	}
	*out = s;
	return 0;
}

/* ---- hand-over between processes ------------------------------------------------------------- */

static int lock_wait(struct session_store *s, struct sy_error *err)
{
	for (unsigned i = 0; flock(s->now.fd, LOCK_EX | LOCK_NB) != 0; i++) {
		if (errno != EWOULDBLOCK || i == ACQUIRE_TRIES)
			return sy_fail(err, EBUSY,
			               "session table: the lock of %.150s is not released: %s",
			               s->path, strerror(errno));
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return 0;
}

/* Is this state possible for a table of this capacity? Below top, each session has one record, each
 * pair two; all others are on the free list. */
static bool state_is_possible(const struct session_slot_state *st, uint32_t capacity)
{
	if (st->live > st->top || st->top > capacity || st->sweep_at > capacity)
		return false;
	return st->free_head == SESSION_NONE ? st->top - st->live <= st->live
	                                     : st->free_head < st->top && st->live < st->top;
}

static bool store_trust(struct session_store *s)
{
	const struct session_slot_state *st = session_file_states(s->now.file);

	if (session_states_check(st) != s->now.file->seal.states)
		return false;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		if (!state_is_possible(&st[slot], s->tables[slot].capacity))
			return false;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		s->tables[slot].live = st[slot].live;
		s->tables[slot].top = st[slot].top;
		s->tables[slot].free_head = st[slot].free_head;
		session_table_recount(&s->tables[slot]);
	}
	return true;
}

int session_store_acquire(struct session_store *s, uint64_t ticket, struct sy_error *err)
{
	int rc = lock_wait(s, err);

	if (rc != 0)
		return rc;
	const struct session_file *f = s->now.file;
	if (ticket == 0 || !seal_is_whole(&f->seal) || f->seal.ticket != ticket ||
	    !file_has_path(s->now.fd, s->path)) {
		flock(s->now.fd, LOCK_UN);
		return sy_fail(err, EINVAL, "session table: %.150s was not sealed for this process",
		               s->path);
	}
	bool same_size = session_store_has_size(s);
	bool trusted = same_size && f->seal.settled != 0 && store_trust(s);
	store_own(s);
	if (trusted) {
		s->found.source = SESSION_SOURCE_HANDED_OVER;
		s->due = false;
		session_store_alive(s);
	} else {
		session_resize_begin(s);
	}
	return 0;
}

void session_store_seal(struct session_store *s, uint64_t ticket, bool settled)
{
	struct session_file *f = s->now.file;

	/* leave tables that were never adopted unchanged */
	if (s->mine && !s->due && s->now.fd >= 0) {
		struct session_slot_state *st = session_file_states(f);
		for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
			const struct session_table *t = &s->tables[slot];
			st[slot] = (struct session_slot_state){t->live, t->top, t->free_head,
			                                       t->sweep_at};
		}
		session_store_alive(s);
		f->seal.ticket = ticket;
		f->seal.at_ns = f->alive_ns;
		f->seal.states = session_states_check(st);
		f->seal.settled = settled;
		__atomic_store_n(&f->seal.check, session_seal_check(&f->seal), __ATOMIC_RELEASE);
	}
	session_store_close(s);
}

void session_store_alive(struct session_store *s)
{
	/* before adoption, keep the time of the last process, for another crash */
	if (s->mine && !s->due)
		__atomic_store_n(&s->now.file->alive_ns, sy_clock_ns(), __ATOMIC_RELAXED);
}

void session_store_started(struct session_store *s)
{
	__atomic_store_n(&s->now.file->version, SESSION_FILE_VERSION, __ATOMIC_RELEASE);
}

void session_store_close(struct session_store *s)
{
	if (s == NULL)
		return;
	if (s->old.file != NULL)
		session_resize_cancel(s);
	session_map_drop(&s->now);
	free(s);
}

void session_store_discard(struct session_store *s)
{
	if (s != NULL && s->mine && s->path[0] != '\0')
		unlink(s->path);
	session_store_close(s);
}
