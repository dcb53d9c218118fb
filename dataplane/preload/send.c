// SPDX-License-Identifier: Apache-2.0
/* Calls that send bytes: write(), send(), with vectors, messages and files. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "iovec.h"
#include "real.h"

#define FILE_STEP 65536u

/* Sends what the send buffer has space for. */
static int64_t send_available(struct sock *s, const struct iovec *iov, size_t count, size_t skip,
                              int flags)
{
	int how = (flags & MSG_MORE ? SY_STACK_MORE : 0) | (flags & MSG_OOB ? SY_STACK_OOB : 0);
	int64_t total = 0;

	while (count && iov[count - 1].iov_len == 0)
		count--; /* nothing follows the last bytes */
	if (count == 0)  /* send() of no bytes returns the error that send() of some would */
		return sy_stack_send(runner.stack, s->id, NULL, 0, how, sy_clock_ns());
	for (size_t i = 0; i < count; i++) {
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		size_t len = iov[i].iov_len - skip;
		/* Another part follows, and may share a segment. */
		int64_t n = sy_stack_send(runner.stack, s->id, (char *)iov[i].iov_base + skip, len,
		                          i + 1 < count ? how | SY_STACK_MORE : how, sy_clock_ns());
		skip = 0;
		if (n < 0)
			return total ? total : n;
		total += n;
		if ((size_t)n < len)
			break;
	}
	return total;
}

static int64_t send_locked(struct sock *s, const struct iovec *iov, size_t count, int flags,
                           struct signals *signals)
{
	uint64_t deadline = timeout_deadline(s->options.send_timeout_ns);
	size_t total = 0, done = 0;

	if (s->id == SY_STACK_NONE || s->write_shut)
		return -EPIPE;
	for (size_t i = 0; i < count; i++)
		total += iov[i].iov_len;
	if (!iovec_is_mapped(iov, count, total)) {
		int64_t n = send_available(s, NULL, 0, 0, flags);
		return n < 0 ? n : -EFAULT;
	}
	/* After some bytes, the connection's error is left to the next call. */
	do {
		int64_t n = send_available(s, iov, count, done, flags);
		if (n < 0 && n != -EAGAIN)
			return done ? (int64_t)done : n;
		done += n > 0 ? (size_t)n : 0;
		if ((done == total && n >= 0) || !call_blocks(s, flags))
			return done ? (int64_t)done : n;
		int rc = runner_await(s, EPOLLOUT | EPOLLERR | EPOLLHUP, -1, deadline, signals);
		if (!rc && s->id == SY_STACK_NONE)
			rc = -EPIPE;
		if (rc)
			return done ? (int64_t)done : rc;
	} while (!(done && sy_stack_ready(runner.stack, s->id) & SY_STACK_ERROR));
	return (int64_t)done;
}

static ssize_t send_vectors(int fd, const struct iovec *iov, size_t count, int flags)
{
	struct signals signals = {0};
	int64_t n = iovec_check(iov, count);

	if (n)
		return result(n);
	pthread_testcancel();
	if (!runner_lock())
		return result(-EAGAIN);
	struct sock *s = table_connection(fd);
	if (s)
		s->user = pthread_self();
	n = s ? send_locked(s, iov, count, flags, &signals) : -EBADF;
	runner_flush();
	runner_unlock();
	signals_restore(&signals);
	if (n == -EPIPE && !(flags & MSG_NOSIGNAL))
		pthread_kill(pthread_self(), SIGPIPE);
	return result(n);
}

PRELOAD_EXPORT ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
	struct sock *s = table_connection(fd);
	struct iovec iov = {(void *)bytes, len};

	return s ? send_vectors(fd, &iov, 1, flags) : REAL(send)(fd, bytes, len, flags);
}

PRELOAD_EXPORT ssize_t sendto(int fd, const void *bytes, size_t len, int flags,
                              __CONST_SOCKADDR_ARG to, socklen_t to_len)
{
	struct sock *s = table_connection(fd);
	struct iovec iov = {(void *)bytes, len};

	if (s)
		return send_vectors(fd, &iov, 1, flags);
	if (flags & MSG_FASTOPEN && connect_is_due(fd, to.__sockaddr__, to_len))
		return connect(fd, to, to_len) ? -1 : send(fd, bytes, len, flags & ~MSG_FASTOPEN);
	return REAL(sendto)(fd, bytes, len, flags, to, to_len);
}

/* Prepares the descriptors that go to another process: connections of the stack stay in this
 * one. */
