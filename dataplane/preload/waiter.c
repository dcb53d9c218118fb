// SPDX-License-Identifier: Apache-2.0
/*
 * Waiting threads, which sleep without the lock (docs/design/0057-waking-threads.md).
 *
 *     packets, timer ─▶ wakeup.c ───┐ the leader's only
 *     another thread ─▶ waiter.fd ─▶├─▶ ppoll(): the thread waits for descriptors, or leads
 *                    └▶ waiter.sem ─▶ sem_wait(): it waits for sockets of the stack only
 *
 * A waiter belongs to one thread. The thread registers it with the objects it waits for before it
 * releases the lock, so an event between that and the sleep is not lost: the lock orders both. One
 * waiter leads: packets wake only its thread.
 *
 * A leader whose last returns to the program were short (QUICK_NS) gets no successor: the next
 * thread that goes to sleep leads. If none does, the watchdog chooses a sleeping one (wakeup.c).
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "waiter.h"
#include "wakeup.h"

#define QUICK_NS  (100 * (uint64_t)1000) /* two waits of a thread less apart count as quick */
#define QUICK_MAX 16                     /* the largest count */
#define QUICK_MIN 12                     /* from this count on, a leader gets no successor */

static pthread_key_t key;

static void thread_exits(void *arg)
{
	struct waiter *w = arg;

	if (!runner_lock())
		return;
	waiter_end(w, false);
	self.waiter = NULL;
	w->free = waiters.free;
	waiters.free = w;
	runner_unlock();
}

__attribute__((constructor)) static void key_make(void)
{
	pthread_key_create(&key, thread_exits);
}

/* Returns the waiter of this thread. NULL: no memory. */
static struct waiter *waiter_own(void)
{
	struct waiter *w = self.waiter;

	if (!w && waiters.free) {
		w = waiters.free;
		waiters.free = w->free;
		w->interrupted = false;
	} else if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return NULL;
		w->fd = -1;
		sem_init(&w->sem, 0, 0);
		w->all = waiters.all;
		waiters.all = w;
	}
	if (!self.waiter)
		pthread_setspecific(key, w);
	self.waiter = w;
	if (w->fd < 0) { /* without an eventfd, sleeps are short */
		w->fd = table_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		w->lit = false;
	}
	return w;
}

bool waiter_can_lead(const struct waiter *w)
{
	return w->fd >= 0 && wakeup_fd() >= 0;
}

static void post_queue(struct waiter *w)
{
	if (w->queued || w == self.waiter)
		return;
	w->queued = true;
	w->post = waiters.posts;
	waiters.posts = w;
}

void waiter_lead(struct waiter *w)
{
	if (waiters.leader && waiters.leader->leads)
		post_queue(waiters.leader); /* wakes it, to sleep again without leading */
	waiters.leader = w;
	waiters.leader_until_ns = NEVER;
	if (w && w->asleep && !w->leads)
		post_queue(w);
}

/* Returns the waiter that was registered last and can lead. */
static struct waiter *leader_next(void)
{
	struct waiter *w = waiters.sleepers;

	while (w && !waiter_can_lead(w))
		w = w->next;
	return w;
}

/* The leader has left while other threads sleep. */
static void leader_left(const struct waiter *w, bool returns)
{
	if (!returns || w->quick < QUICK_MIN) {
		waiter_lead(leader_next());
		return;
	}
	watchdog_start();
}

void waiter_set_awake(struct waiter *w)
{
	runner.waking -= w->waking;
	w->waking = w->asleep = w->leads = false;
}

void waiter_end(struct waiter *w, bool returns)
{
	if (!w->entered)
		return;
	w->entered = false;
	waiter_set_awake(w);
	w->call++;
	w->handoff = NULL;
	for (unsigned i = 0; i < w->links; i++) {
		struct link *l = &w->link[i];
		if (!l->object)
			continue;
		*l->at = l->next;
		if (l->next)
			l->next->at = l->at;
		/* Passes the event on: it may be for another thread. */
		if (l->exclusive && w->posted)
			object_notify(l->object);
	}
	w->links = 0;
	w->posted = false;
	if (w->previous)
		w->previous->next = w->next;
	else
		waiters.sleepers = w->next;
	if (w->next)
		w->next->previous = w->previous;
	runner.sleepers--;
	w->alone = w->returned == waiters.returned ? w->alone + 1 : 0;
	w->returned = ++waiters.returned;
	w->left_ns = sy_clock_ns();
	if (waiters.leader == w)
		waiters.leader = NULL;
	if (!waiters.leader && runner.sleepers)
		leader_left(w, returns);
}

