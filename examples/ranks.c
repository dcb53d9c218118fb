// SPDX-License-Identifier: Apache-2.0
/*
 * Application-defined priorities: a server that serves urgent requests first, with a second thread
 * for long ones.
 *
 *     ranks -i eth0 -a 192.0.2.10 [-a 2001:db8::10] [-p PORT]
 *
 * A request is its level (a byte: 0 highest … 7 lowest), a byte that is 1 if it takes long, and the
 * length of the rest, in two bytes. The response is those four bytes, a sequence number of service
 * in four bytes, and the rest. A long request lasts until the process gets SIGUSR1.
 *
 * The hook is a C function here; sy_tcp_hook_load() loads one in eBPF.
 *
 * Build: cc ranks.c $(pkg-config --cflags --libs steelyard-tcp) -lpthread
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sy_tcp.h>

#define HEADER    4
#define ANSWER    8
#define BYTES_MAX (HEADER + 65535)    /* max. bytes of a connection per read */
#define PIECES    1024                /* likewise */
#define LONG      (1u << 6 | 1u << 7) /* levels of the second thread */

static struct sy_tcp_queue *queue;
static volatile sig_atomic_t stopped;
static sem_t go_on;
static uint32_t served; /* by both threads; atomic */

/* ---- priorities ------------------------------------------------------------------------------ */

