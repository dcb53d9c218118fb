// SPDX-License-Identifier: Apache-2.0
/*
 * The lock, and threads that sleep without it (docs/design/0057-waking-threads.md).
 *
 *     packets, timer ─▶ gate ─┐ in the leader's alone
 *                             ├─▶ waiter.fd ─▶ ppoll() of one thread
 *     another thread ─▶ lit ──┘ armed to wake this one
 *
 * A waiter belongs to one thread. It is registered with what the thread waits for before the lock
 * is released, so an event between that and ppoll() is not lost: the lock orders both. One waiter
 * leads: only its thread is woken by packets. Other threads wake a waiter, or make it the leader,
 * by epoll_ctl() on its instance, which works whether its thread sleeps already or not.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "preload.h"
#include "real.h"

/* A waiter and what its thread waits for. */
struct link {
	struct waiter *waiter;
	struct object *object; /* NULL: its last descriptor is closed */
	struct link *next, **at;
	bool exclusive; /* one event wakes one such thread */
};

struct waiter {
	int fd;        /* an epoll instance with `lit`; -1: the process has no more */
	bool armed;    /* `gate` is in it, too: packets wake the thread */
	bool lit;      /* `lit` is armed */
	bool asleep;   /* its thread has released the lock to sleep */
	bool posted;   /* an event since it last looked */
	bool queued;   /* in `posts` */
	bool waking;   /* posted in its sleep: counts in runner.waking */
	bool entered;  /* a call waits */
	unsigned call; /* its number */
	unsigned links, capacity;
	struct link *link;
	struct pollfd *polled;
	nfds_t polled_capacity;
	uint64_t returned; /* `returned` when its last call ended */
	struct waiter *next, *previous, *post, *all, *free;
};

/* Held for microseconds: a thread that spins for so long needs no system call. */
static pthread_mutex_t lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static struct waiter *sleepers, *posts, *all_waiters, *free_waiters;
static struct waiter *leader;
static uint64_t leader_until_ns;  /* its own time-out */
static uint64_t timer_ns = NEVER; /* when the timer in the gate expires */
static uint64_t returned;         /* calls that have slept and ended */
static int gate = -1, timer = -1, lit = -1;
static pthread_key_t key;

static __thread struct {
	struct waiter *waiter;
	volatile bool inside; /* has the lock, or is about to acquire it, or has just released it */
	bool sleeping; /* is in a sleep, or in a handler that has interrupted it, or has left it */
	int cancel;    /* the program's cancel state, while it has the lock */
} self;

/* ---- the lock -------------------------------------------------------------------------------- */

static void light(struct waiter *w, bool on)
{
	struct epoll_event e = {.events = on ? EPOLLIN : 0};

	REAL(epoll_ctl)(w->fd, EPOLL_CTL_MOD, lit, &e);
	w->lit = on;
}

static void posts_send(void)
{
	while (posts) {
		struct waiter *w = posts;
		posts = w->post;
		w->queued = false;
		if (!w->posted || !w->asleep || w->lit || w->fd < 0)
			continue;
		light(w, true);
	}
}

/* The leader sleeps until a timer that was the first one; now there may be an earlier one. */
static void timer_check(void)
{
	uint64_t due = runner.due_ns ? runner.due_ns : 1;
	struct itimerspec t = {.it_value = {(time_t)(due / 1000000000), (long)(due % 1000000000)}};

	if (!leader || due >= leader_until_ns || due >= timer_ns)
		return;
	timerfd_settime(timer, TFD_TIMER_ABSTIME, &t, NULL);
	timer_ns = due;
}

void timer_seen(uint64_t now_ns)
{
	uint64_t count;

	if (timer_ns > now_ns)
		return;
	REAL(read)(timer, &count, sizeof(count));
	timer_ns = NEVER;
}

static void waiter_end(struct waiter *w);

/* A handler has interrupted the sleep, or the thread has left it: by longjmp(), or because it is
 * cancelled. If the sleep is still there, it returns EINTR. */
