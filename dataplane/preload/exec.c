// SPDX-License-Identifier: Apache-2.0
/*
 * Programs that are executed. They inherit descriptors of the kernel, but not the stack: it is
 * memory of this process (docs/design/0062-relays.md).
 *
 *     posix_spawn(), system(), popen()    connections that a child inherits become relays
 *     execve()                            so do those that the program inherits; a successor serves
 * them:
 *
 *         relays ─▶ fork(), twice ─▶ execve() ─▶ the channel closes ─▶ the successor has the stack
 *                                        └─ fails ─▶ a byte ─▶ the successor exits
 *
 * The successor has a copy of the stack, and this process has the lock: only one continues with it.
 */
#include <alloca.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "real.h"
#include "relay.h"

#define TRIES 100 /* attempts: a handler may have to run before each */

/* A process that is about to execute a program. */
struct leave {
	int channel; /* to the successor; -1: there is none */
	bool locked;
	sigset_t program; /* what the program blocks */
};

/* ---- the successor --------------------------------------------------------------------------- */

/* Closes the program's descriptors; those of this library stay open. */
static void descriptors_close(void)
{
	int none;

	close_range(0, UINT32_MAX, 0);
	none = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3 && none >= 0; fd++)
		if (fd != none)
			REAL(dup2)(none, fd);
}

static _Noreturn void successor_run(int channel)
{
	char byte = 0;

	prctl(PR_SET_NAME, "steelyard-relay");
	table_own_as(channel);
	supervisor_move();
	REAL(send)(channel, &byte, sizeof(byte), MSG_NOSIGNAL);
	while (REAL(recv)(channel, &byte, sizeof(byte), 0) < 0 && errno == EINTR)
		;
	if (byte) /* execve() has failed */
		syscall(SYS_exit_group, 0);
	runner_inherit();
	descriptors_close();
	_exit(0); /* ends with the last connection */
}

static bool child_signals(void)
{
	sigset_t pending;

	return !sigpending(&pending) && sigismember(&pending, SIGCHLD) == 1;
}

/* Reaps a child of this library, and removes its SIGCHLD: the program's handler is for its own
 * children. Signals are blocked. */
static void child_reap(pid_t child, bool signalled)
{
	const struct timespec none = {0};
	siginfo_t other = {0};
	sigset_t one;

	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	if (signalled)
		return;
	sigemptyset(&one);
	sigaddset(&one, SIGCHLD);
	sigtimedwait(&one, NULL, &none);
	if (!waitid(P_ALL, 0, &other, WEXITED | WNOHANG | WNOWAIT) && other.si_pid)
		kill(getpid(), SIGCHLD);
}

/* Starts the successor, which is no child of this process: its next program does not expect one. */
static bool successor_start(struct leave *l)
{
	bool signalled = child_signals();
	int end[2];
	char byte;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end))
		return false;
	runner_set_inherited(true);
	pid_t child = REAL(fork)();
	if (child == 0) {
		REAL(close)(end[0]);
		if (REAL(fork)() == 0)
			successor_run(end[1]);
		syscall(SYS_exit_group, 0);
	}
	runner_set_inherited(false);
	REAL(close)(end[1]);
	if (child > 0)
		child_reap(child, signalled);
	l->channel = end[0];
	if (child > 0 && REAL(recv)(end[0], &byte, sizeof(byte), 0) == sizeof(byte))
		return true;
	REAL(close)(end[0]);
	l->channel = -1;
	return false;
}

/* ---- execve() -------------------------------------------------------------------------------- */

static bool has_connections(void)
{
	struct sy_stack_usage use;

	sy_stack_usage(runner.stack, &use);
	return all_relays || use.connections > use.time_wait;
}

static void leave_prepare(struct leave *l)
{
	sigset_t all;

	*l = (struct leave){.channel = -1};
	/* A child of vfork() shares its parent's memory. */
	if (!runner.stack || runner.pid != getpid())
		return;
	signals_all(&all);
	pthread_sigmask(SIG_BLOCK, &all, &l->program);
	l->locked = runner_lock();
	if (l->locked) {
		serve_pause(true);
		runner_poll();
		for (const struct sock *s = all_socks; s; s = s->next)
			if (s->o.kind == OBJECT_LISTENER)
				listener_export(s);
		relays_exec();
		if (has_connections() && !successor_start(l))
			sy_log(SY_LOG_ERROR, "run",
			       "pid %d executes another program: its connections end, as no other "
			       "process can serve them",
			       getpid());
		relays_limit(false);
	}
	pthread_sigmask(SIG_SETMASK, &l->program, NULL);
}

