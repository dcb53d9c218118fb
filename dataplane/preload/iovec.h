// SPDX-License-Identifier: Apache-2.0
/* Checks of a call's arguments, for recv.c and send.c. */
#ifndef PRELOAD_IOVEC_H
#define PRELOAD_IOVEC_H

#include <errno.h>

#include "preload.h"

#define IOVEC_MAX 1024u /* as Linux's UIO_MAXIOV */

static inline uint64_t timeout_deadline(uint64_t wait_ns)
{
	return wait_ns ? sy_clock_ns() + wait_ns : NEVER;
}

static inline bool call_blocks(const struct sock *s, int flags)
{
	return !s->nonblock && !(flags & MSG_DONTWAIT);
}

/* Checks the parts of a call as Linux does before it accesses the socket. Returns 0 or a negative
 * errno. */
static inline int iovec_check(const struct iovec *iov, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!is_user_memory(iov))
			return -EFAULT;
		if ((ssize_t)iov[i].iov_len < 0)
			return -EINVAL;
		if ((intptr_t)iov[i].iov_base < 0)
			return -EFAULT;
	}
	return 0;
}

/* Returns whether the program can have memory for the bytes. A part without bytes may be
 * anywhere. */
static inline bool iovec_is_mapped(const struct iovec *iov, size_t count, size_t bytes)
{
	for (size_t i = 0; i < count && bytes > 0; i++) {
		if (iov[i].iov_len > 0 && !is_user_memory(iov[i].iov_base))
			return false;
		bytes -= bytes < iov[i].iov_len ? bytes : iov[i].iov_len;
	}
	return true;
}

#endif
