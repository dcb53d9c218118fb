// SPDX-License-Identifier: Apache-2.0
/* The ports of VIPs with a service, for the flow directors, which drop packets to other ports
 * (docs/design/0028-host-protection.md). Control thread only. */
#ifndef EARLY_H
#define EARLY_H

#include "balance.h"

struct early;

/* Returns NULL without memory. */
struct early *early_create(const struct sy_balance *b);
void early_destroy(struct early *e);
/* A service with this key is published under this id. */
void early_add(struct sy_balance *b, const struct service_key *key, uint32_t id);
/* Call when the id is free: no session of its service is left, and no client waits for an answer.
 * Does nothing for an id that was not added. */
void early_remove(struct sy_balance *b, uint32_t id);
/* Call when the address gets another use: ends early drops for it until the next flush. */
void early_address_changed(struct sy_balance *b, const struct sy_addr *addr);
/* Call when a transaction was published: new services of VIPs get their packets from now on. */
void early_flush(struct sy_balance *b);
/* Every RETIRE_PERIOD_MS: updates some due VIPs in the flow directors. */
void early_tick(struct sy_balance *b);

#endif
