// SPDX-License-Identifier: Apache-2.0
/* The ports of VIPs that the flow directors (XDP) serve because a service uses them. The flow
 * directors drop packets to other ports of a VIP (docs/design/0028-host-protection.md). Control
 * thread only. */
#ifndef EARLY_H
#define EARLY_H

#include "balance.h"

struct early;

/* Returns NULL without memory. */
struct early *early_create(const struct sy_balance *b);
void early_destroy(struct early *e);
/* A service with this key is published under this id. */
void early_add(struct sy_balance *b, const struct service_key *key, uint32_t id);
/* Call when no session of the service is left, and no client waits for an answer. Does nothing for
 * an id that was not added. */
void early_remove(struct sy_balance *b, uint32_t id);
/* Call when the address changes its kind: disables early drops for it until its next update. */
void early_address_changed(struct sy_balance *b, const struct sy_addr *addr);
/* Call when a transaction was published: updates the VIPs whose other ports the flow directors
 * drop, so that their new services get packets. */
void early_flush(struct sy_balance *b);
/* Every RETIRE_PERIOD_MS: updates some due VIPs in the flow directors. */
void early_tick(struct sy_balance *b);

#endif
