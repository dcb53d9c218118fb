// SPDX-License-Identifier: Apache-2.0
/* Calls that receive bytes: read(), recv(), with vectors and messages. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "iovec.h"
#include "real.h"

#define POLL_NS      (100 * (uint64_t)1000) /* how often a non-blocking loop polls */
#define PEEK_VECTORS 256                    /* parts of the unread bytes, for MSG_PEEK */

/* Copies unread bytes without consuming them. With MSG_TRUNC it only counts them. */
static int64_t peek(const struct sock *s, const struct iovec *to, size_t count, int flags)
{
	struct iovec from[PEEK_VECTORS];
	int64_t left = sy_stack_peek_vectors(runner.stack, s->id, from, PEEK_VECTORS);
	size_t done = 0, skip = 0;

	if (left <= 0)
		return left;
	if (flags & MSG_TRUNC) {
		for (size_t i = 0; i < count; i++)
			done += to[i].iov_len;
		left = info_of(s).unread;
		return (size_t)left < done ? left : (int64_t)done;
	}
	for (size_t i = 0, k = 0; i < count && left > 0;) {
		size_t space = to[i].iov_len - skip, some = from[k].iov_len;
		some = some < space ? some : space;
		if (some > 0)
			memcpy((char *)to[i].iov_base + skip, from[k].iov_base, some);
		from[k].iov_base = (char *)from[k].iov_base + some;
		from[k].iov_len -= some;
		done += some;
		skip += some;
		left -= (int64_t)some;
		k += from[k].iov_len == 0;
		if (skip == to[i].iov_len) {
			i++;
			skip = 0;
		}
	}
	return (int64_t)done;
}

/* Receives the bytes that have arrived. */
static int64_t receive_available(struct sock *s, const struct iovec *iov, size_t count, size_t skip,
                                 int flags)
{
	int64_t total = 0;

	if (!(flags & MSG_TRUNC) &&
	    !iovec_is_mapped(iov, count, skip + sy_stack_unread(runner.stack, s->id)))
		return -EFAULT;
	if (flags & MSG_PEEK)
		return peek(s, iov, count, flags);
	for (size_t i = 0; i < count; i++) {
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		if (total && !sy_stack_unread(runner.stack, s->id))
			break;
		char *at = (char *)iov[i].iov_base + skip;
		size_t len = iov[i].iov_len - skip;
		int64_t n;
		skip = 0;
		if (flags & MSG_TRUNC) /* TCP discards the bytes */
			return sy_stack_receive_bytes(runner.stack, s->id, NULL, len,
			                              sy_clock_ns());
		n = sy_stack_receive_bytes(runner.stack, s->id, at, len, runner.now_ns);
		if (n <= 0)
			return total ? total : n;
		total += n;
		if ((size_t)n < len)
			break;
	}
	return total;
}

/* As receive_available(), for a call that has received bytes already. Returns 0 for the
 * connection's error or end: the next call reports it. */
static int64_t receive_more(struct sock *s, const struct iovec *iov, size_t count, size_t received,
                            int flags)
{
	const uint32_t over = SY_STACK_ERROR | SY_STACK_HANG_UP | SY_STACK_PEER_DONE;

	if (received && !sy_stack_unread(runner.stack, s->id))
		return sy_stack_ready(runner.stack, s->id) & over ? 0 : -EAGAIN;
	return receive_available(s, iov, count, received, flags);
}

/* recv() of no bytes returns the error that recv() of some would. */
static int64_t receive_nothing(const struct sock *s, int flags)
{
	struct iovec from;
	int64_t n = sy_stack_peek_vectors(runner.stack, s->id, &from, 1);

	return n > 0 || ((n == -EAGAIN || n == -ENOTCONN) &&
	                 (call_blocks(s, flags) || s->read_shut))
	               ? 0
	       : n == -ENOTCONN ? -EAGAIN
	                        : n;
}

/* A call that sleeps until bytes arrive. */
struct receiver {
	struct handoff handoff;
	struct sock *sock;
	const struct iovec *iov;
	size_t count;
	int64_t bytes;
};

/* Receives for the sleeping call. It handles the connection's end and error itself. */
static bool receiver_complete(struct handoff *h)
{
	struct receiver *r = (struct receiver *)h;

	if (!sy_stack_unread(runner.stack, r->sock->id))
		return false;
	r->bytes = receive_available(r->sock, r->iov, r->count, 0, 0);
	return r->bytes > 0;
}

static int receive_await(struct sock *s, struct receiver *r, int flags, size_t received,
                         uint64_t deadline, struct signals *signals)
{
	const uint32_t events = EPOLLIN | EPOLLERR | EPOLLHUP;

	if (received || flags & ~MSG_NOSIGNAL || runner.sorted)
		return runner_await(s, events, -1, deadline, signals);
	return runner_await_handoff(s, events, &r->handoff, deadline, signals);
}

/* locked: stores whether it returns with the lock. */
static int64_t receive_locked(struct sock *s, const struct iovec *iov, size_t count, int flags,
                              struct signals *signals, bool *locked)
{
	struct receiver r = {{receiver_complete, false}, s, iov, count, 0};
	uint64_t deadline = timeout_deadline(s->options.receive_timeout_ns);
	size_t total = 0, received = 0;

