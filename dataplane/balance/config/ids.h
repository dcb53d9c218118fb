// SPDX-License-Identifier: Apache-2.0
/* Ids of servers, services and local addresses: their meaning, even across restarts, and when they
 * become free. Control thread only. */
#ifndef IDS_H
#define IDS_H

#include "control_plane.h"

/* ---- retire.c: an id is free only when no session refers to it any more ---------------------- */

enum retired_kind { RETIRED_SERVER, RETIRED_SERVICE, RETIRED_LOCAL };

/* Frees the id once sweeps have ended all sessions that refer to it. */
void retire_id(struct sy_balance *b, enum retired_kind kind, uint32_t id);
/* The id is in use again: cancels retire_id(). */
void retire_forget(struct sy_balance *b, enum retired_kind kind, uint32_t id);
/* Has every worker swept all its sessions and renewed their paths? */
bool retire_swept(const struct sy_balance *b);
/* Frees the ids that are due; renews endpoints' paths after a change of routes. Called every
 * RETIRE_PERIOD_MS. */
void retire_tick(struct sy_balance *b);
void retire_close(struct sy_balance *b);
#define RETIRE_PERIOD_MS 20

/* Updates the path to a server if it has changed. Does nothing for SNAT, whose sessions store their
 * own paths. */
void endpoint_renew_path(struct sy_balance *b, struct endpoint *e);

void traffic_add(struct traffic *sum, const struct traffic *t);
/* Sum over all workers. */
struct traffic traffic_sum(const struct sy_balance *b, uint32_t server);

/* ---- id_dictionary.c: ids keep their meaning across processes -------------------------------- */

/* Reserves the ids that the store's dictionary names. */
int id_dictionary_reserve(struct sy_balance *b, struct sy_error *err);
/* Called when the configuration is complete, before sessions are validated. A transaction that
 * removed a server and put it back gave it another id, because the old one was in use; a replay of
 * the journal does the same. This call assigns such servers the id that they had last, so they keep
 * their sessions. */
void id_dictionary_claim(struct sy_balance *b);
/* Call when the sessions found were validated or are trusted: the dictionary then describes this
 * configuration, and reserved ids that no server claimed are retired. */
void id_dictionary_settle(struct sy_balance *b);
void id_dictionary_close(struct sy_balance *b);
/* Write the name of a configured id, once settled. */
void id_dictionary_put_server(struct sy_balance *b, uint32_t id);
void id_dictionary_put_local(struct sy_balance *b, uint8_t id);

/* Allocates an id for a server that is being configured: its old one if it has one. Stores e as the
 * id's endpoint. Returns UINT32_MAX if none is left. */
uint32_t server_id_alloc(struct sy_balance *b, const struct endpoint *e);
/* Frees an id that the transaction allocated and does not publish. */
void server_id_cancel(struct sy_balance *b, uint32_t id);
/* Retires the id of a removed server that was published. */
void server_id_retire(struct sy_balance *b, uint32_t id);
/* Frees a retired id to which no session refers any more. */
void server_id_free(struct sy_balance *b, uint32_t id);

/* The same for local addresses. An id that is not free yet is reused only for its own address.
 * MAX_LOCALS: none is left. */
unsigned local_id_find(const struct sy_balance *b, const struct sy_addr *addr);
void local_id_publish(struct sy_balance *b, uint8_t id);
void local_id_retire(struct sy_balance *b, uint8_t id);
void local_id_free(struct sy_balance *b, uint8_t id);

#endif
