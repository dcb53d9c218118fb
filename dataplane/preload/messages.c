// SPDX-License-Identifier: Apache-2.0
/* Several messages in one call: sendmmsg() and recvmmsg(), one after the other. */
#include <errno.h>
#include <time.h>

#include "preload.h"
#include "real.h"

/* An error after the first message is left to the next call. */
static int messages_done(unsigned done, ssize_t n)
{
	return done > 0 ? (int)done : (int)n;
}

PRELOAD_EXPORT int sendmmsg(int fd, struct mmsghdr *m, unsigned count, int flags)
{
	static int (*real)(int, struct mmsghdr *, unsigned, int);

	if (!real)
		real = (__typeof__(real))dlsym(RTLD_NEXT, "sendmmsg");
	if (!table_connection(fd))
		return real(fd, m, count, flags);
	if (count > 0 && !is_user_memory(m))
		return (int)result(-EFAULT);
	for (unsigned i = 0; i < count; i++) {
		ssize_t n = sendmsg(fd, &m[i].msg_hdr, flags);
		if (n < 0)
			return messages_done(i, n);
		m[i].msg_len = (unsigned)n;
	}
	return (int)count;
}

/* Returns the connection's error: here Linux reports it before bytes that arrived earlier. */
static int error_consume(int fd)
{
	int error = 0;

	if (!runner_lock())
		return 0;
	struct sock *s = table_connection(fd);
	if (s && sock_ready(s) & EPOLLERR)
		error = sy_stack_error(runner.stack, s->id);
	runner_unlock();
	return error;
}

/* As on Linux, the time-out is checked after each message, and ends no wait. */
PRELOAD_EXPORT int recvmmsg(int fd, struct mmsghdr *m, unsigned count, int flags,
                            struct timespec *timeout)
{
	static int (*real)(int, struct mmsghdr *, unsigned, int, struct timespec *);
	uint64_t deadline = NEVER;

	if (!real)
		real = (__typeof__(real))dlsym(RTLD_NEXT, "recvmmsg");
	if (!table_connection(fd))
		return real(fd, m, count, flags, timeout);
	if (count > 0 && !is_user_memory(m))
		return (int)result(-EFAULT);
	int error = error_consume(fd);
	if (error)
		return (int)result(-error);
	if (timeout)
		deadline = sy_clock_ns() + (uint64_t)timeout->tv_sec * 1000000000 +
		           (uint64_t)timeout->tv_nsec;
	for (unsigned i = 0; i < count; i++) {
		ssize_t n = recvmsg(fd, &m[i].msg_hdr, flags & ~MSG_WAITFORONE);
		if (n < 0)
			return messages_done(i, n);
		m[i].msg_len = (unsigned)n;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (is_past(deadline))
			return (int)i + 1;
	}
	return (int)count;
}
