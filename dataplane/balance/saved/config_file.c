// SPDX-License-Identifier: Apache-2.0
/*
 * The last accepted configuration: a forwarder starts with it without its agent.
 *
 *     0        8         12       16       20
 *     | magic  | version | CRC-32C | length | Config (protobuf), length bytes |
 *
 * Numbers are little-endian; the checksum covers the message.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_hash_crc.h>
#include <sy_lock.h>

#include "access_model.h"
#include "model_message.h"
#include "saved.h"

struct config_header {
	char magic[8];
	uint32_t version, crc, length;
};
_Static_assert(sizeof(struct config_header) == 20, "a file format");

#define CONFIG_MAGIC   "STLYARDC"
#define CONFIG_VERSION 1u
#define CONFIG_MAX     (1u << 30)
#define SAVE_PERIOD_NS UINT64_C(1000000000)

void saved_path(const struct sy_balance *b, const char *name, const char *suffix,
                char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s/%s%s", b->options.state_directory, name, suffix);
}

int saved_lock(struct sy_balance *b, struct sy_error *err)
{
	const char *path = b->options.state_directory;
	if (!path)
		return 0;
	b->ctl->state_lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (b->ctl->state_lock < 0)
		return sy_fail(err, errno, "%s: %s", path, strerror(errno));
	struct stat st;
	/* Any user who can read the directory could hold its lock; no user needs to list it. */
	if (fstat(b->ctl->state_lock, &st) == 0 && st.st_mode & 0066)
		(void)fchmod(b->ctl->state_lock, st.st_mode & 07711);
	if (sy_lock(b->ctl->state_lock, 0))
		return 0;
	saved_unlock(b);
	return sy_fail(err, EBUSY,
	               "the state directory %s is another running forwarder's: stop it, or give "
	               "this one its own by --state",
	               path);
}

void saved_unlock(struct sy_balance *b)
{
	if (b->ctl->state_lock >= 0)
		close(b->ctl->state_lock);
	b->ctl->state_lock = -1;
}

bool saved_is_refused(int rc)
{
	return rc == -EINVAL || rc == -EADDRINUSE || rc == -ENOSPC || rc == -ENOTSUP;
}

