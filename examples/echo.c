// SPDX-License-Identifier: Apache-2.0
/*
 * Echo over libsteelyard-tcp: an example of an event-driven server.
 *
 *     echo -i eth0 -a 192.0.2.10 -a 2001:db8::10 [-p PORT] [-t THREADS]
 *         echoes all data without a copy, on each thread independently
 *     echo -i net_memif0,backend=ethdev,dev=… -r ROUTE… -N NEIGHBOUR… …
 *         the same on a DPDK device (see --port, --route, --neighbour in steelyard-forwarder(8))
 *     echo … -c SERVER -n BYTES
 *         sends BYTES to an echo server and verifies the response
 *
 * Build: cc echo.c $(pkg-config --cflags --libs steelyard-tcp) -lpthread
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sy_tcp.h>

#define THREADS_MAX 16
#define NAMES_MAX   16

static struct {
	const char *interface[NAMES_MAX], *address[NAMES_MAX], *server;
	const char *route[NAMES_MAX], *neighbour[NAMES_MAX];
	unsigned interfaces, addresses, routes, neighbours, threads;
	unsigned port, connections;
	unsigned long bytes;
	bool no_huge, verbose, toa;
} options = {.threads = 1, .port = 7, .connections = 16384};

static struct sy_tcp_library *library;
static volatile sig_atomic_t stopped;
static volatile int failed;
static unsigned calling; /* client threads still running; atomic */

static void stop(int number)
{
	stopped = 1;
}

static int fail(const char *what, long rc)
{
	fprintf(stderr, "echo: %s: %s\n", what, strerror((int)-rc));
	failed = 1;
	return -1;
}

static socklen_t address_of(const char *text, unsigned port, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (void *)out;
	struct sockaddr_in6 *v6 = (void *)out;

	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		return sizeof(*v4);
	}
	inet_pton(AF_INET6, text, &v6->sin6_addr);
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	return sizeof(*v6);
}

/* ---- server ---------------------------------------------------------------------------------- */

/* Sends received bytes directly from their packets. The rest stays there until EPOLLOUT. */
static void echo(struct sy_tcp_context *c, int fd)
{
	struct iovec v[16];
	ssize_t len, sent;

	while ((len = sy_tcp_receive_look(c, fd, v, 16)) > 0) {
		int pieces = 0;
		for (ssize_t left = len; left > 0; left -= (ssize_t)v[pieces++].iov_len)
			;
		sent = sy_tcp_writev(c, fd, v, pieces);
		if (sent == -EAGAIN)
			return;
		if (sent < 0)
			break;
		sy_tcp_receive_done(c, fd, (size_t)sent);
	}
	if (len != -EAGAIN)
		sy_tcp_close_fd(c, fd); /* EOF, or an error */
}

static void greet(struct sy_tcp_context *c, int listener, int epoll)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	int fd;

	while ((fd = sy_tcp_accept(c, listener, (struct sockaddr *)&peer, &len)) >= 0) {
		struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = fd};
		char text[INET6_ADDRSTRLEN];
		if (options.verbose) {
			inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&peer)->sin6_addr, text,
			          sizeof(text));
			printf("client %s %u\n", text,
			       ntohs(((struct sockaddr_in6 *)&peer)->sin6_port));
			fflush(stdout);
		}
		if (sy_tcp_epoll_ctl(c, epoll, EPOLL_CTL_ADD, fd, &e))
			sy_tcp_close_fd(c, fd);
		len = sizeof(peer);
	}
}

/* One listener for both families. */
static int listen_all(struct sy_tcp_context *c, int epoll)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6,
	                           .sin6_port = htons((uint16_t)options.port)};
	int fd = sy_tcp_socket(c, AF_INET6);
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	int rc = fd < 0 ? fd : sy_tcp_bind(c, fd, (struct sockaddr *)&any, sizeof(any));

	if (!rc)
		rc = sy_tcp_listen(c, fd, 4096);
	if (!rc)
		rc = sy_tcp_epoll_ctl(c, epoll, EPOLL_CTL_ADD, fd, &e);
	return rc ? fail("listening", rc) : fd;
}

static void serve(struct sy_tcp_context *c)
{
	struct epoll_event e[64];
	int epoll = sy_tcp_epoll_create(c), listener = listen_all(c, epoll);

	if (listener < 0)
		return;
	while (!stopped) {
		int count = sy_tcp_epoll_wait(c, epoll, e, 64, 100, NULL);
		for (int i = 0; i < count; i++) {
			if (e[i].data.fd == listener)
				greet(c, listener, epoll);
			else
				echo(c, e[i].data.fd);
		}
	}
}

/* ---- client ---------------------------------------------------------------------------------- */

static uint8_t byte_of(unsigned long n)
{
	return (uint8_t)(n ^ n >> 8 ^ n >> 16);
}

/* Writes directly into the send buffer. */
static int client_send(struct sy_tcp_context *c, int fd, unsigned long *sent)
{
	struct iovec v[16];
	ssize_t room;

	while (*sent < options.bytes) {
		room = sy_tcp_send_room(c, fd, v, 16, options.bytes - *sent);
		if (room < 0)
			return room == -EAGAIN ? 0 : fail("sending", room);
		for (ssize_t i = 0, left = room; left > 0; left -= (ssize_t)v[i++].iov_len)
			for (size_t k = 0; k < v[i].iov_len; k++)
				((uint8_t *)v[i].iov_base)[k] = byte_of((*sent)++);
		sy_tcp_send_done(c, fd, (size_t)room, 0);
		if (*sent == options.bytes)
			sy_tcp_shutdown(c, fd, SHUT_WR);
	}
	return 0;
}

