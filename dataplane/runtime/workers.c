// SPDX-License-Identifier: Apache-2.0
/* All workers, from the control thread's side: opening, binding, starting, calls, draining. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

#include "route.h"

/* How long a worker without work polls before it sleeps, in microseconds: bridges the gaps of busy
 * traffic. worker_spin_note() raises the time up to the maximum for large segments. On a shared CPU
 * the worker sleeps at once (cpu_wait.h). */
#define SPIN_MIN_US 30
#define SPIN_MAX_US 120

/* Max polls in which workers finish packets that they have steered to each other. Bounds the loop
 * if a device never sends its packets. */
#define DRAIN_MAX_POLLS 100000

/* ---- from opening to closing ----------------------------------------------------------------- */

int worker_source_add(struct sy_worker *w, struct port *port, unsigned queue)
{
	struct sy_worker_private *p = w->private;
	int fd = port->ops->descriptor(port, queue);
	p->source[p->sources++] = (struct worker_source){.port = port, .queue = queue};
	if (fd < 0)
		p->must_poll = true;
	return fd < 0 || !p->lent ? 0 : worker_watch(w, fd);
}

int worker_watch(struct sy_worker *w, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
	return epoll_ctl(w->private->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

static int worker_prepare(struct sy_runtime *rt, struct sy_worker *w, int core)
{
	struct sy_worker_private *p = rte_zmalloc("sy_worker", sizeof(*p), SY_CACHE_LINE);
	ssize_t neighbour_requests = rte_ring_get_memsize_elem(sizeof(struct neighbour_request),
	                                                       WORKER_NEIGHBOUR_REQUESTS);
	if (!p)
		return -ENOMEM;
	w->private = p;
	p->core = core;
	p->cpu_wait.fd = -1;
	p->watched_fd = -1;
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	p->neighbour_requests =
	        rte_zmalloc("sy_neighbour_requests", (size_t)neighbour_requests, SY_CACHE_LINE);
	if (p->wake_fd < 0 || p->epoll_fd < 0)
		return -errno;
	if (sampler_open(w))
		return -ENOMEM;
	if (!p->neighbour_requests ||
	    rte_ring_init(p->neighbour_requests, "sy_neighbour_requests", WORKER_NEIGHBOUR_REQUESTS,
	                  RING_F_SP_ENQ | RING_F_SC_DEQ))
		return -ENOMEM;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.fd = p->wake_fd};
	if (epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->wake_fd, &ev))
		return -errno;
	worker_clock_start(p);
	worker_clock_read(w);
	p->min_spin = rte_get_tsc_hz() / 1000000 * SPIN_MIN_US;
	p->max_spin = rte_get_tsc_hz() / 1000000 * SPIN_MAX_US;
	p->spin_cycles = p->min_spin;
	p->round_cycles = rte_get_tsc_hz() / 1000 * SY_ROUND_MS;
	return 0;
}

int workers_open(struct sy_runtime *rt, struct sy_error *err)
{
	unsigned core[SY_MAX_WORKERS];
	int cores = cores_of_workers(rt->options.cores, rt->options.workers, core, err);
	if (cores < 0)
		return cores;
	rt->worker = aligned_alloc(SY_CACHE_LINE, rt->options.workers * sizeof(*rt->worker));
	if (!rt->worker)
		return sy_fail(err, ENOMEM, "no memory for %u workers", rt->options.workers);
	memset(rt->worker, 0, rt->options.workers * sizeof(*rt->worker));
	rt->workers = rt->options.workers;
	for (unsigned i = 0; i < rt->workers; i++) {
		rt->worker[i].id = i;
		rt->worker[i].rt = rt;
		rt->worker[i].app = rt->options.app;
		rt->worker[i].slot_worker = rt->slot_worker;
		rt->worker[i].path_mtu = rt->routes->mtu;
		/* with more workers than CPUs, as in tests, workers are not pinned */
		bool pinned = rt->workers <= (unsigned)cores;
		int rc = worker_prepare(rt, &rt->worker[i], pinned ? (int)core[i] : -1);
		if (rc)
			return sy_fail(err, -rc, "worker %u: %s", i, strerror(-rc));
	}
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		rt->slot_worker[slot] = (uint8_t)(slot % rt->workers);
	return steer_open(rt, err);
}

void workers_note_queues(struct sy_runtime *rt)
{
	bool suffice = !rt->shaping; /* only the owner of a shaped port sends there */
	for (unsigned i = 0; i < rt->ports; i++)
		suffice = suffice && rt->port[i]->queues >= rt->workers;
	for (unsigned i = 0; i < rt->workers; i++)
		__atomic_store_n(&rt->worker[i].queues_suffice, suffice, __ATOMIC_RELAXED);
}

