// SPDX-License-Identifier: Apache-2.0
/*
 * What the state directory holds of the configuration: `config`, a snapshot, and `journal`, the
 * transactions accepted since. Control thread only. Without a state directory nothing happens.
 */
#ifndef SAVED_H
#define SAVED_H

#include <limits.h>

#include <forwarder.pb-c.h>

#include "balance.h"

typedef Steelyard__Forwarder__V1__Request pb_request;

/* ---- config_file.c: the snapshot
 * ---------------------------------------------------------------------------------- */

int config_file_save(struct sy_balance *b, struct sy_error *err);
/* Saves what is unsaved; unless `now`, at most once a second, as every health flip is a change. Not
 * while a transaction is under way or snapshots are held. */
void config_file_flush(struct sy_balance *b, bool now);
/* Applies it. A missing file is no error; a damaged one is kept aside as config.damaged, or with
 * `inherit`, as it is another's, refused with an error. */
int config_file_load(struct sy_balance *b, struct sy_error *err);

/* Two forwarders would write one journal: the state directory is locked for as long as it is ours.
 * -EBUSY if it is another's. */
int saved_lock(struct sy_balance *b, struct sy_error *err);
void saved_unlock(struct sy_balance *b);

/* DIR/name + suffix. */
void saved_path(const struct sy_balance *b, const char *name, const char *suffix,
                char out[PATH_MAX]);
/* 0 or a negative errno. */
int saved_write(int fd, const void *bytes, size_t len);
/* An error that a file's content has, and will have at the next start too; what is not (memory, lo
 * or nftables) may be better then. */
bool saved_is_refused(int rc);

/* ---- journal.c: what was accepted since
 * -------------------------------------------------------------------------- */

/* Applies what the snapshot does not hold, and opens the journal for more. An entry that is cut off
 * ends it; one that is damaged or refused puts the whole of it aside as journal.damaged. */
int journal_load(struct sy_balance *b, struct sy_error *err);
/* Before a transaction is published. What cannot be written is logged: the transaction goes on. */
void journal_append(struct sy_balance *b, pb_request *const *requests, unsigned count);
/* A snapshot holds all of it now. */
void journal_clear(struct sy_balance *b);
/* It has grown so much that a snapshot is due at once. */
bool journal_is_long(const struct sy_balance *b);
void journal_close(struct sy_balance *b);

/* The checksum of an entry. */
uint32_t journal_crc(uint64_t revision, const uint8_t *bytes, uint32_t len);

/* Why a journal's replay stopped. */
enum journal_stop {
	JOURNAL_END,
	JOURNAL_TORN,    /* in the middle of an entry, as a crash leaves it */
	JOURNAL_DAMAGED, /* what stands there was never written so */
	JOURNAL_REFUSED, /* an entry cannot be applied any more */
	JOURNAL_FAILED,  /* for now: err has the code */
};
/* Applies the entries of a journal's bytes, one transaction each, from byte *at on; moves *at
 * behind the last one applied. err says why unless END or TORN. */
enum journal_stop journal_replay(struct sy_balance *b, const uint8_t *bytes, size_t len, size_t *at,
                                 struct sy_error *err);

#endif
