// SPDX-License-Identifier: Apache-2.0
/*
 * The configuration in the state directory: `config`, a snapshot, `journal`, the transactions
 * accepted since, and `sets/DIGEST`, the data of sets that both name; `role` and `group`. Control
 * thread only. Without a state directory these functions do nothing.
 */
#ifndef SAVED_H
#define SAVED_H

#include <limits.h>

#include <forwarder.pb-c.h>

#include "balance.h"
#include "control_plane.h"
#include "set_data.h"

typedef Steelyard__Forwarder__V1__Request pb_request;

/* ---- config_file.c: the snapshot ------------------------------------------------------------- */

int config_file_save(struct sy_balance *b, struct sy_error *err);
/* Saves unsaved configuration. Unless `now`, at most once a second, because every health change
 * counts. Does nothing while a transaction is open or snapshots are suspended. */
void config_file_flush(struct sy_balance *b, bool now);
/* Loads and applies the snapshot. A missing file is no error. A damaged file is renamed to
 * config.damaged; with `inherit` it belongs to the predecessor, so it stays and the call fails. */
int config_file_load(struct sy_balance *b, struct sy_error *err);

/* Locks the state directory while this process owns it: two forwarders must not write one journal.
 * Fails with -EBUSY if another process holds the lock. */
int saved_lock(struct sy_balance *b, struct sy_error *err);
void saved_unlock(struct sy_balance *b);

/* DIR/name + suffix. */
void saved_path(const struct sy_balance *b, const char *name, const char *suffix,
                char out[PATH_MAX]);
/* 0 or a negative errno. */
int saved_write(int fd, const void *bytes, size_t len);
#define SAVED_NEWER ".newer"
/* Handles settings of a newer version in saved files: refuses them with -ENOTSUP, or notes them if
 * the start is lenient. */
int saved_check_newer(struct sy_balance *b, const ProtobufCMessage *m, struct sy_error *err);
/* Does the error come from the file's content, so that it would recur at the next start? Other
 * errors (memory, lo, nftables) may not recur. */
bool saved_is_refused(int rc);

/* ---- group_file.c ---------------------------------------------------------------------------- */

/* The group of which a client has made this forwarder a node. */
struct saved_group {
	char version[GROUP_VERSION];
	struct sy_peers_options peers; /* node 0: none */
	struct sy_slot_key slot_key;
};

/* Reads and checks a group. It contains secrets: wipe it after use. Fails with -EINVAL. */
int group_read(const Steelyard__Forwarder__V1__Group *g, struct saved_group *out,
               struct sy_error *err);
/* Overwrites the secrets of a message before it is freed. */
void group_wipe(Steelyard__Forwarder__V1__Group *g);
/* Loads the group from a state directory. Without directory or file: node 0. */
int group_file_load(const char *directory, struct saved_group *out, struct sy_error *err);
/* Saves the group so that it outlives a power loss; node 0 removes the file. 0 or a negative errno.
 */
int group_file_save(const char *directory, const Steelyard__Forwarder__V1__Group *g);

/* ---- role_file.c ----------------------------------------------------------------------------- */

/* The role of this node, and the one that was set: they differ while the change waits. */
struct saved_role {
	bool master, wanted_master;
};

/* Returns the saved role; a backup's if directory is NULL, or if it was saved in another boot of
 * this host, or not at all. */
struct saved_role role_file_load(const char *directory);
/* 0 or a negative errno. */
int role_file_save(const char *directory, struct saved_role role);

/* ---- set_file.c: the data of sets ---------------------------------------------------------------
 */

/* Writes sets/DIGEST in the directory so that it outlives a power loss. 0 or a negative errno. Any
 * thread. */
int set_file_write(const char *directory, const struct set_data *d);
/* Loads the data of this set, unless the balancer has it. On failure logs the reason; the set will
 * be empty. */
void set_file_load(struct sy_balance *b, const Steelyard__Forwarder__V1__AccessSet *set);
/* Call after a snapshot was written and the journal is empty: removes data that no set and no
 * sender's transaction refers to. Removes nothing while a newer configuration is set aside. */
void set_files_collect(struct sy_balance *b);
/* Fsyncs a directory. 0 or a negative errno. Any thread. */
int saved_directory_sync(const char *path);

/* ---- journal.c: transactions since the snapshot ---------------------------------------------- */

/* Applies the entries after the snapshot, and opens the journal for appending. A truncated entry
 * ends the replay; a damaged or refused entry moves the whole file to journal.damaged. */
int journal_load(struct sy_balance *b, struct sy_error *err);
/* Call before a transaction is published. Logs a write error; the transaction continues. */
void journal_append(struct sy_balance *b, pb_request *const *requests, unsigned count);
/* Call when a snapshot contains all entries. */
void journal_clear(struct sy_balance *b);
/* Is it so long that a snapshot is due at once? */
bool journal_is_long(const struct sy_balance *b);
void journal_close(struct sy_balance *b);

/* The checksum of an entry. */
uint32_t journal_crc(uint64_t revision, const uint8_t *bytes, uint32_t len);

/* Why a journal's replay stopped. */
enum journal_stop {
	JOURNAL_END,
	JOURNAL_TORN,    /* in the middle of an entry, as after a crash */
	JOURNAL_DAMAGED, /* bytes that were not written like this */
	JOURNAL_REFUSED, /* an entry can no longer be applied */
	JOURNAL_FAILED,  /* temporarily: err has the code */
};
/* Applies the entries in a journal's bytes, one transaction each, from byte *at on. Advances *at
 * past the last one applied. err says why, unless END or TORN. */
enum journal_stop journal_replay(struct sy_balance *b, const uint8_t *bytes, size_t len, size_t *at,
                                 struct sy_error *err);

#endif