int workers_bind(struct sy_runtime *rt, struct sy_error *err)
{
	workers_note_queues(rt);
	for (unsigned i = 0; i < rt->ports; i++) {
		for (unsigned q = 0; q < rt->port[i]->queues; q++) {
			struct sy_worker *w = &rt->worker[q % rt->workers];
			int rc = worker_source_add(w, rt->port[i], q);
			if (rc)
				return sy_fail(err, -rc, "worker %u: %s", w->id, strerror(-rc));
		}
	}
	return 0;
}

int workers_start(struct sy_runtime *rt, struct sy_error *err)
{
	sigset_t all, before;
	int code = 0;
	sigfillset(&all); /* signals are for the control thread */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (unsigned i = 0; i < rt->workers && !code; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		code = pthread_create(&p->thread, NULL, worker_main, &rt->worker[i]);
		p->running = !code;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code ? sy_fail(err, code, "starting a worker: %s", strerror(code)) : 0;
}

void workers_stop(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < rt->workers; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		if (!p || !p->running || p->lent) /* lent: an application thread runs it */
			continue;
		__atomic_store_n(&p->stop, true, __ATOMIC_RELAXED);
		worker_wake(&rt->worker[i]);
	}
	for (unsigned i = 0; i < rt->workers; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		if (!p || !p->running || p->lent)
			continue;
		pthread_join(p->thread, NULL);
		p->running = false;
		posts_run(&rt->worker[i]); /* posts that the worker has not run */
	}
}

/* Returns enough polls for all packets of a receive ring and of the rings between workers. Bounds
 * draining of a device that receives continuously. */
static unsigned drain_polls(const struct sy_runtime *rt)
{
	unsigned ring = 0;
	for (unsigned i = 0; i < rt->options.ports; i++) {
		unsigned of_port = port_ring(&rt->options.port[i]);
		ring = of_port > ring ? of_port : ring;
	}
	return 4 * ring / SY_BURST;
}

void workers_drain(struct sy_runtime *rt)
{
	bool work = true;
	shaping_open_all(rt);
	for (unsigned i = 0; i < rt->workers; i++)
		rt->worker[i].private->round_cycles = UINT64_MAX; /* no sweeps meanwhile */
	for (unsigned polls_left = drain_polls(rt); work && polls_left > 0; polls_left--) {
		work = false;
		for (unsigned i = 0; i < rt->workers; i++)
			work |= worker_poll(&rt->worker[i]);
	}
	for (unsigned i = 0; i < rt->workers; i++)
		rt->worker[i].private->sources = 0; /* the devices are released next */
	for (unsigned polls_left = DRAIN_MAX_POLLS; work && polls_left > 0; polls_left--) {
		work = false;
		for (unsigned i = 0; i < rt->workers; i++)
			work |= worker_poll(&rt->worker[i]);
	}
	shaping_drop_all(rt);
	for (unsigned i = 0; i < rt->workers; i++)
		unresolved_drop_all(&rt->worker[i]);
}

void workers_close(struct sy_runtime *rt)
{
	if (!rt->worker)
		return;
	steer_close(rt);
	for (unsigned i = 0; i < rt->workers; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		if (!p)
			continue;
		if (p->wake_fd >= 0)
			close(p->wake_fd);
		if (p->epoll_fd >= 0)
			close(p->epoll_fd);
		sampler_close(&rt->worker[i]);
		rte_free(p->neighbour_requests);
		rte_free(p);
	}
	free(rt->worker);
}

/* ---- calls from the control thread ----------------------------------------------------------- */

unsigned sy_worker_count(const struct sy_runtime *rt)
{
	return rt->workers;
}

struct sy_worker *sy_worker_at(const struct sy_runtime *rt, unsigned id)
{
	return &rt->worker[id];
}

bool sy_worker_shares_cpu(const struct sy_worker *w)
{
	return SY_READ(w->private->cpu_wait.shared);
}

unsigned sy_slot_worker(const struct sy_runtime *rt, uint8_t slot)
{
	return SY_READ(rt->slot_worker[slot]);
}

void workers_neighbour_changed(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < rt->workers; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		__atomic_fetch_add(&p->neighbours_changed, 1, __ATOMIC_RELEASE);
		worker_wake(&rt->worker[i]);
	}
}

void workers_answer(struct sy_runtime *rt)
{
	struct neighbour_request neighbour_request;
	for (unsigned i = 0; i < rt->workers; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		while (!rte_ring_sc_dequeue_elem(p->neighbour_requests, &neighbour_request,
		                                 sizeof(neighbour_request))) {
			adjacency_resolve(rt, neighbour_request.port, &neighbour_request.addr);
			__atomic_fetch_add(&p->neighbour_requests_handled, 1, __ATOMIC_RELEASE);
		}
	}
	posts_finish(rt);
}
