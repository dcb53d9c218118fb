// SPDX-License-Identifier: Apache-2.0
/* Locks of files: a live holder is refused, a dying one is waited for. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sy_lock.h"

static char path[] = "/tmp/sy-lock-XXXXXX";

static int lock_open(void)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* Starts a child that locks the file. With `successor`, another process keeps the lock for 0.3 s
 * after the child's end: the child is then a zombie whose files are not closed yet. */
static pid_t holder_start(bool successor)
{
	int ready[2];
	char byte;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(path, O_RDWR);
		if (fd < 0 || flock(fd, LOCK_EX) != 0)
			_exit(1);
		if (successor && fork() == 0) {
			usleep(300000);
			_exit(0);
		}
		if (write(ready[1], "", 1) != 1 || successor)
			_exit(0);
		pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void live_holder_is_refused(void **state)
{
	(void)state;
	int fd = lock_open();
	pid_t pid = holder_start(false);
	assert_false(sy_process_is_dying(pid));
	assert_false(sy_lock(fd, 0));
	kill(pid, SIGKILL);
	assert_true(sy_lock(fd, 0)); /* at once: its end is waited for */
	waitpid(pid, NULL, 0);
	assert_false(sy_process_is_dying(pid));
	close(fd);
}

static void dying_holder_is_waited_for(void **state)
{
	(void)state;
	int fd = lock_open();
	pid_t pid = holder_start(true);
	siginfo_t ended;
	assert_int_equal(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
	assert_true(sy_process_is_dying(pid));
	assert_true(sy_lock(fd, 0));
	waitpid(pid, NULL, 0);
	close(fd);
}

static int file_make(void **state)
{
	(void)state;
	int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int file_remove(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(live_holder_is_refused),
	        cmocka_unit_test(dying_holder_is_waited_for),
	};
	return cmocka_run_group_tests(tests, file_make, file_remove);
}
