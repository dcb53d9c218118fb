// SPDX-License-Identifier: Apache-2.0
/*
 * The input determines the calls of two applications, valid or not, at both ends of a link.
 * Results must be within bounds, and nothing may leak.
 */
#ifndef CALLS_H
#define CALLS_H

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include "script.h"

#include "context_link.h"

#define CALLS_CHECK(condition)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

struct calls {
	struct link link;
	const uint8_t *bytes;
	size_t left;
};

static inline uint32_t calls_byte(struct calls *f)
{
	return f->left ? f->left--, *f->bytes++ : 0;
}

static inline uint32_t calls_number(struct calls *f)
{
	uint32_t kind = calls_byte(f), number = calls_byte(f) << 8;

	number |= calls_byte(f);
	return kind < 128 ? number % 16 : kind < 240 ? number : number << (kind % 17);
}

/* Small numbers, so that calls use the same descriptors; sometimes an invalid one. */
static inline int calls_fd(struct calls *f)
{
	return (int)(calls_byte(f) % 14) - 1;
}

static inline long calls_answer(long rc)
{
	CALLS_CHECK(rc >= -4095);
	return rc;
}

static inline socklen_t calls_address(struct calls *f, unsigned to, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (void *)out;
	struct sockaddr_in6 *v6 = (void *)out;
	uint32_t kind = calls_byte(f);
	bool six = kind & 1;

	*out = (struct sockaddr_storage){.ss_family = six ? AF_INET6 : AF_INET};
	v4->sin_port = htons((uint16_t)(kind & 2 ? 80 + (kind >> 6) : 0));
	if (kind & 4)
		inet_pton(out->ss_family, six ? LINK_V6(to) : LINK_V4(to),
		          six ? (void *)&v6->sin6_addr : (void *)&v4->sin_addr);
	else if (kind & 8 && six)
		inet_pton(AF_INET6, to ? "::ffff:10.0.0.2" : "::ffff:10.0.0.1", &v6->sin6_addr);
	if ((kind & 48) == 48)
		out->ss_family = (sa_family_t)calls_byte(f);
	return (kind & 48) == 32 ? calls_byte(f) % 40 : six ? sizeof(*v6) : sizeof(*v4);
}

static inline void calls_transfer(struct calls *f, struct sy_tcp_context *c, uint32_t what, int fd)
{
	static uint8_t bytes[3][70000];
	uint32_t len = calls_number(f) % sizeof(bytes[0]), flags = calls_byte(f);
	struct iovec v[3] = {{bytes[0], len}, {bytes[1], len / 3}, {bytes[2], flags}};
	struct sockaddr_storage name;
	struct msghdr m = {
	        .msg_iov = v, .msg_iovlen = flags % 4, .msg_name = &name, .msg_namelen = 99};
	int how = (flags & 1 ? MSG_PEEK : 0) | (flags & 2 ? MSG_MORE : 0) |
	          (flags & 4 ? MSG_OOB : 0) | (flags & 8 ? MSG_TRUNC : 0) |
	          (flags & 16 ? MSG_WAITALL : 0) | (flags & 32 ? MSG_ERRQUEUE : 0);
	long rc;

	switch (what % 8) {
	case 0:
		CALLS_CHECK(calls_answer(sy_tcp_send(c, fd, bytes[0], len, how)) <= (long)len);
		break;
	case 1:
		CALLS_CHECK(calls_answer(sy_tcp_recv(c, fd, bytes[0], len, how)) <= (long)len);
		break;
	case 2:
		calls_answer(sy_tcp_writev(c, fd, v, (int)(flags % 5) - 1));
		break;
	case 3:
		calls_answer(sy_tcp_readv(c, fd, v, (int)(flags % 4)));
		break;
	case 4:
		calls_answer(sy_tcp_sendmsg(c, fd, &m, how));
		break;
	case 5:
		calls_answer(sy_tcp_recvmsg(c, fd, &m, how));
		break;
	case 6:
		rc = calls_answer(sy_tcp_receive_look(c, fd, v, (int)(flags % 4)));
		calls_answer(sy_tcp_receive_done(c, fd, rc > 0 ? (size_t)rc - (flags & 1) : len));
		break;
	default:
		rc = calls_answer(sy_tcp_send_room(c, fd, v, (int)(flags % 4), len));
		for (long i = 0, room = rc; room > 0; room -= (long)v[i++].iov_len)
			memset(v[i].iov_base, 7, v[i].iov_len);
		if (rc >= 0)
			calls_answer(sy_tcp_send_done(c, fd, (size_t)rc / (1 + flags % 2), how));
	}
}

static inline void calls_option(struct calls *f, struct sy_tcp_context *c, int fd)
{
	static const int levels[] = {SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6};
	static const unsigned long requests[] = {FIONREAD, SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK, 1};
	uint32_t which = calls_byte(f), value[64] = {calls_number(f), calls_number(f)};
	socklen_t len = which & 64 ? calls_byte(f) : which & 32 ? 8 : 4;
	int level = levels[which % 4], name = (int)calls_byte(f) % 75, number;

	if (which & 128)
		calls_answer(sy_tcp_setsockopt(c, fd, level, name, value, len));
	else
		calls_answer(sy_tcp_getsockopt(c, fd, level, name, value, &len));
	CALLS_CHECK(len <= sizeof(value));
	calls_answer(sy_tcp_ioctl(c, fd, requests[which % 5], &number));
}

