// SPDX-License-Identifier: Apache-2.0
/* Sending and receiving. */
#include <errno.h>
#include <limits.h>

#include "context.h"

#ifndef IOV_MAX
#define IOV_MAX 1024
#endif

/* ---- send ------------------------------------------------------------------------------------ */

static int flags_of(int flags)
{
	return (flags & MSG_MORE ? SY_STACK_MORE : 0) | (flags & MSG_OOB ? SY_STACK_OOB : 0);
}

/* Returns 0 if data may be sent. */
static int send_check(const struct descriptor *d)
{
	return d->phase == PHASE_NEW || d->phase == PHASE_LISTENING || d->shut & SHUT_WRITE ? -EPIPE
	                                                                                    : 0;
}

/* Returns the pending error of the connection, which precedes -EPIPE after shutdown(). */
static int send_refused(struct sy_tcp_context *c, const struct descriptor *d, int rc)
{
	int error = d->phase >= PHASE_CONNECTING ? sy_stack_error(c->stack, d->id) : 0;

	return error ? -error : rc;
}

ssize_t sy_tcp_send(struct sy_tcp_context *c, int fd, const void *bytes, size_t len, int flags)
{
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	if (flags & MSG_FASTOPEN)
		return -EOPNOTSUPP;
	rc = send_check(d);
	if (rc)
		return send_refused(c, d, rc);
	return sy_stack_send(c->stack, d->id, bytes, len, flags_of(flags), context_now(c));
}

static ssize_t send_vector(struct sy_tcp_context *c, int fd, const struct iovec *v, size_t count,
                           int flags)
{
	ssize_t done = 0;
	size_t last = count;

	while (last > 0 && v[last - 1].iov_len == 0)
		last--;
	if (last == 0)
		return sy_tcp_send(c, fd, NULL, 0, flags & ~MSG_OOB);
	for (size_t i = 0; i < last; i++) {
		int more = i + 1 < last ? (flags & ~MSG_OOB) | MSG_MORE : flags;
		ssize_t rc =
		        v[i].iov_len ? sy_tcp_send(c, fd, v[i].iov_base, v[i].iov_len, more) : 0;
		if (rc < 0)
			return done ? done : rc;
		done += rc;
		if ((size_t)rc < v[i].iov_len)
			break;
	}
	return done;
}

ssize_t sy_tcp_writev(struct sy_tcp_context *c, int fd, const struct iovec *v, int count)
{
	int rc;

	if (!socket_of(c, fd, &rc))
		return rc == -ENOTSOCK ? -EINVAL : rc;
	if (count < 0 || count > IOV_MAX)
		return -EINVAL;
	return send_vector(c, fd, v, (size_t)count, 0);
}

ssize_t sy_tcp_sendmsg(struct sy_tcp_context *c, int fd, const struct msghdr *m, int flags)
{
	if (m->msg_iovlen > IOV_MAX)
		return -EMSGSIZE;
	return send_vector(c, fd, m->msg_iov, m->msg_iovlen, flags);
}

/* ---- receive --------------------------------------------------------------------------------- */

/* Returns 0 if the stack must process the call, or its result. */
static int receive_check(const struct descriptor *d, int flags)
{
	if (flags & MSG_ERRQUEUE)
		return -EAGAIN;
	if (d->phase == PHASE_NEW || d->phase == PHASE_LISTENING)
		return -ENOTCONN;
	/* Urgent data is inline, as with SO_OOBINLINE (RFC 6093 3.2). */
	return flags & MSG_OOB ? -EINVAL : 0;
}

/* Converts the stack's result to that of recv(). */
static ssize_t receive_answer(const struct descriptor *d, int64_t rc)
{
	if (rc == -ENOTCONN) /* connecting */
		rc = -EAGAIN;
	return rc == -EAGAIN && d->shut & SHUT_READ ? 0 : rc;
}

#define PEEK_VECTORS 64 /* max vectors of the receive buffer per call */

static ssize_t peek(struct sy_tcp_context *c, const struct descriptor *d, const struct iovec *to,
                    size_t count)
{
	struct iovec from[PEEK_VECTORS];
	int64_t left = sy_stack_peek_vectors(c->stack, d->id, from, PEEK_VECTORS);
	size_t done = 0, at = 0;

	if (left <= 0)
		return receive_answer(d, left);
	for (size_t i = 0, k = 0; k < count && left > 0;) {
		size_t piece =
		        from[i].iov_len < to[k].iov_len - at ? from[i].iov_len : to[k].iov_len - at;
		if (piece > 0)
			memcpy((uint8_t *)to[k].iov_base + at, from[i].iov_base, piece);
		from[i].iov_base = (uint8_t *)from[i].iov_base + piece;
		from[i].iov_len -= piece;
		left -= (int64_t)piece;
		at += piece;
		done += piece;
		if (from[i].iov_len == 0)
			i++;
		if (at == to[k].iov_len) {
			k++;
			at = 0;
		}
	}
	return (ssize_t)done;
}

