// SPDX-License-Identifier: Apache-2.0
/* Shared by files with calls. Sending has two steps: check, then commit of bytes in the buffer. */
#ifndef CALL_H
#define CALL_H

#include "connection.h"

/* Returns how many of len bytes fit, or a negative errno. */
int64_t send_check(struct sy_stack *s, struct connection *c, size_t len);
/* Commits `done` of len bytes in the buffer. Returns like sy_stack_send(). */
int64_t send_added(struct sy_stack *s, struct connection *c, size_t done, size_t len, int flags);
/* The application lets go; events are no longer for it. */
void connection_disown(struct sy_stack *s, struct connection *c);

#endif
