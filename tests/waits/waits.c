// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-waits ADDRESS PORT OWN [uncancelled]: threads that wait for sockets in all ways at
 * once. Each of them has to be woken by its event: no call has a time-out, so a lost wake-up never
 * ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "waits.h"

#define ROUNDS   150 /* of each thread */
#define CANCELS  20
#define COMPUTES 20
#define ANSWERS  3
#define THREADS  64
#define SHARERS  3 /* threads at one epoll instance, or one listener */

static struct sockaddr_in peer;
static pthread_t threads[THREADS];
static unsigned started;

/* ---- what all use ---------------------------------------------------------------------------- */

void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

int dial(const char *order)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	check(connect(fd, (void *)&peer, sizeof(peer)) == 0, "connect");
	check(send(fd, order, strlen(order), 0) == (ssize_t)strlen(order), "send");
	return fd;
}

void ask(int fd, const struct kind *k, char byte)
{
	char sent[3] = {byte, byte, byte}, got[3] = {0};

	check(send(fd, sent, sizeof(sent), 0) == sizeof(sent), k->name);
	for (size_t at = 0; at < sizeof(got);) {
		long n = k->wait(fd, got + at, sizeof(got) - at);
		check(n > 0, k->name);
		at += (size_t)n;
	}
	check(memcmp(sent, got, sizeof(got)) == 0, k->name);
}

void start(void *(*run)(void *), void *arg)
{
	check(started < THREADS && pthread_create(&threads[started], NULL, run, arg) == 0,
	      "thread");
	started++;
}

void join_all(void)
{
	while (started)
		pthread_join(threads[--started], NULL);
}

/* ---- every kind of call at once -------------------------------------------------------------- */

static void *echoes(void *arg)
{
	const struct kind *k = arg;
	int fd = dial("echo\n");

	for (unsigned i = 0; i < ROUNDS; i++)
		ask(fd, k, (char)i);
	close(fd);
	return NULL;
}

/* Waits for an event that never occurs, beside the others. */
static void *idle(void *arg)
{
	const struct kind *k = arg;
	int fd = dial("hold\n");
	char byte;

	k->wait(fd, &byte, 1);
	check(false, "an idle thread was woken");
	return NULL;
}

static void all_kinds(bool beside_idle)
{
	pthread_t sleeper[KINDS];

	for (unsigned i = 0; i < KINDS && beside_idle; i++)
		check(!pthread_create(&sleeper[i], NULL, idle, (void *)&kinds[i]), "thread");
	for (unsigned i = 0; i < KINDS; i++) {
		start(echoes, (void *)&kinds[i]);
		start(echoes, (void *)&kinds[i]);
	}
	join_all();
	for (unsigned i = 0; i < KINDS && beside_idle; i++) {
		pthread_cancel(sleeper[i]);
		pthread_join(sleeper[i], NULL);
	}
}

/* ---- what other threads do ------------------------------------------------------------------- */

static int shared;
static unsigned left;

/* One of several at an epoll instance: each event is one thread's. */
static void *sharer(void *arg)
{
	struct epoll_event e;
	char bytes[3];

	while (__atomic_load_n(&left, __ATOMIC_ACQUIRE)) {
		check(epoll_wait(shared, &e, 1, -1) == 1, "shared epoll_wait");
		if (e.data.fd < 0) /* the end: it stays readable */
			break;
		check(recv(e.data.fd, bytes, 1, 0) == 1, "shared recv");
		__atomic_sub_fetch(&left, 1, __ATOMIC_ACQ_REL);
		e.events = EPOLLIN | EPOLLONESHOT;
		check(!epoll_ctl(shared, EPOLL_CTL_MOD, e.data.fd, &e), "shared epoll_ctl");
	}
	return NULL;
}

/* A pool of threads: one-shot events, which another thread rearms while input is pending. */
static void pool(void)
{
	int fd[4], end[2];
	struct epoll_event e = {.events = EPOLLIN, .data.fd = -1};

	shared = epoll_create1(0);
	check(!pipe(end) && !epoll_ctl(shared, EPOLL_CTL_ADD, end[0], &e), "pipe");
	left = 4 * ROUNDS;
	for (unsigned i = 0; i < 4; i++) {
		fd[i] = dial("echo\n");
		e = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd[i]};
		check(!epoll_ctl(shared, EPOLL_CTL_ADD, fd[i], &e), "epoll_ctl");
	}
	for (unsigned i = 0; i < SHARERS; i++)
		start(sharer, NULL);
	for (unsigned i = 0; i < ROUNDS; i++)
		for (unsigned k = 0; k < 4; k++)
			check(send(fd[k], "x", 1, 0) == 1, "send");
	while (__atomic_load_n(&left, __ATOMIC_ACQUIRE))
		usleep(1000);
	check(write(end[1], "x", 1) == 1, "write");
	join_all();
	for (unsigned i = 0; i < 4; i++)
		close(fd[i]);
}

