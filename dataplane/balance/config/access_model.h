// SPDX-License-Identifier: Apache-2.0
/* Access lists as configured, and their publishing. Control thread only. */
#ifndef ACCESS_MODEL_H
#define ACCESS_MODEL_H

#include <forwarder.pb-c.h>

#include "access.h"
#include "address_ranges.h"
#include "arena.h"
#include "model.h"
#include "set_data.h"

/* A configured list: immutable, shared by versions of the configuration. */
struct model_list {
	unsigned holders;
	char name[MODEL_NAME];
	uint8_t *packed; /* the message as received */
	size_t packed_len;
	uint64_t *rule_hash; /* by rule: an unchanged rule keeps its count */
	uint64_t *base;      /* by rule, then otherwise: the counter's sum at allocation */
	struct access_list *built;
	/* Sums of access_worker.ended at creation, at the last tick, and at the last log line. */
	uint64_t ended_base, ended_seen, ended_logged;
};

/* A configured set: immutable, likewise shared. */
struct model_set {
	unsigned holders;
	char name[MODEL_NAME];
	uint8_t *packed; /* the message as received */
	size_t packed_len;
	struct sy_prefix *prefix;     /* NULL: in data */
	struct set_data *data;        /* NULL: none, or missing */
	bool missing;                 /* its data could not be loaded: it is empty */
	uint8_t digest[SET_DIGEST];   /* of data, also while it is missing */
	uint32_t prefixes, prefixes4; /* all; those of IPv4, which come first */
};

/* The table for all sets of a version; shared by versions with the same sets. */
struct model_ranges {
	unsigned holders;
	struct address_ranges *built;
};

/* One version of the configuration. */
struct access_version {
	struct model_list *list[ACCESS_LISTS]; /* by id */
	struct model_set *set[ADDRESS_SETS];   /* by its bit in masks */
	struct model_ranges *ranges;           /* NULL: no sets */
	uint16_t global;                       /* id + 1; 0: none */
};

struct access_model {
	struct access_version now, before; /* before: during a transaction */
	bool touched, lists_deleted, sets_touched, sets_deleted;
	bool changed; /* lists, sets, or which service has which list, have changed */

	struct set_data *data;   /* all set data of this process: set_data.h */
	unsigned saving;         /* threads that write data to the state directory */
	bool restoring;          /* a set whose data is missing is empty, instead of an error */
	struct set_build *build; /* table for this transaction; NULL: not begun */

	struct access *next; /* checked, to be published */
	uint16_t counter_holders[ACCESS_COUNTERS];
	uint32_t counter_at; /* where the search for a free counter begins */
	uint64_t contexts;   /* rte_acl contexts created so far, for their names */
	size_t blocked;      /* networks that the flow directors drop */
	int block_failed;    /* negative errno: they drop none; 0: no fault */
	struct access_blocking
	        *blocking; /* background thread that computes the sources; NULL: none */
};

int access_model_create(struct sy_balance *b, struct sy_error *err);
void access_model_destroy(struct sy_balance *b);

/* A transaction's changes. */
int access_list_put(struct sy_balance *b, const Steelyard__Forwarder__V1__AccessList *pb,
                    struct sy_error *err);
int access_list_delete(struct sy_balance *b, const char *name, struct sy_error *err);
int access_global_put(struct sy_balance *b, const char *name, struct sy_error *err);
/* Looks up the list that a service names. */
int access_name_read(struct sy_balance *b, const char *service, const char *name, uint16_t *access,
                     struct sy_error *err);

int access_set_put(struct sy_balance *b, const Steelyard__Forwarder__V1__AccessSet *pb,
                   struct sy_error *err);
int access_set_delete(struct sy_balance *b, const char *name, struct sy_error *err);
/* Call before access_check(): builds a large table of sets in a background thread, and calls
 * ready(ctx) on the control thread when it is done. Returns 1: in progress; 0: nothing to wait for;
 * or a negative errno. access_build_wait() waits for the end instead of the call. */
