// SPDX-License-Identifier: Apache-2.0
/* Waiting at an epoll instance, for the stack's and the kernel's descriptors. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "epoll_set.h"
#include "real.h"

#define KERNEL_NS    (1 * MS) /* a busy stack looks at the kernel's descriptors so often */
#define LEVEL_PASSED 16       /* waits, before a level that others have passed gets its turn */

/* Events of one queue. */
static int queue_collect(struct queue *q, struct epoll_event *out, int max)
{
	struct watch *end = q->last, *next;
	int n = 0;

	for (struct watch *w = q->first; w && n < max; w = next) {
		bool last = w == end;
		uint32_t ready = sock_ready(w->sock) & (w->events | EPOLLERR | EPOLLHUP);

		next = last ? NULL : w->after;
		if (ready && sock_level(w->sock) > w->level) { /* what was urgent has been read */
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

/* A level that was passed over for long gives one event, then the most urgent level all, of those
 * that are less urgent than usual one: the next wait then looks for what is more urgent. */
static int set_collect(struct set *set, struct epoll_event *out, int max)
{
	unsigned given = SY_PRIORITIES;
	int n = 0;

	if (!runner.sorted)
		return queue_collect(&set->queue[SY_USUAL], out, max);
	for (unsigned level = 1; level < SY_PRIORITIES && n == 0; level++) {
		struct queue *q = &set->queue[level];
		if (q->passed < LEVEL_PASSED)
			continue;
		q->passed = 0;
		n = queue_collect(q, out, 1);
	}
	for (unsigned level = 0; level < SY_PRIORITIES && given == SY_PRIORITIES; level++) {
		int space = level > SY_USUAL && max - n > 1 ? 1 : max - n;
		int more = queue_collect(&set->queue[level], out + n, space);
		if (more > 0)
			given = level;
		n += more;
	}
	for (unsigned level = given + 1; level < SY_PRIORITIES; level++)
		set->queue[level].passed += set->queue[level].first != NULL;
	return n;
}

/* Without what tells of the library's own descriptors. */
static int events_filter(struct epoll_event *e, int count)
{
	int kept = 0;

	for (int i = 0; i < count; i++)
		if (e[i].data.ptr != &own_mark)
			e[kept++] = e[i];
	return kept;
}

/* What the kernel has now. */
static int kernel_poll(struct set *set, struct epoll_event *e, int max)
{
	int n = max > 0 ? REAL(epoll_pwait)(set->fd, e, max, 0, NULL) : 0;

	set->kernel_ns = sy_clock_ns();
	return n < 0 ? 0 : events_filter(e, n);
}

/* Locked. Sleeps until there may be something. Returns how many events the kernel has, or -EINTR,
 * or -EBADF: the set is closed, and not to be touched. */
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

/* What is ready in the stack, and of the kernel's now and then. */
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

/* Of what this thread leaves, others are notified. */
static void set_leave(struct set *set, struct wait *wait)
{
	bool left = false;
	uint64_t count;

	wait_leave(wait);
	for (unsigned i = 0; i < SY_PRIORITIES; i++)
		left |= set->queue[i].first != NULL;
	if (set->wakeup >= 0 && !left)
		REAL(read)(set->wakeup, &count, sizeof(count));
	if (left && set->o.links)
		object_notify(&set->o);
}

static int set_wait(struct set *set, struct epoll_event *e, int max, uint64_t deadline,
                    struct signals *signals)
{
	struct wait wait = {0};
	int n = set_poll(set, e, max);
	bool last = n == 0 && !signals->requested && is_past(deadline);

	if (last)
		n = kernel_poll(set, e, max);
	while (n == 0 && !last) {
		last = is_past(deadline);
		n = set_sleep(set, &wait, e, max, deadline, signals);
		if (n > 0 && n < max) /* so far those of the kernel alone */
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

/* Not locked. A process without a stack waits with a set, which may be its parent's: for new
 * connections? */
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
	bool ours = set && max > 0 && (runner.stack || runner.wanted || set_listens(epfd));
	struct signals signals = {.requested = mask};
	uint64_t deadline = ours && timeout_ns != NEVER ? sy_clock_ns() + timeout_ns : NEVER;
	int n;

	if (ours)
		pthread_testcancel();
	for (;;) {
		uint64_t patience = NEVER;
		if (ours && runner_lock()) {
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
			patience = runner_patience_ns();
			runner_unlock();
		}
		uint64_t left = timeout_ns;
		if (deadline != NEVER) {
			uint64_t now = sy_clock_ns();
			left = deadline > now ? deadline - now : 0;
		}
		bool again = patience < left;
		n = kernel_wait(epfd, e, max, again ? patience : left, &signals);
		if (n || !ours || is_past(deadline))
			break;
	}
	signals_restore(&signals);
	return n;
}

/* Linux looks at the memory once it has an event to write. */
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
