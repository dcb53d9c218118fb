// SPDX-License-Identifier: Apache-2.0
/* Calls that create processes. fork() has handlers instead. */
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "preload.h"
#include "real.h"

/* ---- the child executes a program ------------------------------------------------------------ */

PRELOAD_EXPORT int posix_spawn(pid_t *restrict pid, const char *restrict path,
                               const posix_spawn_file_actions_t *restrict actions,
                               const posix_spawnattr_t *restrict attributes,
                               char *const argv[restrict], char *const envp[restrict])
{
	relays_spawn();
	return REAL_OF(posix_spawn)(pid, path, actions, attributes, argv, envp);
}

PRELOAD_EXPORT int posix_spawnp(pid_t *restrict pid, const char *restrict file,
                                const posix_spawn_file_actions_t *restrict actions,
                                const posix_spawnattr_t *restrict attributes,
                                char *const argv[restrict], char *const envp[restrict])
{
	relays_spawn();
	return REAL_OF(posix_spawnp)(pid, file, actions, attributes, argv, envp);
}

PRELOAD_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd,
                                                    int to)
{
	relay_pass(fd);
	return REAL_OF(posix_spawn_file_actions_adddup2)(actions, fd, to);
}

PRELOAD_EXPORT int system(const char *command)
{
	if (command)
		relays_spawn();
	return REAL_OF(system)(command);
}

PRELOAD_EXPORT FILE *popen(const char *command, const char *mode)
{
	relays_spawn();
	return REAL_OF(popen)(command, mode);
}

/* ---- the child continues in this program ----------------------------------------------------- */

/* The child would share the memory until it executes, and its close() would end the parent's
 * connection. */
PRELOAD_EXPORT pid_t vfork(void)
{
	return REAL(fork)();
}

PRELOAD_EXPORT pid_t __vfork(void);
pid_t __vfork(void)
{
	return vfork();
}

struct child_start {
	int (*run)(void *);
	void *arg;
};

static int child_run(void *arg)
{
	const struct child_start b = *(struct child_start *)arg;

	runner_forked(0);
	return b.run(b.arg);
}

/* Sandboxes create their processes by this call, in new namespaces. */
PRELOAD_EXPORT int clone(int (*run)(void *), void *stack, int flags, void *arg, ...)
{
	__typeof__(&clone) real = REAL_OF(clone);
	struct child_start b = {run, arg};
	long number[6] = {flags}, rc;
	void *more[3];
	va_list list;

	va_start(list, arg);
	for (unsigned i = 0; i < 3; i++)
		more[i] = va_arg(list, void *);
	va_end(list);
	if (flags & CLONE_VM ||
	    !run) /* a thread, or a child that shares the memory until it executes */
		return real(run, stack, flags, arg, more[0], more[1], more[2]);
	if (clone_forks(SYS_clone, number, &rc)) {
		if (rc == 0)
			_exit(run(arg));
		return (int)rc;
	}
	runner_fork();
	int pid = real(child_run, stack, flags, &b, more[0], more[1], more[2]);
	runner_forked(pid);
	return pid;
}

PRELOAD_EXPORT pid_t _Fork(void)
{
	__typeof__(&_Fork) real = REAL_OF(_Fork);

	runner_fork();
	pid_t pid = real();
	runner_forked(pid);
	return pid;
}
