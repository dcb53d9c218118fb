// SPDX-License-Identifier: Apache-2.0
/* Waiting at an epoll instance, for the stack's and the kernel's descriptors. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "epoll_set.h"
#include "real.h"

#define KERNEL_NS    (1 * MS) /* how often a busy stack polls the kernel's descriptors */
#define LEVEL_PASSED 16       /* after so many waits, a passed-over level returns an event */

/* Stores events of one level. Returns how many. */
static int level_collect(struct watch_level *q, struct epoll_event *out, int max)
{
	struct watch *end = q->last, *next;
	int n = 0;

	for (struct watch *w = q->first; w && n < max; w = next) {
		bool is_last = w == end;
		uint32_t ready = sock_ready(w->sock) & (w->events | EPOLLERR | EPOLLHUP);

		next = is_last ? NULL : w->after;
		if (ready && sock_level(w->sock) > w->level) { /* its urgent bytes have been read */
			watch_queue(w);
			continue;
		}
		watch_unqueue(w);
		if (!ready ||
		    !(w->events & ~(EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP)))
			continue;
		out[n++] = (struct epoll_event){.events = ready, .data = w->data};
		if (w->events & EPOLLONESHOT)
			w->events &= EPOLLET | EPOLLONESHOT;
		else if (!(w->events & EPOLLET))
			watch_queue(w);
	}
	return n;
}

/* Stores one event of a level that LEVEL_PASSED waits have passed over, if there is one. Then
 * stores the events of the most urgent level, but only one if that level is less urgent than usual:
 * the next wait may find a more urgent one. */
static int set_collect(struct set *set, struct epoll_event *out, int max)
{
	unsigned first = SY_PRIORITIES;
	int n = 0;

	if (!runner.sorted)
		return level_collect(&set->level[SY_USUAL], out, max);
	for (unsigned level = 1; level < SY_PRIORITIES && n == 0; level++) {
		struct watch_level *q = &set->level[level];
		if (q->passed < LEVEL_PASSED)
			continue;
		q->passed = 0;
		n = level_collect(q, out, 1);
	}
	for (unsigned level = 0; level < SY_PRIORITIES && first == SY_PRIORITIES; level++) {
		int space = level > SY_USUAL && max - n > 1 ? 1 : max - n;
		int more = level_collect(&set->level[level], out + n, space);
		if (more > 0)
			first = level;
		n += more;
	}
	if (first < SY_PRIORITIES)
		set->level[first].passed = 0;
	for (unsigned level = first + 1; level < SY_PRIORITIES; level++)
		set->level[level].passed += set->level[level].first != NULL;
	return n;
}

/* Removes the events of the library's own descriptors. */
static int events_filter(struct epoll_event *e, int count)
{
	int kept = 0;

	for (int i = 0; i < count; i++)
		if (e[i].data.ptr != &own_mark)
			e[kept++] = e[i];
	return kept;
}

/* Stores the events that the kernel has now. */
static int kernel_poll(struct set *set, struct epoll_event *e, int max)
{
	int n = max > 0 ? REAL(epoll_pwait)(set->fd, e, max, 0, NULL) : 0;

	set->kernel_ns = sy_clock_ns();
	return n < 0 ? 0 : events_filter(e, n);
}

/* Sleeps until something may be ready. Returns how many events the kernel has, -EINTR, or -EBADF:
 * the set is closed and freed. Locked. */
static int set_sleep(struct set *set, struct wait *wait, struct epoll_event *e, int max,
                     uint64_t deadline, struct signals *signals)
{
	struct pollfd p[WAIT_OWN + 1] = {[WAIT_OWN] = {.fd = set->fd, .events = POLLIN}};
	int epfd = set->fd, rc;

	if (!wait->waiter) {
		rc = wait_enter(wait, 1);
		if (rc)
			return rc;
		wait_link(wait, &set->o, true);
	}
	rc = wait_sleep(wait, p, WAIT_OWN + 1, deadline, signals);
	if (wait_is_over(wait)) {
		*wait = (struct wait){0};
		return table_set(epfd) == set ? -EINTR : -EBADF;
	}
	if (wait_gone(wait, 0))
		return -EBADF;
	return rc < 0 ? rc : p[WAIT_OWN].revents ? kernel_poll(set, e, max) : 0;
}

/* Stores the stack's events, and at times the kernel's. */
static int set_check(struct set *set, struct epoll_event *e, int max)
{
	int n = set_collect(set, e, max);

	if (n > 0 && n < max && sy_clock_ns() - set->kernel_ns > KERNEL_NS)
		n += kernel_poll(set, e + n, max - n);
	return n;
}

static int set_poll(struct set *set, struct epoll_event *e, int max)
{
	runner_poll();
	return set_check(set, e, max);
}

