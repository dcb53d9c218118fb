// SPDX-License-Identifier: Apache-2.0
#ifndef CLIENT_H
#define CLIENT_H

#include "connection.h"
#include "segment.h"

/* options.toa: a segment for a connection that a peer has opened, before it is worked on. The first
 * client that is named counts, until the first byte of data has arrived. A SYN names nobody: the
 * balancer puts nothing into it, so the client has. */
void client_arrive(struct sy_stack *s, struct connection *c, const struct segment *seg);

#endif