/* Returns 1 when everything has been echoed. */
static int client_receive(struct sy_tcp_context *c, int fd, unsigned long *got)
{
	uint8_t bytes[65536];
	ssize_t len;

	while ((len = sy_tcp_recv(c, fd, bytes, sizeof(bytes), 0)) > 0) {
		for (ssize_t i = 0; i < len; i++)
			if (bytes[i] != byte_of((*got)++))
				return fail("a byte is wrong", -EBADMSG);
	}
	if (len == -EAGAIN)
		return 0;
	if (len < 0)
		return fail("receiving", len);
	return *got == options.bytes ? 1 : fail("the end comes too early", -EPIPE);
}

static void call(struct sy_tcp_context *c)
{
	struct sockaddr_storage to;
	socklen_t len = address_of(options.server, options.port, &to);
	int fd = sy_tcp_socket(c, to.ss_family), error = 0, rc;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	unsigned long sent = 0, got = 0;

	rc = sy_tcp_connect(c, fd, (struct sockaddr *)&to, len);
	if (rc == -EINPROGRESS && sy_tcp_poll(c, &p, 1, 10000, NULL) == 1) {
		len = sizeof(error);
		sy_tcp_getsockopt(c, fd, SOL_SOCKET, SO_ERROR, &error, &len);
		rc = -error;
	}
	if (rc) {
		fail("connecting", rc);
		return;
	}
	for (rc = 0; rc == 0 && !stopped;) {
		p.events = (short)(POLLIN | (sent < options.bytes ? POLLOUT : 0));
		if (sy_tcp_poll(c, &p, 1, 10000, NULL) == 0)
			rc = fail("waiting", -ETIMEDOUT);
		if (rc == 0 && p.revents & POLLOUT)
			rc = client_send(c, fd, &sent);
		if (rc == 0 && p.revents & ~POLLOUT)
			rc = client_receive(c, fd, &got);
	}
	sy_tcp_close_fd(c, fd);
	if (rc == 1)
		printf("%lu bytes came back\n", got);
}

/* Packets may arrive at the queue of any context, which steers them to their owner: a thread that
 * is done polls its context until all are done. */
static void call_and_stay(struct sy_tcp_context *c)
{
	call(c);
	__atomic_sub_fetch(&calling, 1, __ATOMIC_RELEASE);
	while (!stopped && __atomic_load_n(&calling, __ATOMIC_ACQUIRE) > 0)
		sy_tcp_wait(c, 10, NULL);
}

/* ---- both ------------------------------------------------------------------------------------ */

static void *thread_main(void *arg)
{
	struct sy_tcp_context *c;
	int rc = sy_tcp_enter(library, (unsigned)(uintptr_t)arg, &c);

	if (rc) {
		fail("entering a context", rc);
		__atomic_sub_fetch(&calling, 1, __ATOMIC_RELEASE);
		return NULL;
	}
	if (options.server)
		call_and_stay(c);
	else
		serve(c);
	sy_tcp_leave(c);
	return NULL;
}

static void usage(void)
{
	fprintf(stderr, "usage: echo -i INTERFACE… -a ADDRESS… [-r ROUTE…] [-N NEIGHBOUR…] "
	                "[-p PORT] [-t THREADS]\n"
	                "            [-m CONNECTIONS] [-c SERVER -n BYTES] [-H] [-T] [-v]\n");
	exit(2);
}

static void options_read(int argc, char **argv)
{
	int o;

	while ((o = getopt(argc, argv, "i:a:r:N:p:t:m:c:n:HTv")) != -1) {
		if (o == 'i' && options.interfaces < NAMES_MAX)
			options.interface[options.interfaces++] = optarg;
		else if (o == 'a' && options.addresses < NAMES_MAX)
			options.address[options.addresses++] = optarg;
		else if (o == 'r' && options.routes < NAMES_MAX)
			options.route[options.routes++] = optarg;
		else if (o == 'N' && options.neighbours < NAMES_MAX)
			options.neighbour[options.neighbours++] = optarg;
		else if (o == 'p')
			options.port = (unsigned)atoi(optarg);
		else if (o == 't')
			options.threads = (unsigned)atoi(optarg);
		else if (o == 'm')
			options.connections = (unsigned)atoi(optarg);
		else if (o == 'c')
			options.server = optarg;
		else if (o == 'n')
			options.bytes = strtoul(optarg, NULL, 10);
		else if (o == 'H')
			options.no_huge = true;
		else if (o == 'T')
			options.toa = true;
		else if (o == 'v')
			options.verbose = true;
		else
			usage();
	}
	if (!options.interfaces || !options.addresses || options.threads < 1 ||
	    options.threads > THREADS_MAX)
		usage();
}

int main(int argc, char **argv)
{
	pthread_t thread[THREADS_MAX];
	struct sigaction action = {.sa_handler = stop};
	char why[300];

	options_read(argc, argv);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	const struct sy_tcp_setup setup = {
	        .size = sizeof(setup),
	        .interface = options.interface,
	        .interfaces = options.interfaces,
	        .address = options.address,
	        .addresses = options.addresses,
	        .route = options.route,
	        .routes = options.routes,
	        .neighbour = options.neighbour,
	        .neighbours = options.neighbours,
	        .contexts = options.threads,
	        .connections = options.connections,
	        .no_huge_pages = options.no_huge,
	        .toa = options.toa,
	};
	if (sy_tcp_open(&setup, &library, why, sizeof(why))) {
		fprintf(stderr, "echo: %s\n", why);
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	calling = options.threads;
	for (unsigned i = 1; i < options.threads; i++)
		pthread_create(&thread[i], NULL, thread_main, (void *)(uintptr_t)i);
	thread_main(NULL);
	for (unsigned i = 1; i < options.threads; i++)
		pthread_join(thread[i], NULL);
	sy_tcp_close(library);
	return failed;
}
