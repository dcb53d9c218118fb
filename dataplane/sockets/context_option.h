// SPDX-License-Identifier: Apache-2.0
/* Shared by context_option.c and context_option_tcp.c. */
#ifndef CONTEXT_OPTION_H
#define CONTEXT_OPTION_H

#include "context.h"

/* Copies as much as fits, like getsockopt(). */
int value_copy(void *to, socklen_t *len, const void *from, size_t size);
int value_int(const void *value, socklen_t len, int *out);

/* IPPROTO_TCP, without what sy_socket_option.h has: -ENOPROTOOPT. */
int tcp_get(struct sy_tcp_context *c, struct descriptor *d, int name, void *value, socklen_t *len);
int tcp_set(const struct sy_tcp_context *c, int name, const void *value, socklen_t len);

#endif
