// SPDX-License-Identifier: Apache-2.0
/*
 * The transactions accepted since the last snapshot: a forwarder restores them after it was killed.
 *
 *     0        8         12   16
 *     | magic  | version | 0  | entry | entry | …
 *
 *     entry    0        4        8          16
 *              | length | CRC-32C | revision | ApplyRequest (protobuf), length bytes |
 *
 * Numbers are little-endian. The checksum covers revision and message; revision is the
 * configuration's revision after the entry. The messages of a transaction with several requests are
 * concatenated, which protobuf reads as one message with all their changes.
 *
 * The journal is never synced: it covers a crash of the process. After a power loss no sessions
 * exist that could need a change.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_hash_crc.h>

#include "access_model.h"
#include "model.h"
#include "saved.h"

struct journal_header {
	char magic[8];
	uint32_t version, zero;
};
_Static_assert(sizeof(struct journal_header) == 16, "a file format");

struct journal_entry {
	uint32_t length, crc;
	uint64_t revision;
};
_Static_assert(sizeof(struct journal_entry) == 16, "a file format");

#define JOURNAL_MAGIC   "STLYARDJ"
#define JOURNAL_VERSION 1u
#define JOURNAL_LONG    (8u << 20) /* bytes */

uint32_t journal_crc(uint64_t revision, const uint8_t *bytes, uint32_t len)
{
	/* The initial value is not 0, or else zeros, which a power loss may leave, would be valid
	 * entries. */
	uint32_t crc = rte_hash_crc_8byte(revision, UINT32_MAX);
	uint64_t word;
	for (; len >= sizeof(word); len -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word)); /* may be unaligned */
		crc = rte_hash_crc_8byte(word, crc);
	}
	while (len-- > 0)
		crc = rte_hash_crc_1byte(*bytes++, crc);
	return crc;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Serializes one transaction as an entry. Returns NULL without memory. */
static uint8_t *entry_pack(uint64_t revision, pb_request *const *requests, unsigned count,
                           size_t *len)
{
	struct journal_entry entry = {.revision = revision};
	size_t capacity = sizeof(entry), at = sizeof(entry);
	for (unsigned i = 0; i < count; i++)
		capacity += steelyard__forwarder__v1__apply_request__get_packed_size(
		        requests[i]->apply);
	uint8_t *out = malloc(capacity);
	if (!out)
		return NULL;
	for (unsigned i = 0; i < count; i++)
		at += steelyard__forwarder__v1__apply_request__pack(requests[i]->apply, out + at);
	entry.length = (uint32_t)(at - sizeof(entry));
	entry.crc = journal_crc(revision, out + sizeof(entry), entry.length);
	memcpy(out, &entry, sizeof(entry));
	*len = at;
	return out;
}

/* An entry after a missing one would be wrong: stops writing until the next snapshot. */
static void journal_break(struct journal *j, int rc)
{
	if (ftruncate(j->fd, (off_t)j->size) < 0 || !j->complained)
		sy_log(SY_LOG_WARN, "balance",
		       "the journal cannot be written: %s; a change may be lost if this process is "
		       "killed before the configuration is saved",
		       strerror(-rc));
	j->broken = j->complained = true;
}

void journal_append(struct sy_balance *b, pb_request *const *requests, unsigned count)
{
	struct journal *j = &b->ctl->journal;
	size_t len;
	if (j->fd < 0 || j->broken)
		return;
	uint8_t *bytes = entry_pack(b->ctl->model->revision + 1, requests, count, &len);
	int rc = bytes ? saved_write(j->fd, bytes, len) : -ENOMEM;
	free(bytes);
	if (rc < 0) {
		journal_break(j, rc);
		return;
	}
	j->complained = false;
	j->size += len;
}

void journal_clear(struct sy_balance *b)
{
	struct journal *j = &b->ctl->journal;
	if (j->fd < 0 || ftruncate(j->fd, sizeof(struct journal_header)) < 0)
		return; /* harmless: by their revisions the snapshot contains the entries */
	j->size = sizeof(struct journal_header);
	j->broken = false;
}

bool journal_is_long(const struct sy_balance *b)
{
	return b->ctl->journal.size > JOURNAL_LONG;
}

