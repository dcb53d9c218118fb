// SPDX-License-Identifier: Apache-2.0
/* Readiness, as poll(2) reports it for TCP sockets on Linux. */
#include <errno.h>

#include "context.h"

#define IN  (POLLIN | POLLRDNORM)
#define OUT (POLLOUT | POLLWRNORM)

static uint32_t urgent_ready(struct sy_tcp_context *c, struct descriptor *d)
{
	struct sy_stack_info info;

	if (!d->urgent)
		return 0;
	d->urgent = sy_stack_info(c->stack, d->id, &info) == 0 && info.urgent > 0;
	return d->urgent && info.urgent <= info.unread ? POLLPRI
	                                               : 0; /* the urgent byte has arrived */
}

bool socket_is_full(struct sy_tcp_context *c, const struct descriptor *d)
{
	struct sy_stack_info info;

	return sy_stack_info(c->stack, d->id, &info) == 0 && info.unread > 0 && info.receive_closed;
}

/* SO_RCVLOWAT: enough bytes, EOF, or a full buffer. */
static bool enough_unread(struct sy_tcp_context *c, const struct descriptor *d)
{
	struct sy_stack_info info;

	return d->options.receive_low_water <= 1 || sy_stack_info(c->stack, d->id, &info) ||
	       info.unread >= d->options.receive_low_water ||
	       (info.unread > 0 && info.receive_window < info.mss);
}

uint32_t socket_ready(struct sy_tcp_context *c, struct descriptor *d)
{
	uint32_t ready, mask = 0;
	bool read_over, write_over;

	if (d->phase == PHASE_NEW)
		return OUT | POLLHUP;
	ready = sy_stack_ready(c->stack, d->id);
	if (d->phase == PHASE_LISTENING)
		return ready & SY_STACK_READABLE ? IN : 0;
	read_over = d->shut & SHUT_READ || ready & (SY_STACK_PEER_DONE | SY_STACK_HANG_UP);
	write_over = d->shut & SHUT_WRITE || ready & SY_STACK_HANG_UP;
	if (read_over && write_over)
		mask |= POLLHUP;
	if (read_over)
		mask |= IN | POLLRDHUP;
	else if (ready & SY_STACK_READABLE && enough_unread(c, d))
		mask |= IN;
	if (write_over || ready & SY_STACK_WRITABLE)
		mask |= OUT;
	if (ready & SY_STACK_ERROR)
		mask |= POLLERR;
	return mask | urgent_ready(c, d);
}

uint32_t sy_tcp_ready(struct sy_tcp_context *c, int fd)
{
	struct descriptor *d = descriptor_of(c, fd);

	if (!d)
		return POLLNVAL;
	return d->kind == KIND_EPOLL ? epoll_ready(c, d) : socket_ready(c, d);
}

/* ---- poll ------------------------------------------------------------------------------------ */

struct polled {
	struct pollfd *p;
	unsigned count;
};

static int polled_check(struct sy_tcp_context *c, void *arg)
{
	const struct polled *all = arg;
	int ready = 0;

	for (unsigned i = 0; i < all->count; i++) {
		struct pollfd *p = &all->p[i];
		p->revents = 0;
		if (p->fd < 0)
			continue;
		p->revents = (short)(sy_tcp_ready(c, p->fd) &
		                     ((uint16_t)p->events | POLLERR | POLLHUP | POLLNVAL));
		ready += p->revents != 0;
	}
	return ready;
}

int sy_tcp_poll(struct sy_tcp_context *c, struct pollfd *p, unsigned count, int timeout_ms,
                const sigset_t *mask)
{
	struct polled all = {p, count};

	return context_until(c, timeout_ms, mask, polled_check, &all);
}
