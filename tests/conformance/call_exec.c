// SPDX-License-Identifier: Apache-2.0
/*
 * Executes programs with a socket: by a child, by the process that has the socket, and by calls
 * that do both. The program is this one (executed.c), with the library and without it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conformance.h"

#define SELF      "/proc/self/exe"
#define WORDS     8
#define NUMBER    33 /* descriptor that a program expects */
#define SIGNALS   20
#define SIGNAL_US 300 /* between two */

extern char **environ;

/* ---- how it is executed ---------------------------------------------------------------------- */

struct program {
	char *word[WORDS];
	char number[3][12];
};

/* before: events that the socket is ready for. */
static char **words(struct program *p, const char *how, int fd, int out, short before)
{
	const int numbers[] = {fd, out, before};

	for (int i = 0; i < 3; i++)
		snprintf(p->number[i], sizeof(p->number[i]), "%d", numbers[i]);
	char *all[WORDS] = {"--executed", (char *)how,      p->number[0],         p->number[1],
	                    p->number[2], (char *)peer.own, (char *)peer.address, NULL};
	memcpy(p->word, all, sizeof(all));
	return p->word;
}

static short ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};

	return poll(&p, 1, 0) > 0 ? p.revents & (POLLIN | POLLRDHUP) : 0;
}

static void self_execute(const char *how, int fd, int out, short before)
{
	char *const empty[] = {NULL};
	struct program p;

	execve(SELF, words(&p, how, fd, out, before), strcmp(how, "bare") ? environ : empty);
	dprintf(out, "execve %s", error_name(errno));
}

/* Runs it in a process that reports by a pipe. */
static void in_process(int fd, const char *who, void (*run)(int fd, int out, short before))
{
	char said[MORE_BYTES] = {0};
	int out[2];
	short before = ready(fd);

	require(pipe(out) == 0, "pipe");
	pid_t child = fork();
	if (child == 0) {
		close(out[0]);
		run(fd, out[1], before);
		_exit(0);
	}
	pipe_report(out, said);
	waitpid(child, NULL, 0);
	more("%s: %s", who, said);
}

static void parent_report(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	more("; parent: name %s, ", error_name(getpeername(fd, (void *)&a, &len) ? errno : 0));
	more("send %s", error_name(send(fd, "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0));
}

static void plain(int fd, int out, short before)
{
	self_execute("plain", fd, out, before);
}

static void bare(int fd, int out, short before)
{
	self_execute("bare", fd, out, before);
}

static void cloexec(int fd, int out, short before)
{
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	plain(fd, out, before);
}

/* As a service manager leaves it (LISTEN_FDS). */
static void renumbered(int fd, int out, short before)
{
	int copy = fcntl(out, F_DUPFD, NUMBER + 1);

	dup2(fd, NUMBER);
	close_range(3, NUMBER - 1, 0);
	setenv("LISTEN_FDS", "1", 1);
	plain(NUMBER, copy, before);
}

/* All but one are closed by execve(). */
static void ranged(int fd, int out, short before)
{
	close_range(3, ~0u, 4); /* CLOSE_RANGE_CLOEXEC */
	fcntl(out, F_SETFD, 0);
	more("%d", fcntl(fd, F_GETFD));
	plain(fd, out, before);
}

static void by_descriptor(int fd, int out, short before)
{
	struct program p;
	int self = open(SELF, O_RDONLY | O_CLOEXEC);

	fexecve(self, words(&p, "plain", fd, out, before), environ);
	dprintf(out, "fexecve %s", error_name(errno));
}

static void after_failure(int fd, int out, short before)
{
	char *const none[] = {NULL};
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	char path[64];
	int file = memfd_create("no program", MFD_CLOEXEC);

	require(write(file, "\177ELF", 4) == 4 && fchmod(file, 0755) == 0, "file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	dprintf(out, "execve %s", error_name(execve("/nowhere", none, none) ? errno : 0));
	dprintf(out, " %s", error_name(execve(path, none, none) ? errno : 0));
	dprintf(out, " %s, ", error_name(execve(path, none, none) ? errno : 0));
	dprintf(out, "name %s, ", error_name(getpeername(fd, (void *)&a, &len) ? errno : 0));
	dprintf(out, "poll %s, ", events_name(settled(fd, before)));
	plain(fd, out, before);
}

/* The second of two programs has it. */
static void twice(int fd, int out, short before)
{
	struct program p;
	char **w = words(&p, "plain", fd, out, before), self[256] = {0};

	require(readlink(SELF, self, sizeof(self) - 1) > 0, SELF);
	execlp("sh", "sh", "-c", "exec \"$0\" \"$@\"", self, w[0], w[1], w[2], w[3], w[4], w[5],
	       w[6], NULL);
	dprintf(out, "execlp %s", error_name(errno));
}

static int signalled_out;

static void child_ended(int number)
{
	require(write(signalled_out, "a child, ", 9) == 9, "pipe");
}

static void ignore(int number)
{
}

/* Signals arrive before the call and during it; the program never sees a child of the library's. */
static void signalled(int fd, int out, short before)
{
	struct sigaction ended = {.sa_handler = child_ended}, other = {.sa_handler = ignore};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGWINCH};

	signalled_out = out;
	sigaction(SIGCHLD, &ended, NULL);
	sigaction(SIGWINCH, &other, NULL);
	for (int i = 0; i < SIGNALS; i++) {
		struct itimerspec when = {.it_value.tv_nsec = i * SIGNAL_US * 1000 + 1};
		timer_t timer;
		require(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer");
		timer_settime(timer, 0, &when, NULL);
	}
	plain(fd, out, before);
}

static void with_set(int fd, int out, short before)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.u32 = 7};
	int set = epoll_create1(0);

	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &e))
		dprintf(out, "epoll_ctl %s, ", error_name(errno));
	self_execute("set", set, out, before & POLLIN);
}