int wait_enter(struct wait *wait, unsigned count)
{
	struct waiter *w = waiter_own();

	if (!w)
		return -ENOMEM;
	waiter_end(w, false);
	if (count > w->capacity) {
		struct link *more = realloc(w->link, count * sizeof(*more));
		if (!more)
			return -ENOMEM;
		w->link = more;
		w->capacity = count;
	}
	w->entered = true;
	w->handoff = wait->handoff;
	w->parked = false; /* a call that ended by a handoff has left these three set */
	w->lit &= !w->drained;
	w->drained = false;
	if (sy_clock_ns() - w->left_ns < QUICK_NS)
		w->quick += w->quick < QUICK_MAX;
	else
		w->quick -= w->quick > 0;
	w->next = waiters.sleepers;
	w->previous = NULL;
	if (waiters.sleepers)
		waiters.sleepers->previous = w;
	waiters.sleepers = w;
	runner.sleepers++;
	wait->waiter = w;
	wait->call = w->call;
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
	w->posted = false; /* the caller has checked its objects and wakes others */
	waiter_end(w, true);
	wait->waiter = NULL;
}

void wait_abandon(void)
{
	if (self.sleeping && runner_lock()) /* runner_lock() ends the wait */
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
	post_queue(w);
}

/* Completes the call of a sleeping thread. Returns false if that is not possible. */
static bool hand_off(struct waiter *w)
{
	struct handoff *h = w->handoff;

	if (!h || !w->asleep || !h->complete(h))
		return false;
	waiter_end(w, true);
	w->handed = true;
	post_queue(w);
	runner.unsent = true; /* a window update may be due */
	__atomic_store_n(&h->done, true, __ATOMIC_RELEASE);
	return true;
}

/* Of exclusive waiters, wakes the calling thread itself if it waits, else the one that came
 * last. */
void object_notify(struct object *o)
{
	struct link *chosen = NULL, *next;

	for (struct link *l = o->links; l; l = next) {
		next = l->next;
		if (hand_off(l->waiter))
			continue;
		if (!l->exclusive)
			post(l->waiter);
		else if (!l->waiter->posted && (!chosen || l->waiter == self.waiter))
			chosen = l;
	}
	if (chosen)
		post(chosen->waiter);
}

void object_closed(struct object *o)
{
	for (struct link *l = o->links; l; l = l->next) {
		l->object = NULL;
		post(l->waiter);
	}
	o->links = NULL;
}

/* ---- the leader ------------------------------------------------------------------------------ */

bool leader_is_away(void)
{
	const struct waiter *w = __atomic_load_n(&waiters.leader, __ATOMIC_RELAXED);

	return !(w && w->leads) && runner.sleepers;
}

void leader_replace(void)
{
	waiter_lead(leader_next());
}

void leader_forget(void)
{
	waiters.leader = NULL;
}

/* In a child: forgets the waiters, which are threads of the parent. */
void waiters_reset(void)
{
	waiters.leader = NULL;
	waiters.sleepers = waiters.posts = waiters.free = NULL;
	for (struct waiter *w = waiters.all; w; w = w->all) {
		table_disown(w->fd);
		w->fd = -1;
		w->links = 0;
		w->call++;
		w->entered = w->asleep = w->posted = w->queued = w->waking = false;
		w->parked = w->leads = w->lit = w->interrupted = w->handed = w->drained = false;
		sem_init(&w->sem, 0, 0);
		if (w == self.waiter)
			continue;
		w->free = waiters.free;
		waiters.free = w;
	}
	self.sleeping = false;
	pthread_mutex_init(&waiters.lock, NULL);
}
