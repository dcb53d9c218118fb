// SPDX-License-Identifier: Apache-2.0
/*
 * Readiness, and epoll over both kinds. An epoll instance keeps its descriptor in the kernel, which
 * looks at the kernel's sockets, at a listener's kernel side, and at the stack's queues; a set
 * beside it keeps what the stack's sockets tell.
 */
#include <errno.h>
#include <stdlib.h>
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

void sock_event(struct sock *s)
{
	for (struct watch *w = s->watches; w; w = w->next)
		watch_queue(w);
}

/* ---- sets and watches ------------------------------------------------------------------------ */

static void set_watch_own(struct set *set)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = &mark};

	for (unsigned i = 0; i < runner.rx; i++)
		REAL(epoll_ctl)(set->fd, EPOLL_CTL_ADD, runner.fd[i], &e);
	REAL(epoll_ctl)(set->fd, EPOLL_CTL_ADD, runner.wake, &e);
}

void sets_started(void)
{
	for (struct set *set = all_sets; set; set = set->next)
		if (set->o.refs)
			set_watch_own(set);
}

void sets_unwatch(int fd)
{
	for (struct set *set = all_sets; set; set = set->next)
		if (set->o.refs)
			REAL(epoll_ctl)(set->fd, EPOLL_CTL_DEL, fd, NULL);
}

/* The threads that wait are the parent's. */
void sets_forked(void)
{
	for (struct set *set = all_sets; set; set = set->next)
		set->o.waits = 0;
}

