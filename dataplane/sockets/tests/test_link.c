// SPDX-License-Identifier: Apache-2.0
/* Two contexts communicate by sockets and epoll, in virtual time. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "script.h"

#include "context_link.h"

#define CLIENT 0
#define SERVER 1
#define PORT   80
#define S_NS   UINT64_C(1000000000)

static struct link l;

static struct sy_tcp_context *side(int i)
{
	return l.side[i].context;
}

static int teardown(void **state)
{
	link_close(&l);
	return 0;
}

static uint8_t byte_of(uint32_t n)
{
	return (uint8_t)(n ^ n >> 8 ^ n >> 16);
}

static struct sockaddr_in address(int who, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	inet_pton(AF_INET, LINK_V4(who), &a.sin_addr);
	return a;
}

static int listener_open(void)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
	int fd = sy_tcp_socket(side(SERVER), AF_INET6);

	assert_int_equal(sy_tcp_bind(side(SERVER), fd, (void *)&any, sizeof(any)), 0);
	assert_int_equal(sy_tcp_listen(side(SERVER), fd, 100), 0);
	return fd;
}

static int connect_begin(void)
{
	struct sockaddr_in to = address(SERVER, PORT);
	int fd = sy_tcp_socket(side(CLIENT), AF_INET);

	assert_int_equal(sy_tcp_connect(side(CLIENT), fd, (void *)&to, sizeof(to)), -EINPROGRESS);
	return fd;
}

static uint32_t await(int who, int fd, short events, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = events};
	int rc = sy_tcp_poll(side(who), &p, 1, timeout_ms, NULL);

	assert_int_equal(rc, p.revents != 0);
	return (uint32_t)p.revents;
}

struct pair {
	int listener, client, server;
};

static struct pair pair_open(void)
{
	struct pair p = {listener_open(), connect_begin(), -1};

	assert_int_equal(await(CLIENT, p.client, POLLOUT, 1000), POLLOUT);
	assert_int_equal(await(SERVER, p.listener, POLLIN, 1000), POLLIN);
	p.server = sy_tcp_accept(side(SERVER), p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	return p;
}

/* ---- a server and many clients, by epoll ----------------------------------------------------- */

#define CLIENTS 100

struct stream {
	int fd;
	uint32_t sent, got, len;
	bool over;
};

/* Echoes in the given manner. Returns true at the end of the connection. */
static bool echo(int fd, bool direct)
{
	struct iovec v[3];
	uint8_t bytes[3000];
	ssize_t len, sent;

	for (;;) {
		if (direct) {
			int n = 0;
			len = sy_tcp_receive_look(side(SERVER), fd, v, 3);
			for (ssize_t left = len; left > 0; left -= (ssize_t)v[n++].iov_len)
				;
			sent = len > 0 ? sy_tcp_writev(side(SERVER), fd, v, n) : 0;
			if (sent > 0)
				assert_int_equal(
				        sy_tcp_receive_done(side(SERVER), fd, (size_t)sent), 0);
		} else { /* looks, sends, and consumes what was sent */
			len = sy_tcp_recv(side(SERVER), fd, bytes, sizeof(bytes), MSG_PEEK);
			sent = len > 0 ? sy_tcp_send(side(SERVER), fd, bytes, (size_t)len, 0) : 0;
			if (sent > 0)
				assert_int_equal(
				        sy_tcp_recv(side(SERVER), fd, bytes, (size_t)sent, 0),
				        sent);
		}
		if (len == 0)
			return true;
		if (len < 0) {
			assert_int_equal(len, -EAGAIN);
			return false;
		}
		if (sent < 0) {
			assert_int_equal(sent, -EAGAIN);
			return false;
		}
	}
}