/* It has the socket from a message. */
static void by_message(int fd, int out, short before)
{
	int pair[2];
	char byte = 0;
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov,
	                   .msg_iovlen = 1,
	                   .msg_control = control,
	                   .msg_controllen = sizeof(control)};

	require(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
	*CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
	                                      .cmsg_level = SOL_SOCKET,
	                                      .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
	dprintf(out, "sendmsg %s, ", error_name(sendmsg(pair[0], &m, 0) < 0 ? errno : 0));
	m.msg_controllen = sizeof(control);
	if (recvmsg(pair[1], &m, 0) == 1 && CMSG_FIRSTHDR(&m)) {
		close(fd);
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
		plain(fd, out, before);
	}
}

/* ---- by a child ------------------------------------------------------------------------------ */

/* Returns whether connections wait. If this process leaves them for a second while another one
 * waits, Linux accepts them (docs/design/0058-serving.md): the result depends on the machine's
 * load. */
static bool is_called(int fd)
{
	int listens = 0;
	socklen_t len = sizeof(listens);

	getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len);
	return listens && ready(fd);
}

#define BY_CHILD(name, run)                                                                        \
	static long name(int fd)                                                                   \
	{                                                                                          \
		if (is_called(fd))                                                                 \
			return 0;                                                                  \
		in_process(fd, "child", run);                                                      \
		parent_report(fd);                                                                 \
		return 0;                                                                          \
	}
BY_CHILD(fork_exec, plain)
BY_CHILD(fork_exec_bare, bare)
BY_CHILD(fork_exec_cloexec, cloexec)
BY_CHILD(fork_exec_number, renumbered)
BY_CHILD(fork_exec_range, ranged)
BY_CHILD(fork_fexecve, by_descriptor)
BY_CHILD(fork_exec_twice, twice)

/* ---- by one call ----------------------------------------------------------------------------- */

static void spawned(int fd, int out, short before, const char *how, int to)
{
	posix_spawn_file_actions_t list;
	char *const empty[] = {NULL};
	struct program p;
	pid_t child;

	posix_spawn_file_actions_init(&list);
	if (to != fd)
		posix_spawn_file_actions_adddup2(&list, fd, to);
	int rc = posix_spawn(&child, SELF, &list, NULL, words(&p, how, to, out, before),
	                     strcmp(how, "bare") ? environ : empty);
	posix_spawn_file_actions_destroy(&list);
	if (rc)
		dprintf(out, "posix_spawn %s", error_name(rc));
	else
		waitpid(child, NULL, 0);
}

