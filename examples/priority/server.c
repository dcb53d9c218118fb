// SPDX-License-Identifier: Apache-2.0
/*
 * NAME -i eth0 -a 192.0.2.10 [-p PORT] [-s STACK] [-e OBJECT [-P I=VALUE]…] [-n] [-H]
 *         -e: runs this eBPF program instead of the C function; -n: no hook; -s: name for steelyard
 * hook --stack
 *
 * Build: cc length.c server.c $(pkg-config --cflags --libs steelyard-tcp)
 */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define SLOW_US 5000 /* CPU time of a request of type 1 */

static struct {
	const char *interface, *address, *object, *stack;
	unsigned port;
	bool no_hook, no_huge;
	unsigned params;
	uint64_t param[SY_HOOK_PARAMS];
} options = {.port = 7};

static volatile sig_atomic_t stopped;
static const struct scenario *scenario;
static uint32_t served;

static void stop(int number)
{
	stopped = 1;
}

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s: %s\n", scenario->name, what, why);
	return -1;
}

/* ---- requests -------------------------------------------------------------------------------- */

static uint64_t processor_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Type 1 takes long. */
static void work(uint8_t type)
{
	uint64_t began = processor_us();
	while (type == 1 && processor_us() - began < SLOW_US)
		;
	if (scenario->served)
		scenario->served(type, processor_us() - began);
}

static void own_write(struct sy_tcp_context *c, int fd)
{
	void *own = scenario->write ? sy_tcp_own(c, fd) : NULL;
	if (own)
		scenario->write(own);
}

/* A connection: the part of its request received so far. Read in parts, as a request may exceed the
 * receive buffer. */
struct client {
	uint8_t header[REQUEST_HEADER];
	uint8_t have;  /* bytes of the header */
	uint32_t left; /* bytes after it still missing */
};

#include "../clients.h"

/* Returns 1 if a request is complete, 0 if not yet, -1 at the end of the connection. */
static int request_read(struct sy_tcp_context *c, int fd)
{
	static uint8_t bytes[65536];
	struct client *one = &client[fd];

	while (one->have < REQUEST_HEADER || one->left > 0) {
		bool header = one->have < REQUEST_HEADER;
		size_t wanted = header ? (size_t)(REQUEST_HEADER - one->have) : one->left;
		ssize_t n = sy_tcp_recv(c, fd, header ? one->header + one->have : bytes,
		                        wanted < sizeof(bytes) ? wanted : sizeof(bytes), 0);
		if (n <= 0)
			return n == -EAGAIN ? 0 : -1;
		if (!header) {
			one->left -= (uint32_t)n;
			continue;
		}
		one->have = (uint8_t)(one->have + n);
		if (one->have < REQUEST_HEADER)
			continue;
		memcpy(&one->left, one->header, sizeof(one->left));
		one->left = ntohl(one->left);
		if (one->left-- == 0) /* includes the label */
			return -1;
	}
	one->have = 0;
	return 1;
}

