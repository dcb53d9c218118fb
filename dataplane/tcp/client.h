// SPDX-License-Identifier: Apache-2.0
#ifndef CLIENT_H
#define CLIENT_H

#include "connection.h"
#include "segment.h"

/* options.toa: an acceptable segment of a connection that a peer has opened, before its text is
 * processed. The first client that is named counts, until the first byte of data has arrived. A SYN
 * names no client: the balancer puts nothing into it, so the option is the client's own. */
void client_arrive(struct sy_stack *s, struct connection *c, const struct segment *seg);

#endif