static int journal_open(struct journal *j, const char *path)
{
	const struct journal_header header = {.magic = JOURNAL_MAGIC, .version = JOURNAL_VERSION};
	struct stat st;
	int rc = 0;
	j->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (j->fd < 0)
		return -errno;
	if (fstat(j->fd, &st) < 0)
		rc = -errno;
	else if (st.st_size == 0)
		rc = saved_write(j->fd, &header, sizeof(header));
	if (rc < 0) {
		close(j->fd);
		j->fd = -1;
		return rc;
	}
	j->size = st.st_size ? (uint64_t)st.st_size : sizeof(header);
	return 0;
}

void journal_close(struct sy_balance *b)
{
	if (b->ctl->journal.fd >= 0)
		close(b->ctl->journal.fd);
	b->ctl->journal.fd = -1;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int apply_changes(struct sy_balance *b, const void *request, struct sy_error *err)
{
	const Steelyard__Forwarder__V1__ApplyRequest *apply = request;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < apply->n_changes; i++) {
		/* Skip a change of an unknown kind: it is noted as newer. */
		bool skip = b->ctl->lenient &&
		            apply->changes[i]->kind_case ==
		                    STEELYARD__FORWARDER__V1__CHANGE__KIND__NOT_SET &&
		            apply->changes[i]->base.n_unknown_fields > 0;
		rc = skip ? 0 : model_change_apply(b, apply->changes[i], err);
	}
	return rc;
}

static enum journal_stop apply_entry(struct sy_balance *b, const struct journal_entry *e,
                                     const uint8_t *bytes, struct sy_error *err)
{
	Steelyard__Forwarder__V1__ApplyRequest *apply =
	        steelyard__forwarder__v1__apply_request__unpack(NULL, e->length, bytes);
	if (!apply) {
		sy_fail(err, EINVAL, "revision %" PRIu64 " cannot be read", e->revision);
		return JOURNAL_DAMAGED;
	}
	int rc = saved_check_newer(b, &apply->base, err);
	for (size_t i = 0; rc == 0 && i < apply->n_changes; i++)
		if (apply->changes[i]->kind_case ==
		    STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_ACCESS_SET)
			set_file_load(b, apply->changes[i]->put_access_set);
	b->ctl->access->restoring = true;
	if (rc == 0)
		rc = model_transact(b, apply_changes, apply, err);
	b->ctl->access->restoring = false;
	steelyard__forwarder__v1__apply_request__free_unpacked(apply, NULL);
	if (rc == 0)
		return JOURNAL_END;
	sy_fail_in(err, "revision %" PRIu64, e->revision);
	return saved_is_refused(rc) ? JOURNAL_REFUSED : JOURNAL_FAILED;
}

static enum journal_stop header_check(const uint8_t *bytes, size_t len, struct sy_error *err)
{
	struct journal_header h;
	if (len < sizeof(h))
		return JOURNAL_TORN;
	memcpy(&h, bytes, sizeof(h));
	if (memcmp(h.magic, JOURNAL_MAGIC, sizeof(h.magic)) != 0)
		sy_fail(err, EINVAL, "not a journal of steelyard-forwarder");
	else if (h.version != JOURNAL_VERSION)
		sy_fail(err, EINVAL, "version %u, while this forwarder writes %u", h.version,
		        JOURNAL_VERSION);
	else
		return JOURNAL_END;
	return JOURNAL_DAMAGED;
}

/* Reads the entry at *at, and checks that it is complete. */
static enum journal_stop entry_check(const uint8_t *bytes, size_t left, struct journal_entry *e,
                                     struct sy_error *err)
{
	if (left < sizeof(*e))
		return JOURNAL_TORN;
	memcpy(e, bytes, sizeof(*e));
	if (e->length > left - sizeof(*e))
		return JOURNAL_TORN;
	if (journal_crc(e->revision, bytes + sizeof(*e), e->length) == e->crc)
		return JOURNAL_END;
	sy_fail(err, EINVAL, "an entry's checksum is wrong");
	return JOURNAL_DAMAGED;
}