static void client_send(struct stream *s, bool direct)
{
	struct iovec v[4];
	uint8_t bytes[5000];
	ssize_t done = 1;

	while (s->sent < s->len && done > 0) {
		uint32_t want = s->len - s->sent < sizeof(bytes) ? s->len - s->sent : sizeof(bytes);
		if (direct) {
			done = sy_tcp_send_room(side(CLIENT), s->fd, v, 4, want);
			for (ssize_t i = 0, left = done, at = s->sent; left > 0;
			     left -= (ssize_t)v[i++].iov_len)
				for (size_t k = 0; k < v[i].iov_len; k++)
					((uint8_t *)v[i].iov_base)[k] = byte_of((uint32_t)at++);
			if (done > 1)
				done -= s->sent % 2; /* less than requested */
			if (done > 0)
				assert_int_equal(
				        sy_tcp_send_done(side(CLIENT), s->fd, (size_t)done, 0), 0);
		} else {
			for (uint32_t i = 0; i < want; i++)
				bytes[i] = byte_of(s->sent + i);
			done = sy_tcp_send(side(CLIENT), s->fd, bytes, want, 0);
		}
		if (done < 0)
			assert_int_equal(done, -EAGAIN);
		s->sent += done > 0 ? (uint32_t)done : 0;
		if (s->sent == s->len)
			assert_int_equal(sy_tcp_shutdown(side(CLIENT), s->fd, SHUT_WR), 0);
	}
}

static void client_receive(struct stream *s)
{
	uint8_t bytes[4096];
	ssize_t len;

	while ((len = sy_tcp_recv(side(CLIENT), s->fd, bytes, sizeof(bytes), 0)) > 0) {
		for (ssize_t i = 0; i < len; i++)
			assert_int_equal(bytes[i], byte_of(s->got + (uint32_t)i));
		s->got += (uint32_t)len;
	}
	s->over = len == 0;
	if (len < 0)
		assert_int_equal(len, -EAGAIN);
}

static void server_turn(int ep, int listener, uint32_t how, bool direct)
{
	struct epoll_event e[7];
	int count = sy_tcp_epoll_wait(side(SERVER), ep, e, 7, 0, NULL), fd;

	for (int i = 0; i < count; i++) {
		if (e[i].data.fd != listener) {
			if (echo(e[i].data.fd, direct))
				assert_int_equal(sy_tcp_close_fd(side(SERVER), e[i].data.fd), 0);
			continue;
		}
		while ((fd = sy_tcp_accept(side(SERVER), listener, NULL, NULL)) >= 0) {
			struct epoll_event add = {.events = EPOLLIN | how, .data.fd = fd};
			assert_int_equal(
			        sy_tcp_epoll_ctl(side(SERVER), ep, EPOLL_CTL_ADD, fd, &add), 0);
		}
		assert_int_equal(fd, -EAGAIN);
	}
}

/* The application only waits for the events that it requested: none may be missing. */
static void conversation(uint32_t how, bool direct)
{
	static struct stream stream[CLIENTS];
	int listener, ep[2], over = 0;
	struct epoll_event e = {.events = EPOLLIN};

	link_open(&l, &(struct sy_stack_options){.send_max = 20000, .receive_max = 30000}, 256);
	listener = listener_open();
	for (int i = 0; i < 2; i++)
		ep[i] = sy_tcp_epoll_create(side(i));
	e.data.fd = listener;
	sy_tcp_epoll_ctl(side(SERVER), ep[SERVER], EPOLL_CTL_ADD, listener, &e);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		stream[i] = (struct stream){.fd = connect_begin(), .len = i * i * 11 + 1};
		e = (struct epoll_event){.events = EPOLLIN | EPOLLOUT | how, .data.u32 = i};
		sy_tcp_epoll_ctl(side(CLIENT), ep[CLIENT], EPOLL_CTL_ADD, stream[i].fd, &e);
	}
	for (unsigned polls = 0; over < CLIENTS; polls++) {
		struct epoll_event got[5];
		assert_true(polls < 1000000);
		server_turn(ep[SERVER], listener, how | (how & EPOLLET ? EPOLLOUT : 0), direct);
		int count = sy_tcp_epoll_wait(side(CLIENT), ep[CLIENT], got, 5, 0, NULL);
		if (count == 0) /* idle: advance the time */
			sy_tcp_wait(side(CLIENT), 5, NULL);
		for (int i = 0; i < count; i++) {
			struct stream *s = &stream[got[i].data.u32];
			client_send(s, direct);
			client_receive(s);
			if (!(how & EPOLLET) && s->sent == s->len) {
				e = (struct epoll_event){.events = EPOLLIN, .data = got[i].data};
				sy_tcp_epoll_ctl(side(CLIENT), ep[CLIENT], EPOLL_CTL_MOD, s->fd,
				                 &e);
			}
			if (!s->over)
				continue;
			assert_int_equal(s->got, s->len);
			sy_tcp_close_fd(side(CLIENT), s->fd);
			over++;
		}
	}
}

