// SPDX-License-Identifier: Apache-2.0
/* Which ports of a VIP have a service, for the flow directors, which drop
 * packets to the others (docs/design/0028-host-protection.md). Control thread
 * only. */
#ifndef EARLY_H
#define EARLY_H

#include "balance.h"

struct early;

/* NULL: no memory. */
struct early *early_create(const struct sy_balance *b);
void early_destroy(struct early *e);
/* A service with this key is published under this id. */
void early_add(struct sy_balance *b, const struct service_key *key, uint32_t id);
/* The id is free: no session of its service is left, and nobody waits for an
 * answer. Does nothing for an id that was not added. */
void early_remove(struct sy_balance *b, uint32_t id);
/* The address has another use from now on: until the next flush nothing to it
 * is dropped early. */
void early_address_changed(struct sy_balance *b, const struct sy_addr *addr);
/* A transaction is published: a VIP's new services get their packets from now
 * on. */
void early_flush(struct sy_balance *b);
/* Every RETIRE_PERIOD_MS: tells the flow directors about some VIPs that are
 * due. */
void early_tick(struct sy_balance *b);

#endif
