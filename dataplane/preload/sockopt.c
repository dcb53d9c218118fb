// SPDX-License-Identifier: Apache-2.0
/* Socket options of the stack's sockets. */
#include <errno.h>
#include <netinet/tcp.h>

#include "real.h"
#include "sockopt.h"

/* ---- set ------------------------------------------------------------------------------------- */

void options_apply(const struct sock *s, sy_stack_id id)
{
	if (runner.stack && id != SY_STACK_NONE)
		sy_socket_options_apply(&s->options, runner.stack, id, sy_clock_ns());
}

static void apply_each(const struct sock *s, int level, int name)
{
	const sy_stack_id id[2] = {s->id, s->id_v4};

	for (unsigned i = 0; i < 2 && runner.stack; i++)
		if (id[i] != SY_STACK_NONE)
			sy_socket_option_apply(&s->options, level, name, runner.stack, id[i],
			                       sy_clock_ns());
}

/* Returns whether the option has no effect, but its value is kept in the kernel's socket. */
static bool is_kept(int name)
{
	/* TCP_DEFER_ACCEPT: the program waits for the first bytes itself. */
	return name == TCP_DEFER_ACCEPT || name == TCP_NOTSENT_LOWAT || name == TCP_LINGER2 ||
	       name == TCP_SYNCNT;
}

/* Sets a buffer's size. Linux limits it: its own socket reports the result. */
static int buffer_set(struct sock *s, int fd, int name, int size)
{
	bool send = name == SO_SNDBUF || name == SO_SNDBUFFORCE;
	const sy_stack_id id[2] = {s->id, s->id_v4};

	if (fd < 0) /* a relay: the program's end has its own buffers */
		return 0;
	if (s->o.kind == OBJECT_CONNECTION &&
	    REAL(setsockopt)(fd, SOL_SOCKET, name, &size, sizeof(size)))
		return -errno;
	option_keep(s, fd, SOL_SOCKET, name, size);
	for (unsigned i = 0; i < 2 && runner.stack; i++)
		if (id[i] != SY_STACK_NONE)
			sy_stack_set(runner.stack, id[i],
			             send ? SY_STACK_SEND_BYTES : SY_STACK_RECEIVE_BYTES,
			             send ? s->options.send_bytes : s->options.receive_bytes,
			             sy_clock_ns());
	return 0;
}

/* Returns whether the option is accepted without an effect. */
static bool is_ignored(int level, int name)
{
	if (level == IPPROTO_TCP)
		return is_kept(name);
	return level == SOL_SOCKET &&
	       (name == SO_OOBINLINE || name == SO_RCVLOWAT || name == SO_DONTROUTE ||
	        name == SO_TIMESTAMP || name == SO_INCOMING_CPU || name == SO_BUSY_POLL);
}

int option_set(struct sock *s, int fd, int level, int name, const void *value, socklen_t len)
{
	int number, rc;

	memcpy(&number, value, sizeof(number));
	if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_SNDBUFFORCE ||
	                            name == SO_RCVBUF || name == SO_RCVBUFFORCE))
		return buffer_set(s, fd, name, number);
	if (is_ignored(level, name))
		return 0;
	rc = sy_socket_option_set(&s->options, level, name, value, len);
	if (rc == 0)
		apply_each(s, level, name);
	return rc;
}

PRELOAD_EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct sock *s = table_sock(fd);
	bool listens = s && s->o.kind == OBJECT_LISTENER;
	int rc;

	if (!s && relay_has(fd))
		return (int)result(relay_option_set(fd, level, name, value, len));
	if (!s)
		return option_plain_set(fd, level, name, value, len);
	if (!value)
		return (int)result(-EFAULT);
	if (listens && option_binds(level, name, value, len))
		return (int)result(-ENOPROTOOPT);
	/* Accepted connections share one placeholder socket in the kernel. */
	bool kept = !s->accepted && level == IPPROTO_TCP && is_kept(name);
	if ((listens || kept) && REAL(setsockopt)(fd, level, name, value, len))
		return -1;
	if (len < sizeof(int))
		return listens ? 0 : (int)result(-EINVAL);
	if (!runner_lock())
		return (int)result(-EAGAIN);
	s = table_sock(fd); /* another thread may have closed it */
	if (!s) {
		runner_unlock();
		return (int)result(-EBADF);
	}
	rc = option_set(s, fd, level, name, value, len);
	if (rc == -ENOPROTOOPT && s->o.kind == OBJECT_LISTENER)
		rc = 0; /* the kernel has accepted it */
	runner_flush();
	runner_unlock();
	return (int)result(rc);
}

/* ---- get ------------------------------------------------------------------------------------- */

/* Returns -1 for other options. */
static int64_t number_get(struct sock *s, int level, int name)
{
	if (level == IPPROTO_TCP && name == TCP_MAXSEG)
		return info_of(s).mss;
	if (level != SOL_SOCKET)
		return -1;
	switch (name) {
	case SO_ERROR:
		return runner.stack ? sy_stack_error(runner.stack, s->id) : 0;
	case SO_TYPE:
		return SOCK_STREAM;
	case SO_DOMAIN:
		return s->family;
	case SO_PROTOCOL:
		return IPPROTO_TCP;
	case SO_ACCEPTCONN:
		return 0;
	case SO_SNDBUF:
		return s->options.send_bytes ? s->options.send_bytes : 4u << 20;
	case SO_RCVBUF:
		return s->options.receive_bytes ? s->options.receive_bytes : 6u << 20;
	default:
		return -1;
	}
}

socklen_t option_get(struct sock *s, int level, int name, void *out, socklen_t len)
{
	int64_t number = number_get(s, level, name);

	if (number >= 0) {
		memcpy(out, &(int){(int)number}, sizeof(int));
		return sizeof(int);
	}
	if (level == IPPROTO_TCP && name == TCP_INFO)
		return info_get(s, out);
	return sy_socket_option_get(&s->options, level, name, len, out);
}

PRELOAD_EXPORT int getsockopt(int fd, int level, int name, void *restrict value,
                              socklen_t *restrict len)
{
	struct sock *s = table_connection(fd);
	_Alignas(8) char out[INFO_BYTES];
	socklen_t size = 0;

	if (!s && relay_has(fd) && len && value)
		return (int)result(relay_option_get(fd, level, name, value, len));
	if (!s)
		return REAL(getsockopt)(fd, level, name, value, len);
	if (len && (int)*len < 0)
		return (int)result(-EINVAL);
	if (!len || (!value && *len))
		return (int)result(-EFAULT);
	if (!runner_lock())
		return (int)result(-EAGAIN);
	s = table_connection(fd); /* another thread may have closed it */
	if (!s) {
		runner_unlock();
		return (int)result(-EBADF);
	}
	size = option_get(s, level, name, out, *len);
	runner_unlock();
	if (!size) /* an option of the family, or one that the stack does not have */
		return level == IPPROTO_TCP && !is_kept(name)
		               ? (int)result(-ENOPROTOOPT)
		               : REAL(getsockopt)(fd, level, name, value, len);
	*len = *len < size ? *len : size;
	if (*len)
		memcpy(value, out, *len);
	return 0;
}
