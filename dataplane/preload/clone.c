// SPDX-License-Identifier: Apache-2.0
/*
 * Children that a program creates by the system call clone() itself, for namespaces (vsftpd). The C
 * library does not notice such a child: if a thread of this library starts meanwhile, setuid() in
 * the child waits for it forever. So this file creates the child by fork(), in namespaces that the
 * calling thread enters before and leaves afterwards.
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

static void namespaces_close(const int *saved)
{
	for (unsigned i = 0; i < KINDS; i++)
		if (saved[i] >= 0)
			REAL(close)(saved[i]);
}

/* Opens the namespaces to which this thread returns. Fails without /proc. */
static bool namespaces_open(uint64_t flags, int *saved)
{
	bool opened = true;

	for (unsigned i = 0; i < KINDS; i++) {
		saved[i] = -1;
		if (!(flags & kinds[i].flag))
			continue;
		saved[i] = open(kinds[i].path, O_RDONLY | O_CLOEXEC);
		opened &= saved[i] >= 0;
	}
	if (!opened)
		namespaces_close(saved);
	return opened;
}

static void namespaces_restore(const int *saved)
{
	for (unsigned i = 0; i < KINDS; i++)
		if (saved[i] >= 0 && setns(saved[i], 0))
			sy_log(SY_LOG_ERROR, "run", "pid %d does not leave a child's namespace: %s",
			       getpid(), strerror(errno));
}

/* A call that creates a process or a thread, with the arguments of clone3(). */
struct clone_call {
	uint64_t flags, signal, stack;
};

/* Returns false if the call creates neither, or has no arguments. */
static bool clone_read(long number, const long *a, struct clone_call *c)
{
	const struct clone_args *args;

	switch (number) {
#ifdef SYS_fork
	case SYS_fork:
		*c = (struct clone_call){.signal = SIGCHLD};
		return true;
#endif
	case SYS_clone:
		*c = (struct clone_call){(uint64_t)a[0] & ~(uint64_t)CSIGNAL,
		                         (uint64_t)a[0] & CSIGNAL, (uint64_t)a[1]};
		return true;
	case SYS_clone3:
		args = (const struct clone_args *)a[0];
		if (!args)
			return false;
		*c = (struct clone_call){args->flags, args->exit_signal, args->stack};
		return true;
	}
	return false;
}

/* Returns whether fork() can create the child, at most in new namespaces. */
static bool is_plain(const struct clone_call *c)
{
	uint64_t flags = c->flags;

	for (unsigned i = 0; i < KINDS; i++)
		flags &= ~kinds[i].flag;
	return flags == 0 && c->signal == SIGCHLD && !c->stack;
}

bool clone_makes_process(long number, const long *a)
{
	struct clone_call c;

	return clone_read(number, a, &c) && !(c.flags & CLONE_VM);
}

bool clone_forks(long number, const long *a, long *rc)
{
	struct clone_call c;
	int saved[KINDS];

	if (!clone_read(number, a, &c) || !is_plain(&c) || !namespaces_open(c.flags, saved))
		return false;
	if (runner_lock()) { /* relays have names in the parent's network namespace */
		relays_fork();
		runner_unlock();
	}
	*rc = unshare((int)c.flags) ? -1 : fork();
	int code = errno;
	if (*rc)
		namespaces_restore(saved);
	namespaces_close(saved);
	errno = code;
	return true;
}
