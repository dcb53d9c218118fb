// SPDX-License-Identifier: Apache-2.0
/* Handlers that use sockets wherever they interrupt, and that leave by siglongjmp(). */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "waits.h"

#define HANDLED 300 /* times */
#define JUMPS   60

static volatile sig_atomic_t handled, failed;
static int in_handler;
static sigjmp_buf back;

static void jump(int number)
{
	siglongjmp(back, 1);
}

/* Calls that POSIX allows in a handler. */
static void handler(int number)
{
	int code = errno;
	char byte[2];
	struct pollfd p = {.fd = in_handler, .events = POLLIN};

	handled++;
	if (send(in_handler, "hh", 2, 0) != 2 || poll(&p, 1, -1) != 1 ||
	    recv(in_handler, byte, 2, MSG_WAITALL) != 2)
		failed++;
	errno = code;
}

static void on_signal(void (*call)(int), int flags)
{
	struct sigaction a = {.sa_handler = call, .sa_flags = flags};

	sigaction(SIGALRM, &a, NULL);
}

/* Only this thread gets them. */
static void *beside(void *arg)
{
	sigset_t alarm;
	const struct kind *k = arg;
	int fd = dial("echo\n");

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	while (handled < HANDLED)
		ask(fd, k, 'b');
	close(fd);
	return NULL;
}

static void alarm_every(unsigned us)
{
	struct itimerval t = {{0, us}, {0, us}};

	setitimer(ITIMER_REAL, &t, NULL);
}

/* Calls that do not wait are interrupted inside the stack, those that wait in their sleep. */
void signals_interrupt(void)
{
	int fd = dial("echo\n"), held = dial("hold\n");
	char byte;

	in_handler = dial("echo\n");
	/* Another handler that does not restart calls changes nothing. */
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = jump}, NULL);
	start(beside, (void *)&kinds[0]);
	on_signal(handler, SA_RESTART);
	alarm_every(500);
	for (unsigned i = 0; handled < HANDLED; i++) {
		check(recv(held, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "recv");
		if (i % 64 == 0)
			ask(fd, &kinds[i / 64 % 6], 'i'); /* those that restart */
	}
	alarm_every(0);
	join_all();
	check(failed == 0, "a call in a handler failed");
	close(fd);
	close(held);
	close(in_handler);
}

static volatile bool over;

static void *asks_beside(void *arg)
{
	sigset_t alarm;
	int fd = dial("echo\n");

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	for (unsigned i = 0; i < JUMPS; i++)
		ask(fd, arg, 'j');
	close(fd);
	over = true;
	return NULL;
}

/* The other thread gets its events while this one has left its sleep, and computes. */
void signals_jump(void)
{
	static unsigned kind;
	int held = dial("hold\n");
	char byte;

	on_signal(jump, 0);
	for (kind = 0; kind < KINDS; kind++) {
		if (sigsetjmp(back, 1) == 0) {
			alarm_every(2000);
			for (;;)
				kinds[kind].wait(held, &byte, 1);
		}
		alarm_every(0);
		over = false;
		start(asks_beside, (void *)&kinds[kind]);
		while (!over)
			;
		join_all();
	}
	/* And from inside the stack. */
	for (kind = 0; kind < JUMPS; kind++) {
		if (sigsetjmp(back, 1) == 0) {
			alarm_every(300);
			for (;;)
				recv(held, &byte, 1, MSG_DONTWAIT);
		}
	}
	alarm_every(0);
	int fd = dial("echo\n");
	ask(fd, &kinds[0], 'e');
	close(fd);
	close(held);
}
