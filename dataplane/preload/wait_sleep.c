// SPDX-License-Identifier: Apache-2.0
/* The sleep of a waiting thread. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "real.h"
#include "waiter.h"
#include "wakeup.h"

#define ALONE 4 /* consecutive returns after which packets are probably for this thread */

/* Runs when the thread is cancelled: runner_lock() ends its wait. */
static void cancelled(void *arg)
{
	struct signals *signals = arg;

	if (runner_lock())
		runner_unlock();
	signals_restore(signals);
}

/* Sleeps in ppoll(), without the lock. `again`: signals were blocked before, too; pending ones are
 * delivered before packets, which may come without end. */
static int sleep_in_kernel(struct pollfd *p, nfds_t count, const struct timespec *t, bool again,
                           struct signals *signals)
{
	volatile int rc = -1; /* pthread_cleanup_push() may be a setjmp() */

	pthread_cleanup_push(cancelled, signals);
	if (!again || !signals_deliver_pending(signals))
		rc = REAL(ppoll)(p, count, t, signals_sleep_mask(signals));
	pthread_cleanup_pop(0);
	return rc < 0 ? -errno : rc;
}

/* Sleeps at the semaphore, without the lock: the thread waits for no descriptor of the kernel. */
static int sleep_parked(struct waiter *w, uint64_t until_ns, struct signals *signals)
{
	struct timespec t = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
	volatile int rc = -1;

	signals_restore(signals); /* a handler ends this sleep (sleep_end()) */
	pthread_cleanup_push(cancelled, signals);
	rc = until_ns == NEVER ? sem_wait(&w->sem) : sem_clockwait(&w->sem, CLOCK_MONOTONIC, &t);
	pthread_cleanup_pop(0);
	return rc && errno == EINTR ? -EINTR : 0;
}

/* Becomes the leader if there is none, or if no other call has returned for some time: packets are
 * then for this thread, and another leader would only wake it. */
static void leader_choose(struct waiter *w)
{
	if (waiter_can_lead(w) && waiters.leader != w &&
	    (!waiters.leader || !waiters.leader->leads ||
	     (w->returned == waiters.returned && w->alone >= ALONE)))
		waiter_lead(w);
}

int wait_sleep(struct wait *wait, struct pollfd *p, nfds_t count, uint64_t deadline_ns,
               struct signals *signals)
{
	struct waiter *w = wait->waiter;
	uint64_t now = sy_clock_ns(), until = deadline_ns;

	leader_choose(w);
	bool leads = waiters.leader == w;
	bool parks = !leads && waiters.leader && count == WAIT_OWN && !signals->requested &&
	             !w->interrupted;
	if (runner.due_ns < until && (leads || !waiters.leader))
		until = runner.due_ns;
	if (!waiter_can_lead(w) && !parks && runner.stack && until > now + MS)
		until = now + MS;
	if (leads)
		waiters.leader_until_ns = until;
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
		signals_block(signals); /* afterwards the call may be complete */
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
	pthread_mutex_lock(&waiters.lock);
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
	waiter_set_awake(w);
	return rc;
}
