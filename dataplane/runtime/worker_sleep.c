// SPDX-License-Identifier: Apache-2.0
/* A worker's sleep and wake-up. */
#include <poll.h>
#include <unistd.h>

#include <rte_cycles.h>

#include <sy_shaping.h>

#include "route.h"

#define BACKOFF_LAST_US 1000

void worker_sources_wake(struct sy_worker *w)
{
	const struct sy_worker_private *p = w->private;
	for (unsigned i = 0; i < p->sources; i++)
		if (p->source[i].port->ops->wake)
			p->source[i].port->ops->wake(p->source[i].port, p->source[i].queue);
}

static bool worker_is_idle(const struct sy_worker *w)
{
	const struct sy_worker_private *p = w->private;
	return steer_is_empty(w) && !SY_READ(p->call) && !SY_READ(p->posts) && !SY_READ(p->stop) &&
	       SY_READ(p->neighbours_changed) == p->neighbours_seen &&
	       (!w->rt->options.is_idle || w->rt->options.is_idle(w));
}

/*
 * No wake-up is lost: the sleeper sets `asleep`, then looks for work; a producer adds work, then
 * reads `asleep`. With a full fence in between on both sides, at least one sees the other. The
 * first producer to clear the flag writes the eventfd. A late write costs one more poll.
 */
uint64_t worker_sleep_begin(struct sy_worker *w)
{
	uint64_t wake_ns = w->rt->options.wake_ns ? w->rt->options.wake_ns(w) : UINT64_MAX;
	struct sy_worker_private *p = w->private;
	uint64_t shaping_ns = UINT64_MAX; /* until a queued packet may leave */
	if (SY_UNLIKELY(p->shaped) && !(shaping_ns = shaping_sleep_ns(w, shaping_ns)))
		return 0;
	if (wake_ns <= w->now_ns)
		return 0;
	__atomic_store_n(&p->asleep, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	uint64_t cycles_per_us = p->round_cycles / (SY_ROUND_MS * 1000);
	uint64_t since = rte_rdtsc() - p->round_tsc;
	uint64_t left = since < p->round_cycles ? (p->round_cycles - since) / cycles_per_us + 1 : 0;
	left = left < shaping_ns / 1000 ? left : shaping_ns / 1000;
	if (wake_ns != UINT64_MAX && left > (wake_ns - w->now_ns) / 1000 + 1)
		left = (wake_ns - w->now_ns) / 1000 + 1;
	if (!left || !worker_is_idle(w)) {
		__atomic_store_n(&p->asleep, 0, __ATOMIC_RELAXED);
		return 0;
	}
	bool backs_off = p->must_poll;
	for (unsigned i = 0; i < p->sources && !backs_off; i++)
		backs_off =
		        p->source[i].port->ops->is_pending(p->source[i].port, p->source[i].queue);
	SY_COUNT(w->counters.sleeps, 1);
	worker_sources_wake(w);
	rte_rcu_qsbr_thread_offline(rcu_qsbr(w->rt->rcu), w->id);
	if (backs_off && left > p->backoff_us) {
		left = p->backoff_us;
		p->backoff_us =
		        2 * p->backoff_us < BACKOFF_LAST_US ? 2 * p->backoff_us : BACKOFF_LAST_US;
	}
	return left * 1000;
}

/* A sleep that ends this soon costs more than polling: the worker needs time to wake up, and a
 * sender on this machine pays for the call that wakes it. */
void worker_spin_note(struct sy_worker_private *p, uint64_t now)
{
	p->spin_cycles = now - p->last_work < p->max_spin ? p->max_spin : p->min_spin;
}

void worker_sleep_end(struct sy_worker *w)
{
	worker_spin_note(w->private, rte_rdtsc());
	rte_rcu_qsbr_thread_online(rcu_qsbr(w->rt->rcu), w->id);
	__atomic_store_n(&w->private->asleep, 0, __ATOMIC_RELAXED);
}

/* Not by epoll: the kernel notifies an epoll instance of each packet even while the worker is
 * awake. That is a sixth of a sender's work on veth. */
static void sources_wait(struct sy_worker *w, const struct timespec *wait)
{
	struct sy_worker_private *p = w->private;
	struct pollfd fd[2 + SY_MAX_PORTS * SY_MAX_QUEUES];
	unsigned count = 0;
	uint64_t woken;
	fd[count++] = (struct pollfd){.fd = p->wake_fd, .events = POLLIN};
	fd[count++] = (struct pollfd){.fd = p->watched_fd, .events = POLLIN}; /* −1: ignored */
	for (unsigned i = 0; i < p->sources; i++) {
		const struct worker_source *s = &p->source[i];
		int one = s->port->ops->descriptor(s->port, s->queue);
		if (one >= 0)
			fd[count++] = (struct pollfd){.fd = one, .events = POLLIN};
	}
	if (ppoll(fd, count, wait, NULL) <= 0)
		return;
	SY_COUNT(w->counters.wakeups, 1);
	p->readable = fd[1].revents;
	ssize_t got = fd[0].revents ? read(p->wake_fd, &woken, sizeof(woken)) : 0;
	(void)got;
}

void worker_sleep(struct sy_worker *w)
{
	uint64_t ns = worker_sleep_begin(w);
	if (!ns)
		return;
	sources_wait(w, &(struct timespec){.tv_nsec = (long)ns});
	worker_sleep_end(w);
}

void sy_worker_watch(struct sy_worker *w, int fd)
{
	w->private->watched_fd = fd;
}

bool sy_worker_is_readable(struct sy_worker *w)
{
	bool readable = w->private->readable;
	if (SY_UNLIKELY(readable))
		w->private->readable = false;
	return readable;
}

/* Call after the fence. */
static void sleeper_wake(struct sy_worker *w)
{
	if (!SY_READ(w->private->asleep) ||
	    !__atomic_exchange_n(&w->private->asleep, 0, __ATOMIC_RELAXED))
		return;
	uint64_t one = 1;
	ssize_t put = write(w->private->wake_fd, &one, sizeof(one));
	(void)put; /* cannot overflow: 2^64 is out of reach */
}

void worker_wake(struct sy_worker *w)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	sleeper_wake(w);
}

void workers_wake(struct sy_runtime *rt, uint64_t workers)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (; workers; workers &= workers - 1)
		sleeper_wake(&rt->worker[__builtin_ctzll(workers)]);
}

void sy_workers_wake(struct sy_worker *w)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < w->rt->workers; i++)
		if (i != w->id)
			sleeper_wake(&w->rt->worker[i]);
}