static struct set *set_make(int fd)
{
	struct set *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	set->o.kind = OBJECT_EPOLL;
	set->fd = fd;
	set->next = all_sets;
	all_sets = set;
	table_put(fd, &set->o);
	if (runner.stack)
		set_watch_own(set);
	return set;
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

void watches_take(struct sock *s)
{
	struct epoll_event none = {0};

	for (struct watch *w = s->watches; w; w = w->next) {
		REAL(epoll_ctl)(w->set->fd, EPOLL_CTL_DEL, w->fd, &none);
		watch_queue(w);
	}
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
	return 0;
}

PRELOAD_EXPORT int epoll_ctl(int epfd, int command, int fd, struct epoll_event *e)
{
	struct sock *s = table_sock(fd), *plain = table_plain(fd);
	struct set *set;
	int rc;

	if (!s && !plain)
		return REAL(epoll_ctl)(epfd, command, fd, e);
	s = s ? s : plain;
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
static int queue_collect(struct queue *q, struct epoll_event *out, int most)
{
	struct watch *end = q->last, *next;
	int n = 0;

	for (struct watch *w = q->first; w && n < most; w = next) {
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
static int set_collect(struct set *set, struct epoll_event *out, int most)
{
	unsigned given = SY_PRIORITIES;
	int n = 0;

	if (!runner.sorted)
		return queue_collect(&set->queue[SY_USUAL], out, most);
	for (unsigned level = 1; level < SY_PRIORITIES && n == 0; level++) {
		struct queue *q = &set->queue[level];
		if (q->passed < LEVEL_PASSED)
			continue;
		q->passed = 0;
		n = queue_collect(q, out, 1);
	}
	for (unsigned level = 0; level < SY_PRIORITIES && given == SY_PRIORITIES; level++) {
		int room = level > SY_USUAL && most - n > 1 ? 1 : most - n;
		int more = queue_collect(&set->queue[level], out + n, room);
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

static bool is_done(uint64_t deadline)
{
	return deadline != NEVER && sy_clock_ns() >= deadline;
}

/* Locked. Sleeps in the kernel until there is something, there or here. EBADF: the set is closed,
 * and not to be touched. */
static int set_sleep(struct set *set, struct epoll_event *e, int most, uint64_t deadline,
                     struct signals *signals)
{
	uint64_t now = sy_clock_ns(), until = deadline < runner.due_ns ? deadline : runner.due_ns;
	int wait = -1, n = -1;

	if (runner.sleepers && (until == NEVER || until > now + 10 * MS))
		until = now + 10 * MS;
	if (until != NEVER) {
		uint64_t ms = until > now ? (until - now + MS - 1) / MS : 0;
		wait = ms > 3600000 ? 3600000 : (int)ms;
	}
	object_wait(&set->o);
	runner.sleepers++;
	runner_unlock();
	if (!signals_come(signals, wait != 0))
		n = signals_epoll(signals, set->fd, e, most, wait);
	int code = errno;
	runner_lock();
	runner_woken();
	if (!object_waited(&set->o))
		return (int)result(-EBADF);
	errno = code;
	set->kernel_ns = sy_clock_ns();
	return n < 0 ? n : events_filter(e, n);
}

static int set_wait(struct set *set, struct epoll_event *e, int most, uint64_t deadline,
                    struct signals *signals)
{
	for (;;) {
		int n, k = 0;

		runner_turn();
		n = set_collect(set, e, most);
		if (n > 0) {
			if (n < most && runner.now_ns - set->kernel_ns > KERNEL_NS) {
				k = REAL(epoll_pwait)(set->fd, e + n, most - n, 0,
				                      signals_admitted(signals));
				k = k < 0 ? 0 : events_filter(e + n, k);
				set->kernel_ns = runner.now_ns;
			}
			return n + k;
		}
		k = set_sleep(set, e, most, deadline, signals);
		if (k < 0)
			return k;
		if (k > 0) {
			runner_turn();
			return k + (k < most ? set_collect(set, e + k, most - k) : 0);
		}
		if (is_done(deadline)) {
			runner_turn();
			return set_collect(set, e, most);
		}
	}
}

static int kernel_wait(int epfd, struct epoll_event *e, int most, uint64_t timeout_ns,
                       struct signals *signals)
{
	uint64_t ms = timeout_ns / MS + (timeout_ns % MS != 0);

	return signals_epoll(signals, epfd, e, most,
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

static int wait_any(int epfd, struct epoll_event *e, int most, uint64_t timeout_ns,
                    const sigset_t *mask)
{
	struct set *set = table_set(epfd);
	bool ours = set && most > 0 && (runner.stack || runner.wanted || set_listens(epfd));
	struct signals signals = {.asked = mask};
	uint64_t deadline = ours && timeout_ns != NEVER ? sy_clock_ns() + timeout_ns : NEVER;
	int n;

	for (;;) {
		uint64_t patience = NEVER;
		if (ours && runner_lock()) {
			set = table_set(epfd); /* another thread may have closed it */
			if (set && runner_starts())
				signals_hold(&signals);
			if (set && runner_start() == 0) {
				n = set_wait(set, e, most, deadline, &signals);
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
		n = kernel_wait(epfd, e, most, again ? patience : left, &signals);
		if (n || !ours || is_done(deadline))
			break;
	}
	signals_release(&signals);
	return n;
}

PRELOAD_EXPORT int epoll_wait(int epfd, struct epoll_event *e, int most, int timeout)
{
	return wait_any(epfd, e, most, timeout < 0 ? NEVER : (uint64_t)timeout * MS, NULL);
}

PRELOAD_EXPORT int epoll_pwait(int epfd, struct epoll_event *e, int most, int timeout,
                               const sigset_t *mask)
{
	return wait_any(epfd, e, most, timeout < 0 ? NEVER : (uint64_t)timeout * MS, mask);
}

PRELOAD_EXPORT int epoll_pwait2(int epfd, struct epoll_event *e, int most,
                                const struct timespec *timeout, const sigset_t *mask)
{
	return wait_any(epfd, e, most,
	                timeout ? (uint64_t)timeout->tv_sec * 1000000000 +
	                                  (uint64_t)timeout->tv_nsec
	                        : NEVER,
	                mask);
}
