// SPDX-License-Identifier: Apache-2.0
/*
 * Threads of one server, and how long a client waits for each (docs/benchmarks.md, stack).
 *
 *     --serve PORT                    a thread for each connection, which echoes
 *     --ask ADDRESS:PORT --protocol P --connections N --idle M --seconds S
 *                                     one request after the other on each of N connections, beside
 *                                     M that say nothing
 *
 * The client is on Linux's sockets, and prints JSON. P is echo, memcached or mysql (a server that
 * asks for no password).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sy_base.h>

#define BYTES       64
#define CONNECTIONS 256
#define LATENCIES   (1u << 20)
#define WARMUP_PART 5 /* of the time */
#define EVENTS      64
#define MS          UINT64_C(1000000)

static void fail(const char *what)
{
	fprintf(stderr, "steelyard-threads: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- the server ------------------------------------------------------------------------------ */

static void *echo(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char bytes[4096];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0 && send(fd, bytes, (size_t)n, 0) == n)
		;
	close(fd);
	return NULL;
}

static void serve(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	pthread_attr_t attr;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (void *)&a, sizeof(a)) || listen(fd, 1024))
		fail("listen");
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (;;) {
		pthread_t thread;
		int peer = accept(fd, NULL, NULL);
		if (peer < 0 || pthread_create(&thread, &attr, echo, (void *)(intptr_t)peer))
			fail("accept");
		setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
}

/* ---- protocols ------------------------------------------------------------------------------- */

struct protocol {
	const char *name;
	size_t (*request)(char *out);
	bool (*is_whole)(const char *answer, size_t len);
	void (*begin)(int fd);
};

static size_t echo_request(char *out)
{
	memset(out, 'x', BYTES);
	return BYTES;
}

static bool echo_is_whole(const char *answer, size_t len)
{
	return len == BYTES;
}

static size_t memcached_request(char *out)
{
	return (size_t)sprintf(out, "get key\r\n");
}

static bool memcached_is_whole(const char *answer, size_t len)
{
	return len >= 5 && memcmp(answer + len - 5, "END\r\n", 5) == 0;
}

static void send_all(int fd, const char *bytes, size_t len)
{
	if (send(fd, bytes, len, 0) != (ssize_t)len)
		fail("send");
}

static size_t receive_until(int fd, char *bytes, size_t cap, bool (*whole)(const char *, size_t))
{
	size_t len = 0;

	while (!whole(bytes, len)) {
		ssize_t n = recv(fd, bytes + len, cap - len, 0);
		if (n <= 0)
			fail("recv");
		len += (size_t)n;
	}
	return len;
}

static bool stored_is_whole(const char *answer, size_t len)
{
	return len >= 2 && answer[len - 1] == '\n';
}

static void memcached_begin(int fd)
{
	char text[256];
	size_t len = (size_t)sprintf(text, "set key 0 0 %d\r\n%*s\r\n", BYTES, BYTES, "x");

	send_all(fd, text, len);
	receive_until(fd, text, sizeof(text), stored_is_whole);
}

/* A packet: three bytes of length, least first, a number, and the payload. */
static bool mysql_is_whole(const char *answer, size_t len)
{
	const uint8_t *b = (const void *)answer;

	return len >= 4 && len == 4u + (b[0] | (unsigned)b[1] << 8 | (unsigned)b[2] << 16);
}

static size_t mysql_request(char *out)
{
	static const char query[] = "\3DO 1"; /* COM_QUERY; its answer is one packet */

	memcpy(out, "\5\0\0\0", 4);
	memcpy(out + 4, query, sizeof(query) - 1);
	return 4 + sizeof(query) - 1;
}

static void mysql_begin(int fd)
{
	/* PROTOCOL_41, SECURE_CONNECTION, LONG_PASSWORD; 16 MB; latin1; `root` without a password
	 */
	static const char login[] = "\46\0\0\1"
	                            "\1\202\0\0\0\0\0\1\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
	                            "\0\0\0root\0\0";
	char text[1024];

	receive_until(fd, text, sizeof(text), mysql_is_whole);
	send_all(fd, login, sizeof(login) - 1);
	receive_until(fd, text, sizeof(text), mysql_is_whole);
	if ((uint8_t)text[4] != 0) {
		fprintf(stderr, "steelyard-threads: the server does not let it in\n");
		exit(1);
	}
}

static const struct protocol protocols[] = {
        {"echo", echo_request, echo_is_whole, NULL},
        {"memcached", memcached_request, memcached_is_whole, memcached_begin},
        {"mysql", mysql_request, mysql_is_whole, mysql_begin},
};

