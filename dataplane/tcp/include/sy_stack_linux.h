// SPDX-License-Identifier: Apache-2.0
/* State of a connection in Linux's formats. */
#ifndef SY_STACK_LINUX_H
#define SY_STACK_LINUX_H

#include <linux/tcp.h>

#include <sy_stack.h>

/* TCP_INFO; fields without a counterpart are 0. */
void sy_stack_linux_info(const struct sy_stack_info *i, struct tcp_info *out);
/* FIONREAD, SIOCOUTQ, SIOCOUTQNSD and SIOCATMARK. Fails with -ENOTTY for other requests. */
int sy_stack_linux_ioctl(const struct sy_stack_info *i, unsigned long request, int *value);

#endif