int access_build_begin(struct sy_balance *b, void (*ready)(void *ctx), void *ctx,
                       struct sy_error *err);
void access_build_wait(struct sy_balance *b);

/* Steps of a transaction: begin; check, which builds everything that can fail; publish, before
 * services that name new lists; end, after services that named old ones are gone. */
void access_begin(struct sy_balance *b);
int access_check(struct sy_balance *b, struct sy_error *err);
void access_rollback(struct sy_balance *b);
void access_publish(struct sy_balance *b);
void access_finish(struct sy_balance *b);

/* References another version's sets and list for all services; drops the references. */
void access_version_hold(struct access_version *v, const struct access_version *of);
void access_version_drop(struct sy_balance *b, struct access_version *v);

/* Adds the sets and lists to a configuration. 0 or -ENOMEM. */
int reply_access(const struct sy_balance *b, struct arena *a,
                 Steelyard__Forwarder__V1__Config *config);
/* One list or set as a message on the arena; NULL: no memory. */
Steelyard__Forwarder__V1__AccessList *reply_access_list(const struct model_list *l,
                                                        struct arena *a);
Steelyard__Forwarder__V1__AccessSet *reply_access_set(const struct model_set *s, struct arena *a);
/* The matches of a list's rule; rule list->rules: no rule matched. */
uint64_t access_matches(const struct sy_balance *b, const struct model_list *l, unsigned rule);
/* Logs the matches that workers queued. */
void access_tick(struct sy_balance *b);

/* ---- access_build.c -------------------------------------------------------------------------- */

/* Reads and checks a list whose rules may name the sets of a version. Returns 0, or a negative
 * errno with err. The caller assigns the counters. */
int access_list_build(const Steelyard__Forwarder__V1__AccessList *pb,
                      const struct access_version *sets, uint64_t *contexts,
                      struct access_list **out, struct sy_error *err);
void access_list_free(void *list);

/* ---- access_early.c -------------------------------------------------------------------------- */

/* Updates the sources blocked by the flow directors (docs/design/0028-host-protection.md) after a
 * transaction that changed lists or sets; in the background if there are many. */
void access_block(struct sy_balance *b);
/* Cancels that while there is a runtime. */
void access_block_end(struct sy_balance *b);

/* ---- access_set.c: for access_model.c and access_build.c ----------------------------------------
 */

/* Saves the version before the transaction, before its first change. */
void access_touch(struct access_model *m);
/* Checks the name of a list or set. Returns 0, or -EINVAL with err. */
int access_name_check(const char *what, const char *name, struct sy_error *err);
/* The bit of a set; ADDRESS_SETS: no set has this name. */
unsigned access_set_find(const struct access_version *v, const char *name);
/* References a version's sets, or drops the references. */
void access_sets_hold(struct access_version *v);
void access_sets_drop(struct sy_balance *b, struct access_version *v);
/* Builds the table of all sets, including those that this transaction deletes: lists that it
 * replaces may name them until it has ended. Returns 0, or a negative errno with err. */
int access_sets_check(struct access_model *m, struct sy_error *err);
/* Drops the table when there are no sets, so that no published list uses it. */
void access_sets_finish(struct sy_balance *b, struct access_model *m);
void access_sets_destroy(struct access_version *v);
/* Discards what access_build_begin() has begun. */
void access_build_drop(struct access_model *m);

/* ---- access_existing.c: lists with `existing: end` ------------------------------------------- */

/* May the list end sessions now? Not while a set of it lacks its data. */
bool access_list_may_end(const struct access_version *v, const struct access_list *l);
/* After a transaction was published: makes workers re-evaluate existing sessions if necessary. */
void access_recheck_existing(struct sy_balance *b);
/* Starts the count of a list, or continues that of the replaced one (NULL: none). */
void access_ended_begin(const struct sy_balance *b, struct model_list *l,
                        const struct model_list *old);
/* The number of sessions that the list has ended. */
uint64_t access_ended(const struct sy_balance *b, const struct model_list *l);
void access_ended_log(struct sy_balance *b);

#endif
