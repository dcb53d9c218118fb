// SPDX-License-Identifier: Apache-2.0
/* Brings sockets into their states. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "conformance.h"

#define POOL  5 /* four calls, and the queries */
#define BOUND 7200

struct peer peer;

static int listener = -1; /* of the state that is open now */
static int order = -1;    /* the connection by which the peer got its order */

socklen_t address_of(const char *host, int port, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (void *)out;
	struct sockaddr_in6 *v6 = (void *)out;

	memset(out, 0, sizeof(*out));
	if (peer.family == AF_INET) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		require(inet_pton(AF_INET, host, &v4->sin_addr) == 1, host);
		return sizeof(*v4);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	require(inet_pton(AF_INET6, host, &v6->sin6_addr) == 1, host);
	return sizeof(*v6);
}

int connect_to(int fd, const char *host, int port)
{
	struct sockaddr_storage a;
	socklen_t len = address_of(host, port, &a);

	return connect(fd, (void *)&a, len);
}

int stream_socket(int flags)
{
	int fd = socket(peer.family, SOCK_STREAM | flags, 0);

	require(fd >= 0, "socket");
	return fd;
}

static void block(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

void await(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	require(poll(&p, 1, PATIENCE) == 1, "poll");
}

int dial(const char *text)
{
	int fd = stream_socket(0);

	require(connect_to(fd, peer.address, peer.port) == 0, "connect");
	require(dprintf(fd, "%s\n", text) > 0, "order");
	return fd;
}

/* ---- before a connection --------------------------------------------------------------------- */

static int fresh(void)
{
	return stream_socket(0);
}

static void bind_own(int fd, int port)
{
	struct sockaddr_storage a;
	socklen_t len = address_of(peer.own, port, &a);
	int one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	require(bind(fd, (void *)&a, len) == 0, "bind");
}

/* Another port each time: the peer may not have closed a connection of the last one. */
static int bound(void)
{
	static int port = BOUND;
	int fd = stream_socket(0);

	bind_own(fd, port++);
	return fd;
}

/* Another port each time: connections that were not accepted at the last one are delivered to the
 * next listener there (0067-reload-without-a-gap.md). */
static int listening(void)
{
	int fd = stream_socket(0);

	bind_own(fd, ++peer.listen);
	require(listen(fd, 5) == 0, "listen");
	return fd;
}

static int begun(const char *host, int port)
{
	int fd = stream_socket(SOCK_NONBLOCK);

	require(connect_to(fd, host, port) < 0 && errno == EINPROGRESS, "connect");
	return fd;
}

static int connecting(void)
{
	int fd = begun(peer.address, peer.silent);

	block(fd);
	return fd;
}

/* The peer connects to the listener, and reports when it has done its part. */
static void call_listener(const char *verb)
{
	char text[128], byte;

	listener = listening();
	/* Linux refuses nothing: the program waits there, and new connections are the stack's. */
	struct pollfd p = {.fd = listener, .events = POLLIN};
	require(poll(&p, 1, 0) == 0, "no connection yet");
	snprintf(text, sizeof(text), "%s %s %d", verb, peer.own, peer.listen);
	order = dial(text);
	/* Twice: after the second answer, all packets sent before the first have arrived, on every
	 * queue. */
	for (int i = 0; i < 2; i++)
		require(read(order, &byte, 1) == 1 && write(order, "n", 1) == 1, "answer");
	await(listener, POLLIN);
}

static int waited_for(void)
{
	int fd;

	call_listener("visit");
	fd = listener;
	listener = -1;
	return fd;
}

static int accepted(void)
{
	call_listener("visit");
	int fd = accept(listener, NULL, NULL);
	require(fd >= 0, "accept");
	return fd;
}

static int accepted_reset(void)
{
	call_listener("strike");
	int fd = accept(listener, NULL, NULL);
	require(fd >= 0, "a connection that was reset before accept");
	return fd;
}

static int waits_reset(void)
{
	int fd;

	call_listener("strike");
	fd = listener;
	listener = -1;
	return fd;
}

/* ---- connections that fail ------------------------------------------------------------------- */

/* An ICMP error while connect() has Linux's socket is only recorded, with POLLERR: the error for
 * the next SYN ends it. */
static int failed(int fd)
{
	struct pollfd p = {.fd = fd};

	while (poll(&p, 1, PATIENCE) == 1 && !(p.revents & POLLHUP))
		poll(NULL, 0, 1);
	require(p.revents & POLLHUP, "failed");
	block(fd);
	return fd;
}

static int refused(void)
{
	return failed(begun(peer.address, peer.refused));
}

static int refused_told(void)
{
	int fd = stream_socket(0);

	require(connect_to(fd, peer.address, peer.refused) < 0, "refused");
	return fd;
}

static int unreachable(void)
{
	return begun(peer.unreachable, peer.port);
}

static int timed_out(void)
{
	int fd = stream_socket(SOCK_NONBLOCK), one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &one, sizeof(one));
	require(connect_to(fd, peer.address, peer.silent) < 0 && errno == EINPROGRESS, "connect");
	return fd;
}

