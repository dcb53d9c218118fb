// SPDX-License-Identifier: Apache-2.0
/* A copy of the kernel's routes, if they are few and plain: no rules besides the default ones, one
 * path for each route. */
#ifndef FIB_H
#define FIB_H

#include <sy_base.h>

enum fib_answer {
	FIB_UNKNOWN, /* query the kernel: policy routing, several paths, too many routes */
	FIB_NONE,
	FIB_ROUTE,
};

/* Reads rules and routes again by a netlink socket. Returns false if those of a family are not
 * plain. */
bool fib_read(int netlink);
/* Looks up a destination. Stores the next hop and the outgoing interface that the kernel would
 * choose. */
enum fib_answer fib_find(const struct sy_addr *dst, struct sy_addr *hop, int *ifindex);

#endif
