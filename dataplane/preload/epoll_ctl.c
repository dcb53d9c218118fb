// SPDX-License-Identifier: Apache-2.0
/*
 * Readiness, and epoll over both kinds. An epoll instance keeps its descriptor in the kernel, which
 * looks at the kernel's sockets, at a listener's kernel side, and at the stack's queues; a set
 * beside it keeps what the stack's sockets tell.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>

#include "preload.h"
#include "real.h"

#define KERNEL_NS    (1 * MS) /* a busy stack looks at the kernel's descriptors so often */
#define LEVEL_PASSED 16       /* waits, before a level that others have passed gets its turn */
#define READ_SIDE    (EPOLLIN | EPOLLRDNORM)
#define WRITE_SIDE   (EPOLLOUT | EPOLLWRNORM)

struct watch {
	struct sock *sock;
	struct set *set;
	int fd;
	bool queued;
	uint8_t level; /* the queue that it is in */
	uint32_t events;
	epoll_data_t data;
	struct watch *next;           /* of the socket */
	struct watch *after, *before; /* in the queue */
};

/* Those of one level that may be ready. Without hooks all are of SY_USUAL. */
struct queue {
	struct watch *first, *last;
	unsigned passed; /* waits that gave something else while it had some */
};

struct set {
	struct object o;
	int fd;
	struct queue queue[SY_PRIORITIES];
	uint64_t kernel_ns; /* when the kernel was asked */
	int wakeup;         /* nested: readable while a watch may be ready; -1: not nested */
	struct set *next;
};

static struct set *all_sets;
static char mark; /* its address: the library's own descriptors in a program's epoll instance */

/* ---- what holds now -------------------------------------------------------------------------- */

uint32_t sock_ready(struct sock *s)
{
	uint32_t now = 0, out = 0;

	if (runner.stack && s->id != SY_STACK_NONE)
		now = sy_stack_ready(runner.stack, s->id);
	if (s->o.kind == OBJECT_PLAIN)
		return 0;
	if (s->o.kind == OBJECT_LISTENER) {
		if (runner.stack && s->id_v4 != SY_STACK_NONE)
			now |= sy_stack_ready(runner.stack, s->id_v4);
		return now & SY_STACK_READABLE ? READ_SIDE : 0;
	}
	if (s->id == SY_STACK_NONE)
		return EPOLLHUP | WRITE_SIDE;
	if (now & SY_STACK_READABLE)
		out |= READ_SIDE;
	if (now & SY_STACK_WRITABLE)
		out |= WRITE_SIDE;
	if (now & SY_STACK_PEER_DONE)
		out |= READ_SIDE | EPOLLRDHUP;
	if (now & SY_STACK_HANG_UP)
		out |= READ_SIDE | WRITE_SIDE | EPOLLRDHUP | EPOLLHUP;
	if (now & SY_STACK_ERROR)
		out |= READ_SIDE | WRITE_SIDE | EPOLLERR;
	if (now & SY_STACK_URGENT)
		out |= EPOLLPRI;
	if (s->read_shut)
		out |= READ_SIDE | EPOLLRDHUP;
	if (s->write_shut)
		out |= WRITE_SIDE;
	if (s->write_shut && out & EPOLLRDHUP) /* both sides have ended */
		out |= EPOLLHUP;
	return out;
}

unsigned sock_level(const struct sock *s)
{
	return runner.sorted && s->id != SY_STACK_NONE ? sy_stack_level(runner.stack, s->id)
	                                               : SY_USUAL;
}

static void watch_unqueue(struct watch *w)
{
	struct queue *q = &w->set->queue[w->level];

	if (!w->queued)
		return;
	w->queued = false;
	if (w->before)
		w->before->after = w->after;
	else
		q->first = w->after;
	if (w->after)
		w->after->before = w->before;
	else
		q->last = w->before;
}

/* Behind the others of its level, which may have changed. */
static void watch_queue(struct watch *w)
{
	unsigned level = sock_level(w->sock);
	struct queue *q = &w->set->queue[level];

	if (w->queued && w->level == level)
		return;
	watch_unqueue(w);
	w->queued = true;
	w->level = (uint8_t)level;
	w->after = NULL;
	w->before = q->last;
	if (q->last)
		q->last->after = w;
	else
		q->first = w;
	q->last = w;
}

/* Wakes a thread that waits for the set, or for one in which it is. */
static void set_notify(struct set *set)
{
	uint64_t one = 1;

	object_notify(&set->o);
	if (set->wakeup >= 0)
		REAL(write)(set->wakeup, &one, sizeof(one));
}

void sock_event(struct sock *s)
{
	if (s->relay)
		relay_queue(s->relay);
	for (struct watch *w = s->watches; w; w = w->next) {
		watch_queue(w);
		set_notify(w->set);
	}
	object_notify(&s->o);
}

/* ---- sets and watches ------------------------------------------------------------------------ */

static void set_add_own(const struct set *set, int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = &mark};

	if (fd >= 0)
		REAL(epoll_ctl)(set->fd, EPOLL_CTL_ADD, fd, &e);
}

void sets_started(void)
{
	for (struct set *set = all_sets; set; set = set->next)
		if (set->wakeup >= 0)
			set_add_own(set, wakeup_fd());
}

/* The threads that wait are the parent's. */
void sets_forked(void)
{
	for (struct set *set = all_sets; set; set = set->next) {
		set->o.links = NULL;
		table_disown(set->wakeup);
		set->wakeup = -1;
	}
}

static struct set *set_make(int fd)
{
	struct set *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	set->o.kind = OBJECT_EPOLL;
	set->fd = fd;
	set->wakeup = -1;
	set->next = all_sets;
	all_sets = set;
	table_put(fd, &set->o);
	return set;
}

