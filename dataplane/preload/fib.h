// SPDX-License-Identifier: Apache-2.0
/* A copy of the kernel's routes, where they are few and plain. */
#ifndef FIB_H
#define FIB_H

#include <sy_base.h>

enum fib_answer {
	FIB_UNKNOWN, /* the copy does not say: policy routing, several paths, too many routes */
	FIB_NONE,
	FIB_ROUTE,
};

/* Reads rules and routes anew by a netlink socket. false: those of a family are not plain. */
bool fib_read(int netlink);
/* The next hop for a destination and its interface, as the kernel would choose them. */
enum fib_answer fib_find(const struct sy_addr *dst, struct sy_addr *hop, int *ifindex);

#endif
