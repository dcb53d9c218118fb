// SPDX-License-Identifier: Apache-2.0
/* Services as published. Control thread only. */
#ifndef SERVICE_H
#define SERVICE_H

#include "balance.h"

struct model_service;

/* A service as it stands in the model, to be built; NULL: no memory. */
struct service *service_create(struct sy_balance *b, const struct model_service *s);
/* Makes its pools; called again while it returns 1, with new *budget (see scheduler.h). 0: done; a
 * negative errno: failed. */
int service_build(struct service *s, int64_t *budget);
/* Both at once, whatever it takes; NULL: no memory. */
struct service *service_make(struct sy_balance *b, const struct model_service *s);
/* s may be NULL. */
void service_free(void *service);
/* Swaps it in and retires what it replaces; now NULL: takes the service away. */
void service_swap(struct sy_balance *b, uint32_t id, struct service *now);
/* Of a service that is about to be published, which before did not exist if `fresh`: servers that
 * return begin their slow start; endpoints learn who takes new sessions. */
void service_note_servers(struct sy_balance *b, struct model_service *s, bool fresh);
/* Slow start goes on, unless a transaction is under way. Every RETIRE_PERIOD_MS. */
void service_tick(struct sy_balance *b);

#endif
