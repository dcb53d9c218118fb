// SPDX-License-Identifier: Apache-2.0
/* Bytes: read and write, recv and send, with vectors, messages and files. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "preload.h"
#include "real.h"

#define POLL_NS      (100 * (uint64_t)1000) /* a program that tries in a loop gets packets so often */
#define FILE_STEP    65536u
#define PARTS        1024u /* UIO_MAXIOV: as many as Linux takes */
#define PEEK_VECTORS 256   /* pieces of what is unread, for MSG_PEEK */

static uint64_t deadline_of(uint64_t wait_ns)
{
	return wait_ns ? sy_clock_ns() + wait_ns : NEVER;
}

static bool blocks(const struct sock *s, int flags)
{
	return !s->nonblock && !(flags & MSG_DONTWAIT);
}

/* As Linux checks the parts of a call before it looks at the socket: 0 or a negative errno. */
static int parts_check(const struct iovec *iov, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!is_user_memory(iov))
			return -EFAULT;
		if ((ssize_t)iov[i].iov_len < 0)
			return -EINVAL;
		if ((intptr_t)iov[i].iov_base < 0)
			return -EFAULT;
	}
	return 0;
}

/* Has the program memory for so many bytes? A part without bytes may be anywhere. */
static bool parts_exist(const struct iovec *iov, size_t count, size_t bytes)
{
	for (size_t i = 0; i < count && bytes > 0; i++) {
		if (iov[i].iov_len > 0 && !is_user_memory(iov[i].iov_base))
			return false;
		bytes -= bytes < iov[i].iov_len ? bytes : iov[i].iov_len;
	}
	return true;
}

/* ---- receive --------------------------------------------------------------------------------- */

/* What is there now, and stays: up to that many pieces. MSG_TRUNC: how much it is. */
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