	if (s->id == SY_STACK_NONE)
		return -ENOTCONN;
	if (flags & MSG_ERRQUEUE)
		return -EAGAIN;
	if (flags & MSG_OOB)
		return -EINVAL; /* urgent data is in line */
	for (size_t i = 0; i < count; i++)
		total += iov[i].iov_len;
	if (total == 0)
		return receive_nothing(s, flags);
	for (;;) {
		int64_t n = receive_more(s, iov, count, received, flags);
		if (n == -EAGAIN && sy_clock_ns() - runner.now_ns > POLL_NS) {
			runner_poll();
			n = receive_more(s, iov, count, received, flags);
		}
		if (n > 0)
			received += (size_t)n;
		if (n == -ENOTCONN) /* the connection is opening */
			n = -EAGAIN;
		if (n == -EAGAIN && s->read_shut)
			n = 0;
		bool enough = received == total || (received && !(flags & MSG_WAITALL)) ||
		              flags & MSG_PEEK;
		if (n == 0 || (n > 0 && enough) || (n < 0 && n != -EAGAIN) ||
		    !call_blocks(s, flags))
			return received ? (int64_t)received : n;
		int rc = receive_await(s, &r, flags, received, deadline, signals);
		*locked = rc <= 0;
		if (rc > 0)
			return r.bytes;
		if (!rc && s->id == SY_STACK_NONE) /* another thread has disconnected it */
			rc = -ENOTCONN;
		if (rc)
			return received ? (int64_t)received : rc;
	}
}

static ssize_t receive(int fd, const struct iovec *iov, size_t count, int flags)
{
	struct signals signals = {0};
	int64_t n = iovec_check(iov, count);

	if (n)
		return result(n);
	pthread_testcancel();
	if (!runner_lock())
		return result(-EAGAIN);
	struct sock *s = table_connection(fd); /* another thread may have closed it */
	if (s)
		s->user = pthread_self();
	bool locked = true;
	n = s ? receive_locked(s, iov, count, flags, &signals, &locked) : -EBADF;
	if (locked) {
		runner_flush();
		runner_unlock();
	}
	signals_restore(&signals);
	return result(n);
}

/* Checks a result of the kernel's: a relay's end of data may have been a reset. */
static ssize_t kernel_result(int fd, ssize_t n, size_t len)
{
	int error;

	if (n != 0 || len == 0 || !relay_has(fd))
		return n;
	error = relay_error(fd);
	return error ? result(-error) : 0;
}

PRELOAD_EXPORT ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
	struct sock *s = table_connection(fd);
	struct iovec iov = {bytes, len};

	return s ? receive(fd, &iov, 1, flags)
	         : kernel_result(fd, REAL(recv)(fd, bytes, len, flags), len);
}

PRELOAD_EXPORT ssize_t recvfrom(int fd, void *bytes, size_t len, int flags, __SOCKADDR_ARG from,
                                socklen_t *from_len)
{
	struct sock *s = table_connection(fd);
	struct iovec iov = {bytes, len};

	if (!s)
		return kernel_result(fd, REAL(recvfrom)(fd, bytes, len, flags, from, from_len),
		                     len);
	if (from_len)
		*from_len = 0;
	return receive(fd, &iov, 1, flags);
}

/* Registers the descriptors that come with a message. */
static void rights_receive(struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
			int fd;
			memcpy(&fd, (char *)c + at, sizeof(fd));
			table_forget(fd);
			listener_adopt(fd);
			relay_mark(fd);
		}
	}
}

PRELOAD_EXPORT ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	struct sock *s = table_connection(fd);

	if (!s) {
		ssize_t n = REAL(recvmsg)(fd, m, flags);
		if (n >= 0 && m->msg_controllen)
			rights_receive(m);
		return n ? n : kernel_result(fd, n, m->msg_iovlen > 0 ? m->msg_iov->iov_len : 0);
	}
	if (!is_user_memory(m))
		return result(-EFAULT);
	if (m->msg_iovlen > IOVEC_MAX)
		return result(-EMSGSIZE);
	m->msg_namelen = 0;
	m->msg_controllen = 0;
	m->msg_flags = 0;
	return receive(fd, m->msg_iov, m->msg_iovlen, flags);
}

PRELOAD_EXPORT ssize_t read(int fd, void *bytes, size_t len)
{
	struct sock *s = table_connection(fd);
	struct iovec iov = {bytes, len};

	if (!s)
		return kernel_result(fd, REAL(read)(fd, bytes, len), len);
	return len ? receive(fd, &iov, 1, 0) : 0;
}

PRELOAD_EXPORT ssize_t readv(int fd, const struct iovec *iov, int count)
{
	struct sock *s = table_connection(fd);

	if (!s) {
		ssize_t n = REAL(readv)(fd, iov, count);
		return n ? n : kernel_result(fd, n, count > 0 ? iov->iov_len : 0);
	}
	if ((unsigned)count > IOVEC_MAX)
		return result(-EINVAL);
	return count ? receive(fd, iov, (size_t)count, 0) : 0;
}

/* ---- the checked variants of the C library (_FORTIFY_SOURCE) --------------------------------- */

PRELOAD_EXPORT ssize_t __read_chk(int fd, void *bytes, size_t len, size_t space);
PRELOAD_EXPORT ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t space, int flags);
PRELOAD_EXPORT ssize_t __recvfrom_chk(int fd, void *bytes, size_t len, size_t space, int flags,
                                      __SOCKADDR_ARG from, socklen_t *from_len);

ssize_t __read_chk(int fd, void *bytes, size_t len, size_t space)
{
	if (len > space)
		abort();
	return read(fd, bytes, len);
}

ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t space, int flags)
{
	if (len > space)
		abort();
	return recv(fd, bytes, len, flags);
}

ssize_t __recvfrom_chk(int fd, void *bytes, size_t len, size_t space, int flags,
                       __SOCKADDR_ARG from, socklen_t *from_len)
{
	if (len > space)
		abort();
	return recvfrom(fd, bytes, len, flags, from, from_len);
}
