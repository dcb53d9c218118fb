// SPDX-License-Identifier: Apache-2.0
/* Other forms of calls, with a position, formatted, by a stream; the C library's second names; and
 * another way to make a process. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

#define RESULT(call)                                                                               \
	({                                                                                         \
		long rc_ = (call);                                                                 \
		rc_ < 0 ? -errno : rc_;                                                            \
	})
#define ACTION(name) static long name(int fd)
#define STACK        65536

/* ---- with a position ------------------------------------------------------------------------- */

static long vectors_read(int fd, off_t at, int flags)
{
	char bytes[9] = {0};
	struct iovec part[2] = {{bytes, 2}, {bytes + 2, 3}};
	long n = RESULT(preadv2(fd, part, 2, at, flags));

	if (n > 0)
		more("%s", bytes);
	return n;
}

static long vectors_write(int fd, off_t at, int flags)
{
	char bytes[] = "abcde";
	struct iovec part[2] = {{bytes, 2}, {bytes + 2, 3}};

	return RESULT(pwritev2(fd, part, 2, at, flags));
}

#define VECTORS(name, run, at, flags)                                                              \
	ACTION(name)                                                                               \
	{                                                                                          \
		return run(fd, at, flags);                                                         \
	}
VECTORS(preadv2_plain, vectors_read, -1, 0)
VECTORS(preadv2_nowait, vectors_read, -1, RWF_NOWAIT)
VECTORS(preadv2_position, vectors_read, 0, 0)
VECTORS(preadv2_flag, vectors_read, -1, 0x4000)
VECTORS(pwritev2_plain, vectors_write, -1, 0)
VECTORS(pwritev2_nowait, vectors_write, -1, RWF_NOWAIT)
VECTORS(pwritev2_position, vectors_write, 0, 0)
VECTORS(pwritev2_flag, vectors_write, -1, 0x4000)

ACTION(preadv2_none)
{
	return RESULT(preadv2(fd, NULL, 0, -1, 0));
}

ACTION(preadv2_many)
{
	char byte;
	static struct iovec part[1025];

	for (int i = 0; i < 1025; i++)
		part[i] = (struct iovec){&byte, 0};
	return RESULT(preadv2(fd, part, 1025, -1, 0));
}

/* ---- formatted, by a stream ------------------------------------------------------------------ */

ACTION(dprintf_plain)
{
	return RESULT(dprintf(fd, "%s %d", "text", 7));
}

static short ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};

	return poll(&p, 1, 0) > 0 ? p.revents & (POLLIN | POLLRDHUP) : 0;
}

ACTION(stream_writes)
{
	FILE *f = fdopen(fd, "w");

	if (!f)
		return -errno;
	more("%d %d ", fprintf(f, "%s", "text"), fileno(f) == fd);
	return RESULT(fflush(f));
}

ACTION(stream_reads)
{
	short before = ready(fd);
	FILE *f = fdopen(dup(fd), "r");

	if (!f)
		return -errno;
	setvbuf(f, NULL, _IONBF, 0);
	if (before)
		await(fileno(f), before);
	int one = fgetc(f), code = errno;
	if (one >= 0)
		more("%c %c ", one, fgetc(f));
	else
		more("%s %s ", feof(f) ? "end" : "error", error_name(ferror(f) ? code : 0));
	fclose(f);
	return RESULT(fcntl(fd, F_GETFD));
}

/* ---- second names ---------------------------------------------------------------------------- */

extern ssize_t __read(int fd, void *bytes, size_t len);
extern ssize_t __write(int fd, const void *bytes, size_t len);
extern ssize_t __send(int fd, const void *bytes, size_t len, int flags);
extern int __connect(int fd, const struct sockaddr *to, socklen_t len);
extern int __close(int fd);
extern int __dup2(int fd, int to);
extern int __poll(struct pollfd *p, nfds_t count, int timeout);
extern int __select(int count, fd_set *in, fd_set *out, fd_set *urgent, struct timeval *timeout);
extern int __fcntl(int fd, int command, ...);

ACTION(second_read)
{
	char byte;

	return RESULT(__read(fd, &byte, 1));
}

ACTION(second_write)
{
	return RESULT(__write(fd, "a", 1));
}

ACTION(second_send)
{
	return RESULT(__send(fd, "a", 1, MSG_DONTWAIT));
}

ACTION(second_poll)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
	long rc = RESULT(__poll(&p, 1, 0));

	more("%s", events_name((unsigned short)p.revents));
	return rc;
}

ACTION(second_select)
{
	struct timeval none = {0};
	fd_set in, out;

	FD_ZERO(&in);
	FD_ZERO(&out);
	if (fcntl(fd, F_GETFD) >= 0) {
		FD_SET(fd, &in);
		FD_SET(fd, &out);
	}
	return RESULT(__select(FD_SETSIZE, &in, &out, NULL, &none));
}

ACTION(second_copy)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	int to = open("/dev/null", O_RDONLY);
	long rc = RESULT(__dup2(fd, to));

	more("flags %d, ", __fcntl(to, F_GETFL) & O_NONBLOCK);
	more("name %s, ", error_name(getpeername(to, (void *)&a, &len) ? errno : 0));
	more("close %s", error_name(__close(to) ? errno : 0));
	return rc == to ? 0 : rc;
}

ACTION(second_connect)
{
	struct sockaddr_storage a;
	socklen_t len = address_of(peer.address, peer.port, &a);
	long rc = RESULT(__connect(fd, (void *)&a, len));

	if (rc == -EINPROGRESS)
		await(fd, POLLOUT);
	len = sizeof(a);
	more("name %s", error_name(getpeername(fd, (void *)&a, &len) ? errno : 0));
	return rc;
}

/* ---- clone() --------------------------------------------------------------------------------- */

static struct {
	int fd, out;
} cloned;

static int clone_run(void *unused)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	dprintf(cloned.out, "name %s, ",
	        error_name(getpeername(cloned.fd, (void *)&a, &len) ? errno : 0));
	dprintf(cloned.out, "write %s",
	        error_name(send(cloned.fd, "a", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0));
	return 0;
}

ACTION(clone_uses)
{
	char said[MORE_BYTES] = {0}, *stack = malloc(STACK);
	int out[2];

	require(stack && pipe(out) == 0, "pipe");
	cloned.fd = fd;
	cloned.out = out[1];
	pid_t child = clone(clone_run, stack + STACK, SIGCHLD, NULL);
	require(child > 0, "clone");
	pipe_report(out, said);
	waitpid(child, NULL, 0);
	free(stack);
	more("child: %s; parent: send %s", said,
	     error_name(send(fd, "a", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0));
	return 0;
}

const struct call variants[] = {
        MODES(preadv2_plain),  ONCE(preadv2_nowait),  FEW(preadv2_position),  FEW(preadv2_flag),
        MODES(pwritev2_plain), ONCE(pwritev2_nowait), FEW(pwritev2_position), FEW(pwritev2_flag),
        FEW(preadv2_none),     FEW(preadv2_many),     MODES(dprintf_plain),   ONCE(stream_writes),
        ONCE(stream_reads),    MODES(second_read),    FEW(second_write),      FEW(second_send),
        ONCE(second_poll),     FEW(second_select),    FEW(second_copy),       FEW(second_connect),
        FEW(clone_uses),
};
const size_t variant_count = sizeof(variants) / sizeof(*variants);
