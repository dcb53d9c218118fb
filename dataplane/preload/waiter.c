// SPDX-License-Identifier: Apache-2.0
/*
 * The lock, and threads that sleep without it (docs/design/0057-waking-threads.md).
 *
 *     packets, timer ─▶ gate ───────┐ the leader's alone
 *     another thread ─▶ waiter.fd ─▶├─▶ ppoll() of a thread that waits for descriptors, or leads
 *                    └▶ waiter.sem ─▶ sem_wait() of one that waits for sockets of the stack alone
 *
 * A waiter belongs to one thread. It is registered with what the thread waits for before the lock
 * is released, so an event between that and the sleep is not lost: the lock orders both. One waiter
 * leads: only its thread is woken by packets.
 *
 * A leader that returns to the program for some microseconds, as it did before, leaves the gate
 * alone: the next thread that sleeps leads. If none comes, the helper thread (runner.c) notices.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>

#include "preload.h"
#include "real.h"
#include "wakeup.h"

#define WAKES     64
#define QUICK_NS  (100 * (uint64_t)1000) /* a thread that was away for less will be again */
#define ALONE     4                      /* returns in a row: packets are for this thread */
#define QUICK_MAX 16                     /* of its last returns or so */
#define QUICK_MIN 12
/* A waiter and what its thread waits for. */
struct link {
	struct waiter *waiter;
	struct object *object; /* NULL: its last descriptor is closed */
	struct link *next, **at;
	bool exclusive; /* one event wakes one such thread */
};

struct waiter {
	int fd;           /* an eventfd; -1: the process has no more */
	sem_t sem;        /* waiters are not freed: posted without the lock, as is `fd` */
	bool lit;         /* `fd` is readable, or about to be */
	bool asleep;      /* its thread has released the lock to sleep */
	bool parked;      /* at `sem` */
	bool interrupted; /* there, by a handler that has not returned; a longjmp() never does */
	bool leads;       /* at the gate, too */
	bool posted;      /* an event since it last looked */
	bool queued;      /* in `posts` */
	bool waking;      /* posted in its sleep: counts in runner.waking */
	bool entered;     /* a call waits */
	bool handed;      /* another thread has ended its wait: to be woken */
	bool drained;     /* its thread has read `fd` without the lock */
	unsigned call;    /* its number */
	unsigned alone;   /* returns without another thread's */
	unsigned quick;   /* how often it was away for less than QUICK_NS, up to QUICK_MAX */
	unsigned links, capacity;
	struct link *link;
	struct pollfd *polled;
	nfds_t polled_capacity;
	uint64_t returned; /* `returned` when its last call ended */
	uint64_t left_ns;  /* and when that was */
	struct handoff *handoff;
	struct waiter *next, *previous, *post, *all, *free;
};

/* Threads to wake once the lock is released. */
struct wakes {
	struct {
		sem_t *sem; /* NULL: fd */
		int fd;
	} wake[WAKES];
	unsigned count;
};

/* Held for microseconds: a thread that spins for so long needs no system call. */
static pthread_mutex_t lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static struct waiter *sleepers, *posts, *all_waiters, *free_waiters;
static struct waiter *leader;    /* NULL: also while no thread sleeps at the gate */
static uint64_t leader_until_ns; /* its own time-out */
static uint64_t returned;        /* calls that have slept and ended */
static pthread_key_t key;

static __thread struct {
	struct waiter *waiter;
	volatile bool inside; /* has the lock, or is about to acquire it, or has just released it */
	bool sleeping; /* is in a sleep, or in a handler that has interrupted it, or has left it */
	int cancel;    /* the program's cancel state, while it has the lock */
} self;

/* ---- the lock -------------------------------------------------------------------------------- */

static void wake(sem_t *sem, int fd)
{
	static const uint64_t one = 1;

	if (sem)
		sem_post(sem);
	else
		REAL(write)(fd, &one, sizeof(one));
}

static void wakes_add(struct wakes *wakes, sem_t *sem, int fd)
{
	if (wakes->count == WAKES)
		wake(sem, fd);
	else
		wakes->wake[wakes->count++] = (__typeof__(*wakes->wake)){sem, fd};
}

/* Threads with an event; the one that is to lead, and the one that led. */
static void posts_send(struct wakes *wakes)
{
	while (posts) {
		struct waiter *w = posts;
		posts = w->post;
		w->queued = false;
		if (!w->handed && (!w->asleep || (!w->posted && (leader == w) == w->leads)))
			continue;
		w->handed = false;
		if (w->parked) {
			wakes_add(wakes, &w->sem, -1);
		} else if (!w->lit && w->fd >= 0) {
			w->lit = true;
			wakes_add(wakes, NULL, w->fd);
		}
	}
	if (watchdog_needs_wakeup())
		wakes_add(wakes, watchdog_semaphore(), -1);
}

/* The leader sleeps until a timer that was the first one; now there may be an earlier one. */
static void timer_check(void)
{
	uint64_t due = runner.due_ns ? runner.due_ns : 1;

	if (leader && due < leader_until_ns)
		wakeup_timer_set(due);
}

static void waiter_end(struct waiter *w, bool returns);