/* Ends the wait, and notifies other threads of the events that are left. */
static void set_leave(struct set *set, struct wait *wait)
{
	bool more_left = false;
	uint64_t count;

	wait_leave(wait);
	for (unsigned i = 0; i < SY_PRIORITIES; i++)
		more_left |= set->level[i].first != NULL;
	if (set->wakeup >= 0 && !more_left)
		REAL(read)(set->wakeup, &count, sizeof(count));
	if (more_left && set->o.links)
		object_notify(&set->o);
}

static int set_wait(struct set *set, struct epoll_event *e, int max, uint64_t deadline,
                    struct signals *signals)
{
	struct wait wait = {0};
	int n = set_poll(set, e, max);
	bool is_last = n == 0 && !signals->requested && is_past(deadline);

	if (is_last)
		n = kernel_poll(set, e, max);
	while (n == 0 && !is_last) {
		is_last = is_past(deadline);
		n = set_sleep(set, &wait, e, max, deadline, signals);
		if (n > 0 && n < max) /* these are the kernel's: adds the stack's */
			n += set_collect(set, e + n, max - n);
		if (n == 0 && wait_posted(&wait))
			n = set_check(set, e, max);
		if (n == 0)
			n = set_poll(set, e, max);
	}
	if (n != -EBADF)
		set_leave(set, &wait);
	return (int)result(n);
}

static int kernel_wait(int epfd, struct epoll_event *e, int max, uint64_t timeout_ns,
                       struct signals *signals)
{
	uint64_t ms = timeout_ns / MS + (timeout_ns % MS != 0);

	return signals_epoll(signals, epfd, e, max,
	                     timeout_ns == NEVER ? -1
	                     : ms > INT32_MAX    ? INT32_MAX
	                                         : (int)ms);
}

/* Returns whether a process without a stack waits for new connections with this set, which may be
 * its parent's. Called without the lock. */
static bool set_listens(int epfd)
{
	if (!runner_lock())
		return false;
	const struct set *set = table_set(epfd);
	for (struct sock *s = set ? all_socks : NULL; s; s = s->next)
		for (struct watch *w = s->watches; w; w = w->next)
			if (w->set == set && s->o.kind == OBJECT_LISTENER)
				runner_listen(s);
	runner_unlock();
	return runner.wanted;
}

static int wait_user(int epfd, struct epoll_event *e, int max, uint64_t timeout_ns,
                     const sigset_t *mask)
{
	struct set *set = table_set(epfd);
	bool is_stack = set && max > 0 && (runner.stack || runner.wanted || set_listens(epfd));
	struct signals signals = {.requested = mask};
	uint64_t deadline = is_stack && timeout_ns != NEVER ? sy_clock_ns() + timeout_ns : NEVER;
	int n;

	if (is_stack)
		pthread_testcancel();
	for (;;) {
		uint64_t retry_ns = NEVER;
		if (is_stack && runner_lock()) {
			set = table_set(epfd); /* another thread may have closed it */
			if (set && runner_starts())
				signals_block(&signals);
			if (set && runner_start() == 0) {
				n = set_wait(set, e, max, deadline, &signals);
				int code = errno;
				runner_unlock();
				errno = code;
				break;
			}
			retry_ns = runner_patience_ns();
			runner_unlock();
		}
		uint64_t left = timeout_ns;
		if (deadline != NEVER) {
			uint64_t now = sy_clock_ns();
			left = deadline > now ? deadline - now : 0;
		}
		bool retries = retry_ns < left;
		n = kernel_wait(epfd, e, max, retries ? retry_ns : left, &signals);
		if (n || !is_stack || is_past(deadline))
			break;
	}
	signals_restore(&signals);
	return n;
}

/* Linux accesses the memory only when it has an event to store. */
static int wait_any(int epfd, struct epoll_event *e, int max, uint64_t timeout_ns,
                    const sigset_t *mask)
{
	struct epoll_event one;

	if (is_user_memory(e) || max <= 0)
		return wait_user(epfd, e, max, timeout_ns, mask);
	int n = wait_user(epfd, &one, 1, timeout_ns, mask);
	return n > 0 ? (int)result(-EFAULT) : n;
}

PRELOAD_EXPORT int epoll_wait(int epfd, struct epoll_event *e, int max, int timeout)
{
	return wait_any(epfd, e, max, timeout < 0 ? NEVER : (uint64_t)timeout * MS, NULL);
}

PRELOAD_EXPORT int epoll_pwait(int epfd, struct epoll_event *e, int max, int timeout,
                               const sigset_t *mask)
{
	return wait_any(epfd, e, max, timeout < 0 ? NEVER : (uint64_t)timeout * MS, mask);
}

PRELOAD_EXPORT int epoll_pwait2(int epfd, struct epoll_event *e, int max,
                                const struct timespec *timeout, const sigset_t *mask)
{
	return wait_any(epfd, e, max,
	                timeout ? (uint64_t)timeout->tv_sec * 1000000000 +
	                                  (uint64_t)timeout->tv_nsec
	                        : NEVER,
	                mask);
}