static void test_level_triggered(void **state)
{
	conversation(0, false);
}

static void test_edge_triggered(void **state)
{
	conversation(EPOLLET, false);
}

static void test_zero_copy(void **state)
{
	conversation(EPOLLET, true);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void test_timeouts(void **state)
{
	link_open(&l, NULL, 16);
	struct pair p = pair_open();
	struct pollfd in = {.fd = p.server, .events = POLLIN};
	uint64_t begun = l.now;

	assert_int_equal(sy_tcp_poll(side(SERVER), &in, 1, 250, NULL), 0);
	assert_int_equal(l.now - begun, 250 * S_NS / 1000);
	sy_tcp_wait(side(SERVER), 0, NULL);
	assert_int_equal(sy_tcp_wait(side(SERVER), 0, NULL), 0);
	uint64_t news = sy_tcp_news(side(SERVER));
	sy_tcp_send(side(CLIENT), p.client, "x", 1, 0);
	assert_int_equal(sy_tcp_wait(side(SERVER), -1, NULL), 1);
	assert_true(sy_tcp_news(side(SERVER)) > news);
	assert_int_equal(sy_tcp_ready(side(SERVER), p.server) & POLLIN, POLLIN);
	assert_int_equal(sy_tcp_ready(side(SERVER), 15), POLLNVAL);
	in.fd = -1;
	assert_int_equal(sy_tcp_poll(side(SERVER), &in, 1, 10, NULL), 0);
	in.fd = 15;
	assert_int_equal(sy_tcp_poll(side(SERVER), &in, 1, 10, NULL), 1);
	assert_int_equal(in.revents, POLLNVAL);
}

/* An application that polls before writing is notified of later space, though no call has failed.
 */
static void test_space_after_a_check_is_reported(void **state)
{
	uint8_t bytes[1000] = {0};
	int value = 20000, queued;

	link_open(&l, NULL, 16);
	struct pair p = pair_open();
	assert_int_equal(sy_tcp_setsockopt(side(CLIENT), p.client, SOL_SOCKET, SO_SNDBUF, &value,
	                                   sizeof(value)),
	                 0);
	l.cut = true;
	while (sy_tcp_ready(side(CLIENT), p.client) & POLLOUT)
		assert_true(sy_tcp_send(side(CLIENT), p.client, bytes, sizeof(bytes), 0) > 0);
	assert_int_equal(await(CLIENT, p.client, POLLOUT, 100), 0);
	assert_int_equal(sy_tcp_ioctl(side(CLIENT), p.client, SIOCOUTQ, &queued), 0);
	assert_int_equal(queued, value);
	/* By an event: poll() would check repeatedly. */
	struct epoll_event e = {.events = EPOLLOUT};
	int ep = sy_tcp_epoll_create(side(CLIENT));
	assert_int_equal(sy_tcp_epoll_ctl(side(CLIENT), ep, EPOLL_CTL_ADD, p.client, &e), 0);
	assert_int_equal(sy_tcp_epoll_wait(side(CLIENT), ep, &e, 1, 100, NULL), 0);
	l.cut = false;
	assert_int_equal(sy_tcp_epoll_wait(side(CLIENT), ep, &e, 1, 60000, NULL), 1);
	assert_int_equal(sy_tcp_ioctl(side(SERVER), p.server, FIONREAD, &queued), 0);
	assert_true(queued > 0);
	value = queued + 1;
	sy_tcp_setsockopt(side(SERVER), p.server, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value));
	if (queued < 20000)
		assert_int_equal(await(SERVER, p.server, POLLIN, 60000), POLLIN);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_descriptors(void **state)
{
	int fd[16], count = 0;

	link_open(&l, NULL, 8);
	struct pair p = pair_open(); /* two at the server, one at the client */
	while ((fd[count] = sy_tcp_socket(side(SERVER), AF_INET)) >= 0)
		count++;
	assert_int_equal(count, 6);
	assert_int_equal(fd[count], -EMFILE);
	assert_int_equal(sy_tcp_epoll_create(side(SERVER)), -EMFILE);
	/* A connection waits for a free descriptor. */
	int client = connect_begin();
	assert_int_equal(await(CLIENT, client, POLLOUT, 1000), POLLOUT);
	assert_int_equal(sy_tcp_accept(side(SERVER), p.listener, NULL, NULL), -EMFILE);
	sy_tcp_close_fd(side(SERVER), fd[0]);
	assert_true(sy_tcp_accept(side(SERVER), p.listener, NULL, NULL) >= 0);
	for (int i = 1; i < count; i++)
		assert_int_equal(sy_tcp_close_fd(side(SERVER), fd[i]), 0);
	assert_int_equal(sy_tcp_socket(side(SERVER), AF_UNIX), -EAFNOSUPPORT);
}

/* As with several contexts: even ports are steered to another. */
static bool owns_odd(void *owner, const struct sy_tuple *from_peer)
{
	return ntohs(from_peer->dport) % 2 || ntohs(from_peer->dport) == PORT;
}

static void test_ports_of_other_contexts_are_not_used(void **state)
{
	struct sockaddr_in from = address(CLIENT, 5000), to = address(SERVER, PORT), got;
	socklen_t len = sizeof(got);

	link_open(&l, &(struct sy_stack_options){.owns = owns_odd}, 16);
	int fd = sy_tcp_socket(side(CLIENT), AF_INET);
	assert_int_equal(sy_tcp_bind(side(CLIENT), fd, (void *)&from, sizeof(from)), 0);
	assert_int_equal(sy_tcp_connect(side(CLIENT), fd, (void *)&to, sizeof(to)), -EADDRNOTAVAIL);
	sy_tcp_close_fd(side(CLIENT), fd);
	for (unsigned i = 0; i < 8; i++) {
		fd = sy_tcp_socket(side(CLIENT), AF_INET);
		from.sin_port = i % 2 ? htons((uint16_t)(5001 + 2 * i)) : 0;
		assert_int_equal(sy_tcp_bind(side(CLIENT), fd, (void *)&from, sizeof(from)), 0);
		assert_int_equal(sy_tcp_connect(side(CLIENT), fd, (void *)&to, sizeof(to)),
		                 -EINPROGRESS);
		assert_int_equal(sy_tcp_getsockname(side(CLIENT), fd, (void *)&got, &len), 0);
		assert_int_equal(ntohs(got.sin_port) % 2, 1);
	}
}

/* A reused descriptor has no state of its predecessor. */
static void test_reused_descriptors_have_no_old_state(void **state)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 7}, got;

	link_open(&l, NULL, 16);
	struct pair p = pair_open();
	int ep = sy_tcp_epoll_create(side(SERVER));
	assert_int_equal(sy_tcp_epoll_ctl(side(SERVER), ep, EPOLL_CTL_ADD, p.server, &e), 0);
	sy_tcp_send(side(CLIENT), p.client, "old", 3, 0);
	sy_tcp_close_fd(side(SERVER), p.server);
	int again = sy_tcp_socket(side(SERVER), AF_INET);
	assert_int_equal(again, p.server);
	assert_int_equal(sy_tcp_epoll_wait(side(SERVER), ep, &got, 1, 0, NULL), 0);
	assert_int_equal(sy_tcp_epoll_ctl(side(SERVER), ep, EPOLL_CTL_DEL, again, NULL), -ENOENT);
	assert_int_equal(sy_tcp_ready(side(SERVER), again), POLLOUT | POLLHUP | POLLWRNORM);
}

