// SPDX-License-Identifier: Apache-2.0
/* The two halves of sending: what is admitted, and what follows from bytes in the buffer. */
#ifndef CALL_H
#define CALL_H

#include "connection.h"

/* How many of len bytes the connection takes now, or a negative errno. */
int64_t send_admits(struct sy_stack *s, struct connection *c, size_t len);
/* `done` of len bytes are in the buffer. Returns as sy_stack_send(). */
int64_t send_added(struct sy_stack *s, struct connection *c, size_t done, size_t len, int flags);

#endif
