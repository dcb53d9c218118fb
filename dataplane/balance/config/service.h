// SPDX-License-Identifier: Apache-2.0
/* Services as published. Control thread only. */
#ifndef SERVICE_H
#define SERVICE_H

#include "balance.h"

struct model_service;

/* Creates a service from the model, not built yet. Returns NULL without memory. */
struct service *service_create(struct sy_balance *b, const struct model_service *s);
/* Builds its pools. While it returns 1, call it again with a new *budget (see scheduler.h). Returns
 * 0 when done, or a negative errno. */
int service_build(struct service *s, int64_t *budget);
/* Creates and builds at once, without a budget. Returns NULL without memory. */
struct service *service_make(struct sy_balance *b, const struct model_service *s);
/* Replaces the published service by a new one, which reuses its tables, so that building is short.
 * Without memory the published one stays. */
void service_republish(struct sy_balance *b, const struct model_service *s);
/* s may be NULL. */
void service_free(void *service);
/* Publishes it and retires the service that it replaces. now NULL: removes the service. */
void service_swap(struct sy_balance *b, uint32_t id, struct service *now);
/* Call before a service is published (`fresh`: it is new). Servers that return begin slow start;
 * endpoints note whether they accept new sessions. */
void service_note_servers(struct sy_balance *b, struct model_service *s, bool fresh);
/* Advances slow starts, unless a transaction is open. Called every RETIRE_PERIOD_MS. */
void service_tick(struct sy_balance *b);

#endif
