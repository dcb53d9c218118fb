// SPDX-License-Identifier: Apache-2.0
/* The lock of the stack, and waking threads once it is released. */
#include <pthread.h>

#include "packets.h"
#include "real.h"
#include "waiter.h"
#include "wakeup.h"

#define WAKES 64

/* Threads to wake after the lock is released. */
struct wakes {
	struct {
		sem_t *sem; /* NULL: fd */
		int fd;
	} wake[WAKES];
	unsigned count;
};

struct waiters waiters = {.lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP};
__thread struct waiting_thread self;

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

/* Collects the threads that have an event, and those whose leadership has changed. */
static void posts_send(struct wakes *wakes)
{
	while (waiters.posts) {
		struct waiter *w = waiters.posts;
		waiters.posts = w->post;
		w->queued = false;
		if (!w->handed && (!w->asleep || (!w->posted && (waiters.leader == w) == w->leads)))
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

/* Sets the leader's timer if a timer is due before the leader's sleep ends. */
static void timer_check(void)
{
	uint64_t due = runner.due_ns ? runner.due_ns : 1;

	if (waiters.leader && due < waiters.leader_until_ns)
		wakeup_timer_set(due);
}

/* Ends the wait whose sleep this thread has left: a handler has interrupted it, longjmp() has left
 * it, or the thread is cancelled. If the sleep still exists, it returns EINTR. */
static void sleep_end(void)
{
	if (!self.sleeping)
		return;
	self.sleeping = false;
	waiter_end(self.waiter, false);
	if (!self.waiter->parked)
		return;
	self.waiter->parked = false;
	self.waiter->interrupted = true; /* waits of the handler do not use `sem` */
	sem_post(&self.waiter->sem);
}

/* Handlers that run from here on do not acquire the lock. */
bool lock_begin(int *cancel)
{
	if (self.inside)
		return false;
	self.inside = true;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancel);
	return true;
}

void lock_end(int cancel)
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
	pthread_mutex_lock(&waiters.lock);
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
	if (pthread_mutex_trylock(&waiters.lock)) {
		lock_end(cancel);
		return false;
	}
	self.cancel = cancel;
	return true;
}

/* Makes the system calls after it has released the lock. */
void runner_unlock(void)
{
	struct wakes wakes;
	int cancel = self.cancel;

	wakes.count = 0;
	if (runner.sleepers || waiters.posts || runner.unsent) {
		runner_events();
		if (runner.unsent && !runner.waking)
			runner_flush();
		posts_send(&wakes);
		timer_check();
	}
	bool kick = device_kick_wanted();
	pthread_mutex_unlock(&waiters.lock);
	for (unsigned i = 0; i < wakes.count; i++)
		wake(wakes.wake[i].sem, wakes.wake[i].fd);
	if (kick)
		device_kick();
	lock_end(cancel);
}

/* ---- fork() ---------------------------------------------------------------------------------- */

void waiters_inherit(void)
{
	watchdog_reset();
	waiters_reset();
	pthread_mutex_lock(&waiters.lock);
}

void waiters_forked(bool locked)
{
	wakeup_close();
	watchdog_reset();
	waiters_reset();
	if (locked)
		pthread_mutex_lock(&waiters.lock);
	else
		lock_end(self.cancel);
}
