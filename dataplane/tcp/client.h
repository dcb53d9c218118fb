// SPDX-License-Identifier: Apache-2.0
#ifndef CLIENT_H
#define CLIENT_H

#include "connection.h"
#include "segment.h"

/* With options.toa, call for each acceptable segment of a passive connection before its payload.
 * Stores the first client address received, up to the first byte of data. Not from SYNs: the load
 * balancer adds no option there, so it would be the client's own. */
void client_arrive(struct sy_stack *s, struct connection *c, const struct segment *seg);

#endif
