// SPDX-License-Identifier: Apache-2.0
/* Moves the bytes of one relay in both directions, and ends it. Reads a side only as far as the
 * other one has capacity: so back-pressure reaches the peer's window and the program's writes. */
#include <errno.h>

#include "real.h"
#include "relay.h"

#define MOVE_BYTES (256u << 10) /* of one direction, before other relays are served */
#define MOVE_STEP  65536u
#define PARTS      64

/* Cuts the vectors to `len` bytes. Returns their count. */
static int parts_of(struct iovec *v, size_t len)
{
	int count = 0;

	while (len > 0) {
		v[count].iov_len = v[count].iov_len < len ? v[count].iov_len : len;
		len -= v[count++].iov_len;
	}
	return count;
}

/* The program's end accepts no more bytes: checks whether all processes have closed it. */
static void end_check(struct relay *r)
{
	struct pollfd p = {.fd = r->fd};
	struct timespec none = {0};

	if (REAL(ppoll)(&p, 1, &none, NULL) > 0 && p.revents & POLLHUP)
		r->hung_up = true;
	else
		r->discard = true;
}

/* Moves bytes from the peer to the program. */
static bool move_in(struct relay *r)
{
	size_t moved = 0;

	while (!r->in_done && !r->hung_up && r->writable) {
		struct iovec v[PARTS];
		int64_t len = sy_stack_peek_vectors(runner.stack, r->s->id, v, PARTS);
		if (len == 0) {
			REAL(shutdown)(r->fd, SHUT_WR);
			r->in_done = true;
		}
		if (len < 0 && len != -EAGAIN)
			r->error = (int)-len;
		if (len <= 0)
			return false;
		if (moved >= MOVE_BYTES)
			return true;
		struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)parts_of(v, (size_t)len)};
		int64_t n =
		        r->discard ? len : REAL(sendmsg)(r->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			r->writable = false;
		else if (n < 0)
			end_check(r);
		if (n <= 0)
			continue;
		sy_stack_consume(runner.stack, r->s->id, (size_t)n, runner.now_ns);
		moved += (size_t)n;
	}
	return false;
}

/* Moves bytes from the program to the peer, directly into the send buffer. */
static bool move_out(struct relay *r)
{
	size_t moved = 0;

	while (!r->out_done && r->readable) {
		struct iovec v[PARTS];
		if (moved >= MOVE_BYTES)
			return true;
		int64_t space = sy_stack_reserve(runner.stack, r->s->id, v, PARTS, MOVE_STEP,
		                                 runner.now_ns);
		if (space <= 0)
			return false; /* an event follows */
		ssize_t n = REAL(readv)(r->fd, v, parts_of(v, (size_t)space));
		int code = errno;
		sy_stack_commit(runner.stack, r->s->id, n > 0 ? (size_t)n : 0, 0, runner.now_ns);
		if (n > 0) {
			moved += (size_t)n;
		} else if (n < 0 && code == EAGAIN) {
			r->readable = false;
		} else {
			r->out_done = true;
			r->reset = n < 0;
			r->hung_up = r->hung_up || r->reset;
			if (!r->hung_up)
				sy_stack_shutdown(runner.stack, r->s->id, runner.now_ns);
		}
	}
	return false;
}

bool relay_move(struct relay *r)
{
	uint32_t ready = sy_stack_ready(runner.stack, r->s->id);
	bool more;

	more = move_in(r);
	if (ready & SY_STACK_ERROR) { /* the program reads what came before a reset */
		if (!more && (r->writable || r->hung_up))
			relay_end(r, r->error ? r->error : sy_stack_error(runner.stack, r->s->id));
		return more;
	}
	more = move_out(r) || more;
	if (r->hung_up && r->out_done) {
		if (r->reset) {
			r->s->options.linger = true;
			r->s->options.linger_s = 0;
		}
		relay_end(r, 0);
		return false;
	}
	if (r->in_done && r->out_done &&
	    sy_stack_ready(runner.stack, r->s->id) & SY_STACK_HANG_UP) {
		relay_end(r, 0);
		return false;
	}
	return more;
}
