// SPDX-License-Identifier: Apache-2.0
/*
 * The data of sets in the state directory. A file is named by its digest, and never changes.
 *
 *     0        8         12       16
 *     | magic  | version | CRC-32C | data, as set_data.h says |
 *
 * Numbers are little-endian; the checksum covers the data.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access_model.h"
#include "saved.h"

struct set_file_header {
	char magic[8];
	uint32_t version, crc32c;
};
_Static_assert(sizeof(struct set_file_header) == 16, "a file format");

#define SET_MAGIC   "STLYARDS"
#define SET_VERSION 1u
#define NAME_LEN    (2 * SET_DIGEST + 1)

static void digest_name(const uint8_t *digest, char out[static NAME_LEN])
{
	for (unsigned i = 0; i < SET_DIGEST; i++)
		snprintf(out + (size_t)2 * i, 3, "%02x", digest[i]);
}

/* Writes and syncs a new file. */
static int file_fill(const char *path, const struct set_data *d)
{
	const struct set_file_header header = {
	        .magic = SET_MAGIC, .version = SET_VERSION, .crc32c = d->crc32c};
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int rc = saved_write(fd, &header, sizeof(header));
	if (rc == 0)
		rc = saved_write(fd, d->bytes, d->size);
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

int set_file_write(const char *directory, const struct set_data *d)
{
	char folder[PATH_MAX], path[PATH_MAX], temporary[PATH_MAX], name[NAME_LEN];
	digest_name(d->digest, name);
	if (snprintf(folder, sizeof(folder), "%s/sets", directory) >= PATH_MAX - 80)
		return -ENAMETOOLONG;
	if (mkdir(folder, 0700) == 0) {
		int rc = saved_directory_sync(directory);
		if (rc < 0)
			return rc;
	} else if (errno != EEXIST) {
		return -errno;
	}
	snprintf(path, sizeof(path), "%.4000s/%s", folder, name);
	snprintf(temporary, sizeof(temporary), "%.4000s/%s.new", folder, name);
	int rc = file_fill(temporary, d);
	if (rc == 0 && rename(temporary, path) < 0)
		rc = -errno;
	if (rc < 0) {
		unlink(temporary);
		return rc;
	}
	return saved_directory_sync(folder);
}

/* ---- loading --------------------------------------------------------------------------------- */

static int read_all(int fd, void *out, size_t len)
{
	uint8_t *at = out;
	while (len > 0) {
		ssize_t n = read(fd, at, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENODATA;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* NULL with err. */
static struct set_data *file_read(int fd, const uint8_t *digest, struct sy_error *err)
{
	struct set_file_header h;
	struct stat st;
	int rc = fstat(fd, &st) < 0 ? -errno : read_all(fd, &h, sizeof(h));
	if (rc < 0) {
		sy_fail(err, -rc, "%s", strerror(-rc));
		return NULL;
	}
	if (memcmp(h.magic, SET_MAGIC, sizeof(h.magic)) != 0 || h.version != SET_VERSION ||
	    (size_t)st.st_size - sizeof(h) > SET_SIZE_MAX) {
		sy_fail(err, EINVAL, "not a set of this version of steelyard-forwarder");
		return NULL;
	}
	struct set_data *d = set_data_alloc(digest, (size_t)st.st_size - sizeof(h), h.crc32c);
	rc = d ? read_all(fd, d->bytes, d->size) : -ENOMEM;
	if (rc < 0)
		sy_fail(err, -rc, "%s", strerror(-rc));
	else
		rc = set_data_check(d, err);
	if (rc < 0) {
		free(d);
		return NULL;
	}
	d->saved = true;
	return d;
}

void set_file_load(struct sy_balance *b, const Steelyard__Forwarder__V1__AccessSet *set)
{
	char path[PATH_MAX], name[NAME_LEN];
	struct sy_error err = {0};
	if (!b->options.state_directory || set->digest.len != SET_DIGEST ||
	    set_data_find(b, set->digest.data))
		return;
	digest_name(set->digest.data, name);
	saved_path(b, "sets/", name, path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct set_data *d = fd < 0 ? NULL : file_read(fd, set->digest.data, &err);
	if (fd < 0)
		sy_fail(&err, errno, "%s", strerror(errno));
	else
		close(fd);
	if (d)
		set_data_add(b, d, NULL);
	else
		sy_log(SY_LOG_WARN, "balance",
		       "access set %.63s: %s: %s; it is empty until the agent sends it again",
		       set->name, path, err.text);
}

/* ---- removing -------------------------------------------------------------------------------- */

static bool is_named(const uint8_t *digest, const char *file)
{
	char name[NAME_LEN];
	digest_name(digest, name);
	return strcmp(name, file) == 0;
}

/* Is the file in sets/ data of this process, or of a set that lacks it? The next start may be able
 * to read it. */
static bool is_needed(const struct sy_balance *b, const char *file)
{
	const struct access_model *m = b->ctl->access;
	for (const struct set_data *d = m->data; d; d = d->next)
		if (is_named(d->digest, file))
			return true;
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		if (m->now.set[bit] && m->now.set[bit]->missing &&
		    is_named(m->now.set[bit]->digest, file))
			return true;
	return false;
}

void set_files_collect(struct sy_balance *b)
{
	char path[PATH_MAX];
	const struct dirent *e;
	/* The newer configuration that was set aside may name sets that this process skipped. */
	if (!b->options.state_directory || b->ctl->access->saving || b->ctl->newer.count > 0)
		return;
	saved_path(b, "sets", "", path);
	DIR *folder = opendir(path);
	while (folder && (e = readdir(folder)))
		if (e->d_name[0] != '.' && !is_needed(b, e->d_name))
			unlinkat(dirfd(folder), e->d_name, 0);
	if (folder)
		closedir(folder);
}