static int listener;

static void *acceptor(void *arg)
{
	for (unsigned i = 0; i < ROUNDS / 10; i++) {
		int fd = accept(listener, NULL, NULL);
		char byte[6];
		check(fd >= 0, "accept");
		check(recv(fd, byte, sizeof(byte), MSG_WAITALL) == sizeof(byte), "accepted recv");
		check(send(fd, byte, sizeof(byte), 0) == sizeof(byte), "accepted send");
		close(fd);
	}
	return NULL;
}

/* The peer calls back: each connection is one thread's, of several in accept(). */
static void acceptors(const char *own)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(8123)};
	char order[64];

	inet_pton(AF_INET, own, &a.sin_addr);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	check(!bind(listener, (void *)&a, sizeof(a)) && !listen(listener, 64), "listen");
	snprintf(order, sizeof(order), "call %s 8123\n", own);
	for (unsigned i = 0; i < SHARERS; i++)
		start(acceptor, NULL);
	for (unsigned i = 0; i < SHARERS * (ROUNDS / 10); i++)
		dial(order);
	join_all();
	close(listener);
}

static void *until_end(void *arg)
{
	char byte;

	check(recv(*(int *)arg, &byte, 1, 0) == 0, "recv of what ends");
	return NULL;
}

/* Another thread closes the waited-for descriptor, before or during the wait. */
static void ends(void)
{
	for (unsigned i = 0; i < CANCELS; i++) {
		int fd = dial("hold\n");
		start(until_end, &fd);
		usleep(i * 10);
		shutdown(fd, SHUT_RD);
		join_all();
		close(fd);
	}
}

static unsigned answered;
static bool over;

static void *asks_on(void *arg)
{
	int fd = dial("echo\n");

	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		ask(fd, &kinds[0], 'a');
		__atomic_add_fetch(&answered, 1, __ATOMIC_ACQ_REL);
	}
	close(fd);
	return NULL;
}

/* A thread that has waited often now computes: another one gets its answers meanwhile. */
static void computes(void)
{
	int fd = dial("echo\n");

	start(asks_on, NULL);
	for (unsigned i = 0; i < COMPUTES; i++) {
		for (unsigned k = 0; k < ROUNDS / 4; k++)
			ask(fd, &kinds[0], 'c');
		unsigned seen = __atomic_load_n(&answered, __ATOMIC_ACQUIRE);
		while (__atomic_load_n(&answered, __ATOMIC_ACQUIRE) - seen < ANSWERS)
			;
	}
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	join_all();
	close(fd);
}

/* ---- cancelled ------------------------------------------------------------------------------- */

static void *forever(void *arg)
{
	const struct kind *k = arg;
	int fd = dial("echo\n");

	for (char byte = 0;; byte++)
		ask(fd, k, byte);
	return NULL;
}

/* A thread that is cancelled anywhere leaves nothing locked, and no event to itself. */
static void cancels(void)
{
	for (unsigned i = 0; i < CANCELS * KINDS; i++) {
		pthread_t one;
		int fd = i % 4 ? -1 : dial("echo\n");
		void *(*run)(void *) = i % 2 ? forever : idle;
		check(!pthread_create(&one, NULL, run, (void *)&kinds[i % KINDS]), "thread");
		usleep(i % 7 * 100);
		pthread_cancel(one);
		pthread_join(one, NULL);
		if (fd >= 0) {
			ask(fd, &kinds[i / 4 % KINDS], (char)i);
			close(fd);
		}
	}
}

int main(int argc, char **argv)
{
	setlinebuf(stdout);
	check(argc == 4 || argc == 5, "steelyard-waits ADDRESS PORT OWN [uncancelled]");
	bool cancelled = argc == 4;
	peer.sin_family = AF_INET;
	peer.sin_port = htons((uint16_t)atoi(argv[2]));
	inet_pton(AF_INET, argv[1], &peer.sin_addr);
	all_kinds(false);
	puts("kinds");
	if (cancelled) {
		all_kinds(true);
		puts("beside idle ones");
	}
	pool();
	puts("pool");
	acceptors(argv[3]);
	puts("accept");
	ends();
	puts("ends");
	computes();
	puts("computes");
	if (cancelled) {
		cancels();
		puts("cancels");
	}
	signals_interrupt();
	puts("handlers");
	signals_jump();
	puts("jumps");
	return 0;
}