/* A handler has interrupted the sleep, or the thread has left it: by longjmp(), or because it is
 * cancelled. If the sleep is still there, it returns EINTR. */
static void sleep_end(void)
{
	if (!self.sleeping)
		return;
	self.sleeping = false;
	waiter_end(self.waiter, false);
	if (!self.waiter->parked)
		return;
	self.waiter->parked = false;
	self.waiter->interrupted = true; /* what the handler waits for leaves `sem` alone */
	sem_post(&self.waiter->sem);
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
	signals_unblock();
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

/* The system calls come after the lock is released. */
void runner_unlock(void)
{
	struct wakes wakes;
	int cancel = self.cancel;

	wakes.count = 0;
	if (runner.sleepers || posts || runner.unsent) {
		runner_events();
		if (runner.unsent && !runner.waking)
			runner_flush();
		posts_send(&wakes);
		timer_check();
	}
	bool kick = device_kick_wanted();
	pthread_mutex_unlock(&lock);
	for (unsigned i = 0; i < wakes.count; i++)
		wake(wakes.wake[i].sem, wakes.wake[i].fd);
	if (kick)
		device_kick();
	lock_end(cancel);
}

/* ---- waiters --------------------------------------------------------------------------------- */

static void thread_exits(void *arg)
{
	struct waiter *w = arg;

	if (!runner_lock())
		return;
	waiter_end(w, false);
	self.waiter = NULL;
	w->free = free_waiters;
	free_waiters = w;
	runner_unlock();
}

__attribute__((constructor)) static void key_make(void)
{
	pthread_key_create(&key, thread_exits);
}

/* This thread's. NULL: no memory. */
static struct waiter *waiter_own(void)
{
	struct waiter *w = self.waiter;

	if (!w && free_waiters) {
		w = free_waiters;
		free_waiters = w->free;
		w->interrupted = false;
	} else if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return NULL;
		w->fd = -1;
		sem_init(&w->sem, 0, 0);
		w->all = all_waiters;
		all_waiters = w;
	}
	if (!self.waiter)
		pthread_setspecific(key, w);
	self.waiter = w;
	if (w->fd < 0) { /* without descriptors, sleeps are short */
		w->fd = table_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		w->lit = false;
	}
	return w;
}

static bool can_lead(const struct waiter *w)
{
	return w->fd >= 0 && wakeup_fd() >= 0;
}

static void post_queue(struct waiter *w)
{
	if (w->queued || w == self.waiter)
		return;
	w->queued = true;
	w->post = posts;
	posts = w;
}

/* One that sleeps already is woken, to sleep at the gate. */
static void lead(struct waiter *w)
{
	if (leader && leader->leads)
		post_queue(leader); /* it leaves the gate */
	leader = w;
	leader_until_ns = NEVER;
	if (w && w->asleep && !w->leads)
		post_queue(w);
}

/* The last that came. */
static struct waiter *leader_next(void)
{
	struct waiter *w = sleepers;

	while (w && !can_lead(w))
		w = w->next;
	return w;
}

/* No thread leads, while some sleep. */
static void leader_left(const struct waiter *w, bool returns)
{
	if (!returns || w->quick < QUICK_MIN) {
		lead(leader_next());
		return;
	}
	watchdog_start();
}

static void woken(struct waiter *w)
{
	runner.waking -= w->waking;
	w->waking = w->asleep = w->leads = false;
}

/* Its call waits no longer. returns: to the program, for as long as before. */
static void waiter_end(struct waiter *w, bool returns)
{
	if (!w->entered)
		return;
	w->entered = false;
	woken(w);
	w->call++;
	w->handoff = NULL;
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
	w->alone = w->returned == returned ? w->alone + 1 : 0;
	w->returned = ++returned;
	w->left_ns = sy_clock_ns();
	if (leader == w)
		leader = NULL;
	if (!leader && runner.sleepers)
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
	w->parked = false; /* a call whose handoff is done leaves these */
	w->lit &= !w->drained;
	w->drained = false;
	if (sy_clock_ns() - w->left_ns < QUICK_NS)
		w->quick += w->quick < QUICK_MAX;
	else
		w->quick -= w->quick > 0;
	w->next = sleepers;
	w->previous = NULL;
	if (sleepers)
		sleepers->previous = w;
	sleepers = w;
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
	w->posted = false; /* what it was woken for, it has seen; its caller wakes others */
	waiter_end(w, true);
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
	post_queue(w);
}

/* Does for a sleeping thread what its call waits for. */
static bool hand_off(struct waiter *w)
{
	struct handoff *h = w->handoff;

	if (!h || !w->asleep || !h->complete(h))
		return false;
	waiter_end(w, true);
	w->handed = true;
	post_queue(w);
	runner.unsent = true; /* the peer's window may have grown */
	__atomic_store_n(&h->done, true, __ATOMIC_RELEASE);
	return true;
}