/* Serves one request. Returns 1 if there may be more, 0 if not, -1 at the end of the connection. */
static int request_serve(struct sy_tcp_context *c, int fd)
{
	uint32_t answer;
	int unread = 0, rc = request_read(c, fd);

	if (rc < 1)
		return rc;
	work(client[fd].header[4]);
	own_write(c, fd);
	answer = htonl(served++);
	if (sy_tcp_send(c, fd, &answer, sizeof(answer), 0) != sizeof(answer))
		return -1;
	return sy_tcp_ioctl(c, fd, FIONREAD, &unread) ? -1 : unread > 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void greet(struct sy_tcp_context *c, int listener, int epoll)
{
	int fd;

	while ((fd = sy_tcp_accept(c, listener, NULL, NULL)) >= 0) {
		struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
		struct client *one = client_of(fd);
		own_write(c, fd);
		if (!one || sy_tcp_epoll_ctl(c, epoll, EPOLL_CTL_ADD, fd, &e)) {
			sy_tcp_close_fd(c, fd);
			continue;
		}
		*one = (struct client){0};
	}
}

/* Fetches one event at a time: always the most urgent one. */
static void serve(struct sy_tcp_context *c, int epoll, int listener)
{
	struct epoll_event e;

	while (!stopped) {
		if (sy_tcp_epoll_wait(c, epoll, &e, 1, 100, NULL) < 1)
			continue;
		int fd = e.data.fd;
		if (fd == listener) {
			greet(c, listener, epoll);
			continue;
		}
		int more = request_serve(c, fd);
		if (more < 0) {
			sy_tcp_close_fd(c, fd);
		} else if (more) {
			e.events = EPOLLIN | EPOLLET;
			sy_tcp_epoll_ctl(c, epoll, EPOLL_CTL_MOD, fd, &e);
		}
	}
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Assigns the hook: to all packets, or to segments of the listener's connections. */
static int hook_use(struct sy_tcp_context *c, int listener)
{
	char why[300] = "";
	int hook, rc;

	if (options.no_hook)
		return 0;
	if (options.object)
		hook = sy_tcp_hook_load(c, scenario->name, options.object, why, sizeof(why));
	else if (scenario->packet)
		hook = sy_tcp_hook_packet(c, scenario->name, scenario->packet);
	else
		hook = sy_tcp_hook_segment(c, scenario->name, scenario->segment);
	if (hook < 0)
		return fail("the hook", *why ? why : strerror(-hook));
	for (unsigned i = 0; i < SY_HOOK_PARAMS; i++)
		if (options.params >> i & 1)
			sy_tcp_hook_param(c, hook, i, options.param[i]);
	rc = sy_tcp_hook_use(c, scenario->packet ? SY_TCP_PACKETS : listener, hook);
	return rc ? fail("the hook", strerror(-rc)) : 0;
}

static int listen_at(struct sy_tcp_context *c, int epoll)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
	int fd = sy_tcp_socket(c, AF_INET);
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	int rc = fd < 0 ? fd : sy_tcp_bind(c, fd, (struct sockaddr *)&at, sizeof(at));

	if (!rc)
		rc = sy_tcp_listen(c, fd, 256);
	if (!rc)
		rc = sy_tcp_epoll_ctl(c, epoll, EPOLL_CTL_ADD, fd, &e);
	return rc ? fail("listening", strerror(-rc)) : fd;
}

static int run(struct sy_tcp_library *library)
{
	struct sy_tcp_context *c;
	int rc = sy_tcp_enter(library, 0, &c);

	if (rc)
		return fail("entering the context", strerror(-rc));
	int epoll = sy_tcp_epoll_create(c), listener = listen_at(c, epoll);
	if (listener >= 0 && hook_use(c, listener) == 0) {
		printf("ready\n");
		fflush(stdout);
		serve(c, epoll, listener);
	}
	sy_tcp_leave(c);
	free(client);
	return stopped ? 0 : -1;
}

static void param_read(const char *text)
{
	char *value;
	unsigned long i = strtoul(text, &value, 10);

	if (*value != '=' || i >= SY_HOOK_PARAMS)
		exit(2);
	options.params |= 1u << i;
	options.param[i] = strtoull(value + 1, NULL, 0);
}

static void options_read(int argc, char **argv)
{
	int o;

	while ((o = getopt(argc, argv, "i:a:p:s:e:P:nH")) != -1) {
		if (o == 'i')
			options.interface = optarg;
		else if (o == 'a')
			options.address = optarg;
		else if (o == 'p')
			options.port = (unsigned)atoi(optarg);
		else if (o == 's')
			options.stack = optarg;
		else if (o == 'e')
			options.object = optarg;
		else if (o == 'P')
			param_read(optarg);
		else if (o == 'n')
			options.no_hook = true;
		else if (o == 'H')
			options.no_huge = true;
		else
			exit(2);
	}
	if (!options.interface || !options.address)
		exit(2);
}

int server_main(int argc, char **argv, const struct scenario *wanted)
{
	struct sigaction action = {.sa_handler = stop};
	struct sy_tcp_library *library;
	char why[300];

	scenario = wanted;
	options_read(argc, argv);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	const struct sy_tcp_setup setup = {
	        .size = sizeof(setup),
	        .interface = &options.interface,
	        .interfaces = 1,
	        .address = &options.address,
	        .addresses = 1,
	        .no_huge_pages = options.no_huge,
	        .stack = options.stack,
	};
	if (sy_tcp_open(&setup, &library, why, sizeof(why))) {
		fail("opening", why);
		return 1;
	}
	int rc = run(library);
	sy_tcp_close(library);
	return rc ? 1 : 0;
}