static void sleep_end(void)
{
	if (!self.sleeping)
		return;
	self.sleeping = false;
	waiter_end(self.waiter);
}

/* A handler that runs from here on does not acquire the lock. */
static bool lock_begin(int *cancel)
{
	if (self.inside)
		return false;
	self.inside = true;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancel);
	return true;
}

static void lock_end(int cancel)
{
	self.inside = false;
	pthread_setcancelstate(cancel, NULL);
	signals_admit();
}

bool runner_is_inside(void)
{
	return self.inside;
}

bool runner_lock(void)
{
	int cancel;

	if (!lock_begin(&cancel))
		return false;
	pthread_mutex_lock(&lock);
	self.cancel = cancel;
	sleep_end();
	runner.calls++;
	return true;
}

bool runner_trylock(void)
{
	int cancel;

	if (!lock_begin(&cancel))
		return false;
	if (pthread_mutex_trylock(&lock)) {
		lock_end(cancel);
		return false;
	}
	self.cancel = cancel;
	return true;
}

void runner_unlock(void)
{
	int cancel = self.cancel;

	if (runner.sleepers) {
		runner_events();
		if (runner.unsent && !runner.waking)
			runner_flush();
		posts_send();
		timer_check();
	}
	pthread_mutex_unlock(&lock);
	lock_end(cancel);
}

/* ---- waiters --------------------------------------------------------------------------------- */

static void thread_exits(void *arg)
{
	struct waiter *w = arg;

	if (!runner_lock())
		return;
	waiter_end(w);
	self.waiter = NULL;
	w->free = free_waiters;
	free_waiters = w;
	runner_unlock();
}

__attribute__((constructor)) static void key_make(void)
{
	pthread_key_create(&key, thread_exits);
}

/* What it lacks so far; without descriptors, sleeps are short. */
static void waiter_open(struct waiter *w)
{
	struct epoll_event none = {0};

	if (lit < 0)
		lit = table_own(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
	if (w->fd < 0 && lit >= 0) {
		w->fd = table_own(epoll_create1(EPOLL_CLOEXEC));
		w->armed = w->lit = false;
		if (w->fd >= 0)
			REAL(epoll_ctl)(w->fd, EPOLL_CTL_ADD, lit, &none);
	}
}

/* This thread's. NULL: no memory. */
static struct waiter *waiter_own(void)
{
	struct waiter *w = self.waiter;

	if (!w && free_waiters) {
		w = free_waiters;
		free_waiters = w->free;
	} else if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return NULL;
		w->fd = -1;
		w->all = all_waiters;
		all_waiters = w;
	}
	if (!self.waiter)
		pthread_setspecific(key, w);
	self.waiter = w;
	waiter_open(w);
	return w;
}

static bool can_lead(const struct waiter *w)
{
	return w->fd >= 0 && gate >= 0;
}

/* Not EPOLL_CTL_MOD: a packet would still look at each instance that has the gate. */
static void gate_arm(struct waiter *w, bool on)
{
	struct epoll_event e = {.events = EPOLLIN};

	if (w->armed == on || !can_lead(w))
		return;
	if (!REAL(epoll_ctl)(w->fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, gate, &e))
		w->armed = on;
}

static void lead(struct waiter *w)
{
	if (leader)
		gate_arm(leader, false);
	leader = w;
	leader_until_ns = NEVER;
	if (w)
		gate_arm(w, true);
}

/* One that has a descriptor: the last that came. */
static struct waiter *leader_next(void)
{
	struct waiter *w = sleepers;

	while (w && !can_lead(w))
		w = w->next;
	return w;
}

static void woken(struct waiter *w)
{
	runner.waking -= w->waking;
	w->waking = w->asleep = false;
}

