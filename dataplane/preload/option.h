// SPDX-License-Identifier: Apache-2.0
/* What option.c and option_kernel.c have in common. */
#ifndef PRELOAD_OPTION_H
#define PRELOAD_OPTION_H

#include <sys/time.h>

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

/* A struct timeval, in ns. */
static inline uint64_t option_time(const void *value)
{
	struct timeval t;

	memcpy(&t, value, sizeof(t));
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_usec * 1000;
}

/* Its first 32 bits, or all; -1: no bound, which is 0 here. */
static inline uint64_t option_rate(const void *value, socklen_t len)
{
	uint32_t rate;
	uint64_t whole;

	memcpy(&rate, value, sizeof(rate));
	if (len < sizeof(whole))
		return (uint32_t)(rate + 1);
	memcpy(&whole, value, sizeof(whole));
	return whole + 1;
}

#endif
