// SPDX-License-Identifier: Apache-2.0
/* Copies of a descriptor, processes, threads and signals. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

#define RESULT(call)                                                                               \
	({                                                                                         \
		long rc_ = (call);                                                                 \
		rc_ < 0 ? -errno : rc_;                                                            \
	})

static long names_result(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	return RESULT(getpeername(fd, (void *)&a, &len));
}

/* ---- copies ---------------------------------------------------------------------------------- */

static long dup_closed(int fd)
{
	int copy = dup(fd);

	if (copy < 0)
		return -errno;
	close(fd);
	more("original %s, ", error_name((int)-names_result(fd)));
	long rc = names_result(copy);
	more("send %s",
	     error_name(send(copy, "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0));
	close(copy);
	return rc;
}

/* Flags of the file are shared, and a shutdown is. */
static long dup_shared(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 50);

	if (copy < 0)
		return -errno;
	more("%d ", fcntl(copy, F_GETFD));
	fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) ^ O_NONBLOCK);
	more("%d ", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
	more("%s ", error_name(shutdown(copy, SHUT_WR) ? errno : 0));
	close(copy);
	return RESULT(send(fd, "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
}

static long dup2_onto(int fd)
{
	int end[2];

	if (pipe(end))
		return -errno;
	long rc = RESULT(dup2(fd, end[0]));
	more("write %s ", error_name(write(end[1], "a", 1) < 0 ? errno : 0));
	more("name %s", error_name((int)-names_result(end[0])));
	close(end[0]);
	close(end[1]);
	return rc == end[0] ? 0 : rc;
}

/* An epoll instance forgets a socket with its last descriptor. */
static long epoll_closed(int fd)
{
	int set = epoll_create1(0), copy = dup(fd);
	struct epoll_event e = {.events = EPOLLOUT | EPOLLIN}, got = {0};
	long rc = RESULT(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e));

	if (rc == 0) {
		close(fd);
		more("with a copy %d, ", epoll_wait(set, &got, 1, 2));
		close(copy);
		more("without %d", epoll_wait(set, &got, 1, 2));
	}
	close(set);
	return rc;
}

static long close_twice(int fd)
{
	more("%s ", error_name(close(fd) ? errno : 0));
	return RESULT(close(fd));
}

/* ---- threads and signals --------------------------------------------------------------------- */

struct task {
	int fd;
	int ready[2]; /* a pipe: the thread begins */
	long result;
	char bytes[9];
};

static void *task_read(void *arg)
{
	struct task *t = arg;

	require(write(t->ready[1], "", 1) == 1, "pipe");
	t->result = RESULT(recv(t->fd, t->bytes, sizeof(t->bytes), 0));
	return NULL;
}

/* Another thread's shutdown() ends a call that waits; one that has not begun yet returns the same.
 */
static long thread_shutdown(int fd)
{
	struct task t = {.fd = fd};
	struct timeval forever = {0};
	pthread_t thread;
	char byte;

	if (fcntl(fd, F_GETFL) < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
	require(pipe(t.ready) == 0, "pipe");
	require(pthread_create(&thread, NULL, task_read, &t) == 0, "thread");
	require(read(t.ready[0], &byte, 1) == 1, "pipe");
	long rc = RESULT(shutdown(fd, SHUT_RDWR));
	pthread_join(thread, NULL);
	close(t.ready[0]);
	close(t.ready[1]);
	/* Without a connection it depends on which of them is first. */
	return rc ? rc : t.result;
}

static volatile int interrupts;

static void interrupt(int number)
{
	interrupts++;
}

/* Without SA_RESTART a handler ends the call. */
static long signal_read(int fd)
{
	struct sigaction a = {.sa_handler = interrupt}, before;
	struct timeval forever = {0};
	char byte;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
	sigaction(SIGALRM, &a, &before);
	/* Repeats the signal: the first one may arrive before the call waits. */
	ualarm(20000, 20000);
	long rc = RESULT(recv(fd, &byte, 1, 0));
	ualarm(0, 0);
	sigaction(SIGALRM, &before, NULL);
	return rc;
}

static long signal_poll(int fd)
{
	struct sigaction a = {.sa_handler = interrupt, .sa_flags = SA_RESTART}, before;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	sigaction(SIGALRM, &a, &before);
	ualarm(20000, 20000);
	long rc = RESULT(poll(&p, 1, -1));
	ualarm(0, 0);
	sigaction(SIGALRM, &before, NULL);
	return rc;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Runs it in a child, which reports by a pipe. */
static long in_child(int fd, void (*run)(int fd, int out))
{
	char said[MORE_BYTES] = {0};
	int out[2];

	require(pipe(out) == 0, "pipe");
	pid_t child = fork();
	if (child == 0) {
		signal(SIGPIPE, SIG_IGN);
		close(out[0]);
		run(fd, out[1]);
		_exit(0);
	}
	pipe_report(out, said);
	waitpid(child, NULL, 0);
	more("child: %s", said);
	return 0;
}

static void child_uses(int fd, int out)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
	char byte;

	dprintf(out, "name %s, ", error_name((int)-names_result(fd)));
	poll(&p, 1, 0);
	dprintf(out, "poll %s, ", events_name((unsigned short)p.revents));
	dprintf(out, "read %s, ", error_name(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 ? errno : 0));
	dprintf(out, "write %s", error_name(send(fd, "a", 1, MSG_DONTWAIT) < 0 ? errno : 0));
}

static long fork_uses(int fd)
{
	in_child(fd, child_uses);
	more("; parent: name %s", error_name((int)-names_result(fd)));
	return 0;
}

/* A child's close() leaves the parent's descriptor open. */
static void child_closes(int fd, int out)
{
	dprintf(out, "close %s", error_name(close(fd) ? errno : 0));
}

static long fork_closes(int fd)
{
	in_child(fd, child_closes);
	more("; parent: name %s, ", error_name((int)-names_result(fd)));
	more("send %s", error_name(send(fd, "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0));
	return 0;
}

static void child_connects(int fd, int out)
{
	int one = stream_socket(0);

	dprintf(out, "connect %s",
	        error_name(connect_to(one, peer.address, peer.port) ? errno : 0));
}

static long fork_connects(int fd)
{
	return in_child(fd, child_connects);
}

static int shared_set;

static void child_waits(int fd, int out)
{
	struct epoll_event got = {0};
	int end[2];

	int n = epoll_wait(shared_set, &got, 1, 2);
	dprintf(out, "inherited %d %u, ", n, got.data.u32);
	require(pipe(end) == 0 && write(end[1], "a", 1) == 1, "pipe");
	struct epoll_event e = {.events = EPOLLIN, .data.u32 = 2};
	dprintf(out, "add %s, ",
	        error_name(epoll_ctl(shared_set, EPOLL_CTL_ADD, end[0], &e) ? errno : 0));
	dprintf(out, "delete %s, ",
	        error_name(epoll_ctl(shared_set, EPOLL_CTL_DEL, fd, &e) ? errno : 0));
	n = epoll_wait(shared_set, &got, 1, 2);
	dprintf(out, "own %d %u", n, got.data.u32);
	epoll_ctl(shared_set, EPOLL_CTL_DEL, end[0], &e);
}

/* A child that uses its parent's epoll instance. */
static long fork_epoll(int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u32 = 1}, got = {0};

	shared_set = epoll_create1(0);
	long rc = RESULT(epoll_ctl(shared_set, EPOLL_CTL_ADD, fd, &e));
	if (rc == 0) {
		in_child(fd, child_waits);
		more("; parent: %d", epoll_wait(shared_set, &got, 1, 2));
	}
	close(shared_set);
	return rc;
}

const struct call several[] = {
        FEW(dup_closed),  FEW(dup_shared),      FEW(dup2_onto),   FEW(epoll_closed),
        FEW(close_twice), FEW(fork_uses),       FEW(fork_closes), FEW(fork_connects),
        FEW(fork_epoll),  FEW(thread_shutdown), FEW(signal_read), FEW(signal_poll),
};
const size_t several_count = sizeof(several) / sizeof(*several);