/* execve() has failed: the process continues as before. */
static void leave_undo(struct leave *l)
{
	char byte = 1;

	if (!l->locked)
		return;
	signals_leave(false);
	if (l->channel >= 0) {
		supervisor_move(); /* first: the supervisor frees an ended worker's queues */
		REAL(send)(l->channel, &byte, sizeof(byte), MSG_NOSIGNAL);
		REAL(close)(l->channel);
	}
	relays_limit(true);
	serve_pause(false);
	runner_unlock();
}

/* Prepares for execve(). If a signal is pending, releases the lock, runs its handler, and starts
 * again. */
static void leave(struct leave *l)
{
	sigset_t program;

	for (int i = 0; i < TRIES; i++) {
		leave_prepare(l);
		if (!l->locked)
			return;
		signals_leave(true);
		if (!signals_deferred(&program))
			return;
		leave_undo(l);
		pthread_sigmask(SIG_SETMASK, &program, NULL);
	}
	*l = (struct leave){.channel = -1};
}

static int leave_failed(struct leave *l)
{
	int code = errno;

	leave_undo(l);
	errno = code;
	return -1;
}

/* Returns whether the path is an executable file. Checked before execve(): a failed one would have
 * started two processes. */
static bool is_program(int folder, const char *path)
{
	struct stat is;
	int code = errno;
	bool found = fstatat(folder, path, &is, 0) == 0 && S_ISREG(is.st_mode) &&
	             faccessat(folder, path, X_OK, AT_EACCESS) == 0;

	errno = code;
	return found;
}

/* Looks the program up as execvp() does. */
static bool is_in_path(const char *file)
{
	const char *at = getenv("PATH"), *end;
	char path[4096];

	if (strchr(file, '/'))
		return is_program(AT_FDCWD, file);
	for (at = at ? at : "/bin:/usr/bin"; at; at = end ? end + 1 : NULL) {
		end = strchr(at, ':');
		int len = end ? (int)(end - at) : (int)strlen(at);
		if (snprintf(path, sizeof(path), "%.*s%s%s", len, at, len ? "/" : "", file) <
		            (int)sizeof(path) &&
		    is_program(AT_FDCWD, path))
			return true;
	}
	return false;
}

PRELOAD_EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	__typeof__(&execve) real = REAL_OF(execve);
	struct leave l;

	if (!runner.stack || !is_user_memory(path) || !is_program(AT_FDCWD, path))
		return real(path, argv, envp);
	leave(&l);
	real(path, argv, envp);
	return leave_failed(&l);
}

PRELOAD_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	__typeof__(&execvpe) real = REAL_OF(execvpe);
	struct leave l;

	if (!runner.stack || !is_in_path(file))
		return real(file, argv, envp);
	leave(&l);
	real(file, argv, envp);
	return leave_failed(&l);
}

PRELOAD_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	__typeof__(&fexecve) real = REAL_OF(fexecve);
	struct leave l;

	leave(&l);
	real(fd, argv, envp);
	return leave_failed(&l);
}

PRELOAD_EXPORT int execveat(int folder, const char *path, char *const argv[], char *const envp[],
                            int flags)
{
	__typeof__(&execveat) real = REAL_OF(execveat);
	struct leave l;

	if (!runner.stack || !is_user_memory(path) ||
	    !(flags & AT_EMPTY_PATH || is_program(folder, path)))
		return real(folder, path, argv, envp, flags);
	leave(&l);
	real(folder, path, argv, envp, flags);
	return leave_failed(&l);
}

PRELOAD_EXPORT int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

PRELOAD_EXPORT int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

/* Stores the arguments from `first` up to NULL as an array of the calling function. */
#define ARGUMENTS(argv, list, first)                                                               \
	size_t count_ = 1;                                                                         \
	va_start(list, first);                                                                     \
	for (const char *a_ = first; a_; a_ = va_arg(list, const char *))                          \
		count_++;                                                                          \
	va_end(list);                                                                              \
	char **argv = alloca(count_ * sizeof(*argv));                                              \
	va_start(list, first);                                                                     \
	argv[0] = (char *)first;                                                                   \
	for (size_t i_ = 1; i_ < count_; i_++)                                                     \
	argv[i_] = va_arg(list, char *)

PRELOAD_EXPORT int execl(const char *path, const char *first, ...)
{
	va_list list;

	ARGUMENTS(argv, list, first);
	va_end(list);
	return execve(path, argv, environ);
}

PRELOAD_EXPORT int execlp(const char *file, const char *first, ...)
{
	va_list list;

	ARGUMENTS(argv, list, first);
	va_end(list);
	return execvpe(file, argv, environ);
}

PRELOAD_EXPORT int execle(const char *path, const char *first, ...)
{
	va_list list;

	ARGUMENTS(argv, list, first);
	char *const *envp = va_arg(list, char *const *);
	va_end(list);
	return execve(path, argv, envp);
}