static int no_neighbour(void)
{
	return begun(peer.unused, peer.port);
}

/* ---- connections ----------------------------------------------------------------------------- */

static int established(void)
{
	return dial("hold");
}

static int readable(void)
{
	int fd = dial("say"), count = 0;

	while (count < 5) {
		await(fd, POLLIN);
		require(ioctl(fd, FIONREAD, &count) == 0, "FIONREAD");
	}
	return fd;
}

static int peer_closed(void)
{
	int fd = dial("finish");

	await(fd, POLLRDHUP);
	return fd;
}

static int peer_closed_data(void)
{
	int fd = dial("farewell");

	await(fd, POLLRDHUP);
	return fd;
}

/* By then the peer has acknowledged the end, which would be an event. */
static int shut(const char *text, int how)
{
	struct tcp_info info;
	int fd = dial(text);

	require(shutdown(fd, how) == 0, "shutdown");
	do {
		socklen_t len = sizeof(info);
		require(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0, "TCP_INFO");
	} while (how != SHUT_RD &&
	         (info.tcpi_state == TCP_ESTABLISHED || info.tcpi_state == TCP_FIN_WAIT1) &&
	         poll(NULL, 0, 1) == 0);
	return fd;
}

static int shut_write(void)
{
	return shut("hold", SHUT_WR);
}

static int shut_read(void)
{
	return shut("hold", SHUT_RD);
}

static int shut_both(void)
{
	return shut("hold", SHUT_RDWR);
}

/* This end closes first. */
static int time_wait(void)
{
	int fd = shut("echo", SHUT_WR);

	await(fd, POLLRDHUP);
	return fd;
}

/* The peer closes first, and has acknowledged all. */
static int all_closed(void)
{
	int fd = peer_closed(), left;

	shutdown(fd, SHUT_WR);
	do {
		struct tcp_info info = {0};
		socklen_t len = sizeof(info);
		require(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0, "TCP_INFO");
		left = info.tcpi_state != TCP_CLOSE;
	} while (left && poll(NULL, 0, 1) == 0);
	return fd;
}

static int reset(void)
{
	int fd = dial("reset");

	await(fd, 0);
	return fd;
}

static int reset_data(void)
{
	int fd = dial("refuse");

	await(fd, 0);
	return fd;
}

static int closed(void)
{
	int fd = dial("hold");

	close(fd);
	return fd;
}

const struct state states[] = {
        {"fresh", fresh, true, {NULL}},
        {"bound", bound, false, {NULL}},
        {"listening", listening, true, {NULL}},
        {"listening-called", waited_for, false, {NULL}},
        {"listening-reset", waits_reset, false, {NULL}},
        {"connecting", connecting, true, {NULL}},
        {"refused", refused, false, {NULL}},
        {"refused-told", refused_told, false, {NULL}},
        {"unreachable", unreachable, false, {"so_error", "connect_peer"}},
        {"established", established, true, {NULL}},
        {"accepted", accepted, false, {NULL}},
        {"accepted-reset", accepted_reset, false, {NULL}},
        {"readable", readable, true, {NULL}},
        {"peer-closed", peer_closed, false, {NULL}},
        {"peer-closed-data", peer_closed_data, false, {NULL}},
        {"shut-write", shut_write, false, {NULL}},
        {"shut-read", shut_read, false, {NULL}},
        {"shut-both", shut_both, false, {NULL}},
        {"time-wait", time_wait, false, {NULL}},
        {"all-closed", all_closed, true, {NULL}},
        {"reset", reset, false, {NULL}},
        {"reset-data", reset_data, false, {NULL}},
        {"closed", closed, false, {NULL}},
        {"timed-out",
         timed_out,
         false,
         {"so_error", "connect_peer", "connect_after_error", "recv_plain"}},
        {"no-neighbour",
         no_neighbour,
         false,
         {"so_error", "connect_peer", "connect_after_error", "recv_plain"}},
};
const size_t state_count = sizeof(states) / sizeof(*states);

static int pool[sizeof(states) / sizeof(*states)][POOL];
static unsigned used[sizeof(states) / sizeof(*states)];

void pools_open(void)
{
	for (size_t i = 0; i < state_count; i++)
		for (unsigned k = 0; k < POOL && states[i].only[0]; k++)
			pool[i][k] = states[i].open();
}

int state_open(const struct state *s)
{
	size_t i = (size_t)(s - states);

	return s->only[0] ? failed(pool[i][used[i]++]) : s->open();
}

void state_close(int fd)
{
	close(fd);
	close(listener);
	close(order);
	listener = order = -1;
}