static void by_shell(int fd, int out, short before, bool streams)
{
	struct program p;
	char command[256], **w = words(&p, "plain", fd, out, before);

	snprintf(command, sizeof(command), "exec /proc/$PPID/exe %s %s %s %s %s %s %s", w[0], w[1],
	         w[2], w[3], w[4], w[5], w[6]);
	if (!streams) {
		require(system(command) == 0, "system");
		return;
	}
	FILE *f = popen(command, "r");
	require(f && pclose(f) == 0, "popen");
}

/* This process creates the child; the pipe is large enough for its report. */
static long by_call(int fd, void (*run)(int fd, int out, short before))
{
	char said[MORE_BYTES] = {0};
	int out[2];

	require(pipe(out) == 0, "pipe");
	run(fd, out[1], ready(fd));
	pipe_report(out, said);
	more("child: %s", said);
	parent_report(fd);
	return 0;
}

static void spawn_plain(int fd, int out, short before)
{
	spawned(fd, out, before, "plain", fd);
}

static void spawn_bare(int fd, int out, short before)
{
	spawned(fd, out, before, "bare", fd);
}

static void spawn_dup2(int fd, int out, short before)
{
	spawned(fd, out, before, "plain", NUMBER);
}

static void spawn_cloexec(int fd, int out, short before)
{
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	spawned(fd, out, before, "plain", fd);
}

static void spawn_system(int fd, int out, short before)
{
	by_shell(fd, out, before, false);
}

static void spawn_popen(int fd, int out, short before)
{
	by_shell(fd, out, before, true);
}

#define BY_CALL(name, run)                                                                         \
	static long name(int fd)                                                                   \
	{                                                                                          \
		return by_call(fd, run);                                                           \
	}
BY_CALL(posix_spawn_uses, spawn_plain)
BY_CALL(posix_spawn_bare, spawn_bare)
BY_CALL(posix_spawn_dup2, spawn_dup2)
BY_CALL(posix_spawn_cloexec, spawn_cloexec)
BY_CALL(system_uses, spawn_system)
BY_CALL(popen_uses, spawn_popen)

const struct call executing[] = {
        ONCE(fork_exec),       FEW(fork_exec_bare),      FEW(fork_exec_cloexec),
        FEW(fork_exec_number), FEW(fork_exec_range),     FEW(fork_fexecve),
        FEW(fork_exec_twice),  FEW(posix_spawn_uses),    FEW(posix_spawn_bare),
        FEW(posix_spawn_dup2), FEW(posix_spawn_cloexec), FEW(system_uses),
        FEW(popen_uses),
};
const size_t executing_count = sizeof(executing) / sizeof(*executing);

/* ---- by the process that has the socket ------------------------------------------------------ */

const struct replacement replacements[] = {
        {"exec", plain, false},
        {"exec_bare", bare, true},
        {"exec_cloexec", cloexec, true},
        {"exec_number", renumbered, true},
        {"exec_range", ranged, true},
        {"fexecve", by_descriptor, true},
        {"exec_after_failure", after_failure, true},
        {"exec_twice", twice, true},
        {"exec_epoll", with_set, true},
        {"exec_signalled", signalled, true},
        {"exec_message", by_message, true},
};
const size_t replacement_count = sizeof(replacements) / sizeof(*replacements);

/* Kills leftover processes, whose resources the next case needs. */
static void orphans_end(void)
{
	pid_t pid;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	FILE *f = fopen(path, "r");
	while (f && fscanf(f, "%d", &pid) == 1)
		kill(pid, SIGKILL);
	if (f)
		fclose(f);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

struct opened {
	const struct state *state;
	void (*run)(int fd, int out, short before);
};
static struct opened opened;

static void open_and_run(int unused, int out, short before)
{
	(void)unused;
	(void)before;
	int fd = state_open(opened.state);
	mode_set(fd, false);
	opened.run(fd, out, ready(fd));
}

void replacement_run(const struct state *s, const struct replacement *r)
{
	opened = (struct opened){s, r->run};
	in_process(-1, "program", open_and_run);
	orphans_end();
}