/* ---- options that the stack acts on ---------------------------------------------------------- */

static void set(int who, int fd, int level, int name, int value)
{
	assert_int_equal(sy_tcp_setsockopt(side(who), fd, level, name, &value, sizeof(value)), 0);
}

static uint64_t packets_of(void (*act)(const struct pair *p), const struct pair *p)
{
	uint64_t before = l.packets;

	act(p);
	sy_tcp_run(side(CLIENT));
	return l.packets - before;
}

static void two_words(const struct pair *p)
{
	sy_tcp_send(side(CLIENT), p->client, "one", 3, 0);
	sy_tcp_run(side(CLIENT));
	sy_tcp_send(side(CLIENT), p->client, "two", 3, 0);
}

static void test_options_take_effect(void **state)
{
	link_open(&l, NULL, 16);
	struct pair p = pair_open();

	assert_int_equal(packets_of(two_words, &p), 1); /* Nagle */
	link_pass(&l, S_NS);
	set(CLIENT, p.client, IPPROTO_TCP, TCP_NODELAY, 1);
	assert_true(packets_of(two_words, &p) >= 2);
	link_pass(&l, S_NS);
	set(CLIENT, p.client, IPPROTO_TCP, TCP_CORK, 1);
	assert_int_equal(packets_of(two_words, &p), 0);
	set(CLIENT, p.client, IPPROTO_TCP, TCP_CORK, 0);
	sy_tcp_run(side(CLIENT));
	assert_int_equal(await(SERVER, p.server, POLLIN, 1000), POLLIN);
	/* Keepalive ends the connection to a silent peer. */
	set(CLIENT, p.client, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(CLIENT, p.client, IPPROTO_TCP, TCP_KEEPIDLE, 10);
	set(CLIENT, p.client, IPPROTO_TCP, TCP_KEEPINTVL, 2);
	set(CLIENT, p.client, IPPROTO_TCP, TCP_KEEPCNT, 3);
	link_pass(&l, S_NS);
	uint64_t begun = l.now;
	l.cut = true;
	assert_true(await(CLIENT, p.client, POLLIN, 60000) & POLLERR);
	assert_in_range((l.now - begun) / S_NS, 13, 18);
	assert_int_equal(sy_tcp_recv(side(CLIENT), p.client, &begun, 1, 0), -ETIMEDOUT);
	l.cut = false;
	/* Connections inherit their listener's options. */
	set(SERVER, p.listener, IPPROTO_TCP, TCP_NODELAY, 1);
	set(SERVER, p.listener, IPPROTO_TCP, TCP_USER_TIMEOUT, 4000);
	set(SERVER, p.listener, SOL_SOCKET, SO_MAX_PACING_RATE, 10000);
	static char bytes[10000];
	size_t got = 0;
	int client = connect_begin(), value = 0;
	assert_int_equal(await(SERVER, p.listener, POLLIN, 5000), POLLIN);
	int server = sy_tcp_accept(side(SERVER), p.listener, NULL, NULL);
	socklen_t len = sizeof(value);
	sy_tcp_getsockopt(side(SERVER), server, IPPROTO_TCP, TCP_NODELAY, &value, &len);
	assert_int_equal(value, 1);
	await(CLIENT, client, POLLOUT, 1000);
	/* And its rate. */
	begun = l.now;
	assert_int_equal(sy_tcp_send(side(SERVER), server, bytes, sizeof(bytes), 0), sizeof(bytes));
	while (got < sizeof(bytes)) {
		await(CLIENT, client, POLLIN, 1000);
		int64_t some = sy_tcp_recv(side(CLIENT), client, bytes, sizeof(bytes), 0);
		got += some > 0 ? (size_t)some : 0;
	}
	assert_in_range((l.now - begun) / (S_NS / 1000), 900, 1200);
	l.cut = true;
	begun = l.now;
	sy_tcp_send(side(SERVER), server, "lost", 4, 0);
	assert_true(await(SERVER, server, POLLIN, 60000) & POLLERR);
	assert_in_range((l.now - begun) / S_NS, 3, 8);
	l.cut = false;
}

/* ---- behind a balancer ----------------------------------------------------------------------- */

/* Inserts the option into the client's ACK, like FNAT with TOA. */
static struct rte_mbuf *toa_insert(struct link *wire, unsigned from, struct rte_mbuf *m)
{
	struct sy_addr client;
	struct sy_view v;
	uint8_t *frame, *at;

	if (from != CLIENT || sy_packet_parse(rte_pktmbuf_mtod(m, uint8_t *), m->data_len, &v))
		return m;
	frame = rte_pktmbuf_mtod(m, uint8_t *);
	if (sy_packet_tcp(frame, &v)->flags != SY_TCP_ACK)
		return m;
	sy_addr_parse("203.0.113.77", &client);
	at = sy_tcp_insert_toa(frame, &v, SY_TOA, &client, htons(4321));
	assert_non_null(at);
	rte_pktmbuf_prepend(m, 8);
	return m;
}

static void client_named(bool toa)
{
	struct sockaddr_in6 peer;
	socklen_t len = sizeof(peer);
	struct in6_addr client;

	link_open(&l, &(struct sy_stack_options){.toa = toa}, 16);
	l.change = toa_insert;
	struct pair p = pair_open();
	inet_pton(AF_INET6, "::ffff:203.0.113.77", &client);
	assert_int_equal(sy_tcp_getpeername(side(SERVER), p.server, (void *)&peer, &len), 0);
	assert_int_equal(memcmp(&peer.sin6_addr, &client, sizeof(client)) == 0, toa);
	assert_int_equal(peer.sin6_port == htons(4321), toa);
	/* Packets still go to the load balancer. */
	sy_tcp_send(side(SERVER), p.server, "x", 1, 0);
	assert_int_equal(await(CLIENT, p.client, POLLIN, 1000), POLLIN);
}

static void test_client_address(void **state)
{
	client_named(true);
}

static void test_client_address_untrusted(void **state)
{
	client_named(false);
}

/* ---- loss ------------------------------------------------------------------------------------ */

static struct rte_mbuf *lose_some(struct link *wire, unsigned from, struct rte_mbuf *m)
{
	static uint32_t count;

	/* The frame stays one, but for another address. */
	if (count++ % 7 == 3)
		rte_pktmbuf_mtod(m, uint8_t *)[SY_ETH_LEN + 19] ^= 1;
	return m;
}

static void test_loss(void **state)
{
	link_open(&l, NULL, 16);
	struct pair p = pair_open();
	struct stream s = {.fd = p.client, .len = 1000000};

	l.change = lose_some;
	while (!s.over) {
		client_send(&s, true);
		if (p.server >= 0 && echo(p.server, true)) {
			sy_tcp_close_fd(side(SERVER), p.server);
			p.server = -1;
		}
		client_receive(&s);
		assert_true(sy_tcp_wait(side(CLIENT), 200000, NULL) || s.over || p.server < 0);
	}
	assert_int_equal(s.got, s.len);
	l.change = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(test_level_triggered, teardown),
	        cmocka_unit_test_teardown(test_edge_triggered, teardown),
	        cmocka_unit_test_teardown(test_zero_copy, teardown),
	        cmocka_unit_test_teardown(test_timeouts, teardown),
	        cmocka_unit_test_teardown(test_space_after_a_check_is_reported, teardown),
	        cmocka_unit_test_teardown(test_descriptors, teardown),
	        cmocka_unit_test_teardown(test_ports_of_other_contexts_are_not_used, teardown),
	        cmocka_unit_test_teardown(test_reused_descriptors_have_no_old_state, teardown),
	        cmocka_unit_test_teardown(test_options_take_effect, teardown),
	        cmocka_unit_test_teardown(test_client_address, teardown),
	        cmocka_unit_test_teardown(test_client_address_untrusted, teardown),
	        cmocka_unit_test_teardown(test_loss, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