enum journal_stop journal_replay(struct sy_balance *b, const uint8_t *bytes, size_t len, size_t *at,
                                 struct sy_error *err)
{
	struct journal_entry e;
	enum journal_stop stop = JOURNAL_END;
	if (*at == 0) {
		stop = header_check(bytes, len, err);
		if (stop != JOURNAL_END)
			return stop;
		*at = sizeof(struct journal_header);
	}
	for (; *at < len; *at += sizeof(e) + e.length) {
		stop = entry_check(bytes + *at, len - *at, &e, err);
		if (stop != JOURNAL_END)
			return stop;
		if (e.revision <= b->ctl->model->revision)
			continue;
		if (e.revision != b->ctl->model->revision + 1) {
			sy_fail(err, EINVAL, "revision %" PRIu64 " follows %" PRIu64, e.revision,
			        b->ctl->model->revision);
			return JOURNAL_DAMAGED;
		}
		stop = apply_entry(b, &e, bytes + *at + sizeof(e), err);
		if (stop != JOURNAL_END)
			return stop;
	}
	return JOURNAL_END;
}

/* Reads the whole file; NULL with err, code ENOENT if it does not exist. */
static uint8_t *journal_read(const char *path, size_t *len, struct sy_error *err)
{
	struct stat st;
	uint8_t *bytes = NULL;
	ssize_t n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		n = -1;
	else if (!(bytes = malloc((size_t)st.st_size + 1)))
		errno = ENOMEM;
	*len = 0;
	while (bytes && *len < (size_t)st.st_size &&
	       (n = read(fd, bytes + *len, (size_t)st.st_size - *len)) > 0)
		*len += (size_t)n;
	if (!bytes || n < 0) {
		sy_fail(err, errno, "%s: %s", path, strerror(errno));
		free(bytes);
		bytes = NULL;
	}
	if (fd >= 0)
		close(fd);
	return bytes;
}

/* Saves the applied entries in a snapshot first; otherwise they would be lost with the rest. */
static void journal_put_aside(struct sy_balance *b, const char *path, const struct sy_error *why)
{
	char aside[PATH_MAX];
	struct sy_error err = {0};
	saved_path(b, "journal", ".damaged", aside);
	if (b->ctl->unsaved && config_file_save(b, &err) < 0)
		sy_log(SY_LOG_WARN, "balance", "%s", err.text);
	rename(path, aside);
	sy_log(SY_LOG_WARN, "balance",
	       "journal %s refused: %s; kept as %s, continuing with revision %" PRIu64, path,
	       why->text, aside, b->ctl->model->revision);
}

static int journal_apply(struct sy_balance *b, const char *path, struct sy_error *err)
{
	size_t len, at = 0;
	uint64_t before = b->ctl->model->revision;
	uint8_t *bytes = journal_read(path, &len, err);
	if (!bytes)
		return err->code == ENOENT ? 0 : -err->code;
	enum journal_stop stop = journal_replay(b, bytes, len, &at, err);
	free(bytes);
	if (b->ctl->model->revision != before) {
		b->ctl->unsaved = true;
		sy_log(SY_LOG_INFO, "balance",
		       "journal: %" PRIu64 " transactions since the configuration was saved",
		       b->ctl->model->revision - before);
	}
	switch (stop) {
	case JOURNAL_END:
		break;
	case JOURNAL_TORN:
		sy_log(SY_LOG_INFO, "balance",
		       "journal: the last change was incomplete: its forwarder ended while writing "
		       "it");
		if (truncate(path, (off_t)at) < 0)
			return sy_fail(err, errno, "%s: %s", path, strerror(errno));
		break;
	case JOURNAL_REFUSED:
		if (b->options.inherit) /* the predecessor, which wrote it, starts again */
			return sy_fail_in(err, "journal %s", path);
		/* fall through */
	case JOURNAL_DAMAGED:
		journal_put_aside(b, path, err);
		break;
	case JOURNAL_FAILED:
		return sy_fail_in(err, "journal %s", path);
	}
	return 0;
}

int journal_load(struct sy_balance *b, struct sy_error *err)
{
	char path[PATH_MAX];
	if (!b->options.state_directory)
		return 0;
	saved_path(b, "journal", "", path);
	int rc = journal_apply(b, path, err);
	if (rc < 0)
		return rc;
	rc = journal_open(&b->ctl->journal, path);
	if (rc < 0)
		sy_log(SY_LOG_WARN, "balance",
		       "%s: %s: a change may be lost if this process is killed within a second",
		       path, strerror(-rc));
	return 0;
}
