// SPDX-License-Identifier: Apache-2.0
/* Facts about a connection: TCP_INFO and ioctl(). */
#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <sy_stack_linux.h>

#include "preload.h"
#include "real.h"

struct sy_stack_info info_of(const struct sock *s)
{
	struct sy_stack_info i = {.state = SY_STACK_CLOSED};

	if (runner.stack && s->id != SY_STACK_NONE)
		sy_stack_info(runner.stack, s->id, &i);
	return i;
}

socklen_t info_get(const struct sock *s, void *out)
{
	struct sy_stack_info i = info_of(s);
	struct tcp_info info;

	_Static_assert(sizeof(info) <= INFO_BYTES, "TCP_INFO has grown");
	if (i.state == SY_STACK_TIME_WAIT) /* Linux's socket is closed by then */
		i.state = SY_STACK_CLOSED;
	sy_stack_linux_info(&i, &info);
	memcpy(out, &info, sizeof(info));
	return sizeof(info);
}

/* ---- ioctl ----------------------------------------------------------------------------------- */

/* Accepts an argument at any address, as Linux does. */
static int connection_ioctl(int fd, unsigned long request, void *arg)
{
	int value, rc;

	if (!arg)
		return -EFAULT;
	if (!runner_lock())
		return -EAGAIN;
	runner_poll();
	struct sock *s = table_connection(fd); /* another thread may have closed it */
	struct sy_stack_info i = s ? info_of(s) : (struct sy_stack_info){0};
	runner_unlock();
	if (!s)
		return -EBADF;
	rc = sy_stack_linux_ioctl(&i, request, &value);
	if (!rc)
		memcpy(arg, &value, sizeof(value));
	return rc;
}

PRELOAD_EXPORT int ioctl(int fd, unsigned long request, ...)
{
	struct sock *s = table_sock(fd);
	va_list list;
	void *arg;

	va_start(list, request);
	arg = va_arg(list, void *);
	va_end(list);
	if (!s)
		return REAL(ioctl)(fd, request, arg);
	if (request == FIONBIO) {
		int on;
		if (!arg)
			return (int)result(-EFAULT);
		memcpy(&on, arg, sizeof(on));
		s->nonblock = on != 0;
		if (s->o.kind == OBJECT_LISTENER)
			listener_store_blocking(s, fd);
		return 0;
	}
	/* Other requests (interfaces, close-on-exec) are not about a connection: any socket can
	 * answer. */
	if (s->o.kind == OBJECT_LISTENER || (request != FIONREAD && request != SIOCOUTQ &&
	                                     request != SIOCOUTQNSD && request != SIOCATMARK))
		return REAL(ioctl)(fd, request, arg);
	return (int)result(connection_ioctl(fd, request, arg));
}

/* The C library's function does not call ioctl(). */
PRELOAD_EXPORT int sockatmark(int fd)
{
	int at;

	return ioctl(fd, SIOCATMARK, &at) < 0 ? -1 : at;
}
