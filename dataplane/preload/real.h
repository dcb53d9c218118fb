// SPDX-License-Identifier: Apache-2.0
/* The C library's functions behind those that this library replaces. */
#ifndef PRELOAD_REAL_H
#define PRELOAD_REAL_H

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define REALS(X)                                                                                   \
	X(accept4)                                                                                 \
	X(bind)                                                                                    \
	X(close)                                                                                   \
	X(connect)                                                                                 \
	X(dup)                                                                                     \
	X(dup2)                                                                                    \
	X(dup3)                                                                                    \
	X(epoll_ctl)                                                                               \
	X(epoll_pwait)                                                                             \
	X(fclose)                                                                                  \
	X(fcntl)                                                                                   \
	X(fork)                                                                                    \
	X(freopen)                                                                                 \
	X(freopen64)                                                                               \
	X(getpeername)                                                                             \
	X(getsockname)                                                                             \
	X(getsockopt)                                                                              \
	X(ioctl)                                                                                   \
	X(listen)                                                                                  \
	X(ppoll)                                                                                   \
	X(pselect)                                                                                 \
	X(read)                                                                                    \
	X(readv)                                                                                   \
	X(recv)                                                                                    \
	X(recvfrom)                                                                                \
	X(recvmsg)                                                                                 \
	X(select)                                                                                  \
	X(send)                                                                                    \
	X(sendfile)                                                                                \
	X(sendmsg)                                                                                 \
	X(sendto)                                                                                  \
	X(setsockopt)                                                                              \
	X(socket)                                                                                  \
	X(shutdown)                                                                                \
	X(sigaction)                                                                               \
	X(splice)                                                                                  \
	X(write)                                                                                   \
	X(writev)

#define REAL_OF(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Constructors of other libraries may call before this library's have run. */
#define X(name)                                                                                    \
	extern __typeof__(&name) real_##name;                                                      \
	static inline __typeof__(&name) real_get_##name(void)                                      \
	{                                                                                          \
		if (!real_##name)                                                                  \
			real_##name = REAL_OF(name);                                               \
		return real_##name;                                                                \
	}
REALS(X)
#undef X

#define REAL(name) real_get_##name()

#endif
