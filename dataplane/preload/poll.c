// SPDX-License-Identifier: Apache-2.0
/* poll() and select() for the stack's and the kernel's descriptors. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "preload.h"
#include "real.h"

#define LEVEL_PASSED 16

/* ---- poll ------------------------------------------------------------------------------------ */

static short poll_bits(uint32_t ready)
{
	/* The values are the same (epoll_ctl(2), poll(2)). */
	return (short)(ready & (POLLIN | POLLOUT | POLLPRI | POLLERR | POLLHUP | POLLRDNORM |
	                        POLLWRNORM | POLLRDHUP));
}

/* Waits of this thread that have suppressed ready sockets of the level, one after the other. */
static __thread unsigned level_passed[SY_PRIORITIES];

/* Returns the most urgent level that LEVEL_PASSED waits have passed over, or SY_PRIORITIES. levels:
 * a bit for each level with a ready socket. */
static unsigned level_due(unsigned levels)
{
	unsigned level = 0;

	while (level < SY_PRIORITIES &&
	       (!(levels >> level & 1) || level_passed[level] < LEVEL_PASSED))
		level++;
	return level;
}

/* Suppresses sockets that may wait: those less urgent than the first, and all but one of those less
 * urgent than usual. A level that is due reports one more. is_last: the wait returns the result. */
static int levels_sort(struct pollfd *p, nfds_t count, bool is_last)
{
	nfds_t space[SY_PRIORITIES + 1] = {0}; /* how many sockets of each level are reported */
	unsigned levels = 0, hidden = 0;       /* a bit for each level */
	int ready = 0;

	for (nfds_t i = 0; i < count; i++) {
		const struct sock *s = p[i].revents ? table_sock(p[i].fd) : NULL;
		if (s)
			levels |= 1U << sock_level(s);
	}
	unsigned first = (unsigned)__builtin_ctz(levels), due = level_due(levels);
	space[first] = first <= SY_USUAL ? count : 1;
	space[due]++;
	for (nfds_t i = 0; i < count; i++) {
		const struct sock *s = p[i].revents ? table_sock(p[i].fd) : NULL;
		unsigned level = s ? sock_level(s) : 0;
		if (s && space[level] > 0) {
			space[level]--;
			ready++;
		} else if (s) {
			hidden |= 1U << level;
			p[i].revents = 0;
		}
	}
	for (unsigned level = 0; is_last && level < SY_PRIORITIES; level++) {
		bool is_passed = hidden >> level & 1 && level != due;
		if (levels >> level & 1)
			level_passed[level] = is_passed ? level_passed[level] + 1 : 0;
	}
	return ready;
}

/* Stores which sockets of the stack are ready. is_last: the wait returns the result, if one is.
 * Locked. */
static int stack_check(struct pollfd *p, nfds_t count, bool is_last)
{
	struct sock *other = NULL;
	int ready = 0;

	for (nfds_t i = 0; i < count; i++) {
		struct sock *s = table_sock(p[i].fd);
		if (!s)
			continue;
		if (other && other != s)
			s->looped = other->looped = true;
		other = s;
		p[i].revents = poll_bits(sock_ready(s)) & (p[i].events | POLLERR | POLLHUP);
		ready += p[i].revents != 0;
	}
	return ready > 0 && runner.sorted ? levels_sort(p, count, is_last) : ready;
}

/* Copies the descriptors that the kernel polls: its own, and listeners. Returns how many these
 * are. */
static nfds_t kernel_fill(struct pollfd *to, const struct pollfd *p, nfds_t count)
{
	nfds_t kernels = 0;

	for (nfds_t i = 0; i < count; i++) {
		to[i] = p[i];
		to[i].revents = 0;
		if (table_connection(p[i].fd))
			to[i].fd = -1;
		kernels += to[i].fd >= 0;
	}
	return kernels;
}

static int merge(struct pollfd *p, const struct pollfd *kernel, nfds_t count)
{
	int ready = 0;

	for (nfds_t i = 0; i < count; i++) {
		if (kernel[i].fd >= 0)
			p[i].revents = kernel[i].revents | (table_sock(p[i].fd) ? p[i].revents : 0);
		else if (p[i].fd < 0)
			p[i].revents = 0; /* ignored, as poll(2) does */
		ready += p[i].revents != 0;
	}
	return ready;
}

static struct sock *sock_of(int fd)
{
	struct sock *s = table_sock(fd);
	return s ? s : table_plain(fd); /* another thread may connect it */
}

static int poll_enter(struct wait *wait, const struct pollfd *p, nfds_t count)
{
	unsigned socks = 0;

	for (nfds_t i = 0; i < count; i++)
		socks += sock_of(p[i].fd) != NULL;
	int rc = wait_enter(wait, socks);
	for (nfds_t i = 0; i < count && !rc; i++) {
		struct sock *s = sock_of(p[i].fd);
		if (s)
			wait_link(wait, &s->o, false);
	}
	return rc;
}

