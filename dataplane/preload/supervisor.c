// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-supervisor: what `steelyard run` becomes (docs/design/0040-preload.md). It starts the
 * program with the preloaded library, forwards signals, and ends with the last process of the
 * program.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervisor.h"

static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};

static sigset_t own_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (unsigned i = 0; i < sizeof(forwarded) / sizeof(*forwarded); i++)
		sigaddset(&set, forwarded[i]);
	return set;
}

static void preload_set(const char *library)
{
	const char *before = getenv("LD_PRELOAD");
	char text[4096];

	snprintf(text, sizeof(text), "%s%s%s", library, before && *before ? ":" : "",
	         before ? before : "");
	setenv("LD_PRELOAD", text, 1);
}

static pid_t program_start(const struct supervisor *sv, char **command, const sigset_t *mask)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	sigprocmask(SIG_SETMASK, mask, NULL);
	int rc = supervisor_filter();
	if (rc) /* the preloaded library still refuses io_uring to callers of syscall() */
		sy_log(SY_LOG_INFO, "run", "no filter for io_uring: %s", strerror(-rc));
	setenv(MESSAGE_ENV, sv->name, 1);
	preload_set(sv->options.library);
	execvp(command[0], command);
	fprintf(stderr, "steelyard: %s: %s\n", command[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

/* Reaps children, a daemon's included (PR_SET_CHILD_SUBREAPER). *program becomes 0 once it has
 * ended: its number may be reused then. Returns false if no child is left. */
static bool children_reap(pid_t *program, int *status)
{
	pid_t pid;
	int s;

	while ((pid = waitpid(-1, &s, WNOHANG)) > 0) {
		if (pid != *program)
			continue;
		*status = WIFSIGNALED(s) ? 128 + WTERMSIG(s) : WEXITSTATUS(s);
		*program = 0;
	}
	return !(pid < 0 && errno == ECHILD);
}

/* Returns the first process that is left of a program that has become a daemon: it gets the
 * signals. */
static pid_t child_find(void)
{
	char path[64];
	pid_t pid = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	FILE *f = fopen(path, "r");
	if (f && fscanf(f, "%d", &pid) != 1)
		pid = 0;
	if (f)
		fclose(f);
	return pid;
}

/* Returns whether the process has already received the signal: a terminal's keys signal its whole
 * group. A terminal that hangs up signals the session's leader only, which may be this process. */
static bool is_signalled_already(pid_t to, const struct signalfd_siginfo *s)
{
	return s->ssi_code == SI_KERNEL && s->ssi_signo != SIGHUP && getpgid(to) == getpgrp();
}

static int run(struct supervisor *sv, pid_t program, int signals)
{
	struct pollfd p[SUPERVISOR_POLLS + 1];
	struct signalfd_siginfo s;
	int status = 0;

	for (;;) {
		unsigned n = supervisor_poll_fill(sv, p);
		p[n] = (struct pollfd){.fd = signals, .events = POLLIN};
		if (poll(p, n + 1, supervisor_wait_ms()) < 0 && errno != EINTR)
			return 1;
		supervisor_serve(sv, p, n);
		supervisor_watch(sv);
		if (!p[n].revents || read(signals, &s, sizeof(s)) != sizeof(s))
			continue;
		if (s.ssi_signo != SIGCHLD) {
			pid_t to = program > 0 ? program : child_find();
			if (to > 0 && !is_signalled_already(to, &s))
				kill(to, (int)s.ssi_signo);
		} else if (!children_reap(&program, &status)) {
			return status;
		}
	}
}

static int prepare(struct supervisor *sv, struct sy_error *err)
{
	const struct message_answer *c = &sv->options.config;
	int rc = steer_open(c->ifindex, c->ifname, c->mac, &sv->steer, err);

	for (uint32_t i = 0; i < c->addresses && !rc; i++)
		rc = steer_address(sv->steer, &c->addr[i], c->port_first, c->port_last);
	for (uint32_t i = 0; i < c->workers && c->workers > 1 && !rc; i++)
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
		               sv->inbox[i]))
			return sy_fail(err, errno, "sockets between workers: %s", strerror(errno));
	if (rc && !err->text[0])
		return sy_fail(err, -rc, "the XDP program's maps: %s", strerror(-rc));
	if (!rc)
		rc = repair_open(err);
	return rc ? rc : supervisor_listen_open(sv, err);
}

/* Raises this process's limit, for connections that wait to be accepted. The program's own limit
 * stays. */
static void descriptors_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
	struct supervisor sv = {0};
	struct sy_error err = {0};
	sigset_t mine = own_signals(), before;
	char **command;

	if (supervisor_options_parse(argc, argv, &sv.options, &command, &err)) {
		fprintf(stderr, "steelyard: %s\n", err.text);
		return 2;
	}
	sy_log_set_level((enum sy_log_level)sv.options.config.log);
	if (supervisor_hooks_open(&sv, command[0], &err) || prepare(&sv, &err)) {
		fprintf(stderr, "steelyard: %s\n", err.text);
		supervisor_hooks_close(&sv);
		return 2;
	}
	sy_log(SY_LOG_INFO, "run", "%s: %s XDP, %u queues, %u workers", sv.options.config.ifname,
	       steer_is_native(sv.steer) ? "native" : "generic", sv.options.queues,
	       sv.options.config.workers);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigprocmask(SIG_BLOCK, &mine, &before);
	int signals = signalfd(-1, &mine, SFD_CLOEXEC);
	pid_t program = signals < 0 ? -1 : program_start(&sv, command, &before);
	if (program < 0) {
		fprintf(stderr, "steelyard: %s does not start: %s\n", command[0], strerror(errno));
		supervisor_hooks_close(&sv);
		return 2;
	}
	descriptors_raise();
	int status = run(&sv, program, signals);
	supervisor_hooks_close(&sv);
	return status;
}
