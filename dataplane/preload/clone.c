// SPDX-License-Identifier: Apache-2.0
/*
 * Children that a program makes by the system call clone() itself, for namespaces (vsftpd). The C
 * library does not notice: if one of this library's threads begins meanwhile, setuid() in the child
 * waits for it forever. So fork() makes the child, in namespaces that the calling thread enters
 * before, and leaves afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>

#include "preload.h"
#include "real.h"

static const struct {
	uint64_t flag;
	const char *path;
} kinds[] = {
        {CLONE_NEWIPC, "/proc/thread-self/ns/ipc"},
        {CLONE_NEWNET, "/proc/thread-self/ns/net"},
        {CLONE_NEWUTS, "/proc/thread-self/ns/uts"},
        {CLONE_NEWCGROUP, "/proc/thread-self/ns/cgroup"},
        {CLONE_NEWPID, "/proc/thread-self/ns/pid_for_children"},
};

#define KINDS SY_ARRAY_LEN(kinds)

static void homes_close(const int *home)
{
	for (unsigned i = 0; i < KINDS; i++)
		if (home[i] >= 0)
			REAL(close)(home[i]);
}

/* The namespaces to which this thread returns. Without /proc it could not. */
static bool homes_open(uint64_t flags, int *home)
{
	bool opened = true;

	for (unsigned i = 0; i < KINDS; i++) {
		home[i] = -1;
		if (!(flags & kinds[i].flag))
			continue;
		home[i] = open(kinds[i].path, O_RDONLY | O_CLOEXEC);
		opened &= home[i] >= 0;
	}
	if (!opened)
		homes_close(home);
	return opened;
}

static void homes_enter(const int *home)
{
	for (unsigned i = 0; i < KINDS; i++)
		if (home[i] >= 0 && setns(home[i], 0))
			sy_log(SY_LOG_ERROR, "run", "pid %d does not leave a child's namespace: %s",
			       getpid(), strerror(errno));
}

static bool is_plain(uint64_t flags, uint64_t signal, uint64_t stack)
{
	for (unsigned i = 0; i < KINDS; i++)
		flags &= ~kinds[i].flag;
	return flags == 0 && signal == SIGCHLD && !stack;
}

/* Which namespaces the child of such a call gets, if fork() can make it. */
static bool clone_namespaces(long number, const long *a, uint64_t *flags)
{
	const struct clone_args *args;

	switch (number) {
#ifdef SYS_fork
	case SYS_fork:
		*flags = 0;
		return true;
#endif
	case SYS_clone:
		*flags = (uint64_t)a[0] & ~(uint64_t)CSIGNAL;
		return is_plain(*flags, (uint64_t)a[0] & CSIGNAL, (uint64_t)a[1]);
	case SYS_clone3:
		args = (const struct clone_args *)a[0];
		if (!args)
			return false;
		*flags = args->flags;
		return is_plain(*flags, args->exit_signal, args->stack);
	}
	return false;
}

bool clone_forks(long number, const long *a, long *rc)
{
	uint64_t flags;
	int home[KINDS];

	if (!clone_namespaces(number, a, &flags) || !homes_open(flags, home))
		return false;
	if (runner_lock()) { /* names of relays are of the parent's network namespace */
		relays_fork();
		runner_unlock();
	}
	*rc = unshare((int)flags) ? -1 : fork();
	int code = errno;
	if (*rc)
		homes_enter(home);
	homes_close(home);
	errno = code;
	return true;
}