/* Polls the kernel's descriptors, without the lock, as handlers may run. */
static int kernel_poll(struct pollfd *kernel, nfds_t count, const struct signals *signals)
{
	const struct timespec none = {0};

	runner_unlock();
	int rc = REAL(ppoll)(kernel + WAIT_OWN, count, &none, signals_sleep_mask(signals)),
	    code = errno;
	runner_lock();
	return rc < 0 ? -code : rc;
}

static int poll_sleep(struct wait *wait, const struct pollfd *p, nfds_t count,
                      struct pollfd *kernel, nfds_t kernels, uint64_t deadline,
                      struct signals *signals)
{
	int rc = wait->waiter ? 0 : poll_enter(wait, p, count);

	return rc ? rc : wait_sleep(wait, kernel, WAIT_OWN + kernels, deadline, signals);
}

/* Locked. */
static int poll_wait(struct pollfd *p, nfds_t count, struct pollfd *kernel, uint64_t deadline,
                     struct signals *signals)
{
	struct wait wait = {0};
	int ready, rc;

	do {
		ready = wait_posted(&wait) ? stack_check(p, count, false) : 0;
		if (!ready) {
			runner_poll();
			ready = stack_check(p, count, false);
		}
		nfds_t kernels = kernel_fill(kernel + WAIT_OWN, p, count);
		if (ready || is_past(deadline))
			rc = kernel_poll(kernel, count, signals);
		else
			rc = poll_sleep(&wait, p, count, kernel, kernels ? count : 0, deadline,
			                signals);
		if (rc < 0 && !ready)
			break;
		rc = 0;
		if (!ready && !wait_posted(&wait))
			runner_poll();
		stack_check(p, count, true);
		ready = merge(p, kernel + WAIT_OWN, count);
	} while (!ready && !is_past(deadline));
	wait_leave(&wait);
	return rc < 0 ? rc : ready;
}

/* Prepares epoll instances with sockets of the stack, whose descriptors a program waits for. */
static void sets_nest(const struct pollfd *p, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++)
		if (table_set(p[i].fd))
			set_nest(p[i].fd, -1);
}

static bool has_stack(const struct pollfd *p, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++)
		if (table_sock(p[i].fd))
			return true;
	return false;
}

/* Returns whether this process has a stack to wait for. Locked. */
static bool poll_start(const struct pollfd *p, nfds_t count, struct signals *signals)
{
	for (nfds_t i = 0; i < count && !runner.stack; i++) {
		struct sock *s = table_sock(p[i].fd);
		if (s && s->o.kind == OBJECT_LISTENER)
			s->used = runner.wanted = true;
	}
	if (runner_starts())
		signals_block(signals);
	if (runner_start())
		return false;
	for (nfds_t i = 0; i < count; i++) {
		struct sock *s = table_sock(p[i].fd);
		if (s && s->o.kind == OBJECT_LISTENER)
			runner_listen(s);
	}
	return true;
}

static int poll_any(struct pollfd *p, nfds_t count, const struct timespec *timeout,
                    const sigset_t *mask)
{
	struct pollfd on_stack[64], *kernel = on_stack;
	nfds_t entries = count + WAIT_OWN;
	struct signals signals = {.requested = mask};
	uint64_t deadline = NEVER;
	int rc;

	if (count > 0 && !is_user_memory(p))
		return REAL(ppoll)(p, count, timeout, mask);
	sets_nest(p, count);
	if (!has_stack(p, count))
		return REAL(ppoll)(p, count, timeout, mask);
	pthread_testcancel();
	if (!runner_lock())
		return REAL(ppoll)(p, count, timeout, mask);
	if (timeout)
		deadline = sy_clock_ns() + (uint64_t)timeout->tv_sec * 1000000000 +
		           (uint64_t)timeout->tv_nsec;
	while (!poll_start(p, count, &signals)) {
		uint64_t retry_ns = runner_patience_ns(), now = sy_clock_ns();
		uint64_t left = deadline == NEVER ? NEVER : deadline > now ? deadline - now : 0;
		bool retries = retry_ns < left;
		runner_unlock();
		left = retries ? retry_ns : left;
		struct timespec t = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
		rc = REAL(ppoll)(p, count, left == NEVER ? NULL : &t, signals_sleep_mask(&signals));
		if (rc || !retries || !runner_lock()) {
			signals_restore(&signals);
			return rc;
		}
	}
	if (entries > sizeof(on_stack) / sizeof(*on_stack))
		kernel = wait_polled(entries);
	rc = kernel ? poll_wait(p, count, kernel, deadline, &signals) : -ENOMEM;
	runner_unlock();
	signals_restore(&signals);
	return (int)result(rc);
}

