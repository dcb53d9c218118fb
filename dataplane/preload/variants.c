// SPDX-License-Identifier: Apache-2.0
/* Other forms and names of calls: with a position, formatted, by a stream, and the C library's
 * second names. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>

#include "preload.h"
#include "real.h"

/* The flags of Linux; only RWF_NOWAIT has a meaning for a socket. */
#define RWF_KNOWN (RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND)

/* ---- with a position ------------------------------------------------------------------------- */

/* Sockets have no position: only -1, as readv(), comes here. Returns 0, or a negative errno. */
static int vectors_prepare(const struct iovec *iov, int count, int flags, struct msghdr *m)
{
	if ((unsigned)count > IOV_MAX)
		return -EINVAL;
	*m = (struct msghdr){.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
	return flags & ~RWF_KNOWN ? -EOPNOTSUPP : 0;
}

static ssize_t vectors_receive(int fd, const struct iovec *iov, int count, int flags)
{
	struct msghdr m;
	int rc = vectors_prepare(iov, count, flags, &m);

	if (rc || count == 0)
		return result(rc);
	return recvmsg(fd, &m, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0);
}

static ssize_t vectors_send(int fd, const struct iovec *iov, int count, int flags)
{
	struct msghdr m;
	int rc = vectors_prepare(iov, count, flags, &m);

	if (rc || count == 0)
		return result(rc);
	return sendmsg(fd, &m, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0);
}

#define POSITIONED(name, vectors)                                                                  \
	PRELOAD_EXPORT ssize_t name(int fd, const struct iovec *iov, int count, off64_t at,        \
	                            int flags)                                                     \
	{                                                                                          \
		if (at == -1 && table_connection(fd))                                              \
			return vectors(fd, iov, count, flags);                                     \
		return REAL_OF(name)(fd, iov, count, at, flags);                                   \
	}
POSITIONED(preadv2, vectors_receive)
POSITIONED(preadv64v2, vectors_receive)
POSITIONED(pwritev2, vectors_send)
POSITIONED(pwritev64v2, vectors_send)

/* ---- formatted ------------------------------------------------------------------------------- */

static int text_send(int fd, char *text, int len)
{
	int done = 0;

	while (done < len) {
		ssize_t n = write(fd, text + done, (size_t)(len - done));
		if (n < 0)
			break;
		done += (int)n;
	}
	free(text);
	return done < len ? -1 : len;
}

PRELOAD_EXPORT int vdprintf(int fd, const char *format, va_list list)
{
	char *text = NULL;

	if (!table_connection(fd))
		return REAL_OF(vdprintf)(fd, format, list);
	int len = vasprintf(&text, format, list);
	return len < 0 ? -1 : text_send(fd, text, len);
}

PRELOAD_EXPORT int dprintf(int fd, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	int rc = vdprintf(fd, format, list);
	va_end(list);
	return rc;
}

/* With _FORTIFY_SOURCE. */
PRELOAD_EXPORT int __vdprintf_chk(int fd, int flag, const char *format, va_list list);
PRELOAD_EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...);
extern int __vasprintf_chk(char **text, int flag, const char *format, va_list list);

int __vdprintf_chk(int fd, int flag, const char *format, va_list list)
{
	char *text = NULL;

	if (!table_connection(fd))
		return REAL_OF(__vdprintf_chk)(fd, flag, format, list);
	int len = __vasprintf_chk(&text, flag, format, list);
	return len < 0 ? -1 : text_send(fd, text, len);
}

int __dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	int rc = __vdprintf_chk(fd, flag, format, list);
	va_end(list);
	return rc;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* The C library reads and writes a stream's descriptor without these calls: the connection becomes
 * a relay. */
PRELOAD_EXPORT FILE *fdopen(int fd, const char *mode)
{
	relay_pass(fd);
	return REAL_OF(fdopen)(fd, mode);
}

/* ---- second names ---------------------------------------------------------------------------- */

#define SECOND(type, name, parameters, ...)                                                        \
	PRELOAD_EXPORT type __##name parameters;                                                   \
	type __##name parameters                                                                   \
	{                                                                                          \
		return name(__VA_ARGS__);                                                          \
	}
SECOND(ssize_t, read, (int fd, void *bytes, size_t len), fd, bytes, len)
SECOND(ssize_t, write, (int fd, const void *bytes, size_t len), fd, bytes, len)
SECOND(ssize_t, send, (int fd, const void *bytes, size_t len, int flags), fd, bytes, len, flags)
SECOND(int, connect, (int fd, const struct sockaddr *to, socklen_t len), fd, to, len)
SECOND(int, close, (int fd), fd)
SECOND(int, dup2, (int fd, int to), fd, to)
SECOND(int, poll, (struct pollfd * p, nfds_t count, int timeout), p, count, timeout)
SECOND(int, select, (int count, fd_set *in, fd_set *out, fd_set *urgent, struct timeval *timeout),
       count, in, out, urgent, timeout)
SECOND(int, fcntl, (int fd, int command, void *arg), fd, command, arg)