int saved_write(int fd, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;
	while (len > 0) {
		ssize_t n = write(fd, p, len);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* A rename must also survive a power loss. */
int saved_directory_sync(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int rc = fsync(fd) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

/* Temporary file, fsync, rename: after a crash the file is the old or the new one, never a
 * mixture. */
static int config_write(struct sy_balance *b, const struct config_header *header,
                        const uint8_t *bytes, struct sy_error *err)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	saved_path(b, "config", "", path);
	saved_path(b, "config", ".new", temporary);
	int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return sy_fail(err, errno, "%s: %s", temporary, strerror(errno));
	int rc = saved_write(fd, header, sizeof(*header));
	if (rc == 0)
		rc = saved_write(fd, bytes, header->length);
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	close(fd);
	if (rc == 0 && rename(temporary, path) < 0)
		rc = -errno;
	if (rc == 0)
		rc = saved_directory_sync(b->options.state_directory);
	if (rc < 0) {
		unlink(temporary);
		return sy_fail(err, -rc, "%s: %s", path, strerror(-rc));
	}
	return 0;
}

int config_file_save(struct sy_balance *b, struct sy_error *err)
{
	struct arena arena = {0};
	Steelyard__Forwarder__V1__Config *config;
	if (!b->options.state_directory)
		return 0;
	int rc = reply_config(b, 0, REPLY_ALL, &arena, &config, err);
	if (rc == 0) {
		size_t len = steelyard__forwarder__v1__config__get_packed_size(config);
		uint8_t *bytes = malloc(len + 1);
		if (bytes) {
			steelyard__forwarder__v1__config__pack(config, bytes);
			const struct config_header header = {
			        .magic = CONFIG_MAGIC,
			        .version = CONFIG_VERSION,
			        .crc = rte_hash_crc(bytes, (uint32_t)len, 0),
			        .length = (uint32_t)len,
			};
			rc = config_write(b, &header, bytes, err);
		} else {
			rc = sy_fail(err, ENOMEM, "no memory");
		}
		free(bytes);
	}
	arena_free(&arena);
	return rc;
}

void config_file_flush(struct sy_balance *b, bool now)
{
	struct sy_error *err = &b->ctl->save_error;
	uint64_t clock = sy_clock_ns();
	/* during a transaction the model is not an accepted configuration */
	if (!b->ctl->unsaved || b->ctl->hold || !b->ctl->owner || !b->ctl->store ||
	    b->ctl->model->open)
		return;
	now |= journal_is_long(b) && !b->ctl->save_failed;
	if (!now && clock - b->ctl->saved_ns < SAVE_PERIOD_NS)
		return;
	b->ctl->saved_ns = clock;
	if (config_file_save(b, err) == 0) {
		b->ctl->unsaved = b->ctl->save_failed = false;
		journal_clear(b);
		set_files_collect(b);
		return;
	}
	if (!b->ctl->save_failed)
		sy_log(SY_LOG_WARN, "balance",
		       "the configuration is in effect but not saved: %s; retrying", err->text);
	b->ctl->save_failed = true;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Reads the whole message. Returns NULL with err. */
static Steelyard__Forwarder__V1__Config *config_read(int fd, struct sy_error *err)
{
	struct config_header h;
	if (read(fd, &h, sizeof(h)) != sizeof(h) ||
	    memcmp(h.magic, CONFIG_MAGIC, sizeof(h.magic)) != 0) {
		sy_fail(err, EINVAL, "not a configuration of steelyard-forwarder");
		return NULL;
	}
	if (h.version != CONFIG_VERSION) {
		sy_fail(err, EINVAL, "version %u, while this forwarder writes %u", h.version,
		        CONFIG_VERSION);
		return NULL;
	}
	uint8_t *bytes = h.length <= CONFIG_MAX ? malloc(h.length + 1) : NULL;
	Steelyard__Forwarder__V1__Config *config = NULL;
	size_t have = 0;
	ssize_t n;
	while (bytes && have < h.length && (n = read(fd, bytes + have, h.length - have)) > 0)
		have += (size_t)n;
	if (!bytes || have < h.length)
		sy_fail(err, EINVAL, "cut off: %zu of %u bytes", have, h.length);
	else if (rte_hash_crc(bytes, h.length, 0) != h.crc)
		sy_fail(err, EINVAL, "its checksum is wrong");
	else if (!(config = steelyard__forwarder__v1__config__unpack(NULL, h.length, bytes)))
		sy_fail(err, EINVAL, "its message cannot be read");
	free(bytes);
	return config;
}

static int config_apply(struct sy_balance *b, const void *message, struct sy_error *err)
{
	const Steelyard__Forwarder__V1__Config *config = message;
	model_change change = STEELYARD__FORWARDER__V1__CHANGE__INIT;
	int rc = 0;
	change.kind_case = STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_LOCAL_ADDRESS;
	for (size_t i = 0; rc == 0 && i < config->n_local_addresses; i++) {
		change.put_local_address = config->local_addresses[i];
		rc = model_change_apply(b, &change, err);
	}
	change.kind_case = STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_ACCESS_SET;
	for (size_t i = 0; rc == 0 && i < config->n_access_sets; i++) {
		change.put_access_set = config->access_sets[i];
		rc = model_change_apply(b, &change, err);
	}
	change.kind_case = STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_ACCESS_LIST;
	for (size_t i = 0; rc == 0 && i < config->n_access_lists; i++) {
		change.put_access_list = config->access_lists[i];
		rc = model_change_apply(b, &change, err);
	}
	change.kind_case = STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_GLOBAL_ACCESS;
	change.put_global_access = config->global_access;
	if (rc == 0 && *config->global_access)
		rc = model_change_apply(b, &change, err);
	for (size_t i = 0; rc == 0 && i < config->n_entries; i++) {
		const Steelyard__Forwarder__V1__Config__Entry *e = config->entries[i];
		if (!e->service)
			return sy_fail(err, EINVAL, "an entry has no service");
		change.kind_case = STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SERVICE;
		change.put_service = e->service;
		rc = model_change_apply(b, &change, err);
		Steelyard__Forwarder__V1__Change__ServerOf of =
		        STEELYARD__FORWARDER__V1__CHANGE__SERVER_OF__INIT;
		change.kind_case = STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SERVER;
		change.put_server = &of;
		of.service = e->service->key;
		for (size_t n = 0; rc == 0 && n < e->n_servers; n++) {
			of.server = e->servers[n];
			rc = model_change_apply(b, &change, err);
		}
	}
	change.kind_case = STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SNAT;
	for (size_t i = 0; rc == 0 && i < config->n_snat; i++) {
		change.put_snat = config->snat[i];
		rc = model_change_apply(b, &change, err);
	}
	change.kind_case = STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_LIMIT;
	for (size_t i = 0; rc == 0 && i < config->n_limits; i++) {
		change.put_limit = config->limits[i];
		rc = model_change_apply(b, &change, err);
	}
	change.kind_case = STEELYARD__FORWARDER__V1__CHANGE__KIND_PUT_SHAPING;
	for (size_t i = 0; rc == 0 && i < config->n_shaping; i++) {
		change.put_shaping = config->shaping[i];
		rc = model_change_apply(b, &change, err);
	}
	return rc;
}

int saved_check_newer(struct sy_balance *b, const ProtobufCMessage *m, struct sy_error *err)
{
	if (!b->ctl->lenient)
		return newer_refuse(m, err);
	newer_find(m, &b->ctl->newer);
	return 0;
}

static int config_restore(struct sy_balance *b, int fd, struct sy_error *err)
{
	Steelyard__Forwarder__V1__Config *config = config_read(fd, err);
	if (!config)
		return -EINVAL;
	int rc = saved_check_newer(b, &config->base, err);
	for (size_t i = 0; rc == 0 && i < config->n_access_sets; i++)
		set_file_load(b, config->access_sets[i]);
	b->ctl->access->restoring = true;
	if (rc == 0)
		rc = model_transact(b, config_apply, config, err);
	b->ctl->access->restoring = false;
	if (rc == 0) {
		b->ctl->model->revision = config->revision;
		sy_log(SY_LOG_INFO, "balance",
		       "starting from the saved configuration: %u services, "
		       "%u servers",
		       b->ctl->model->services, b->ctl->model->servers);
	}
	steelyard__forwarder__v1__config__free_unpacked(config, NULL);
	return rc;
}

/* Keeps the file of a newer version beside the one that will replace it. */
static void config_keep_newer(const struct sy_balance *b, const char *path)
{
	char newer[PATH_MAX];
	saved_path(b, "config", SAVED_NEWER, newer);
	unlink(newer);
	if (link(path, newer) < 0)
		sy_log(SY_LOG_WARN, "balance", "%s: %s", newer, strerror(errno));
}

int config_file_load(struct sy_balance *b, struct sy_error *err)
{
	char path[PATH_MAX], aside[PATH_MAX];
	if (!b->options.state_directory)
		return 0;
	saved_path(b, "config", "", path);
	saved_path(b, "config", ".damaged", aside);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : sy_fail(err, errno, "%s: %s", path, strerror(errno));
	int rc = config_restore(b, fd, err);
	close(fd);
	if (rc == 0 && b->ctl->newer.count > 0) {
		config_keep_newer(b, path);
		b->ctl->unsaved =
		        true; /* otherwise settings without effect would fail the next upgrade */
	}
	if (saved_is_refused(rc) && b->ctl->owner) {
		rename(path, aside);
		sy_log(SY_LOG_WARN, "balance",
		       "saved configuration %s refused: %s; kept as %s, starting without services",
		       path, err->text, aside);
		rc = 0;
	}
	return rc < 0 ? sy_fail_in(err, "saved configuration %s", path) : 0;
}