static inline void calls_wait(struct calls *f, struct sy_tcp_context *c, int fd)
{
	struct epoll_event e[4] = {{.events = 0}};
	struct pollfd p[3] = {{.fd = fd, .events = (short)calls_byte(f)},
	                      {.fd = calls_fd(f), .events = POLLIN},
	                      {.fd = calls_fd(f), .events = POLLOUT}};
	uint32_t what = calls_byte(f);
	int ms = what & 8 ? (int)(calls_number(f) % 5000) : 0;

	switch (what % 6) {
	case 0:
		CALLS_CHECK(calls_answer(sy_tcp_poll(c, p, 1 + what % 3, ms, NULL)) <= 3);
		break;
	case 1:
	case 2:
		e[0] = (struct epoll_event){.events = calls_byte(f) | (what & 16 ? EPOLLET : 0) |
		                                      (what & 32 ? EPOLLONESHOT : 0) |
		                                      ((what & 192) == 192 ? EPOLLEXCLUSIVE : 0)};
		calls_answer(sy_tcp_epoll_ctl(c, fd, (int)(calls_byte(f) % 5), p[1].fd, &e[0]));
		break;
	case 3:
		CALLS_CHECK(calls_answer(sy_tcp_epoll_wait(c, fd, e, (int)(what >> 5) % 5, ms,
		                                           NULL)) <= 4);
		break;
	case 4:
		sy_tcp_wait(c, ms, NULL);
		break;
	default:
		sy_tcp_ready(c, fd);
		sy_tcp_run(c);
	}
}

static inline void calls_name(struct calls *f, struct sy_tcp_context *c, uint32_t what, int fd)
{
	struct sockaddr_storage a;
	socklen_t len = calls_byte(f) % (sizeof(a) + 1);

	switch (what % 3) {
	case 0:
		calls_answer(sy_tcp_getsockname(c, fd, (void *)&a, &len));
		break;
	case 1:
		calls_answer(sy_tcp_getpeername(c, fd, (void *)&a, &len));
		break;
	default:
		calls_answer(sy_tcp_accept(c, fd, (void *)&a, &len));
	}
	CALLS_CHECK(len <= sizeof(a));
}

/* Makes the next call; its result is a count, a descriptor or a negative errno. */
static inline void calls_step(struct calls *f)
{
	uint32_t what = calls_byte(f);
	unsigned side = what & 1;
	struct sy_tcp_context *c = f->link.side[side].context;
	struct sockaddr_storage a;
	socklen_t len;
	int fd = calls_fd(f);

	switch ((what >> 1) % 14) {
	case 0:
		calls_answer(sy_tcp_socket(c, what & 64 ? AF_INET6 : AF_INET));
		break;
	case 1:
		len = calls_address(f, side, &a);
		calls_answer(sy_tcp_bind(c, fd, (void *)&a, len));
		break;
	case 2:
		calls_answer(sy_tcp_listen(c, fd, (int)calls_byte(f) - 1));
		break;
	case 3:
	case 4:
		calls_name(f, c, what >> 5, fd);
		break;
	case 5:
		len = calls_address(f, !side, &a);
		calls_answer(sy_tcp_connect(c, fd, (void *)&a, len));
		break;
	case 6:
		calls_answer(sy_tcp_shutdown(c, fd, (int)calls_byte(f) % 4));
		break;
	case 7:
		if (what & 128)
			calls_answer(sy_tcp_close_fd(c, fd));
		else
			calls_answer(sy_tcp_epoll_create(c));
		break;
	case 8:
		calls_option(f, c, fd);
		break;
	case 9:
	case 10:
		calls_transfer(f, c, what >> 5, fd);
		break;
	case 11:
		f->link.cut = (what & 192) == 192;
		link_pass(&f->link, calls_number(f) % 200000 * UINT64_C(1000000));
		break;
	default:
		calls_wait(f, c, fd);
	}
}

/* A listener, two connections, and an epoll instance at each end. */
static inline void calls_begin(struct calls *f)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)};
	struct sy_tcp_context *client = f->link.side[0].context, *server = f->link.side[1].context;
	int listener = sy_tcp_socket(server, AF_INET);

	inet_pton(AF_INET, LINK_V4(1), &to.sin_addr);
	CALLS_CHECK(sy_tcp_bind(server, listener, (void *)&to, sizeof(to)) == 0);
	CALLS_CHECK(sy_tcp_listen(server, listener, 3) == 0);
	for (unsigned i = 0; i < 2; i++) {
		int fd = sy_tcp_socket(client, AF_INET);
		CALLS_CHECK(sy_tcp_connect(client, fd, (void *)&to, sizeof(to)) == -EINPROGRESS);
		sy_tcp_run(client);
		CALLS_CHECK(sy_tcp_accept(server, listener, NULL, NULL) > 0);
	}
	sy_tcp_epoll_create(client);
	sy_tcp_epoll_create(server);
}

static inline void calls_open(struct calls *f, const uint8_t *bytes, size_t len)
{
	f->bytes = bytes;
	f->left = len;
	link_open(&f->link,
	          &(struct sy_stack_options){.connections = 16,
	                                     .listeners = 4,
	                                     .send_all = 16 * 2048,
	                                     .receive_all = 65536,
	                                     .toa = len % 2},
	          12);
	if (calls_byte(f) % 4)
		calls_begin(f);
}

static inline void calls_close(struct calls *f)
{
	f->link.cut = false;
	link_close(&f->link);
}

#endif
