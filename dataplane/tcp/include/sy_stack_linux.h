// SPDX-License-Identifier: Apache-2.0
/* What the stack knows, as Linux tells it. */
#ifndef SY_STACK_LINUX_H
#define SY_STACK_LINUX_H

#include <linux/tcp.h>

#include <sy_stack.h>

/* TCP_INFO. What the stack does not count is 0. */
void sy_stack_linux_info(const struct sy_stack_info *i, struct tcp_info *out);
/* FIONREAD, SIOCOUTQ, SIOCOUTQNSD and SIOCATMARK of a connection. -ENOTTY: another request. */
int sy_stack_linux_ioctl(const struct sy_stack_info *i, unsigned long request, int *value);

#endif