/* Runs for each packet before the stack processes it. A packet without payload has no level. */
static uint8_t level_of(struct sy_hook_packet *packet, const uint8_t *payload)
{
	return packet->payload_len >= HEADER && payload[0] < SY_PRIORITIES ? payload[0] : SY_KEEP;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void work(const uint8_t *request)
{
	if (!request[1])
		return;
	printf("long %u\n", request[0]);
	fflush(stdout);
	while (sem_wait(&go_on) && errno == EINTR && !stopped)
		;
}

/* Serves the complete requests in `in`; *used: their bytes. Returns the length of the responses. */
static size_t requests_serve(const uint8_t *in, size_t len, uint8_t *out, size_t *used)
{
	size_t at = 0, done = 0;

	while (len - at >= HEADER) {
		size_t body = (size_t)(in[at + 2] << 8 | in[at + 3]);
		uint32_t number;
		if (len - at < HEADER + body)
			break;
		work(in + at);
		number = htonl(__atomic_add_fetch(&served, 1, __ATOMIC_RELAXED));
		memcpy(out + done, in + at, HEADER);
		memcpy(out + done + HEADER, &number, sizeof(number));
		memcpy(out + done + ANSWER, in + at + HEADER, body);
		at += HEADER + body;
		done += ANSWER + body;
	}
	*used = at;
	return done;
}

static size_t pieces_join(const struct iovec *v, int count, uint8_t *out)
{
	size_t len = 0;

	for (int i = 0; i < count && len < BYTES_MAX; i++) {
		size_t piece = BYTES_MAX - len < v[i].iov_len ? BYTES_MAX - len : v[i].iov_len;
		memcpy(out + len, v[i].iov_base, piece);
		len += piece;
	}
	return len;
}

/* The second thread, for long requests; the first one serves urgent ones meanwhile. */
static void *long_ones(void *unused)
{
	static uint8_t in[BYTES_MAX];

	while (!stopped) {
		struct sy_tcp_request *r;
		if (sy_tcp_queue_dequeue(queue, &r, 1, 100) != 1)
			continue;
		size_t len = pieces_join(r->v, r->count, in), used = 0, out = 0;
		uint8_t *room = sy_tcp_request_buffer(r, 2 * len + ANSWER);
		if (room)
			out = requests_serve(in, len, room, &used);
		sy_tcp_request_complete(r, used, out);
	}
	return NULL;
}

/* ---- the first thread ------------------------------------------------------------------------ */

struct client {
	uint8_t *rest; /* responses that did not fit into the send buffer */
	size_t len;
};

#include "clients.h"

static void part(struct sy_tcp_context *c, int fd)
{
	free(client[fd].rest);
	client[fd] = (struct client){0};
	sy_tcp_close_fd(c, fd);
}

/* While responses are pending, reads and lends nothing, so that responses stay in order. */
static int watch(struct sy_tcp_context *c, int epoll, int op, int fd)
{
	uint32_t side = client[fd].len > 0 ? EPOLLOUT : EPOLLIN;
	struct epoll_event e = {.events = side | EPOLLRDHUP | EPOLLET, .data.fd = fd};

	return sy_tcp_epoll_ctl(c, epoll, op, fd, &e);
}

/* Sends as much as possible and keeps the rest. Returns false at the end of the connection. */
static bool answer(struct sy_tcp_context *c, int epoll, int fd, const uint8_t *bytes, size_t len)
{
	struct client *one = &client[fd];
	ssize_t sent = len > 0 ? sy_tcp_send(c, fd, bytes, len, 0) : 0;

	if (sent == -EAGAIN)
		sent = 0;
	if (sent < 0)
		return false;
	bool waited = one->len > 0;
	len -= (size_t)sent;
	if (len > 0 && !one->rest && !(one->rest = malloc(len)))
		return false;
	if (len > 0)
		memmove(one->rest, bytes + sent, len);
	one->len = len;
	return waited == (len > 0) || watch(c, epoll, EPOLL_CTL_MOD, fd) == 0;
}

/* Sends pending responses, then serves requests. last: EOF. Returns false at the end of the
 * connection. */
static bool client_serve(struct sy_tcp_context *c, int epoll, int fd, bool last)
{
	static uint8_t in[BYTES_MAX], out[2 * BYTES_MAX + ANSWER];
	static struct iovec v[PIECES];
	struct client *one = &client[fd];
	size_t used = 1;
	ssize_t got = 1;

	if (one->len > 0) {
		if (!answer(c, epoll, fd, one->rest, one->len))
			return false;
		if (one->len > 0)
			return true;
		free(one->rest);
		one->rest = NULL;
	}
	while (got > 0 && used > 0 && one->len == 0) {
		int count = 0;
		got = sy_tcp_receive_look(c, fd, v, PIECES);
		for (ssize_t left = got; left > 0; left -= (ssize_t)v[count++].iov_len)
			;
		size_t len = requests_serve(in, pieces_join(v, count, in), out, &used);
		if (used > 0)
			sy_tcp_receive_done(c, fd, used);
		if (!answer(c, epoll, fd, out, len))
			return false;
	}
	/* otherwise EOF, possibly within a request, or an error */
	return one->len > 0 || got == -EAGAIN || (got > 0 && !last);
}

/* A complete request must fit into the receive buffer: it is read only as a whole. */
static int listen_on(struct sy_tcp_context *c, int epoll, unsigned port)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	const int room = 2 * BYTES_MAX;
	int fd = sy_tcp_socket(c, AF_INET6), rc = fd < 0 ? fd : 0;
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

	if (!rc)
		rc = sy_tcp_setsockopt(c, fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	if (!rc)
		rc = sy_tcp_bind(c, fd, (struct sockaddr *)&any, sizeof(any));
	if (!rc)
		rc = sy_tcp_listen(c, fd, 1024);
	if (!rc)
		rc = sy_tcp_epoll_ctl(c, epoll, EPOLL_CTL_ADD, fd, &e);
	return rc ? rc : fd;
}

static void greet(struct sy_tcp_context *c, int epoll, int listener)
{
	int fd;

	while ((fd = sy_tcp_accept(c, listener, NULL, NULL)) >= 0)
		if (!client_of(fd) || watch(c, epoll, EPOLL_CTL_ADD, fd))
			sy_tcp_close_fd(c, fd);
}

static int fail(const char *what, int rc)
{
	fprintf(stderr, "ranks: %s: %s\n", what, strerror(-rc));
	return 1;
}

/* Fetches one event at a time, so that more urgent ones can overtake. Returns the exit status. */
static int serve_all(struct sy_tcp_context *c, unsigned port)
{
	int epoll = sy_tcp_epoll_create(c), listener, hook, rc;

	if (epoll < 0)
		return fail("events", epoll);
	listener = listen_on(c, epoll, port);
	if (listener < 0)
		return fail("listening", listener);
	hook = sy_tcp_hook_packet(c, "level", level_of);
	rc = hook < 0 ? hook : sy_tcp_hook_use(c, SY_TCP_PACKETS, hook);
	if (!rc)
		rc = sy_tcp_epoll_lend(c, epoll, LONG, queue);
	if (rc)
		return fail("the hook", rc);
	printf("ready\n");
	fflush(stdout);
	while (!stopped) {
		struct sy_tcp_event e;
		rc = sy_tcp_epoll_fetch(c, epoll, SY_TCP_LEVELS, &e, 1, 100, NULL);
		if (rc < 0 && rc != -EINTR)
			return fail("waiting", rc);
		if (rc == 1 && e.data.fd == listener)
			greet(c, epoll, listener);
		else if (rc == 1 &&
		         !client_serve(c, epoll, e.data.fd, e.events & (EPOLLRDHUP | EPOLLHUP)))
			part(c, e.data.fd);
	}
	return 0;
}

/* ---- start and end --------------------------------------------------------------------------- */

static void on_signal(int number)
{
	if (number != SIGUSR1)
		stopped = 1;
	sem_post(&go_on);
}

static int usage(void)
{
	fprintf(stderr, "usage: ranks -i INTERFACE -a ADDRESS [-a ADDRESS] [-p PORT] [-H]\n"
	                "  -H  without huge pages\n");
	return 2;
}

static int run(struct sy_tcp_library *library, unsigned port)
{
	struct sy_tcp_context *c;
	pthread_t thread;
	int rc = sy_tcp_enter(library, 0, &c), status;

	if (rc)
		return fail("the context", rc);
	rc = sy_tcp_queue_open(256, &queue);
	if (!rc) {
		rc = -pthread_create(&thread, NULL, long_ones, NULL);
		if (rc)
			sy_tcp_queue_close(queue);
	}
	if (rc) {
		sy_tcp_leave(c);
		return fail("the second thread", rc);
	}
	status = serve_all(c, port);
	stopped = 1;
	sem_post(&go_on);
	pthread_join(thread, NULL);
	sy_tcp_queue_close(queue); /* before the context: queued requests return to it */
	sy_tcp_leave(c);
	for (int i = 0; i < clients; i++)
		free(client[i].rest);
	free(client);
	return status;
}

int main(int argc, char **argv)
{
	const char *interface = NULL, *address[2];
	struct sy_tcp_setup setup = {.size = sizeof(setup),
	                             .interface = &interface,
	                             .interfaces = 1,
	                             .address = address};
	struct sigaction act = {.sa_handler = on_signal};
	struct sy_tcp_library *library;
	unsigned port = 7010;
	char why[256] = "";
	int status;

	for (int option; (option = getopt(argc, argv, "i:a:p:H")) != -1;)
		if (option == 'i')
			interface = optarg;
		else if (option == 'a' && setup.addresses < 2)
			address[setup.addresses++] = optarg;
		else if (option == 'p')
			port = (unsigned)strtoul(optarg, NULL, 10);
		else if (option == 'H')
			setup.no_huge_pages = true;
		else
			return usage();
	if (!interface || !setup.addresses)
		return usage();
	sem_init(&go_on, 0, 0);
	sigaction(SIGUSR1, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	if (sy_tcp_open(&setup, &library, why, sizeof(why))) {
		fprintf(stderr, "ranks: %s\n", why);
		return 1;
	}
	status = run(library, port);
	sy_tcp_close(library);
	sem_destroy(&go_on);
	return status;
}
