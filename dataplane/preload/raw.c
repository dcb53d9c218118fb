// SPDX-License-Identifier: Apache-2.0
/*
 * System calls by their number: libuv closes by syscall(SYS_close), for instance. Those on
 * descriptors do what the functions of these names do.
 *
 * io_uring is refused: what a program does by it bypasses the stack, and so would libuv's
 * epoll_ctl. The supervisor's filter refuses it to callers that bypass this function
 * (supervisor_filter.c).
 */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "preload.h"
#include "real.h"

#define PTR(i)  ((void *)a[i])
#define INT(i)  ((int)a[i])
#define SIZE(i) ((size_t)a[i])
#define LEN(i)  ((socklen_t)a[i])

static long uring_fail(void)
{
	static bool logged;

	if (!logged)
		sy_log(SY_LOG_INFO, "run", "pid %d finds no io_uring: it uses epoll instead",
		       getpid());
	logged = true;
	return result(-ENOSYS);
}

/* Calls that create, close or change descriptors. */
static bool descriptor_call(long number, const long *a, long *rc)
{
	switch (number) {
	case SYS_close:
		*rc = close(INT(0));
		return true;
	case SYS_close_range:
		*rc = close_range((unsigned)a[0], (unsigned)a[1], INT(2));
		return true;
	case SYS_dup:
		*rc = dup(INT(0));
		return true;
#ifdef SYS_dup2
	case SYS_dup2:
		*rc = dup2(INT(0), INT(1));
		return true;
#endif
	case SYS_dup3:
		*rc = dup3(INT(0), INT(1), INT(2));
		return true;
	case SYS_fcntl:
		*rc = fcntl(INT(0), INT(1), PTR(2));
		return true;
	case SYS_ioctl:
		*rc = ioctl(INT(0), (unsigned long)a[1], PTR(2));
		return true;
	case SYS_socket:
		*rc = socket(INT(0), INT(1), INT(2));
		return true;
	case SYS_accept:
		*rc = accept(INT(0), PTR(1), PTR(2));
		return true;
	case SYS_accept4:
		*rc = accept4(INT(0), PTR(1), PTR(2), INT(3));
		return true;
	}
	return false;
}

static bool socket_call(long number, const long *a, long *rc)
{
	switch (number) {
	case SYS_bind:
		*rc = bind(INT(0), PTR(1), LEN(2));
		return true;
	case SYS_listen:
		*rc = listen(INT(0), INT(1));
		return true;
	case SYS_connect:
		*rc = connect(INT(0), PTR(1), LEN(2));
		return true;
	case SYS_shutdown:
		*rc = shutdown(INT(0), INT(1));
		return true;
	case SYS_getsockname:
		*rc = getsockname(INT(0), PTR(1), PTR(2));
		return true;
	case SYS_getpeername:
		*rc = getpeername(INT(0), PTR(1), PTR(2));
		return true;
	case SYS_setsockopt:
		*rc = setsockopt(INT(0), INT(1), INT(2), PTR(3), LEN(4));
		return true;
	case SYS_getsockopt:
		*rc = getsockopt(INT(0), INT(1), INT(2), PTR(3), PTR(4));
		return true;
	}
	return false;
}

static bool transfer_call(long number, const long *a, long *rc)
{
	switch (number) {
	case SYS_read:
		*rc = read(INT(0), PTR(1), SIZE(2));
		return true;
	case SYS_readv:
		*rc = readv(INT(0), PTR(1), INT(2));
		return true;
	case SYS_recvfrom:
		*rc = recvfrom(INT(0), PTR(1), SIZE(2), INT(3), PTR(4), PTR(5));
		return true;
	case SYS_recvmsg:
		*rc = recvmsg(INT(0), PTR(1), INT(2));
		return true;
	case SYS_write:
		*rc = write(INT(0), PTR(1), SIZE(2));
		return true;
	case SYS_writev:
		*rc = writev(INT(0), PTR(1), INT(2));
		return true;
	case SYS_sendto:
		*rc = sendto(INT(0), PTR(1), SIZE(2), INT(3), PTR(4), LEN(5));
		return true;
	case SYS_sendmsg:
		*rc = sendmsg(INT(0), PTR(1), INT(2));
		return true;
	case SYS_recvmmsg:
		*rc = recvmmsg(INT(0), PTR(1), (unsigned)a[2], INT(3), PTR(4));
		return true;
	case SYS_sendmmsg:
		*rc = sendmmsg(INT(0), PTR(1), (unsigned)a[2], INT(3));
		return true;
	case SYS_sendfile:
		*rc = sendfile(INT(0), INT(1), PTR(2), SIZE(3));
		return true;
	case SYS_splice:
		*rc = splice(INT(0), PTR(1), INT(2), PTR(3), SIZE(4), (unsigned)a[5]);
		return true;
	}
	return false;
}

static bool wait_call(long number, const long *a, long *rc)
{
	switch (number) {
	case SYS_epoll_ctl:
		*rc = epoll_ctl(INT(0), INT(1), INT(2), PTR(3));
		return true;
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
		*rc = epoll_wait(INT(0), PTR(1), INT(2), INT(3));
		return true;
#endif
	case SYS_epoll_pwait:
		*rc = epoll_pwait(INT(0), PTR(1), INT(2), INT(3), PTR(4));
		return true;
#ifdef SYS_epoll_pwait2
	case SYS_epoll_pwait2:
		*rc = epoll_pwait2(INT(0), PTR(1), INT(2), PTR(3), PTR(4));
		return true;
#endif
#ifdef SYS_poll
	case SYS_poll:
		*rc = poll(PTR(0), (nfds_t)a[1], INT(2));
		return true;
#endif
	case SYS_ppoll:
		*rc = ppoll(PTR(0), (nfds_t)a[1], PTR(2), PTR(3));
		return true;
	}
	return false;
}

static bool exec_call(long number, const long *a, long *rc)
{
	if (number == SYS_execve)
		*rc = execve(PTR(0), PTR(1), PTR(2));
	else if (number == SYS_execveat)
		*rc = execveat(INT(0), PTR(1), PTR(2), PTR(3), INT(4));
	else
		return false;
	return true;
}

PRELOAD_EXPORT long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long a[6], rc;
	va_list list;

	va_start(list, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (!real)
		real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	switch (number) {
	case SYS_io_uring_setup:
	case SYS_io_uring_enter:
	case SYS_io_uring_register:
		if (supervisor_config())
			return uring_fail();
	}
	if (number == SYS_seccomp)
		relay_confine();
	if (clone_forks(number, a, &rc))
		return rc;
	if (clone_makes_process(number, a)) {
		runner_fork();
		rc = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
		runner_forked(rc);
		return rc;
	}
	if (descriptor_call(number, a, &rc) || socket_call(number, a, &rc) ||
	    transfer_call(number, a, &rc) || wait_call(number, a, &rc) || exec_call(number, a, &rc))
		return rc;
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* PR_SET_SECCOMP sets a filter of system calls, as seccomp(2) does. */
PRELOAD_EXPORT int prctl(int option, ...)
{
	static int (*real)(int, ...);
	unsigned long a[4];
	va_list list;

	va_start(list, option);
	for (unsigned i = 0; i < 4; i++)
		a[i] = va_arg(list, unsigned long);
	va_end(list);
	if (!real)
		real = (int (*)(int, ...))dlsym(RTLD_NEXT, "prctl");
	if (option == PR_SET_SECCOMP)
		relay_confine();
	return real(option, a[0], a[1], a[2], a[3]);
}
