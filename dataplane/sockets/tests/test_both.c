// SPDX-License-Identifier: Apache-2.0
/* The library's sockets behave like the kernel's: the plays of both.h on both. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "script.h"

#include "both.h"
#include "context_link.h"

/* ---- notes ----------------------------------------------------------------------------------- */

static char notes[2][65536];
static unsigned noted, now_of;

void note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	noted += (unsigned)vsnprintf(notes[now_of] + noted, sizeof(notes[0]) - noted, format, args);
	va_end(args);
	assert_true(noted < sizeof(notes[0]));
}

void note_result(const char *what, long result)
{
	if (result < 0)
		note("%s: %s\n", what, strerrorname_np((int)-result));
	else
		note("%s: %ld\n", what, result);
}

/* ---- the kernel's ---------------------------------------------------------------------------- */

#define ERRNO(call)                                                                                \
	({                                                                                         \
		long rc_ = (call);                                                                 \
		rc_ < 0 ? -errno : rc_;                                                            \
	})

static int k_socket(int side, int family)
{
	return (int)ERRNO(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
}

static int k_bind(int side, int fd, const struct sockaddr *addr, socklen_t len)
{
	return (int)ERRNO(bind(fd, addr, len));
}

static int k_listen(int side, int fd, int backlog)
{
	return (int)ERRNO(listen(fd, backlog));
}

static int k_accept(int side, int fd, struct sockaddr *addr, socklen_t *len)
{
	return (int)ERRNO(accept4(fd, addr, len, SOCK_NONBLOCK));
}

static int k_connect(int side, int fd, const struct sockaddr *addr, socklen_t len)
{
	return (int)ERRNO(connect(fd, addr, len));
}

static int k_shutdown(int side, int fd, int how)
{
	return (int)ERRNO(shutdown(fd, how));
}

static int k_close(int side, int fd)
{
	return (int)ERRNO(close(fd));
}

static int k_getsockname(int side, int fd, struct sockaddr *addr, socklen_t *len)
{
	return (int)ERRNO(getsockname(fd, addr, len));
}

static int k_getpeername(int side, int fd, struct sockaddr *addr, socklen_t *len)
{
	return (int)ERRNO(getpeername(fd, addr, len));
}

static int k_getsockopt(int side, int fd, int level, int name, void *value, socklen_t *len)
{
	return (int)ERRNO(getsockopt(fd, level, name, value, len));
}

static int k_setsockopt(int side, int fd, int level, int name, const void *value, socklen_t len)
{
	return (int)ERRNO(setsockopt(fd, level, name, value, len));
}

static int k_ioctl(int side, int fd, unsigned long request, int *value)
{
	return (int)ERRNO(ioctl(fd, request, value));
}

static ssize_t k_send(int side, int fd, const void *bytes, size_t len, int flags)
{
	return ERRNO(send(fd, bytes, len, flags | MSG_NOSIGNAL));
}

static ssize_t k_writev(int side, int fd, const struct iovec *v, int count)
{
	return ERRNO(writev(fd, v, count));
}

static ssize_t k_sendmsg(int side, int fd, const struct msghdr *m, int flags)
{
	return ERRNO(sendmsg(fd, m, flags | MSG_NOSIGNAL));
}

static ssize_t k_recv(int side, int fd, void *bytes, size_t len, int flags)
{
	return ERRNO(recv(fd, bytes, len, flags));
}

static ssize_t k_readv(int side, int fd, const struct iovec *v, int count)
{
	return ERRNO(readv(fd, v, count));
}

static ssize_t k_recvmsg(int side, int fd, struct msghdr *m, int flags)
{
	return ERRNO(recvmsg(fd, m, flags));
}

static int k_poll(int side, struct pollfd *p, unsigned count, int timeout_ms)
{
	return (int)ERRNO(poll(p, count, timeout_ms));
}

static int k_epoll_create(int side)
{
	return (int)ERRNO(epoll_create1(0));
}

static int k_epoll_ctl(int side, int epfd, int op, int fd, struct epoll_event *event)
{
	return (int)ERRNO(epoll_ctl(epfd, op, fd, event));
}

static int k_epoll_wait(int side, int epfd, struct epoll_event *event, int max, int timeout_ms)
{
	return (int)ERRNO(epoll_wait(epfd, event, max, timeout_ms));
}

static const struct both kernels = {
        "kernel",      {"127.0.0.1", "::1"},
        k_socket,      k_bind,
        k_listen,      k_accept,
        k_connect,     k_shutdown,
        k_close,       k_getsockname,
        k_getpeername, k_getsockopt,
        k_setsockopt,  k_ioctl,
        k_send,        k_writev,
        k_sendmsg,     k_recv,
        k_readv,       k_recvmsg,
        k_poll,        k_epoll_create,
        k_epoll_ctl,   k_epoll_wait,
};

/* ---- the library's --------------------------------------------------------------------------- */

static struct link wire;

#define OURS(name, result, call, ...)                                                              \
	static result l_##name(int side, ##__VA_ARGS__)                                            \
	{                                                                                          \
		struct sy_tcp_context *c = wire.side[side].context;                                \
		return sy_tcp_##call;                                                              \
	}

OURS(socket, int, socket(c, family), int family)
OURS(bind, int, bind(c, fd, a, n), int fd, const struct sockaddr *a, socklen_t n)
OURS(listen, int, listen(c, fd, backlog), int fd, int backlog)
OURS(accept, int, accept(c, fd, a, n), int fd, struct sockaddr *a, socklen_t *n)
OURS(connect, int, connect(c, fd, a, n), int fd, const struct sockaddr *a, socklen_t n)
OURS(shutdown, int, shutdown(c, fd, how), int fd, int how)
OURS(close, int, close_fd(c, fd), int fd)
OURS(getsockname, int, getsockname(c, fd, a, n), int fd, struct sockaddr *a, socklen_t *n)
OURS(getpeername, int, getpeername(c, fd, a, n), int fd, struct sockaddr *a, socklen_t *n)
OURS(getsockopt, int, getsockopt(c, fd, level, name, v, n), int fd, int level, int name, void *v,
     socklen_t *n)
OURS(setsockopt, int, setsockopt(c, fd, level, name, v, n), int fd, int level, int name,
     const void *v, socklen_t n)
OURS(ioctl, int, ioctl(c, fd, request, v), int fd, unsigned long request, int *v)
OURS(send, ssize_t, send(c, fd, p, n, flags), int fd, const void *p, size_t n, int flags)
OURS(writev, ssize_t, writev(c, fd, v, n), int fd, const struct iovec *v, int n)
OURS(sendmsg, ssize_t, sendmsg(c, fd, m, flags), int fd, const struct msghdr *m, int flags)
OURS(recv, ssize_t, recv(c, fd, p, n, flags), int fd, void *p, size_t n, int flags)
OURS(readv, ssize_t, readv(c, fd, v, n), int fd, const struct iovec *v, int n)
OURS(recvmsg, ssize_t, recvmsg(c, fd, m, flags), int fd, struct msghdr *m, int flags)
OURS(poll, int, poll(c, p, n, ms, NULL), struct pollfd *p, unsigned n, int ms)
OURS(epoll_create, int, epoll_create(c))
OURS(epoll_ctl, int, epoll_ctl(c, ep, op, fd, e), int ep, int op, int fd, struct epoll_event *e)
OURS(epoll_wait, int, epoll_wait(c, ep, e, n, ms, NULL), int ep, struct epoll_event *e, int n,
     int ms)

static const struct both ours = {
        "library",     {"10.0.0.2", "2001:db8::2"},
        l_socket,      l_bind,
        l_listen,      l_accept,
        l_connect,     l_shutdown,
        l_close,       l_getsockname,
        l_getpeername, l_getsockopt,
        l_setsockopt,  l_ioctl,
        l_send,        l_writev,
        l_sendmsg,     l_recv,
        l_readv,       l_recvmsg,
        l_poll,        l_epoll_create,
        l_epoll_ctl,   l_epoll_wait,
};

/* ---- both ------------------------------------------------------------------------------------ */

/* Reports the first difference. */
static void compare(const char *play, bool v6)
{
	const char *a = notes[0], *b = notes[1];
	unsigned line = 1;

	if (strcmp(a, b) == 0)
		return;
	while (*a && *a == *b) {
		line += *a == '\n';
		a++;
		b++;
	}
	while (a > notes[0] && a[-1] != '\n') {
		a--;
		b--;
	}
	fail_msg("%s, IPv%d, line %u: kernel \"%.*s\", library \"%.*s\"", play, v6 ? 6 : 4, line,
	         (int)strcspn(a, "\n"), a, (int)strcspn(b, "\n"), b);
}

static void run(const struct both *b, const struct play *p, bool v6, unsigned which)
{
	now_of = which;
	noted = 0;
	notes[which][0] = '\0';
	p->run(b, v6);
}

static void plays_run(const struct play *p)
{
	for (; p->name; p++) {
		for (int v6 = 0; v6 < 2; v6++) {
			run(&kernels, p, v6, 0);
			link_open(&wire, NULL, 256);
			run(&ours, p, v6, 1);
			link_close(&wire);
			compare(p->name, v6);
		}
	}
}

static void test_sockets(void **state)
{
	plays_run(plays);
}

static void test_reset(void **state)
{
	plays_run(plays_reset);
}

static void test_epoll(void **state)
{
	plays_run(plays_epoll);
}

/* A network namespace, where the plays' port is free. */
static int setup(void **state)
{
	return unshare(CLONE_NEWNET) || system("ip link set lo up") ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_sockets),
	        cmocka_unit_test(test_reset),
	        cmocka_unit_test(test_epoll),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
