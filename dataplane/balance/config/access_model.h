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

/* A list as configured: immutable, shared by the versions of the configuration that have it. */
struct model_list {
	unsigned holders;
	char name[MODEL_NAME];
	uint8_t *packed; /* the message as it was put */
	size_t packed_len;
	uint64_t *rule_hash; /* by rule: a rule that is put again keeps its count */
	uint64_t *base;      /* by rule, then otherwise: its counter's sum when it was taken */
	struct access_list *built;
	/* Sums of access_worker.ended: when it was taken, at the last tick, and when they were
	 * last logged. */
	uint64_t ended_base, ended_seen, ended_logged;
};

/* A set as configured: immutable, shared likewise. */
struct model_set {
	unsigned holders;
	char name[MODEL_NAME];
	uint8_t *packed; /* the message as it was put */
	size_t packed_len;
	struct sy_prefix *prefix;     /* NULL: they are in data */
	struct set_data *data;        /* NULL: none, or missing */
	bool missing;                 /* its data could not be loaded: it is empty */
	uint8_t digest[SET_DIGEST];   /* of data, also while it is missing */
	uint32_t prefixes, prefixes4; /* all; those of IPv4, which come first */
};

/* The table in which all sets of a version are looked up; shared by versions of the same sets. */
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

	struct set_data *data;   /* all that this process has: set_data.h */
	unsigned saving;         /* threads that write data to the state directory */
	bool restoring;          /* a set whose data is missing is empty, instead of an error */
	struct set_build *build; /* of this transaction's table; NULL: none was begun */

	struct access *next; /* checked, to be published */
	uint16_t counter_holders[ACCESS_COUNTERS];
	uint32_t counter_at;              /* where the search for a free one begins */
	uint64_t contexts;                /* of rte_acl, so far: they need names */
	size_t blocked;                   /* networks that the flow directors drop */
	int block_failed;                 /* negative errno: they drop none; 0: no fault */
	struct access_blocking *blocking; /* a thread finds out which; NULL: none does */
};

int access_model_create(struct sy_balance *b, struct sy_error *err);
void access_model_destroy(struct sy_balance *b);

/* A transaction's changes. */
int access_list_put(struct sy_balance *b, const Steelyard__Forwarder__V1__AccessList *pb,
                    struct sy_error *err);
int access_list_delete(struct sy_balance *b, const char *name, struct sy_error *err);
int access_global_put(struct sy_balance *b, const char *name, struct sy_error *err);
/* Finds the list that a service names. */
int access_name_read(struct sy_balance *b, const char *service, const char *name, uint16_t *access,
                     struct sy_error *err);

int access_set_put(struct sy_balance *b, const Steelyard__Forwarder__V1__AccessSet *pb,
                   struct sy_error *err);
int access_set_delete(struct sy_balance *b, const char *name, struct sy_error *err);
/* Before access_check(): builds a large table of sets on a thread of its own, and calls ready(ctx)
 * on the control thread when it is done. 1: this is under way; 0: nothing to wait for; or a
 * negative errno. access_build_wait() waits for the end, without the call. */
int access_build_begin(struct sy_balance *b, void (*ready)(void *ctx), void *ctx,
                       struct sy_error *err);
void access_build_wait(struct sy_balance *b);

/* A transaction's course: begins; is checked, with everything built that can fail; is published
 * before services that name new lists; and ends after those that named old ones are gone. */
void access_begin(struct sy_balance *b);
int access_check(struct sy_balance *b, struct sy_error *err);
void access_rollback(struct sy_balance *b);
void access_publish(struct sy_balance *b);
void access_finish(struct sy_balance *b);

/* Holds what another version has of sets and of the list for all services; drops it. */
void access_version_hold(struct access_version *v, const struct access_version *of);
void access_version_drop(struct sy_balance *b, struct access_version *v);

/* Adds the sets and lists to a configuration. 0 or -ENOMEM. */
int reply_access(const struct sy_balance *b, struct arena *a,
                 Steelyard__Forwarder__V1__Config *config);
/* One list or set as a message on the arena; NULL: no memory. */
Steelyard__Forwarder__V1__AccessList *reply_access_list(const struct model_list *l,
                                                        struct arena *a);
Steelyard__Forwarder__V1__AccessSet *reply_access_set(const struct model_set *s, struct arena *a);
/* The matches of a list's rule; rule list->rules: of none. */
uint64_t access_matches(const struct sy_balance *b, const struct model_list *l, unsigned rule);
/* Logs what workers report. */
void access_tick(struct sy_balance *b);

/* ---- access_build.c -------------------------------------------------------------------------- */

/* Reads and checks a list whose rules may name the sets of a version; 0, or a negative errno with
 * err. The counters are the caller's. */
int access_list_build(const Steelyard__Forwarder__V1__AccessList *pb,
                      const struct access_version *sets, uint64_t *contexts,
                      struct access_list **out, struct sy_error *err);
void access_list_free(void *list);

/* ---- access_early.c -------------------------------------------------------------------------- */

/* Tells the flow directors what they may drop (docs/design/0028-host-protection.md), after a
 * transaction that changed lists or sets; later, if it is much. */
void access_block(struct sy_balance *b);
/* Ends that without telling them, while there is a runtime. */
void access_block_end(struct sy_balance *b);

/* ---- access_set.c: for access_model.c and access_build.c ----------------------------------------
 */

/* Keeps the version before the transaction, before its first change. */
void access_touch(struct access_model *m);
/* A name of a list or a set: 0, or -EINVAL with err. */
int access_name_check(const char *what, const char *name, struct sy_error *err);
/* The bit of a set; ADDRESS_SETS: there is none of this name. */
unsigned access_set_find(const struct access_version *v, const char *name);
/* Holds a version's sets once more, or drops them. */
void access_sets_hold(struct access_version *v);
void access_sets_drop(struct sy_balance *b, struct access_version *v);
/* Builds the table of the sets that this transaction leaves or deletes: lists that it replaces may
 * name them until it has ended. 0, or a negative errno with err. */
int access_sets_check(struct access_model *m, struct sy_error *err);
/* Drops the table once there is no set, and so no list that workers see uses it. */
void access_sets_finish(struct sy_balance *b, struct access_model *m);
void access_sets_destroy(struct access_version *v);
/* Forgets what access_build_begin() began. */
void access_build_drop(struct access_model *m);

/* ---- access_existing.c: lists with `existing: end` ------------------------------------------- */

/* Does the list end sessions now? Not while the data of one of its sets is missing. */
bool access_list_may_end(const struct access_version *v, const struct access_list *l);
/* After a transaction was published: has workers ask about existing sessions, if need be. */
void access_recheck_existing(struct sy_balance *b);
/* A list begins to count, or goes on for the one that it replaces (NULL: none). */
void access_ended_begin(const struct sy_balance *b, struct model_list *l,
                        const struct model_list *old);
/* The sessions that it has ended. */
uint64_t access_ended(const struct sy_balance *b, const struct model_list *l);
void access_ended_log(struct sy_balance *b);

#endif