/* MSG_TRUNC: discards unread bytes without copying. */
static ssize_t discard(struct sy_tcp_context *c, struct descriptor *d, size_t len)
{
	struct sy_stack_info info;
	const void *first;
	int64_t rc = sy_stack_peek(c->stack, d->id, &first);

	if (rc <= 0 || sy_stack_info(c->stack, d->id, &info))
		return receive_answer(d, rc);
	len = len < info.unread ? len : info.unread;
	sy_stack_consume(c->stack, d->id, len, context_now(c));
	watches_update_level(c, d); /* the next unread request may have another priority */
	return (ssize_t)len;
}

static ssize_t receive_vector(struct sy_tcp_context *c, int fd, const struct iovec *v, size_t count,
                              int flags)
{
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);
	size_t len = 0;
	ssize_t done = 0;

	if (!d)
		return rc;
	rc = receive_check(d, flags);
	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		len += v[i].iov_len;
	if (len == 0) {
		const void *first;
		int64_t some = sy_stack_peek(c->stack, d->id, &first);
		return some > 0 ? 0 : receive_answer(d, some);
	}
	if (flags & MSG_PEEK)
		return peek(c, d, v, count);
	if (flags & MSG_TRUNC)
		return discard(c, d, len);
	for (size_t i = 0; i < count && (done == 0 || sy_stack_unread(c->stack, d->id)); i++) {
		int64_t got = v[i].iov_len ? sy_stack_receive_bytes(c->stack, d->id, v[i].iov_base,
		                                                    v[i].iov_len, context_now(c))
		                           : 0;
		if (v[i].iov_len && got <= 0)
			return done ? done : receive_answer(d, got);
		watches_update_level(c, d);
		done += got;
		if ((size_t)got < v[i].iov_len)
			break;
	}
	return done;
}

ssize_t sy_tcp_recv(struct sy_tcp_context *c, int fd, void *bytes, size_t len, int flags)
{
	return receive_vector(c, fd, &(struct iovec){bytes, len}, 1, flags);
}

ssize_t sy_tcp_readv(struct sy_tcp_context *c, int fd, const struct iovec *v, int count)
{
	int rc;

	if (!socket_of(c, fd, &rc))
		return rc == -ENOTSOCK ? -EINVAL : rc;
	if (count < 0 || count > IOV_MAX)
		return -EINVAL;
	return receive_vector(c, fd, v, (size_t)count, 0);
}

ssize_t sy_tcp_recvmsg(struct sy_tcp_context *c, int fd, struct msghdr *m, int flags)
{
	ssize_t rc;

	if (m->msg_iovlen > IOV_MAX)
		return -EMSGSIZE;
	rc = receive_vector(c, fd, m->msg_iov, m->msg_iovlen, flags);
	if (rc < 0)
		return rc;
	m->msg_namelen = 0;
	m->msg_controllen = 0;
	m->msg_flags = 0;
	return rc;
}

/* ---- zero-copy ------------------------------------------------------------------------------- */

ssize_t sy_tcp_receive_look(struct sy_tcp_context *c, int fd, struct iovec *v, int count)
{
	int rc;
	const struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	rc = count < 1 ? -EINVAL : receive_check(d, 0);
	return rc ? rc : receive_answer(d, sy_stack_peek_vectors(c->stack, d->id, v, count));
}

int sy_tcp_receive_done(struct sy_tcp_context *c, int fd, size_t len)
{
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);
	struct sy_stack_info info;

	if (!d)
		return rc;
	if (d->phase < PHASE_CONNECTING || sy_stack_info(c->stack, d->id, &info) ||
	    len > info.unread)
		return -EINVAL;
	if (len > 0) {
		sy_stack_consume(c->stack, d->id, len, context_now(c));
		watches_update_level(c, d);
	}
	return 0;
}

ssize_t sy_tcp_send_room(struct sy_tcp_context *c, int fd, struct iovec *v, int count, size_t len)
{
	int rc;
	const struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	rc = count < 1 ? -EINVAL : send_check(d);
	if (rc)
		return rc == -EPIPE ? send_refused(c, d, rc) : rc;
	return sy_stack_reserve(c->stack, d->id, v, count, len, context_now(c));
}

int sy_tcp_send_done(struct sy_tcp_context *c, int fd, size_t len, int flags)
{
	int rc;
	const struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	if (d->phase < PHASE_CONNECTING)
		return -EINVAL;
	return sy_stack_commit(c->stack, d->id, len, flags_of(flags), context_now(c));
}
