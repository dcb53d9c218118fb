// SPDX-License-Identifier: Apache-2.0
/* What sockopt.c and sockopt_kernel.c have in common. */
#ifndef PRELOAD_SOCKOPT_H
#define PRELOAD_SOCKOPT_H

#include "preload.h"

/* The kernel's socket has just taken it. */
void option_keep(struct sock *s, int fd, int level, int name, int value);
/* Locked, of a listener or a connection. Negative errno. fd: -1, of a relay. */
int option_set(struct sock *s, int fd, int level, int name, const void *value, socklen_t len);
/* Locked. The size of the value; 0: there is none such. */
socklen_t option_get(struct sock *s, int level, int name, void *out, socklen_t len);
/* Can Linux alone follow it? */
bool option_binds(int level, int name, const void *value, socklen_t len);
/* setsockopt() of one that is the kernel's so far. */
int option_plain_set(int fd, int level, int name, const void *value, socklen_t len);

#endif
