// SPDX-License-Identifier: Apache-2.0
/* Options of sockets. */
#ifndef OPTION_H
#define OPTION_H

#include "context.h"

/* Copies as much as fits, as the system's calls do. */
int value_give(void *to, socklen_t *len, const void *from, size_t size);
int value_int(const void *value, socklen_t len, int *out);
/* Sets it at once, where there is a connection or a listener; else wishes_apply() does later. */
void wish_apply(struct sy_tcp_context *c, const struct descriptor *d, enum sy_stack_option option,
                uint32_t value);

/* IPPROTO_TCP (option_tcp.c). */
int tcp_get(struct sy_tcp_context *c, struct descriptor *d, int name, void *value, socklen_t *len);
int tcp_set(struct sy_tcp_context *c, struct descriptor *d, int name, const void *value,
            socklen_t len);

#endif
