// SPDX-License-Identifier: Apache-2.0
/* Services as published. Control thread only. */
#ifndef SERVICE_H
#define SERVICE_H

#include "balance.h"

struct model_service;

/* Creates a service, still to be built, from the model; NULL: no memory. */
struct service *service_create(struct sy_balance *b, const struct model_service *s);
/* Builds its pools. Call again with a new *budget while it returns 1 (see scheduler.h). 0: done; a
 * negative errno: failed. */
int service_build(struct service *s, int64_t *budget);
/* Creates and builds at once, without a budget; NULL: no memory. */
struct service *service_make(struct sy_balance *b, const struct model_service *s);
/* Makes it and publishes it in the place of the one that is published; it takes that one's tables,
 * so the build is short. Without memory the published one stays. */
void service_republish(struct sy_balance *b, const struct model_service *s);
/* s may be NULL. */
void service_free(void *service);
/* Publishes it and retires the service that it replaces. now NULL: removes the service. */
void service_swap(struct sy_balance *b, uint32_t id, struct service *now);
/* Called before a service is published (`fresh`: it did not exist before). Servers that return
 * begin their slow start; endpoints note whether they take new sessions. */
void service_note_servers(struct sy_balance *b, struct model_service *s, bool fresh);
/* Advances slow starts, unless a transaction is open. Called every RETIRE_PERIOD_MS. */
void service_tick(struct sy_balance *b);

#endif
