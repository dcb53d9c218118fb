// SPDX-License-Identifier: Apache-2.0
/*
 * A filter that refuses io_uring to the program: libraries such as libuv then use epoll. Sockets
 * used by io_uring bypass the preloaded library, and not all callers use syscall() of the C library
 * (liburing, Go, programs without a C library).
 *
 * The filter needs no "no new privileges", because the supervisor is root: set-user-ID programs
 * work as before. The numbers are the same on all architectures but Alpha.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervisor.h"

int supervisor_filter(void)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_io_uring_setup, 0, 2),
	        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_io_uring_register, 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	_Static_assert(SYS_io_uring_register == SYS_io_uring_setup + 2, "the range of numbers");
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
	               &program)
	               ? -errno
	               : 0;
}
