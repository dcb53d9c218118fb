// SPDX-License-Identifier: Apache-2.0
/*
 * Readiness, and epoll_ctl(). An epoll instance keeps its descriptor in the kernel, which watches
 * the kernel's sockets, a listener's kernel side, and the stack's queues. A set beside it has a
 * watch for each socket of the stack.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "epoll_set.h"
#include "real.h"

#define READ_SIDE  (EPOLLIN | EPOLLRDNORM)
#define WRITE_SIDE (EPOLLOUT | EPOLLWRNORM)

static struct set *all_sets;
char own_mark;

/* ---- readiness ------------------------------------------------------------------------------- */

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

void watch_unqueue(struct watch *w)
{
	struct watch_level *q = &w->set->level[w->level];

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

/* Appends the watch to the queue of its level, which may have changed. */
void watch_queue(struct watch *w)
{
	unsigned level = sock_level(w->sock);
	struct watch_level *q = &w->set->level[level];

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

/* Wakes a thread that waits for the set, or for an epoll instance that contains it. */
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
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = &own_mark};

	if (fd >= 0)
		REAL(epoll_ctl)(set->fd, EPOLL_CTL_ADD, fd, &e);
}

void sets_started(void)
{
	for (struct set *set = all_sets; set; set = set->next)
		if (set->wakeup >= 0)
			set_add_own(set, wakeup_fd());
}

/* In a child of fork(): the waiting threads are the parent's. */
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

/* Returns whether it is an epoll instance of the program without a set. Called without the lock. */
static bool is_instance(int fd, int other)
{
	struct epoll_event none = {0};
	int code = errno;
	bool is = supervisor_config() && !table_get(fd) &&
	          REAL(epoll_ctl)(fd, EPOLL_CTL_DEL, other, &none) && errno == ENOENT;

	errno = code;
	return is;
}

/* Another epoll instance, or poll(), waits for this one's descriptor: the kernel wakes that wait
 * for each packet, and it polls the stack. */
void set_nest(int fd, int outer)
{
	bool is_new = outer >= 0 && is_instance(fd, outer);

	if ((!is_new && !table_set(fd)) || !runner_lock())
		return;
	struct set *set = table_set(fd);
	if (!set && is_new)
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
	watch_queue(w); /* the next wait checks whether it is ready */
	set_notify(set);
	return 0;
}

static int watch_change(struct sock *s, struct set *set, int op, int fd,
                        const struct epoll_event *e)
{
	struct watch *w = set ? watch_find(s, set, fd) : NULL;

	if (op == EPOLL_CTL_ADD && w)
		return -EEXIST;
	if (op != EPOLL_CTL_ADD && !w)
		return -ENOENT;
	if (op == EPOLL_CTL_ADD)
		return watch_add(s, set, fd, e);
	if (op == EPOLL_CTL_DEL) {
		watch_end(w);
		return 0;
	}
	w->events = e->events;
	w->data = e->data;
	watch_queue(w);
	set_notify(set);
	return 0;
}

PRELOAD_EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *e)
{
	struct sock *s = table_sock(fd), *plain = table_plain(fd);
	struct set *set;
	int rc;

	if (!s && !plain && op == EPOLL_CTL_ADD)
		set_nest(fd, epfd);
	if ((!s && !plain) || (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL))
		return REAL(epoll_ctl)(epfd, op, fd, e);
	s = s ? s : plain;
	if (op != EPOLL_CTL_DEL && !is_user_memory(e))
		return (int)result(-EFAULT);
	if (s->o.kind != OBJECT_CONNECTION) {
		rc = REAL(epoll_ctl)(epfd, op, fd, e);
	} else { /* the kernel checks epfd only: it never watches a connection's descriptor */
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
	if (!set && op == EPOLL_CTL_ADD)
		set = set_make(epfd);
	rc = watch_change(s, set, op, fd, e);
	if (s->o.kind == OBJECT_LISTENER && op != EPOLL_CTL_DEL)
		runner_listen(s);
	runner_unlock();
	return (int)result(rc);
}
