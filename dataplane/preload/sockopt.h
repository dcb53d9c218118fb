// SPDX-License-Identifier: Apache-2.0
/* Shared by sockopt.c and sockopt_kernel.c. */
#ifndef PRELOAD_SOCKOPT_H
#define PRELOAD_SOCKOPT_H

#include "preload.h"

/* Stores an option that the kernel's socket has just accepted. */
void option_keep(struct sock *s, int fd, int level, int name, int value);
/* Sets an option of a listener or a connection. Locked. fd: -1 for a relay. Returns a negative
 * errno. */
int option_set(struct sock *s, int fd, int level, int name, const void *value, socklen_t len);
/* Locked. Returns the size of the value; 0: no such option. */
socklen_t option_get(struct sock *s, int level, int name, void *out, socklen_t len);
/* Returns whether only Linux implements it. */
bool option_binds(int level, int name, const void *value, socklen_t len);
/* setsockopt() of a socket that is still the kernel's. */
int option_plain_set(int fd, int level, int name, const void *value, socklen_t len);

#endif