/* Its call waits no longer. Its descriptor stays armed, if it led: it may lead again. */
static void waiter_end(struct waiter *w)
{
	if (!w->entered)
		return;
	w->entered = false;
	woken(w);
	w->call++;
	for (unsigned i = 0; i < w->links; i++) {
		struct link *l = &w->link[i];
		if (!l->object)
			continue;
		*l->at = l->next;
		if (l->next)
			l->next->at = l->at;
		/* The event that has woken this thread may be another's. */
		if (l->exclusive && w->posted)
			object_notify(l->object);
	}
	w->links = 0;
	w->posted = false;
	if (w->previous)
		w->previous->next = w->next;
	else
		sleepers = w->next;
	if (w->next)
		w->next->previous = w->previous;
	runner.sleepers--;
	w->returned = ++returned;
	if (leader == w) {
		leader = NULL;
		lead(leader_next());
	}
}

int wait_enter(struct wait *wait, unsigned count)
{
	struct waiter *w = waiter_own();

	if (!w)
		return -ENOMEM;
	waiter_end(w);
	if (count > w->capacity) {
		struct link *more = realloc(w->link, count * sizeof(*more));
		if (!more)
			return -ENOMEM;
		w->link = more;
		w->capacity = count;
	}
	w->entered = true;
	w->next = sleepers;
	w->previous = NULL;
	if (sleepers)
		sleepers->previous = w;
	sleepers = w;
	runner.sleepers++;
	*wait = (struct wait){w, w->call};
	return 0;
}

void wait_link(const struct wait *wait, struct object *o, bool exclusive)
{
	struct waiter *w = wait->waiter;
	struct link *l = &w->link[w->links++];

	*l = (struct link){.waiter = w, .object = o, .next = o->links, .at = &o->links};
	l->exclusive = exclusive;
	if (o->links)
		o->links->at = &l->next;
	o->links = l;
}

bool wait_gone(const struct wait *wait, unsigned link)
{
	return !wait->waiter->link[link].object;
}

bool wait_is_over(const struct wait *wait)
{
	return wait->waiter && wait->waiter->call != wait->call;
}

bool wait_posted(const struct wait *wait)
{
	return wait->waiter && !wait_is_over(wait) && wait->waiter->posted;
}

void wait_leave(struct wait *wait)
{
	struct waiter *w = wait->waiter;

	if (!w || w->call != wait->call)
		return;
	w->posted = false; /* what it was woken for, it has seen; its caller wakes others */
	waiter_end(w);
	wait->waiter = NULL;
}

void wait_abandon(void)
{
	if (self.sleeping && runner_lock()) /* which ends the wait */
		runner_unlock();
}

struct pollfd *wait_polled(nfds_t count)
{
	struct waiter *w = waiter_own();

	if (w && count > w->polled_capacity) {
		struct pollfd *more = realloc(w->polled, count * sizeof(*more));
		if (!more)
			return NULL;
		w->polled = more;
		w->polled_capacity = count;
	}
	return w ? w->polled : NULL;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void post(struct waiter *w)
{
	w->posted = true;
	if (w->asleep && !w->waking) {
		w->waking = true;
		runner.waking++;
	}
	if (w->queued || w == self.waiter)
		return;
	w->queued = true;
	w->post = posts;
	posts = w;
}

/* The thread itself before others, and the last that came before those. */
void object_notify(struct object *o)
{
	struct link *one = NULL;

	for (struct link *l = o->links; l; l = l->next) {
		if (!l->exclusive)
			post(l->waiter);
		else if (!l->waiter->posted && (!one || l->waiter == self.waiter))
			one = l;
	}
	if (one)
		post(one->waiter);
}

void object_closed(struct object *o)
{
	for (struct link *l = o->links; l; l = l->next) {
		l->object = NULL;
		post(l->waiter);
	}
	o->links = NULL;
}

/* ---- sleeping -------------------------------------------------------------------------------- */

/* A cancelled thread: runner_lock() ends its wait. */
static void cancelled(void *arg)
{
	struct signals *signals = arg;

	if (runner_lock())
		runner_unlock();
	signals_release(signals);
}

/* Without the lock. `again`: signals were held before, too, and what has come meanwhile is told
 * before packets, which may come without end. */
static int sleep_in_kernel(struct pollfd *p, nfds_t count, const struct timespec *t, bool again,
                           struct signals *signals)
{
	volatile int rc = -1; /* pthread_cleanup_push() is a setjmp() */