static void rights_send(const struct msghdr *message)
{
	struct msghdr m = *message;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
			int fd;
			memcpy(&fd, (char *)c + at, sizeof(fd));
			if (!table_connection(fd))
				continue;
			relay_pass(fd);
			serve_passed(fd);
		}
	}
}

PRELOAD_EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct sock *s = table_connection(fd);

	if (!s) {
		if (m && m->msg_controllen)
			rights_send(m);
		if (!(flags & MSG_FASTOPEN) || !m ||
		    !connect_is_due(fd, m->msg_name, m->msg_namelen))
			return REAL(sendmsg)(fd, m, flags);
		return connect(fd, m->msg_name, m->msg_namelen)
		               ? -1
		               : sendmsg(fd, m, flags & ~MSG_FASTOPEN);
	}
	if (!is_user_memory(m))
		return result(-EFAULT);
	if (m->msg_iovlen > IOVEC_MAX)
		return result(-EMSGSIZE);
	if (m->msg_controllen)
		return result(-EINVAL);
	return send_vectors(fd, m->msg_iov, m->msg_iovlen, flags);
}

PRELOAD_EXPORT ssize_t write(int fd, const void *bytes, size_t len)
{
	struct sock *s = table_connection(fd);
	struct iovec iov = {(void *)bytes, len};

	return s ? send_vectors(fd, &iov, 1, 0) : REAL(write)(fd, bytes, len);
}

PRELOAD_EXPORT ssize_t writev(int fd, const struct iovec *iov, int count)
{
	struct sock *s = table_connection(fd);

	if (!s)
		return REAL(writev)(fd, iov, count);
	if ((unsigned)count > IOVEC_MAX)
		return result(-EINVAL);
	return count ? send_vectors(fd, iov, (size_t)count, 0) : 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Returns how many bytes there are to send: a program may request more than the file has. */
static size_t file_left(int in, off_t at, size_t count)
{
	struct stat is;

	/* Files of /proc report no size. */
	if (fstat(in, &is) || !S_ISREG(is.st_mode) || is.st_size == 0)
		return count;
	size_t left = at < is.st_size ? (size_t)(is.st_size - at) : 0;
	return count < left ? count : left;
}

/* Sends a file through a buffer: bytes that exceed the send buffer are read again. */
static int64_t file_send(struct sock *s, int in, off_t at, size_t count, struct signals *signals)
{
	char *bytes = malloc(FILE_STEP);
	size_t done = 0;
	int64_t rc = bytes ? 0 : -ENOMEM;

	count = file_left(in, at, count);
	while (!rc && done < count) {
		size_t step = count - done < FILE_STEP ? count - done : FILE_STEP;
		ssize_t n = pread(in, bytes, step, at + (off_t)done);
		if (n <= 0) {
			rc = n < 0 ? -errno : 0;
			break;
		}
		struct iovec iov = {bytes, (size_t)n};
		int more = (size_t)n == step && done + step < count ? MSG_MORE : 0;
		int64_t sent = send_locked(s, &iov, 1, more, signals);
		if (sent < 0)
			rc = sent;
		else
			done += (size_t)sent;
		if (sent < n)
			break;
	}
	free(bytes);
	return done ? (int64_t)done : rc;
}

PRELOAD_EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	struct sock *s = table_connection(out);
	struct signals signals = {0};
	off_t at;
	int64_t n;
	int cancel;

	if (!s)
		return table_connection(in) ? result(-EINVAL)
		                            : REAL(sendfile)(out, in, offset, count);
	at = offset ? *offset : lseek(in, 0, SEEK_CUR);
	if (at < 0)
		return offset ? result(-EINVAL) : -1;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE,
	                       &cancel); /* sendfile() is no cancellation point */
	if (!runner_lock()) {
		pthread_setcancelstate(cancel, NULL);
		return result(-EAGAIN);
	}
	s = table_connection(out);
	n = s ? file_send(s, in, at, count, &signals) : -EBADF;
	runner_flush();
	runner_unlock();
	pthread_setcancelstate(cancel, NULL);
	if (n > 0 && offset)
		*offset += n;
	else if (n > 0)
		lseek(in, n, SEEK_CUR);
	signals_restore(&signals);
	if (n == -EPIPE)
		pthread_kill(pthread_self(), SIGPIPE);
	return result(n);
}

PRELOAD_EXPORT ssize_t sendfile64(int out, int in, off64_t *offset, size_t count)
{
	return sendfile(out, in, offset, count);
}

PRELOAD_EXPORT ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t len,
                              unsigned flags)
{
	if (table_connection(in) || table_connection(out))
		return result(-EINVAL);
	return REAL(splice)(in, in_at, out, out_at, len, flags);
}