/* Not locked. Is it an epoll instance of the program's, of which nothing is known yet? */
static bool is_instance(int fd, int other)
{
	struct epoll_event none = {0};
	int code = errno;
	bool is = supervisor_config() && !table_get(fd) &&
	          REAL(epoll_ctl)(fd, EPOLL_CTL_DEL, other, &none) && errno == ENOENT;

	errno = code;
	return is;
}

/* Another epoll instance, or poll(), waits for this one's descriptor: the kernel wakes it for each
 * packet, and then it looks. */
void set_nest(int fd, int outer)
{
	bool fresh = outer >= 0 && is_instance(fd, outer);

	if ((!fresh && !table_set(fd)) || !runner_lock())
		return;
	struct set *set = table_set(fd);
	if (!set && fresh)
		set = set_make(fd);
	if (set && set->wakeup < 0) {
		set->wakeup = table_own(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
		set_add_own(set, set->wakeup);
		set_add_own(set, wakeup_fd());
	}
	runner_unlock();
}

static void watch_end(struct watch *w)
{
	struct watch **at = &w->sock->watches;

	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	watch_unqueue(w);
	free(w);
}

void watches_end(struct sock *s)
{
	while (s->watches)
		watch_end(s->watches);
}

bool watches_sleep(const struct sock *s)
{
	for (const struct watch *w = s->watches; w; w = w->next)
		if (w->set->o.links)
			return true;
	return false;
}

void watches_to_stack(struct sock *s)
{
	struct epoll_event none = {0};

	for (struct watch *w = s->watches; w; w = w->next) {
		REAL(epoll_ctl)(w->set->fd, EPOLL_CTL_DEL, w->fd, &none);
		watch_queue(w);
		set_notify(w->set);
	}
}

void watches_to_kernel(struct sock *s)
{
	for (struct watch *w = s->watches; w; w = w->next) {
		struct epoll_event e = {.events = w->events, .data = w->data};
		REAL(epoll_ctl)(w->set->fd, EPOLL_CTL_ADD, w->fd, &e);
	}
}

void watches_relay(struct sock *s)
{
	watches_to_kernel(s);
	watches_end(s);
}

void set_end(struct set *set)
{
	struct set **at = &all_sets;

	for (struct sock *s = all_socks; s; s = s->next) {
		struct watch *next;
		for (struct watch *w = s->watches; w; w = next) {
			next = w->next;
			if (w->set == set)
				watch_end(w);
		}
	}
	while (*at != set)
		at = &(*at)->next;
	*at = set->next;
	table_disown(set->wakeup);
	free(set);
}

static struct watch *watch_find(struct sock *s, const struct set *set, int fd)
{
	struct watch *w = s->watches;

	while (w && (w->set != set || w->fd != fd))
		w = w->next;
	return w;
}

static int watch_add(struct sock *s, struct set *set, int fd, const struct epoll_event *e)
{
	struct watch *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	*w = (struct watch){.sock = s, .set = set, .fd = fd, .events = e->events, .data = e->data};
	w->next = s->watches;
	s->watches = w;
	watch_queue(w); /* the next wait looks whether it is ready */
	set_notify(set);
	return 0;
}

static int watch_change(struct sock *s, struct set *set, int command, int fd,
                        const struct epoll_event *e)
{
	struct watch *w = set ? watch_find(s, set, fd) : NULL;

	if (command == EPOLL_CTL_ADD && w)
		return -EEXIST;
	if (command != EPOLL_CTL_ADD && !w)
		return -ENOENT;
	if (command == EPOLL_CTL_ADD)
		return watch_add(s, set, fd, e);
	if (command == EPOLL_CTL_DEL) {
		watch_end(w);
		return 0;
	}
	w->events = e->events;
	w->data = e->data;
	watch_queue(w);
	set_notify(set);
	return 0;
}

PRELOAD_EXPORT int epoll_ctl(int epfd, int command, int fd, struct epoll_event *e)
{
	struct sock *s = table_sock(fd), *plain = table_plain(fd);
	struct set *set;
	int rc;

	if (!s && !plain && command == EPOLL_CTL_ADD)
		set_nest(fd, epfd);
	if ((!s && !plain) ||
	    (command != EPOLL_CTL_ADD && command != EPOLL_CTL_MOD && command != EPOLL_CTL_DEL))
		return REAL(epoll_ctl)(epfd, command, fd, e);
	s = s ? s : plain;
	if (command != EPOLL_CTL_DEL && !is_user_memory(e))
		return (int)result(-EFAULT);
	if (s->o.kind != OBJECT_CONNECTION) {
		rc = REAL(epoll_ctl)(epfd, command, fd, e);
	} else { /* the kernel says whether epfd is one: its number there is never in a set */
		struct epoll_event none = {0};
		rc = table_set(epfd) ? 0 : REAL(epoll_ctl)(epfd, EPOLL_CTL_DEL, fd, &none);
		rc = rc && errno == ENOENT ? 0 : rc;
	}
	if (rc || !runner_lock())
		return rc;
	s = table_sock(fd);
	s = s ? s : table_plain(fd);
	if (!s) { /* another thread has closed it */
		runner_unlock();
		return (int)result(-EBADF);
	}
	set = table_set(epfd);
	if (!set && command == EPOLL_CTL_ADD)
		set = set_make(epfd);
	rc = watch_change(s, set, command, fd, e);
	if (s->o.kind == OBJECT_LISTENER && command != EPOLL_CTL_DEL)
		runner_listen(s);
	runner_unlock();
	return (int)result(rc);
}

/* ---- waiting --------------------------------------------------------------------------------- */

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
		if (e[i].data.ptr != &mark)
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