/* The thread itself before others, and the last that came before those. */
void object_notify(struct object *o)
{
	struct link *one = NULL, *next;

	for (struct link *l = o->links; l; l = next) {
		next = l->next;
		if (hand_off(l->waiter))
			continue;
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
	signals_restore(signals);
}

/* Without the lock. `again`: signals were held before, too, and what has come meanwhile is told
 * before packets, which may come without end. */
static int sleep_in_kernel(struct pollfd *p, nfds_t count, const struct timespec *t, bool again,
                           struct signals *signals)
{
	volatile int rc = -1; /* pthread_cleanup_push() is a setjmp() */

	pthread_cleanup_push(cancelled, signals);
	if (!again || !signals_deliver_pending(signals))
		rc = REAL(ppoll)(p, count, t, signals_sleep_mask(signals));
	pthread_cleanup_pop(0);
	return rc < 0 ? -errno : rc;
}

/* Without the lock, for a thread that waits for nothing of the kernel. */
static int sleep_parked(struct waiter *w, uint64_t until_ns, struct signals *signals)
{
	struct timespec t = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
	volatile int rc = -1;

	signals_restore(signals); /* handlers end a sleep at a semaphore (sleep_end()) */
	pthread_cleanup_push(cancelled, signals);
	rc = until_ns == NEVER ? sem_wait(&w->sem) : sem_clockwait(&w->sem, CLOCK_MONOTONIC, &t);
	pthread_cleanup_pop(0);
	return rc && errno == EINTR ? -EINTR : 0;
}

/* Leads if it has to, or if no other call has returned for some time: then packets are for this
 * thread, and another leader would only wake it. */
static void leader_choose(struct waiter *w)
{
	if (can_lead(w) && leader != w &&
	    (!leader || !leader->leads || (w->returned == returned && w->alone >= ALONE)))
		lead(w);
}

int wait_sleep(struct wait *wait, struct pollfd *p, nfds_t count, uint64_t deadline_ns,
               struct signals *signals)
{
	struct waiter *w = wait->waiter;
	uint64_t now = sy_clock_ns(), until = deadline_ns;

	leader_choose(w);
	bool leads = leader == w;
	bool parks =
	        !leads && leader && count == WAIT_OWN && !signals->requested && !w->interrupted;
	if (runner.due_ns < until && (leads || !leader))
		until = runner.due_ns;
	if (!can_lead(w) && !parks && runner.stack && until > now + MS)
		until = now + MS;
	if (leads)
		leader_until_ns = until;
	uint64_t left = until > now ? until - now : 0;
	struct timespec t = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
	p[0] = (struct pollfd){.fd = w->fd, .events = POLLIN};
	wakeup_fill(p + 1, leads);
	w->posted = false;
	w->asleep = true;
	w->leads = leads;
	w->parked = parks;
	bool again = signals->blocked;
	int cancel, rc;
	if (left > 0 && !parks)
		signals_block(signals); /* before the lock is released: it may be left no more */
	while (parks && !sem_trywait(&w->sem))
		;
	signals_sleep();
	self.sleeping = true;
	runner_unlock();
	if (parks)
		rc = sleep_parked(w, until, signals);
	else
		rc = sleep_in_kernel(p, count, until == NEVER ? NULL : &t, again, signals);
	bool lit = !parks && rc > 0 && p[0].revents;
	if (lit)
		REAL(read)(w->fd, &(uint64_t){0}, sizeof(uint64_t));
	if (wait->handoff && __atomic_load_n(&wait->handoff->done, __ATOMIC_ACQUIRE)) {
		self.sleeping = false;
		w->interrupted &= !parks;
		w->drained |= lit;
		return 1;
	}
	lock_begin(&cancel);
	pthread_mutex_lock(&lock);
	self.cancel = cancel;
	self.sleeping = false;
	w->interrupted &= !parks;
	if (wait->handoff && wait->handoff->done) {
		w->drained |= lit;
		runner_unlock();
		return 1;
	}
	w->parked = false;
	if (lit)
		w->lit = false;
	if (wait_is_over(wait))
		return -EINTR;
	woken(w);
	return rc;
}

/* ---- a gate without a leader ----------------------------------------------------------------- */

bool leader_is_away(void)
{
	const struct waiter *w = __atomic_load_n(&leader, __ATOMIC_RELAXED);

	return !(w && w->leads) && runner.sleepers;
}

void leader_replace(void)
{
	lead(leader_next());
}

void leader_forget(void)
{
	leader = NULL;
}

/* The descriptors are the parent's as well, and those who sleep are the parent's alone. */
static void waiters_reset(void)
{
	leader = NULL;
	sleepers = posts = free_waiters = NULL;
	for (struct waiter *w = all_waiters; w; w = w->all) {
		table_disown(w->fd);
		w->fd = -1;
		w->links = 0;
		w->call++;
		w->entered = w->asleep = w->posted = w->queued = w->waking = false;
		w->parked = w->leads = w->lit = w->interrupted = w->handed = w->drained = false;
		sem_init(&w->sem, 0, 0);
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
	watchdog_reset();
	waiters_reset();
	pthread_mutex_lock(&lock);
}

void waiters_forked(bool locked)
{
	wakeup_close();
	watchdog_reset();
	waiters_reset();
	if (locked)
		pthread_mutex_lock(&lock);
	else
		lock_end(self.cancel);
}
