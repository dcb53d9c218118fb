// SPDX-License-Identifier: Apache-2.0
/* What calls of several files share. Of sending: what is admitted, and what follows from bytes in
 * the buffer. */
#ifndef CALL_H
#define CALL_H

#include "connection.h"

/* How many of len bytes the connection takes now, or a negative errno. */
int64_t send_admits(struct sy_stack *s, struct connection *c, size_t len);
/* `done` of len bytes are in the buffer. Returns as sy_stack_send(). */
int64_t send_added(struct sy_stack *s, struct connection *c, size_t done, size_t len, int flags);
/* The application lets go; events are no longer for it. */
void connection_let_go(struct sy_stack *s, struct connection *c);

#endif