/* What is there now. */
static int64_t receive_available(struct sock *s, const struct iovec *iov, size_t count, size_t skip,
                                 int flags)
{
	int64_t total = 0;

	if (!(flags & MSG_TRUNC) &&
	    !parts_exist(iov, count, skip + sy_stack_unread(runner.stack, s->id)))
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
		if (flags & MSG_TRUNC) /* TCP: thrown away */
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

/* The same, after `got` bytes. The connection's error and its end belong to the next call: 0. */
static int64_t receive_more(struct sock *s, const struct iovec *iov, size_t count, size_t got,
                            int flags)
{
	const uint32_t over = SY_STACK_ERROR | SY_STACK_HANG_UP | SY_STACK_PEER_DONE;

	if (got && !sy_stack_unread(runner.stack, s->id))
		return sy_stack_ready(runner.stack, s->id) & over ? 0 : -EAGAIN;
	return receive_available(s, iov, count, got, flags);
}

/* recv() of no bytes returns what stands in the way of some. */
static int64_t receive_nothing(const struct sock *s, int flags)
{
	struct iovec from;
	int64_t n = sy_stack_peek_vectors(runner.stack, s->id, &from, 1);

	return n > 0 || ((n == -EAGAIN || n == -ENOTCONN) && (blocks(s, flags) || s->read_shut)) ? 0
	       : n == -ENOTCONN ? -EAGAIN
	                        : n;
}

/* A call that sleeps until bytes come. */
struct receiver {
	struct handoff handoff;
	struct sock *sock;
	const struct iovec *iov;
	size_t count;
	int64_t bytes;
};

/* The end of the connection, and its error, are left to the call itself. */
static bool receiver_complete(struct handoff *h)
{
	struct receiver *r = (struct receiver *)h;

	if (!sy_stack_unread(runner.stack, r->sock->id))
		return false;
	r->bytes = receive_available(r->sock, r->iov, r->count, 0, 0);
	return r->bytes > 0;
}

static int receive_await(struct sock *s, struct receiver *r, int flags, size_t got,
                         uint64_t deadline, struct signals *signals)
{
	const uint32_t events = EPOLLIN | EPOLLERR | EPOLLHUP;

	if (got || flags & ~MSG_NOSIGNAL || runner.sorted)
		return runner_await(s, events, -1, deadline, signals);
	return runner_await_handoff(s, events, &r->handoff, deadline, signals);
}

/* *locked: it returns with the lock. */
static int64_t receive_locked(struct sock *s, const struct iovec *iov, size_t count, int flags,
                              struct signals *signals, bool *locked)
{
	struct receiver r = {{receiver_complete, false}, s, iov, count, 0};
	uint64_t deadline = deadline_of(s->options.receive_timeout_ns);
	size_t want = 0, got = 0;

	if (s->id == SY_STACK_NONE)
		return -ENOTCONN;
	if (flags & MSG_ERRQUEUE)
		return -EAGAIN;
	if (flags & MSG_OOB)
		return -EINVAL; /* urgent data lies among the others */
	for (size_t i = 0; i < count; i++)
		want += iov[i].iov_len;
	if (want == 0)
		return receive_nothing(s, flags);
	for (;;) {
		int64_t n = receive_more(s, iov, count, got, flags);
		if (n == -EAGAIN && sy_clock_ns() - runner.now_ns > POLL_NS) {
			runner_poll();
			n = receive_more(s, iov, count, got, flags);
		}
		if (n > 0)
			got += (size_t)n;
		if (n == -ENOTCONN) /* it is being opened */
			n = -EAGAIN;
		if (n == -EAGAIN && s->read_shut)
			n = 0;
		bool enough = got == want || (got && !(flags & MSG_WAITALL)) || flags & MSG_PEEK;
		if (n == 0 || (n > 0 && enough) || (n < 0 && n != -EAGAIN) || !blocks(s, flags))
			return got ? (int64_t)got : n;
		int rc = receive_await(s, &r, flags, got, deadline, signals);
		*locked = rc <= 0;
		if (rc > 0)
			return r.bytes;
		if (!rc && s->id == SY_STACK_NONE) /* another thread has dissolved it */
			rc = -ENOTCONN;
		if (rc)
			return got ? (int64_t)got : rc;
	}
}

static ssize_t receive(int fd, const struct iovec *iov, size_t count, int flags)
{
	struct signals signals = {0};
	int64_t n = parts_check(iov, count);

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

/* Of a descriptor of the kernel, which has returned n of len bytes. The end of a relay's data may
 * have been a reset. */
static ssize_t received(int fd, ssize_t n, size_t len)
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
	         : received(fd, REAL(recv)(fd, bytes, len, flags), len);
}

PRELOAD_EXPORT ssize_t recvfrom(int fd, void *bytes, size_t len, int flags, __SOCKADDR_ARG from,
                                socklen_t *from_len)
{
	struct sock *s = table_connection(fd);
	struct iovec iov = {bytes, len};

	if (!s)
		return received(fd, REAL(recvfrom)(fd, bytes, len, flags, from, from_len), len);
	if (from_len)
		*from_len = 0;
	return receive(fd, &iov, 1, flags);
}

/* Descriptors that come with a message. */
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
		return n ? n : received(fd, n, m->msg_iovlen > 0 ? m->msg_iov->iov_len : 0);
	}
	if (!is_user_memory(m))
		return result(-EFAULT);
	if (m->msg_iovlen > PARTS)
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
		return received(fd, REAL(read)(fd, bytes, len), len);
	return len ? receive(fd, &iov, 1, 0) : 0;
}

PRELOAD_EXPORT ssize_t readv(int fd, const struct iovec *iov, int count)
{
	struct sock *s = table_connection(fd);

	if (!s) {
		ssize_t n = REAL(readv)(fd, iov, count);
		return n ? n : received(fd, n, count > 0 ? iov->iov_len : 0);
	}
	if ((unsigned)count > PARTS)
		return result(-EINVAL);
	return count ? receive(fd, iov, (size_t)count, 0) : 0;
}

/* ---- send ------------------------------------------------------------------------------------ */

