// SPDX-License-Identifier: Apache-2.0
/* Baseline server: the same two protocols over kernel sockets and epoll, in one thread. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../bench_options.h"
#include "raw_protocol.h"

#define EVENTS       256
#define BUFFER_BYTES 65536

struct peer {
	int fd;
	bool waits_to_write; /* for EPOLLOUT instead of EPOLLIN */
	struct raw_reader reader;
	uint8_t header[RAW_HEADER];
	uint32_t left, at; /* unsent bytes of the response, and position; echo: of the last read */
	uint8_t *unsent;   /* echo: received bytes that could not be sent at once */
};

static bool echo;
static int epoll;
static uint8_t buffer[BUFFER_BYTES];

static void watch(struct peer *p, int how, bool writes)
{
	struct epoll_event e = {.events = writes ? EPOLLOUT : EPOLLIN, .data.ptr = p};

	p->waits_to_write = writes;
	if (epoll_ctl(epoll, how, p->fd, &e)) {
		perror("epoll_ctl");
		exit(1);
	}
}

static void peer_end(struct peer *p)
{
	close(p->fd);
	free(p->unsent);
	free(p);
}

static void peers_accept(int listener)
{
	int fd, one = 1;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		struct peer *p = calloc(1, sizeof(*p));
		if (!p) {
			close(fd);
			return;
		}
		p->fd = fd;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		watch(p, EPOLL_CTL_ADD, false);
	}
}

/* Sends the rest of the response. Returns an errno, or 0. */
static int answer_send(struct peer *p)
{
	while (p->left) {
		const uint8_t *from = echo ? p->unsent + p->at : p->header + p->at;
		size_t len = p->left;
		int flags = MSG_NOSIGNAL;
		if (!echo && p->at < RAW_HEADER) {
			len = RAW_HEADER - p->at;
			flags |= p->left > len ? MSG_MORE : 0;
		} else if (!echo) {
			from = pattern_from(p->at - RAW_HEADER);
			len = len < PATTERN_LEN ? len : PATTERN_LEN;
		}
		ssize_t sent = send(p->fd, from, len, flags);
		if (sent < 0)
			return errno;
		p->at += (uint32_t)sent;
		p->left -= (uint32_t)sent;
	}
	return 0;
}

static int echo_bytes(struct peer *p, size_t len)
{
	ssize_t sent = send(p->fd, buffer, len, MSG_NOSIGNAL);

	if (sent < 0 && errno != EAGAIN)
		return errno;
	sent = sent < 0 ? 0 : sent;
	if ((size_t)sent == len)
		return 0;
	free(p->unsent);
	p->unsent = malloc(len);
	if (!p->unsent)
		return ENOMEM;
	memcpy(p->unsent, buffer, len);
	p->at = (uint32_t)sent;
	p->left = (uint32_t)len - p->at;
	return EAGAIN;
}

static void busy(uint64_t ns)
{
	for (uint64_t start = sy_clock_ns(); sy_clock_ns() - start < ns;)
		;
}

/* Answers all requests in these bytes. While a response is blocked nothing is read, so clients must
 * send one request at a time. */
static int raw_bytes(struct peer *p, size_t len)
{
	struct raw_header h;
	enum raw_got got;
	int rc = 0;

	for (size_t at = 0; at < len;) {
		int64_t taken = raw_take(&p->reader, RAW_REQUEST, buffer + at, len - at, &h, &got);
		if (taken < 0 || rc)
			return EPROTO;
		at += (size_t)taken;
		if (got != RAW_MESSAGE_DONE)
			continue;
		raw_read(p->reader.header, &h);
		busy(h.service_ns);
		raw_write(p->header, &(struct raw_header){.kind = RAW_ANSWER,
		                                          .class = h.class,
		                                          .type = h.type,
		                                          .length = h.answer,
		                                          .service_ns = h.service_ns,
		                                          .number = h.number});
		p->left = h.answer;
		p->at = 0;
		rc = answer_send(p);
		if (rc && rc != EAGAIN)
			return rc;
	}
	return rc;
}

static void peer_serve(struct peer *p)
{
	int rc = answer_send(p);

	while (rc == 0) {
		ssize_t len = recv(p->fd, buffer, sizeof(buffer), 0);
		if (len == 0)
			rc = EPIPE;
		else if (len < 0)
			rc = errno;
		else
			rc = echo ? echo_bytes(p, (size_t)len) : raw_bytes(p, (size_t)len);
		if (rc == 0 && (size_t)len < sizeof(buffer))
			rc = EAGAIN; /* probably drained: saves a system call */
	}
	if (rc != EAGAIN)
		peer_end(p);
	else if ((p->left > 0) != p->waits_to_write)
		watch(p, EPOLL_CTL_MOD, p->left > 0);
}

static int listener_open(unsigned port)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (void *)&any, sizeof(any)) || listen(fd, 65535)) {
		perror("listen");
		exit(1);
	}
	return fd;
}

int main(int argc, char **argv)
{
	struct rlimit files = {1 << 20, 1 << 20};
	struct epoll_event event[EVENTS];
	unsigned port = 7000;
	const struct option_entry entry[] = {
	        {"port", "N", OPTION_UNSIGNED, &port, 1, 65535,
	         "port to listen on, at all addresses"},
	        {"echo", NULL, OPTION_FLAG, &echo, 0, 0, "send back the received bytes"},
	};

	OPTIONS_TAKE(
	        argc, argv,
	        "Answers steelyard-load's raw protocol over the kernel's sockets; one request of a "
	        "connection at a time.",
	        entry);
	setrlimit(RLIMIT_NOFILE, &files);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	struct peer listener = {.fd = listener_open(port)};
	watch(&listener, EPOLL_CTL_ADD, false);
	printf("serving\n");
	fflush(stdout);
	for (;;) {
		int count = epoll_wait(epoll, event, EVENTS, -1);
		for (int i = 0; i < count; i++) {
			if (event[i].data.ptr == &listener)
				peers_accept(listener.fd);
			else
				peer_serve(event[i].data.ptr);
		}
	}
}
