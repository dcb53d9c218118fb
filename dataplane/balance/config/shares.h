// SPDX-License-Identifier: Apache-2.0
/*
 * Measured shares of new sessions, in place of weights (docs/design/0043-shares.md). They are set
 * while the forwarder runs and are not part of the configuration. Control thread only.
 */
#ifndef SHARES_H
#define SHARES_H

#include "model.h"

/* Max servers in one request: all their services are published in one loop iteration. */
#define SHARES_SERVERS 16384u
#define SHARES_LONGEST 3600u /* seconds */

/* Sets them. No transaction may be open. Replies how many services use theirs, and how many
 * services and servers are unknown. */
int shares_set(struct sy_balance *b, const Steelyard__Forwarder__V1__SetSharesRequest *pb,
               Steelyard__Forwarder__V1__SharesResult *out, struct sy_error *err);
/* The share of a server, in parts of 2^32, as pools use it: its own, or the mean of its service by
 * weight. The service has shares. */
uint32_t shares_of(const struct model_service *s, const struct model_server *server);
/* Seconds until they expire, rounded up; 0: the service has none. */
uint32_t shares_left(const struct sy_balance *b, const struct model_service *s);
/* Removes shares that were not renewed in time. Called once a second. */
void shares_tick(struct sy_balance *b);

#endif