PRELOAD_EXPORT int poll(struct pollfd *p, nfds_t count, int timeout)
{
	struct timespec t = {timeout / 1000, timeout % 1000 * 1000000};

	return poll_any(p, count, timeout < 0 ? NULL : &t, NULL);
}

PRELOAD_EXPORT int ppoll(struct pollfd *p, nfds_t count, const struct timespec *timeout,
                         const sigset_t *mask)
{
	return poll_any(p, count, timeout, mask);
}

PRELOAD_EXPORT int __poll_chk(struct pollfd *p, nfds_t count, int timeout, size_t space);
int __poll_chk(struct pollfd *p, nfds_t count, int timeout, size_t space)
{
	if (space / sizeof(*p) < count)
		abort();
	return poll(p, count, timeout);
}

PRELOAD_EXPORT int __ppoll_chk(struct pollfd *p, nfds_t count, const struct timespec *timeout,
                               const sigset_t *mask, size_t space);
int __ppoll_chk(struct pollfd *p, nfds_t count, const struct timespec *timeout,
                const sigset_t *mask, size_t space)
{
	if (space / sizeof(*p) < count)
		abort();
	return ppoll(p, count, timeout, mask);
}

/* ---- select ---------------------------------------------------------------------------------- */

static bool set_has(const fd_set *set, int fd)
{
	return set && FD_ISSET(fd, set);
}

static nfds_t select_read(struct pollfd *p, int count, const fd_set *in, const fd_set *out,
                          const fd_set *urgent)
{
	nfds_t n = 0;

	for (int fd = 0; fd < count; fd++) {
		short events =
		        (short)((set_has(in, fd) ? POLLIN : 0) | (set_has(out, fd) ? POLLOUT : 0) |
		                (set_has(urgent, fd) ? POLLPRI : 0));
		if (events)
			p[n++] = (struct pollfd){.fd = fd, .events = events};
	}
	return n;
}

static int select_write(const struct pollfd *p, nfds_t count, fd_set *in, fd_set *out,
                        fd_set *urgent)
{
	int ready = 0;

	for (nfds_t i = 0; i < count; i++) {
		struct {
			fd_set *set;
			short when;
		} side[] = {{in, POLLIN | POLLHUP | POLLERR | POLLRDHUP},
		            {out, POLLOUT | POLLERR},
		            {urgent, POLLPRI}};
		for (unsigned k = 0; k < 3; k++) {
			if (!set_has(side[k].set, p[i].fd))
				continue;
			if (p[i].revents & side[k].when)
				ready++;
			else
				FD_CLR(p[i].fd, side[k].set);
		}
	}
	return ready;
}

static int select_any(int count, fd_set *in, fd_set *out, fd_set *urgent,
                      const struct timespec *timeout, const sigset_t *mask)
{
	struct pollfd p[FD_SETSIZE];
	nfds_t n = select_read(p, count, in, out, urgent);
	int rc = poll_any(p, n, timeout, mask);

	if (rc < 0)
		return rc;
	for (nfds_t i = 0; i < n; i++)
		if (p[i].revents & POLLNVAL)
			return (int)result(-EBADF);
	return select_write(p, n, in, out, urgent);
}

static bool select_has_stack(int count, const fd_set *in, const fd_set *out, const fd_set *urgent)
{
	for (int fd = 0; fd < count && fd < FD_SETSIZE; fd++)
		if ((table_sock(fd) || table_set(fd)) &&
		    (set_has(in, fd) || set_has(out, fd) || set_has(urgent, fd)))
			return true;
	return false;
}

PRELOAD_EXPORT int pselect(int count, fd_set *in, fd_set *out, fd_set *urgent,
                           const struct timespec *timeout, const sigset_t *mask)
{
	if (!all_socks || count > FD_SETSIZE || !select_has_stack(count, in, out, urgent))
		return REAL(pselect)(count, in, out, urgent, timeout, mask);
	return select_any(count, in, out, urgent, timeout, mask);
}

/* Linux stores the remaining time. */
PRELOAD_EXPORT int select(int count, fd_set *in, fd_set *out, fd_set *urgent,
                          struct timeval *timeout)
{
	if (!all_socks || count > FD_SETSIZE || !select_has_stack(count, in, out, urgent))
		return REAL(select)(count, in, out, urgent, timeout);
	uint64_t begun = sy_clock_ns();
	struct timespec t = {0};
	if (timeout)
		t = (struct timespec){timeout->tv_sec, timeout->tv_usec * 1000};
	int rc = select_any(count, in, out, urgent, timeout ? &t : NULL, NULL), code = errno;
	if (timeout) {
		uint64_t all = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
		uint64_t spent = sy_clock_ns() - begun, left = spent < all ? all - spent : 0;
		*timeout = (struct timeval){(time_t)(left / 1000000000),
		                            (suseconds_t)(left % 1000000000 / 1000)};
	}
	errno = code;
	return rc;
}
