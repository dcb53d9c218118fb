// SPDX-License-Identifier: Apache-2.0
/* The only place where tests, the soak test and benchmarks look inside a balancer. The calling
 * thread acts as worker and control thread alternately (harness.h). Ids are those that sessions
 * store. */
#ifndef INSPECT_H
#define INSPECT_H

#include "balance.h"
#include "control.h"
#include "control_plane.h"
#include "model.h"

/* ---- configuration --------------------------------------------------------------------------- */

static inline struct model *inspect_model(const struct sy_balance *b)
{
	return b->ctl->model;
}

static inline struct limit_model *inspect_limits(const struct sy_balance *b)
{
	return b->ctl->limits;
}

static inline struct control *inspect_control(const struct sy_balance *b)
{
	return b->ctl->control;
}

/* NULL: no id of a removed object is waiting until no session can use it. */
static inline const struct retired *inspect_retired(const struct sy_balance *b)
{
	return b->ctl->retired;
}

/* Whether the last snapshot lacks an accepted change. */
static inline bool inspect_is_unsaved(const struct sy_balance *b)
{
	return b->ctl->unsaved;
}

static inline void inspect_set_unsaved(struct sy_balance *b)
{
	b->ctl->unsaved = true;
}

static inline bool inspect_save_failed(const struct sy_balance *b)
{
	return b->ctl->save_failed;
}

/* While true, no configuration snapshot is written: every change stays in the journal. */
static inline void inspect_hold(struct sy_balance *b, bool hold)
{
	b->ctl->hold = hold;
}

static inline void inspect_set_saved(struct sy_balance *b, uint64_t now_ns)
{
	b->ctl->saved_ns = now_ns;
}

/* Whether the control socket counts as opened. */
static inline void inspect_set_served(struct sy_balance *b, bool served)
{
	b->ctl->served = served;
}

/* Sets the handler of upgrade requests. */
static inline void inspect_set_upgrade(struct sy_balance *b,
                                       int (*upgrade)(void *ctx,
                                                      const struct sy_balance_upgrade *wanted,
                                                      struct sy_error *err),
                                       void *ctx)
{
	b->options.upgrade = upgrade;
	b->options.upgrade_ctx = ctx;
}

/* ---- what workers read ----------------------------------------------------------------------- */

static inline struct balance_worker *inspect_worker(struct sy_balance *b, unsigned worker)
{
	return &b->worker[worker];
}

static inline struct endpoint *inspect_endpoint(const struct sy_balance *b, uint32_t server)
{
	return &b->endpoint[server];
}

static inline const struct sy_addr *inspect_local(const struct sy_balance *b, uint8_t local)
{
	return &b->local[local];
}

/* The local addresses of a family that new sessions may get: IPv6, or IPv4. */
static inline const struct local_set *inspect_locals(const struct sy_balance *b, bool v4)
{
	return b->locals[v4];
}

/* 1: the address is removed, and its sessions are ending. */
static inline uint8_t *inspect_local_removed(struct sy_balance *b, uint8_t local)
{
	return &b->local_removed[local];
}

static inline const struct address_set *inspect_address_set(const struct sy_balance *b)
{
	return b->address_set;
}

/* Maps service_key to ids. */
static inline const struct rte_hash *inspect_directory(const struct sy_balance *b)
{
	return b->directory;
}

/* The published service; NULL: none. */
static inline const struct service *inspect_service(const struct sy_balance *b, uint32_t service)
{
	return b->service[service];
}

/* NULL: there are no SNAT rules. */
static inline const struct snat *inspect_snat(const struct sy_balance *b)
{
	return b->snat;
}

/* Live sessions of a service's server. */
static inline uint32_t inspect_server_active(const struct sy_balance *b, uint32_t server)
{
	return b->server_active[server];
}

static inline uint32_t inspect_service_active(const struct sy_balance *b, uint32_t service)
{
	return b->service_active[service];
}

/* ---- sessions -------------------------------------------------------------------------------- */

static inline struct session_store *inspect_store(const struct sy_balance *b)
{
	return b->ctl->store;
}

/* Detaches the store from the balancer; the caller closes it. */
static inline void inspect_forget_store(struct sy_balance *b)
{
	b->ctl->store = NULL;
}

static inline struct session_table *inspect_table(const struct sy_balance *b, uint8_t slot)
{
	return b->table[slot];
}

/* The session index's hash key. */
static inline const struct sy_hash_key *inspect_key(const struct sy_balance *b)
{
	return &b->key;
}

/* What was found of a predecessor's sessions, and how many got a result. */
static inline const struct session_found *inspect_found(const struct sy_balance *b)
{
	return &b->ctl->adoption.found;
}

static inline uint64_t inspect_adopted(const struct sy_balance *b, enum session_result result)
{
	return b->ctl->adoption.count[result];
}

#endif