/* ---- the client ------------------------------------------------------------------------------ */

struct talk {
	int fd;
	uint64_t asked_ns;
	char answer[1024];
	size_t len;
};

static struct {
	const struct protocol *protocol;
	struct sockaddr_in to;
	unsigned connections, idle;
	uint64_t begin_ns, end_ns;
	struct talk talk[CONNECTIONS];
	uint32_t latency_ns[LATENCIES];
	unsigned latencies;
	uint64_t answers;
} client;

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (connect(fd, (void *)&client.to, sizeof(client.to)))
		fail("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (client.protocol->begin)
		client.protocol->begin(fd);
	return fd;
}

static void talk_ask(struct talk *t)
{
	char request[256];
	size_t len = client.protocol->request(request);

	t->len = 0;
	t->asked_ns = sy_clock_ns();
	send_all(t->fd, request, len);
}

static void talk_hear(struct talk *t)
{
	ssize_t n = recv(t->fd, t->answer + t->len, sizeof(t->answer) - t->len, 0);
	uint64_t now = sy_clock_ns();

	if (n <= 0)
		fail("recv");
	t->len += (size_t)n;
	if (!client.protocol->is_whole(t->answer, t->len))
		return;
	if (now >= client.begin_ns && now < client.end_ns) {
		client.answers++;
		if (client.latencies < LATENCIES)
			client.latency_ns[client.latencies++] = (uint32_t)(now - t->asked_ns);
	}
	talk_ask(t);
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static double part_us(double part)
{
	return client.latencies ? client.latency_ns[(unsigned)(part * (client.latencies - 1))] / 1e3
	                        : 0;
}

static void ask(double seconds)
{
	struct epoll_event e[EVENTS];
	int epfd = epoll_create1(0);

	for (unsigned i = 0; i < client.idle; i++)
		dial();
	for (unsigned i = 0; i < client.connections; i++) {
		e[0] = (struct epoll_event){.events = EPOLLIN, .data.u32 = i};
		client.talk[i].fd = dial();
		epoll_ctl(epfd, EPOLL_CTL_ADD, client.talk[i].fd, &e[0]);
	}
	client.begin_ns = sy_clock_ns() + (uint64_t)(seconds * 1e9 / WARMUP_PART);
	client.end_ns = client.begin_ns + (uint64_t)(seconds * 1e9);
	for (unsigned i = 0; i < client.connections; i++)
		talk_ask(&client.talk[i]);
	while (sy_clock_ns() < client.end_ns) {
		int n = epoll_wait(epfd, e, EVENTS, 100);
		for (int i = 0; i < n; i++)
			talk_hear(&client.talk[e[i].data.u32]);
	}
	qsort(client.latency_ns, client.latencies, sizeof(*client.latency_ns), by_size);
	printf("{\"rate\": %.0f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"longest\": %.1f}\n",
	       (double)client.answers / seconds, part_us(0.5), part_us(0.9), part_us(0.99),
	       part_us(1));
}

static void address_read(char *text)
{
	char *port = strchr(text, ':');

	if (!port)
		fail("--ask ADDRESS:PORT");
	*port = '\0';
	client.to = (struct sockaddr_in){.sin_family = AF_INET,
	                                 .sin_port = htons((uint16_t)atoi(port + 1))};
	if (inet_pton(AF_INET, text, &client.to.sin_addr) != 1)
		fail(text);
}

static void protocol_read(const char *name)
{
	for (unsigned i = 0; i < SY_ARRAY_LEN(protocols); i++)
		if (!strcmp(protocols[i].name, name))
			client.protocol = &protocols[i];
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"serve", 1, NULL, 'v'},
	                                        {"ask", 1, NULL, 'a'},
	                                        {"protocol", 1, NULL, 'p'},
	                                        {"connections", 1, NULL, 'c'},
	                                        {"idle", 1, NULL, 'i'},
	                                        {"seconds", 1, NULL, 's'},
	                                        {0}};
	double seconds = 1;
	int c;

	client.protocol = protocols;
	client.connections = 1;
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 'v')
			serve((uint16_t)atoi(optarg));
		else if (c == 'a')
			address_read(optarg);
		else if (c == 'p')
			protocol_read(optarg);
		else if (c == 'c')
			client.connections = (unsigned)atoi(optarg);
		else if (c == 'i')
			client.idle = (unsigned)atoi(optarg);
		else if (c == 's')
			seconds = atof(optarg);
		else
			return 1;
	}
	if (!client.to.sin_port || client.connections > CONNECTIONS)
		fail("--ask ADDRESS:PORT, and 256 connections at most");
	ask(seconds);
	return 0;
}
