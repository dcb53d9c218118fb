// SPDX-License-Identifier: Apache-2.0
/* Lent workers, which an application thread runs: the steps of worker_main() as single calls. */
#include <sys/epoll.h>

#include <sy_phase.h>

#include "route.h"

void sy_runtime_lend(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < rt->workers; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		p->lent = true;
		p->running = true;
		for (unsigned k = 0; k < p->sources; k++) {
			const struct worker_source *s = &p->source[k];
			int fd = s->port->ops->descriptor(s->port, s->queue);
			if (fd >= 0 && worker_watch(&rt->worker[i], fd))
				p->must_poll = true; /* sleeps are short, so no packet is missed */
		}
	}
	sy_phase_end(SY_PHASE_START);
}

static void off_line(struct sy_worker *w)
{
	rte_rcu_qsbr_thread_offline(rcu_qsbr(w->rt->rcu), w->id);
}

void sy_worker_enter(struct sy_worker *w)
{
	w->private->thread = pthread_self();
	worker_begin(w);
	off_line(w);
}

bool sy_worker_poll(struct sy_worker *w)
{
	bool work;

	rte_rcu_qsbr_thread_online(rcu_qsbr(w->rt->rcu), w->id);
	work = worker_poll(w);
	off_line(w);
	w->private->rests = worker_rests(w, work);
	return work;
}

uint64_t sy_worker_sleep(struct sy_worker *w)
{
	return w->private->rests ? worker_sleep_begin(w) : 0;
}

void sy_worker_awake(struct sy_worker *w)
{
	struct epoll_event ev[8];

	worker_sleep_end(w);
	/* Consumes the eventfd's edge: the descriptor would stay readable. */
	if (epoll_wait(w->private->epoll_fd, ev, 8, 0) > 0)
		SY_COUNT(w->counters.wakeups, 1);
	off_line(w);
}

int sy_worker_descriptor(const struct sy_worker *w)
{
	return w->private->epoll_fd;
}

uint64_t sy_worker_unfit(const struct sy_worker *w)
{
	uint64_t unfit = 0;

	for (unsigned i = 0; i < w->rt->ports; i++) {
		const struct port_queue_counters *c = &w->rt->port[i]->counters[w->id];
		unfit += c->unfit + c->no_carrier;
	}
	return unfit;
}

void sy_worker_wake(struct sy_worker *w)
{
	worker_wake(w);
}

/* The worker still counts as running: the control thread must not run its calls itself, because a
 * thread may enter again at any time. Until then, calls stay pending. */
void sy_worker_leave(struct sy_worker *w)
{
	worker_end(w);
}
