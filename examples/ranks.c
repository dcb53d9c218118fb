// SPDX-License-Identifier: Apache-2.0
/*
 * Priorities that the application defines: a server that serves urgent requests first, and has a
 * second thread for those that may take long.
 *
 *     ranks -i eth0 -a 192.0.2.10 [-a 2001:db8::10] [-p PORT]
 *
 * A request is its level (a byte: 0 first … 7 last), a byte that is 1 if it takes long, and the
 * length of what follows, in two bytes. The answer is those four bytes, a number that counts all
 * answers in the order of their service, in four bytes, and what followed. A request that takes
 * long does so until the process gets SIGUSR1.
 *
 * The hook is a function here. One in eBPF is loaded by sy_tcp_hook_load() instead.
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

#define HEADER     4
#define ANSWER     8
#define BYTES_MOST 65536               /* of a connection that are looked at in one go */
#define LONG       (1u << 6 | 1u << 7) /* levels of the second thread */

static struct sy_tcp_desk *desk;
static volatile sig_atomic_t stopped;
static sem_t go_on;
static uint32_t served; /* by both threads; atomic */

/* ---- what is urgent -------------------------------------------------------------------------- */

/* Asked for each packet, before the stack has looked at it. A packet without bytes of a request has
 * no level of its own. */
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

/* Serves the whole requests among these bytes; *used: how many bytes they are. Returns how many
 * bytes of answers there are. */
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

	for (int i = 0; i < count && len + v[i].iov_len <= BYTES_MOST; i++) {
		memcpy(out + len, v[i].iov_base, v[i].iov_len);
		len += v[i].iov_len;
	}
	return len;
}

/* The second thread: whatever it is busy with, the first one serves what is urgent. */
static void *long_ones(void *unused)
{
	static uint8_t in[BYTES_MOST];

	while (!stopped) {
		struct sy_tcp_request *r;
		if (sy_tcp_desk_take(desk, &r, 1, 100) != 1)
			continue;
		size_t len = pieces_join(r->v, r->count, in), used = 0, out = 0;
		uint8_t *room = sy_tcp_request_room(r, 2 * len + ANSWER);
		if (room)
			out = requests_serve(in, len, room, &used);
		sy_tcp_request_give(r, used, out);
	}
	return NULL;
}

/* ---- the first thread ------------------------------------------------------------------------ */

static void serve(struct sy_tcp_context *c, int fd)
{
	static uint8_t in[BYTES_MOST], out[2 * BYTES_MOST + ANSWER];
	struct iovec v[32];
	size_t used, len;
	ssize_t got;

	do {
		int count = 0;
		got = sy_tcp_receive_look(c, fd, v, 32);
		for (ssize_t left = got; left > 0; left -= (ssize_t)v[count++].iov_len)
			;
		len = requests_serve(in, pieces_join(v, count, in), out, &used);
		if (used > 0)
			sy_tcp_receive_done(c, fd, used);
		if (len > 0 && sy_tcp_send(c, fd, out, len, 0) != (ssize_t)len)
			got = -EPIPE; /* a client that does not read */
	} while (got > 0 && used > 0);
	if (got <= 0 && got != -EAGAIN)
		sy_tcp_close_fd(c, fd); /* the end, or an error */
}

static int listen_on(struct sy_tcp_context *c, int epoll, unsigned port)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	int fd = sy_tcp_socket(c, AF_INET6);
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

	if (fd < 0 || sy_tcp_bind(c, fd, (struct sockaddr *)&any, sizeof(any)) ||
	    sy_tcp_listen(c, fd, 1024) || sy_tcp_epoll_ctl(c, epoll, EPOLL_CTL_ADD, fd, &e))
		return -1;
	return fd;
}

static void greet(struct sy_tcp_context *c, int epoll, int listener)
{
	int fd;

	while ((fd = sy_tcp_accept(c, listener, NULL, NULL)) >= 0) {
		struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
		if (sy_tcp_epoll_ctl(c, epoll, EPOLL_CTL_ADD, fd, &e))
			sy_tcp_close_fd(c, fd);
	}
}

/* One event at a time: what has become more urgent meanwhile comes before the next one. */
static int serve_all(struct sy_tcp_context *c, unsigned port)
{
	int epoll = sy_tcp_epoll_create(c), listener = listen_on(c, epoll, port);
	int hook = sy_tcp_hook_packet(c, "level", level_of);

	if (listener < 0 || hook < 0 || sy_tcp_hook_use(c, SY_TCP_PACKETS, hook) ||
	    sy_tcp_epoll_lend(c, epoll, LONG, desk))
		return 1;
	printf("ready\n");
	fflush(stdout);
	while (!stopped) {
		struct sy_tcp_event e;
		if (sy_tcp_epoll_fetch(c, epoll, SY_TCP_LEVELS, &e, 1, 100, NULL) != 1)
			continue;
		if (e.data.fd == listener)
			greet(c, epoll, listener);
		else
			serve(c, e.data.fd);
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

int main(int argc, char **argv)
{
	const char *interface = NULL, *address[2];
	struct sy_tcp_setup setup = {.size = sizeof(setup),
	                             .interface = &interface,
	                             .interfaces = 1,
	                             .address = address};
	struct sigaction act = {.sa_handler = on_signal};
	struct sy_tcp_library *library;
	struct sy_tcp_context *c;
	unsigned port = 7010;
	pthread_t thread;
	char why[256] = "";
	int rc;

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
	if (sy_tcp_open(&setup, &library, why, sizeof(why)) || sy_tcp_enter(library, 0, &c) ||
	    sy_tcp_desk_open(256, &desk)) {
		fprintf(stderr, "ranks: %s\n", why);
		return 1;
	}
	pthread_create(&thread, NULL, long_ones, NULL);
	rc = serve_all(c, port);
	stopped = 1;
	sem_post(&go_on);
	pthread_join(thread, NULL);
	sy_tcp_leave(c);
	sy_tcp_close(library);
	sy_tcp_desk_close(desk);
	return rc;
}