/* What finds a place now. */
static int64_t send_available(struct sock *s, const struct iovec *iov, size_t count, size_t skip,
                              int flags)
{
	int how = (flags & MSG_MORE ? SY_STACK_MORE : 0) | (flags & MSG_OOB ? SY_STACK_OOB : 0);
	int64_t total = 0;

	while (count && iov[count - 1].iov_len == 0)
		count--; /* nothing follows the last bytes */
	if (count == 0)  /* send() of no bytes returns what stands in the way of some */
		return sy_stack_send(runner.stack, s->id, NULL, 0, how, sy_clock_ns());
	for (size_t i = 0; i < count; i++) {
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		size_t len = iov[i].iov_len - skip;
		/* Another part follows: it may share a segment. */
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
	uint64_t deadline = deadline_of(s->options.send_timeout_ns);
	size_t want = 0, done = 0;

	if (s->id == SY_STACK_NONE || s->write_shut)
		return -EPIPE;
	for (size_t i = 0; i < count; i++)
		want += iov[i].iov_len;
	if (!parts_exist(iov, count, want)) {
		int64_t n = send_available(s, NULL, 0, 0, flags);
		return n < 0 ? n : -EFAULT;
	}
	/* After some bytes the connection's error belongs to the next call. */
	do {
		int64_t n = send_available(s, iov, count, done, flags);
		if (n < 0 && n != -EAGAIN)
			return done ? (int64_t)done : n;
		done += n > 0 ? (size_t)n : 0;
		if ((done == want && n >= 0) || !blocks(s, flags))
			return done ? (int64_t)done : n;
		int rc = runner_await(s, EPOLLOUT | EPOLLERR | EPOLLHUP, -1, deadline, signals);
		if (!rc && s->id == SY_STACK_NONE)
			rc = -EPIPE;
		if (rc)
			return done ? (int64_t)done : rc;
	} while (!(done && sy_stack_ready(runner.stack, s->id) & SY_STACK_ERROR));
	return (int64_t)done;
}

static ssize_t deliver(int fd, const struct iovec *iov, size_t count, int flags)
{
	struct signals signals = {0};
	int64_t n = parts_check(iov, count);

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

	return s ? deliver(fd, &iov, 1, flags) : REAL(send)(fd, bytes, len, flags);
}

PRELOAD_EXPORT ssize_t sendto(int fd, const void *bytes, size_t len, int flags,
                              __CONST_SOCKADDR_ARG to, socklen_t to_len)
{
	struct sock *s = table_connection(fd);
	struct iovec iov = {(void *)bytes, len};

	if (s)
		return deliver(fd, &iov, 1, flags);
	if (flags & MSG_FASTOPEN && connect_is_due(fd, to.__sockaddr__, to_len))
		return connect(fd, to, to_len) ? -1 : send(fd, bytes, len, flags & ~MSG_FASTOPEN);
	return REAL(sendto)(fd, bytes, len, flags, to, to_len);
}

/* Descriptors that go to another process: connections of the stack are this one's. */
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
	if (m->msg_iovlen > PARTS)
		return result(-EMSGSIZE);
	if (m->msg_controllen)
		return result(-EINVAL);
	return deliver(fd, m->msg_iov, m->msg_iovlen, flags);
}

PRELOAD_EXPORT ssize_t write(int fd, const void *bytes, size_t len)
{
	struct sock *s = table_connection(fd);
	struct iovec iov = {(void *)bytes, len};

	return s ? deliver(fd, &iov, 1, 0) : REAL(write)(fd, bytes, len);
}

PRELOAD_EXPORT ssize_t writev(int fd, const struct iovec *iov, int count)
{
	struct sock *s = table_connection(fd);

	if (!s)
		return REAL(writev)(fd, iov, count);
	if ((unsigned)count > PARTS)
		return result(-EINVAL);
	return count ? deliver(fd, iov, (size_t)count, 0) : 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* How many bytes are there to send: a program may ask for more than the file has. */
static size_t file_left(int in, off_t at, size_t count)
{
	struct stat is;

	/* Files of /proc tell no size. */
	if (fstat(in, &is) || !S_ISREG(is.st_mode) || is.st_size == 0)
		return count;
	size_t left = at < is.st_size ? (size_t)(is.st_size - at) : 0;
	return count < left ? count : left;
}

/* The file's bytes go through a buffer: what finds no place is read again. */
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
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* no cancellation point */
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