	pthread_cleanup_push(cancelled, signals);
	if (!again || !signals_come(signals))
		rc = REAL(ppoll)(p, count, t, signals_admitted(signals));
	pthread_cleanup_pop(0);
	return rc < 0 ? -errno : rc;
}

/* Leads if it has to, or if no other call has returned since its own last one: then packets are for
 * this thread, and another leader would only wake it. */
static void leader_choose(struct waiter *w)
{
	if (can_lead(w) && leader != w && (!leader || w->returned == returned))
		lead(w);
	gate_arm(w, leader == w);
}

int wait_sleep(struct wait *wait, struct pollfd *p, nfds_t count, uint64_t deadline_ns,
               struct signals *signals)
{
	struct waiter *w = wait->waiter;
	uint64_t now = sy_clock_ns(), until = deadline_ns;

	leader_choose(w);
	if (runner.due_ns < until && (leader == w || !leader))
		until = runner.due_ns;
	if (!can_lead(w) && runner.stack && until > now + MS)
		until = now + MS;
	if (leader == w)
		leader_until_ns = until;
	uint64_t left = until > now ? until - now : 0;
	struct timespec t = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
	p[0] = (struct pollfd){.fd = w->fd, .events = POLLIN};
	w->posted = false;
	w->asleep = true;
	bool again = signals->held;
	int cancel;
	if (left > 0)
		signals_hold(signals); /* before the lock is released: it may be left no more */
	signals_sleep();
	self.sleeping = true;
	runner_unlock();
	int rc = sleep_in_kernel(p, count, until == NEVER ? NULL : &t, again, signals);
	lock_begin(&cancel);
	pthread_mutex_lock(&lock);
	self.cancel = cancel;
	self.sleeping = false;
	if (wait_is_over(wait))
		return -EINTR;
	woken(w);
	if (w->lit)
		light(w, false);
	return rc;
}

/* ---- the stack's descriptors ----------------------------------------------------------------- */

int gate_open(const int *fd, unsigned count)
{
	struct epoll_event e = {.events = EPOLLIN};

	gate = table_own(epoll_create1(EPOLL_CLOEXEC));
	timer = table_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (gate < 0 || timer < 0 || REAL(epoll_ctl)(gate, EPOLL_CTL_ADD, timer, &e))
		return -errno;
	timer_ns = NEVER;
	for (unsigned i = 0; i < count; i++)
		if (REAL(epoll_ctl)(gate, EPOLL_CTL_ADD, fd[i], &e))
			return -errno;
	return 0;
}

int gate_fd(void)
{
	return gate;
}

void gate_remove(int fd)
{
	REAL(epoll_ctl)(gate, EPOLL_CTL_DEL, fd, NULL);
}

void gate_close(void)
{
	for (struct waiter *w = all_waiters; w; w = w->all)
		w->armed = false;
	leader = NULL;
	table_disown(gate);
	table_disown(timer);
	gate = timer = -1;
}

/* The instances are the parent's as well, and those who sleep are the parent's alone. */
static void waiters_reset(void)
{
	leader = NULL;
	sleepers = posts = free_waiters = NULL;
	for (struct waiter *w = all_waiters; w; w = w->all) {
		table_disown(w->fd);
		w->fd = -1;
		w->armed = false;
		w->links = 0;
		w->call++;
		w->entered = w->asleep = w->posted = w->queued = w->waking = false;
		if (w == self.waiter)
			continue;
		w->free = free_waiters;
		free_waiters = w;
	}
	self.sleeping = false;
	pthread_mutex_init(&lock, NULL);
}

void waiters_inherit(void)
{
	waiters_reset();
	pthread_mutex_lock(&lock);
}

void waiters_forked(bool locked)
{
	gate_close();
	table_disown(lit);
	lit = -1;
	waiters_reset();
	if (locked)
		pthread_mutex_lock(&lock);
	else
		lock_end(self.cancel);
}
