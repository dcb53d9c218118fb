// SPDX-License-Identifier: Apache-2.0
/* All calls in which a thread may wait for a socket to become readable. */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "waits.h"

static long by_recv(int fd, char *bytes, size_t len)
{
	return recv(fd, bytes, len, 0);
}

static long by_waitall(int fd, char *bytes, size_t len)
{
	return recv(fd, bytes, len, MSG_WAITALL);
}

static long by_recvfrom(int fd, char *bytes, size_t len)
{
	return recvfrom(fd, bytes, len, 0, NULL, NULL);
}

static long by_recvmsg(int fd, char *bytes, size_t len)
{
	struct iovec iov = {bytes, len};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	return recvmsg(fd, &m, 0);
}

static long by_read(int fd, char *bytes, size_t len)
{
	return read(fd, bytes, len);
}

static long by_readv(int fd, char *bytes, size_t len)
{
	struct iovec iov = {bytes, len};
	return readv(fd, &iov, 1);
}

static long by_poll(int fd, char *bytes, size_t len)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, -1) < 0 ? -1 : recv(fd, bytes, len, MSG_DONTWAIT);
}

static long by_ppoll(int fd, char *bytes, size_t len)
{
	struct pollfd p[2] = {{.fd = -1}, {.fd = fd, .events = POLLIN}};
	return ppoll(p, 2, NULL, NULL) < 0 ? -1 : recv(fd, bytes, len, MSG_DONTWAIT);
}

static long by_select(int fd, char *bytes, size_t len)
{
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	return select(fd + 1, &in, NULL, NULL, NULL) < 0 ? -1 : recv(fd, bytes, len, MSG_DONTWAIT);
}

static long by_pselect(int fd, char *bytes, size_t len)
{
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	return pselect(fd + 1, &in, NULL, NULL, NULL, NULL) < 0
	               ? -1
	               : recv(fd, bytes, len, MSG_DONTWAIT);
}

static long by_epoll(int fd, char *bytes, size_t len)
{
	static __thread int epfd;
	struct epoll_event e = {.events = EPOLLIN};

	if (!epfd)
		epfd = epoll_create1(0);
	if (epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e))
		return -1;
	int n = epoll_wait(epfd, &e, 1, -1);
	epoll_ctl(epfd, EPOLL_CTL_DEL, fd, &e);
	return n < 0 ? -1 : recv(fd, bytes, len, MSG_DONTWAIT);
}

static long by_nested(int fd, char *bytes, size_t len)
{
	static __thread int inner, outer;
	struct epoll_event e = {.events = EPOLLIN};

	if (!inner) {
		inner = epoll_create1(0);
		outer = epoll_create1(0);
		if (epoll_ctl(outer, EPOLL_CTL_ADD, inner, &e))
			return -1;
	}
	if (epoll_ctl(inner, EPOLL_CTL_ADD, fd, &e))
		return -1;
	int n;
	do {
		n = epoll_wait(outer, &e, 1, -1);
		n = n < 0 ? n : epoll_wait(inner, &e, 1, 0);
	} while (n == 0);
	epoll_ctl(inner, EPOLL_CTL_DEL, fd, &e);
	return n < 0 ? -1 : recv(fd, bytes, len, MSG_DONTWAIT);
}

const struct kind kinds[KINDS] = {
        {"recv", by_recv},       {"waitall", by_waitall}, {"recvfrom", by_recvfrom},
        {"recvmsg", by_recvmsg}, {"read", by_read},       {"readv", by_readv},
        {"poll", by_poll},       {"ppoll", by_ppoll},     {"select", by_select},
        {"pselect", by_pselect}, {"epoll", by_epoll},     {"nested", by_nested},
};
