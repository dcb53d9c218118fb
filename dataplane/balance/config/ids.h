// SPDX-License-Identifier: Apache-2.0
/* Ids of servers, services and local addresses: what they mean, over restarts too, and when they
 * are free again. Control thread only. */
#ifndef IDS_H
#define IDS_H

#include "control_plane.h"

/* ---- retire.c: ids are free only when no session can name them any more
 * ------------------------------- */

enum retired_kind { RETIRED_SERVER, RETIRED_SERVICE, RETIRED_LOCAL };

/* Frees the id once sweeps have ended all sessions that name it. */
void retire_id(struct sy_balance *b, enum retired_kind kind, uint32_t id);
/* It is used again: not free, after all. */
void retire_forget(struct sy_balance *b, enum retired_kind kind, uint32_t id);
/* Every worker has swept all its sessions, and has renewed their paths. */
bool retire_swept(const struct sy_balance *b);
/* Frees what is due; renews endpoints' paths after a change of routes. Every RETIRE_PERIOD_MS. */
void retire_tick(struct sy_balance *b);
void retire_close(struct sy_balance *b);
#define RETIRE_PERIOD_MS 20

/* The path to a server, if it has changed; under SNAT sessions know where they go. */
void endpoint_renew_path(struct sy_balance *b, struct endpoint *e);

void traffic_add(struct traffic *sum, const struct traffic *t);
/* Of all workers. */
struct traffic traffic_sum(const struct sy_balance *b, uint32_t server);

/* ---- names.c: ids keep their meaning across processes
 * -------------------------------------------------------------- */

/* Reserves the ids that the store's dictionary names. */
int id_dictionary_reserve(struct sy_balance *b, struct sy_error *err);
/* The configuration is complete, and nothing is validated yet. A transaction that took a server
 * away and put it back had to give it another id, as its old one was in use; replayed, it does so
 * once more. Such servers get the id that they had at last, whose sessions are theirs. */
void id_dictionary_claim(struct sy_balance *b);
/* The sessions found have been validated or are trusted: the dictionary becomes that of this
 * configuration; what was reserved and not taken retires. */
void id_dictionary_settle(struct sy_balance *b);
void id_dictionary_close(struct sy_balance *b);
/* Make sure that a configured id has its name, once settled. */
void id_dictionary_put_server(struct sy_balance *b, uint32_t id);
void id_dictionary_put_local(struct sy_balance *b, uint8_t id);

/* The id for a server that comes to be configured, its old one if it has one; e goes to its place.
 * UINT32_MAX: none is left. */
uint32_t server_id_take(struct sy_balance *b, struct endpoint *e);
/* The transaction that took it does not publish it. */
void server_id_return(struct sy_balance *b, uint32_t id);
/* Its server was published and is removed. */
void server_id_leave(struct sy_balance *b, uint32_t id);
/* No session names it any more. */
void server_id_free(struct sy_balance *b, uint32_t id);

/* The same for local addresses; an id that is not free yet is found by its own address only.
 * MAX_LOCALS: none is left. */
unsigned local_id_find(const struct sy_balance *b, const struct sy_addr *addr);
void local_id_publish(struct sy_balance *b, uint8_t id);
void local_id_leave(struct sy_balance *b, uint8_t id);
void local_id_free(struct sy_balance *b, uint8_t id);

#endif
