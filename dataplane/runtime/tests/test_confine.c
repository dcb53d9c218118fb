// SPDX-License-Identifier: Apache-2.0
/* System call filters: each case in a child process, whose filter stays with it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sy_confine.h>

/* Runs fn in a child process; returns its exit status, or minus the signal that ended it. */
static int child_run(int (*fn)(void))
{
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(fn());
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Whether the call is refused by the filter; a number of the line otherwise. */
#define REFUSED(call)                                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		if ((call) != -1 || errno != EPERM)                                                \
			return __LINE__ % 200 + 20;                                                \
	} while (0)
#define NOT_REFUSED(call)                                                                          \
	do {                                                                                       \
		if ((call) == -1 && errno == EPERM)                                                \
			return __LINE__ % 200 + 20;                                                \
	} while (0)

static void *nothing(void *arg)
{
	return arg;
}

static int process_calls(void)
{
	struct sy_error err;
	pthread_t thread;
	if (sy_confine_process(SY_CONFINE_ON, false, &err))
		return 1;
	REFUSED(unshare(CLONE_NEWUSER));
	REFUSED(setns(0, CLONE_NEWNET));
	REFUSED(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
	REFUSED(syscall(SYS_clone, CLONE_NEWNET | CLONE_NEWNS | SIGCHLD, NULL, NULL, NULL, NULL));
	REFUSED(syscall(SYS_io_uring_setup, 8, NULL));
	REFUSED(syscall(SYS_userfaultfd, 0));
	REFUSED(syscall(SYS_keyctl, 0, 0, 0, 0, 0));
	REFUSED(syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0));
	REFUSED(chroot("/"));
	if (syscall(SYS_clone3, NULL, 0) != -1 || errno != ENOSYS)
		return 2;
	NOT_REFUSED(socket(AF_INET, SOCK_DGRAM, 0));
	/* Threads and processes still begin; their libraries try clone3() first. */
	if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
		return 3;
	return system("exit 7") == 7 << 8 ? 0 : 4;
}

static void test_process(void **state)
{
	assert_int_equal(child_run(process_calls), 0);
}

static int worker_calls_do(void)
{
	sy_confine_worker();
	REFUSED(socket(AF_INET, SOCK_DGRAM, 0));
	REFUSED(socket(AF_INET, SOCK_PACKET, 0));
#ifndef __SANITIZE_ADDRESS__ /* its reports open files */
	REFUSED(open("/etc/passwd", 0));
#endif
	REFUSED(kill(getppid(), 0));
	REFUSED(syscall(SYS_tgkill, getppid(), getppid(), 0));
	REFUSED(syscall(SYS_execve, "/bin/true", NULL, NULL));
	REFUSED(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL));
	REFUSED(syscall(SYS_bpf, 0, NULL, 0));
	REFUSED(setsockopt(0, 0, 0, NULL, 0));
	REFUSED((intptr_t)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
	                       0));
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NOT_REFUSED((intptr_t)page);
	REFUSED(mprotect(page, 4096, PROT_READ | PROT_EXEC));
	NOT_REFUSED(syscall(SYS_tgkill, getpid(), gettid(), 0));
	NOT_REFUSED(sendto(0, NULL, 0, MSG_DONTWAIT, NULL, 0));
	return 0;
}

static void *worker_thread(void *result)
{
	*(int *)result = worker_calls_do();
	return NULL;
}

/* A worker has its filter and no capabilities; the thread beside it has all it had. */
static int worker_calls(void)
{
	struct sy_error err;
	pthread_t thread;
	int result = 1;
	if (sy_confine_process(SY_CONFINE_ON, true, &err) ||
	    pthread_create(&thread, NULL, worker_thread, &result) || pthread_join(thread, NULL))
		return 1;
	NOT_REFUSED(socket(AF_INET, SOCK_DGRAM, 0));
	return result;
}

static void test_worker(void **state)
{
	assert_int_equal(child_run(worker_calls), 0);
}

static int trap_call(void)
{
	struct sy_error err;
	int out[2];
	char text[200] = "";
	if (pipe(out) || sy_confine_process(SY_CONFINE_TRAP, false, &err))
		return 1;
	pid_t child = fork();
	if (child == 0) {
		dup2(out[1], STDERR_FILENO);
		(void)!chroot("/");
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	if (read(out[0], text, sizeof(text) - 1) <= 0 || !strstr(text, "system call chroot"))
		return 2;
	return WIFEXITED(status) && WEXITSTATUS(status) == 1 ? 0 : 3;
}

static void test_trap(void **state)
{
	assert_int_equal(child_run(trap_call), 0);
}

static int filters(void)
{
	char line[128];
	int n = -1;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "Seccomp_filters: %d", &n);
	if (f)
		fclose(f);
	return n;
}

/* What is executed inherits the filter and the mark, and adds none. Without the filter, the mark
 * alone, which anybody can set, changes nothing. */
static int inherited(void)
{
	struct sy_error err;
	int before = filters();
	setenv("STEELYARD_FILTER", "1", 1);
	if (sy_confine_process(SY_CONFINE_ON, false, &err) || filters() != before + 1)
		return before == 0 ? 1 : 0; /* the tests themselves run under a filter */
	for (int i = 0; i < 20; i++)
		if (sy_confine_process(SY_CONFINE_ON, false, &err) || filters() != before + 1)
			return 2;
	/* A program without the mark, again and again: the number has a limit. */
	for (int i = 0; i < 20; i++) {
		unsetenv("STEELYARD_FILTER");
		if (sy_confine_process(SY_CONFINE_ON, false, &err) || filters() > 16)
			return 3;
	}
	return 0;
}

static void test_inherited(void **state)
{
	assert_int_equal(child_run(inherited), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_process),
	        cmocka_unit_test(test_worker),
	        cmocka_unit_test(test_trap),
	        cmocka_unit_test(test_inherited),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
