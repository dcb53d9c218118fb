// SPDX-License-Identifier: Apache-2.0
/* A server with an epoll instance, and clients that are connected to it, in virtual time. */
#ifndef SERVED_H
#define SERVED_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>

#include "script.h"

#include "context_link.h"

#define SERVED_MAX 1100

static struct link served;
static struct {
	struct sy_tcp_context *client, *server;
	int ep, listener;
	int receive_bytes;                    /* of clients' buffers; 0: default */
	int from[SERVED_MAX], to[SERVED_MAX]; /* both ends; the watch's data is the index */
} on;

static inline void served_connect(unsigned i)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)};
	const int yes = 1;

	inet_pton(AF_INET, LINK_V4(1), &to.sin_addr);
	on.from[i] = sy_tcp_socket(on.client, AF_INET);
	if (on.receive_bytes)
		sy_tcp_setsockopt(on.client, on.from[i], SOL_SOCKET, SO_RCVBUF, &on.receive_bytes,
		                  sizeof(on.receive_bytes));
	assert_int_equal(sy_tcp_connect(on.client, on.from[i], (struct sockaddr *)&to, sizeof(to)),
	                 -EINPROGRESS);
	sy_tcp_setsockopt(on.client, on.from[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	sy_tcp_run(on.client);
	on.to[i] = sy_tcp_accept(on.server, on.listener, NULL, NULL);
	assert_true(on.to[i] >= 0);
}

static inline void served_watch(unsigned i, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.u32 = i};

	assert_int_equal(sy_tcp_epoll_ctl(on.server, on.ep, EPOLL_CTL_ADD, on.to[i], &e), 0);
}

static inline void served_open(unsigned clients, const struct sy_stack_options *options)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(80)};

	link_open(&served, options, 2 * SERVED_MAX);
	on.client = served.side[0].context;
	on.server = served.side[1].context;
	on.ep = sy_tcp_epoll_create(on.server);
	on.listener = sy_tcp_socket(on.server, AF_INET);
	sy_tcp_bind(on.server, on.listener, (struct sockaddr *)&any, sizeof(any));
	assert_int_equal(sy_tcp_listen(on.server, on.listener, SERVED_MAX), 0);
	for (unsigned i = 0; i < clients; i++) {
		served_connect(i);
		served_watch(i, EPOLLIN | EPOLLRDHUP);
	}
}

static inline void served_send(unsigned i, const void *bytes, size_t len)
{
	assert_int_equal(sy_tcp_send(on.client, on.from[i], bytes, len, 0), len);
	sy_tcp_run(on.client);
}

static inline void served_read(unsigned i, size_t len)
{
	uint8_t bytes[4096];

	assert_int_equal(sy_tcp_recv(on.server, on.to[i], bytes, len, 0), len);
}

/* The client has received exactly these bytes. */
static inline void served_answer(unsigned i, const void *bytes, size_t len)
{
	uint8_t got[4096];

	sy_tcp_run(on.client);
	assert_int_equal(sy_tcp_recv(on.client, on.from[i], got, sizeof(got), 0),
	                 len ? (ssize_t)len : -EAGAIN);
	assert_memory_equal(got, bytes, len);
}

/* The event fetched of these levels is connection i's at a level; -1: none. */
static inline void served_fetch(unsigned levels, int i, unsigned level)
{
	struct sy_tcp_event e;
	int count = sy_tcp_epoll_fetch(on.server, on.ep, levels, &e, 1, 0, NULL);

	assert_int_equal(count, i >= 0);
	if (i < 0)
		return;
	assert_int_equal(e.data.u32, i);
	assert_int_equal(e.level, level);
}

/* A packet's first byte is its level. */
static uint8_t served_label(struct sy_hook_packet *p, const uint8_t *payload)
{
	return p->payload_len && payload[0] < SY_PRIORITIES ? payload[0] : SY_KEEP;
}

static inline void served_labels(void)
{
	int hook = sy_tcp_hook_packet(on.server, "label", served_label);

	assert_true(hook > 0);
	assert_int_equal(sy_tcp_hook_use(on.server, SY_TCP_PACKETS, hook), 0);
}

#endif
