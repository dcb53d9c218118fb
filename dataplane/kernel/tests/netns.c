// SPDX-License-Identifier: Apache-2.0
#include "netns.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int netns_new(void)
{
	int ns;

	assert_int_equal(unshare(CLONE_NEWNET), 0);
	ns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	assert_true(ns >= 0);
	sh("ip link set lo up");
	return ns;
}

void netns_enter(int ns)
{
	assert_int_equal(setns(ns, CLONE_NEWNET), 0);
}

int netns_cleanup(int here, int there)
{
	struct sy_error err = {0};

	netns_enter(here);
	if (sy_kernel_cleanup(NULL, NULL, &err))
		print_error("%s\n", err.text);
	close(here);
	close(there);
	return err.code;
}

static int sh_run(const char *fmt, va_list args)
{
	char command[2048];

	assert_true(vsnprintf(command, sizeof(command), fmt, args) < (int)sizeof(command));
	return system(command);
}

void sh(const char *fmt, ...)
{
	va_list args;
	int rc;

	va_start(args, fmt);
	rc = sh_run(fmt, args);
	va_end(args);
	if (rc)
		print_error("failed: %s\n", fmt);
	assert_int_equal(rc, 0);
}

bool sh_ok(const char *fmt, ...)
{
	va_list args;
	int rc;

	va_start(args, fmt);
	rc = sh_run(fmt, args);
	va_end(args);
	return rc == 0;
}

void veth_new(const char *near_name, const char *far_name, int far_ns)
{
	int here = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	sh("ip link add %s numrxqueues 2 numtxqueues 2 type veth peer name %s numrxqueues 2 "
	   "numtxqueues 2 netns /proc/%d/fd/%d",
	   near_name, far_name, (int)getpid(), far_ns);
	sh("sysctl -qw net.ipv6.conf.%s.accept_dad=0", near_name);
	netns_enter(far_ns);
	sh("sysctl -qw net.ipv6.conf.%s.accept_dad=0", far_name);
	sh("ip link set %s up", far_name);
	netns_enter(here);
	sh("ip link set %s up", near_name);
	close(here);
}

struct sy_addr addr_of(const char *text)
{
	struct sy_addr addr;

	assert_int_equal(sy_addr_parse(text, &addr), 0);
	return addr;
}

int child_start(void (*body)(void *arg), void *arg)
{
	int pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body(arg);
		_exit(0);
	}
	return pid;
}

void child_kill(int pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
