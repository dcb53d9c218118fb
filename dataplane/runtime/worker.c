// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_malloc.h>

#include "route.h"

/* Without work for this long, a worker goes to sleep; microseconds. Long enough to bridge the gaps
 * of busy traffic, short enough to leave a shared core to others. */
#define SPIN_US 30
/* Naps when some source can only be polled: the first one is short, as where packets come now and
 * then each waits for its end, and each is twice as long as the one before it. Microseconds. */
#define NAP_FIRST_US 50
#define NAP_LAST_US  1000
/* Enough for all that a receive ring and the rings between workers hold; a device that goes on
 * receiving is not listened to for longer. */
#define DRAIN_TURNS (4 * PORT_XSK_RING / SY_BURST)
/* The most that the clock goes on between two rounds. */
#define CLOCK_STEP_NS UINT64_C(1000000000)

/* ---- time: TSC, disciplined against CLOCK_MONOTONIC each round ---- */

static void clock_start(struct sy_worker_private *p)
{
	struct worker_clock *c = &p->clock;
	c->tsc = c->rate_tsc = rte_rdtsc();
	c->ns = c->rate_ns = sy_clock_ns();
	c->rate = (UINT64_C(1000000000) << 32) / rte_get_tsc_hz();
}

void worker_clock_read(struct sy_worker *w)
{
	const struct worker_clock *c = &w->private->clock;
	w->tsc = rte_rdtsc();
	/* Where the machine was moved, or the worker to another socket, the TSC may have stepped:
	 * back counts as no time, forward as CLOCK_STEP_NS; the next round puts it right. */
	int64_t cycles = (int64_t)(w->tsc - c->tsc);
	__uint128_t passed = cycles > 0 ? (__uint128_t)cycles * c->rate >> 32 : 0;
	uint64_t ns = c->ns + (passed < CLOCK_STEP_NS ? (uint64_t)passed : CLOCK_STEP_NS);
	if (ns > w->now_ns) /* a correction never turns it back */
		w->now_ns = ns;
}

static void clock_discipline(struct sy_worker *w)
{
	struct worker_clock *c = &w->private->clock;
	c->tsc = rte_rdtsc();
	c->ns = sy_clock_ns();
	bool stepped = c->tsc <= c->rate_tsc; /* back: the rate is measured anew */
	if (stepped || c->ns - c->rate_ns > UINT64_C(1000000000)) {
		if (!stepped)
			c->rate = (uint64_t)(((__uint128_t)(c->ns - c->rate_ns) << 32) /
			                     (c->tsc - c->rate_tsc));
		c->rate_tsc = c->tsc;
		c->rate_ns = c->ns;
	}
	worker_clock_read(w);
	w->private->now_s = (uint32_t)(w->now_ns / 1000000000u);
}

/* ---- drops and packets ---- */

void sy_packet_drop(struct sy_worker *w, struct rte_mbuf *m, enum sy_drop reason)
{
	SY_COUNT(w->counters.drop[reason], 1);
	rte_pktmbuf_free(m);
}

void sy_burst_drop(struct sy_worker *w, struct sy_burst *b, unsigned i, enum sy_drop reason)
{
	b->next[i] = SY_NEXT_GONE;
	sy_packet_drop(w, b->mbuf[i], reason);
}

struct rte_mbuf *sy_packet_alloc(struct sy_worker *w)
{
	return rte_pktmbuf_alloc(w->rt->pool);
}

/* ---- the loop ---- */

static void burst_run(struct sy_worker *w, unsigned n, bool handed_over)
{
	struct sy_burst *b = &w->private->burst;
	b->count = n;
	b->handed_over = handed_over;
	handover_ahead(w, b);
	memset(b->next, SY_NEXT_LOOKUP, n);
	memset(b->via, 0, n * sizeof(b->via[0]));
	for (const struct sy_stage *s = w->rt->options.pipeline; s->name; s++)
		s->run(w, b);
	for (unsigned i = 0; i < b->count; i++)
		if (b->next[i] != SY_NEXT_GONE) /* no stage wanted it */
			sy_burst_drop(w, b, i, SY_DROP_NOT_OURS);
	handover_passed(w, b);
	transmit_flush(w);
	handover_push(w);
	SY_COUNT(w->counters.bursts, 1);
}

static bool source_poll(struct sy_worker *w, const struct worker_source *s)
{
	struct rte_mbuf **m = w->private->burst.mbuf;
	unsigned n = s->port->ops->rx(s->port, s->queue, m, SY_BURST), bytes = 0;
	if (!n)
		return false;
	w->private->burst.mac = SY_READ(s->port->mac);
	for (unsigned i = 0; i < n; i++) {
		m[i]->port = (uint16_t)s->port->id;
		bytes += m[i]->pkt_len;
	}
	struct port_queue_counters *c = &s->port->counters[s->queue];
	SY_COUNT(c->rx_packets, n);
	SY_COUNT(c->rx_bytes, bytes);
	SY_COUNT(w->counters.rx_packets, n);
	SY_COUNT(w->counters.rx_bytes, bytes);
	burst_run(w, n, false);
	return true;
}

/* What others cannot send themselves. */
static bool neighbour_poll(struct sy_worker *w, unsigned from)
{
	struct rte_mbuf *m[SY_BURST];
	unsigned n = ring_take(w->private->transmit_in[from], m, SY_BURST);
	for (unsigned i = 0; i < n; i++)
		transmit_gather(w, m[i]);
	if (n)
		transmit_flush(w);
	return n;
}

bool sy_packet_again(struct sy_worker *w, struct rte_mbuf *m)
{
	struct sy_gather *g = &w->private->again;
	if (g->count == SY_BURST)
		return false;
	g->mbuf[g->count++] = m;
	return true;
}

/* Behind the bursts that held them back, and behind what those handed over. */
static void again_run(struct sy_worker *w)
{
	struct sy_gather *g = &w->private->again;
	unsigned n = g->count;
	memcpy(w->private->burst.mbuf, g->mbuf, n * sizeof(g->mbuf[0]));
	g->count = 0;
	burst_run(w, n, true);
}

static void call_answer(struct sy_worker *w)
{
	struct worker_call *call = __atomic_exchange_n(&w->private->call, NULL, __ATOMIC_ACQ_REL);
	if (!call) /* taken back */
		return;
	call->fn(w, call->ctx);
	__atomic_store_n(&call->done, true, __ATOMIC_RELEASE);
}

static void sources_wake(struct sy_worker *w)
{
	const struct sy_worker_private *p = w->private;
	for (unsigned i = 0; i < p->sources; i++)
		if (p->source[i].port->ops->wake)
			p->source[i].port->ops->wake(p->source[i].port, p->source[i].queue);
}

static void round_run(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	clock_discipline(w);
	p->round_tsc = w->tsc;
	sources_wake(w);
	if (p->waiting_count)
		transmit_waiting(w, false);
	if (w->rt->options.round)
		w->rt->options.round(w);
}

bool worker_turn(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	bool work = false;
	worker_clock_read(w);
	w->link_epoch = (uint64_t)SY_RCU_READ(w->rt->links_changed) << 40 | p->now_s;
	handover_begin(w);
	for (unsigned i = 0; i < p->sources; i++)
		work |= source_poll(w, &p->source[i]);
	for (unsigned from = 0; from < w->rt->workers; from++)
		if (from != w->id)
			work |= neighbour_poll(w, from);
	for (unsigned n; (n = handover_receive(w, &p->burst)) > 0; work = true)
		burst_run(w, n, true);
	if (p->again.count)
		again_run(w);
	handover_tell(w);
	handover_flush(w);
	if (SY_READ(p->call)) {
		call_answer(w);
		work = true;
	}
	uint32_t changed = SY_RCU_READ(p->neighbours_changed);
	if (p->waiting_count && changed != p->neighbours_seen)
		transmit_waiting(w, false);
	p->neighbours_seen = changed;
	if (w->tsc - p->round_tsc >= p->round_cycles)
		round_run(w);
	transmit_flush(w); /* what calls, rounds and waiting packets left */
	handover_flush(w);
	return work;
}

/*
 * Nobody's wake-up is lost: the sleeper sets `asleep`, then looks for work; a producer puts work in
 * place, then looks at `asleep`. Both have a full fence between, so at least one sees the other.
 * The first producer to take the flag back writes the eventfd, edge-triggered in epoll: it need not
 * be read, and a write that comes late costs one turn more. AF_XDP sockets are level-triggered.
 */
static void worker_sleep(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	struct epoll_event ev[8];
	__atomic_store_n(&p->asleep, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (handover_is_empty(w) && !SY_READ(p->call) && !SY_READ(p->stop) &&
	    SY_READ(p->neighbours_changed) == p->neighbours_seen) {
		uint64_t cycles_per_us = p->round_cycles / (SY_ROUND_MS * 1000);
		uint64_t since = rte_rdtsc() - p->round_tsc;
		uint64_t left =
		        since < p->round_cycles ? (p->round_cycles - since) / cycles_per_us + 1 : 0;
		bool nap = p->must_poll;
		for (unsigned i = 0; i < p->sources && !nap; i++)
			nap = p->source[i].port->ops->is_pending(p->source[i].port,
			                                         p->source[i].queue);
		SY_COUNT(w->counters.sleeps, 1);
		sources_wake(w);
		rte_rcu_qsbr_thread_offline(rcu_qsbr(w->rt->rcu), w->id);
		if (nap && left > p->nap_us) {
			left = p->nap_us;
			p->nap_us = 2 * p->nap_us < NAP_LAST_US ? 2 * p->nap_us : NAP_LAST_US;
		}
		const struct timespec wait = {.tv_nsec = (long)left * 1000};
		int n = epoll_pwait2(p->epoll_fd, ev, 8, &wait, NULL);
		rte_rcu_qsbr_thread_online(rcu_qsbr(w->rt->rcu), w->id);
		if (n > 0)
			SY_COUNT(w->counters.wakeups, 1);
	}
	__atomic_store_n(&p->asleep, 0, __ATOMIC_RELAXED);
}

/* Behind the fence. */
static void sleeper_wake(struct sy_worker *w)
{
	if (!SY_READ(w->private->asleep) ||
	    !__atomic_exchange_n(&w->private->asleep, 0, __ATOMIC_RELAXED))
		return;
	uint64_t one = 1;
	ssize_t put = write(w->private->wake_fd, &one, sizeof(one));
	(void)put; /* full: never read, and 2^64 is far */
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

static void worker_pin(struct sy_worker *w)
{
	cpu_set_t set;
	char name[16];
	snprintf(name, sizeof(name), "sy-worker-%u", w->id);
	pthread_setname_np(pthread_self(), name);
	if (w->private->core < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(w->private->core, &set);
	int code = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (code)
		sy_log(SY_LOG_WARN, "runtime", "worker %u cannot be pinned to CPU %d: %s", w->id,
		       w->private->core, strerror(code));
}

static void *worker_main(void *arg)
{
	struct sy_worker *w = arg;
	struct sy_worker_private *p = w->private;
	struct rte_rcu_qsbr *qsbr = rcu_qsbr(w->rt->rcu);
	worker_pin(w);
	if (rte_thread_register()) /* still correct, only without its own cache of the pool */
		sy_log(SY_LOG_WARN, "runtime", "worker %u is unknown to EAL: %s", w->id,
		       rte_strerror(rte_errno));
	rte_rcu_qsbr_thread_register(qsbr, w->id);
	rte_rcu_qsbr_thread_online(qsbr, w->id);
	clock_discipline(w);
	uint64_t last_work = w->tsc, before = w->tsc;
	while (!SY_READ(p->stop)) {
		bool work = worker_turn(w);
		rte_rcu_qsbr_quiescent(qsbr, w->id);
		uint64_t now = rte_rdtsc();
		if (work) {
			last_work = now;
			p->nap_us = NAP_FIRST_US;
			SY_COUNT(w->counters.busy_cycles, now - before);
		} else {
			if (now - last_work > p->spin_cycles) {
				worker_sleep(w);
				now = rte_rdtsc();
			} else {
				rte_pause();
			}
			SY_COUNT(w->counters.idle_cycles, now - before);
		}
		before = now;
	}
	transmit_waiting(w, true);
	rte_rcu_qsbr_thread_offline(qsbr, w->id);
	rte_rcu_qsbr_thread_unregister(qsbr, w->id);
	rte_thread_unregister();
	return NULL;
}

/* ---- the interaction thread's side ---- */

unsigned sy_worker_count(const struct sy_runtime *rt)
{
	return rt->workers;
}

struct sy_worker *sy_worker_at(const struct sy_runtime *rt, unsigned id)
{
	return &rt->worker[id];
}

unsigned sy_slot_worker(const struct sy_runtime *rt, uint8_t slot)
{
	return SY_READ(rt->slot_worker[slot]);
}

int sy_worker_call(struct sy_worker *w, void (*fn)(struct sy_worker *w, void *ctx), void *ctx)
{
	struct sy_worker_private *p = w->private;
	if (!p->running) {
		fn(w, ctx);
		return 0;
	}
	struct worker_call call = {.fn = fn, .ctx = ctx}, *expected = &call;
	__atomic_store_n(&p->call, &call, __ATOMIC_RELEASE);
	worker_wake(w);
	uint64_t deadline = sy_clock_ns() + UINT64_C(1000000000);
	for (unsigned turn = 0; !__atomic_load_n(&call.done, __ATOMIC_ACQUIRE); turn++) {
		if (turn < 1000) {
			rte_pause();
			continue;
		}
		sched_yield();
		/* Taken back, it can no longer run; not taken back, it is running now. */
		if (expected && sy_clock_ns() > deadline) {
			if (__atomic_compare_exchange_n(&p->call, &expected, NULL, false,
			                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
				return -ETIMEDOUT;
			expected = NULL;
		}
	}
	return 0;
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
	struct ask ask;
	for (unsigned i = 0; i < rt->workers; i++)
		while (!rte_ring_sc_dequeue_elem(rt->worker[i].private->asks, &ask, sizeof(ask)))
			adjacency_ask(rt, ask.port, &ask.addr);
}

static int source_add(struct sy_worker *w, struct port *port, unsigned queue)
{
	struct sy_worker_private *p = w->private;
	int fd = port->ops->descriptor(port, queue);
	p->source[p->sources++] = (struct worker_source){.port = port, .queue = queue};
	if (fd < 0) {
		p->must_poll = true;
		return 0;
	}
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
	return epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

static int worker_prepare(struct sy_runtime *rt, struct sy_worker *w, int core)
{
	struct sy_worker_private *p = rte_zmalloc("sy_worker", sizeof(*p), SY_CACHE_LINE);
	ssize_t asks = rte_ring_get_memsize_elem(sizeof(struct ask), WORKER_ASKS);
	if (!p)
		return -ENOMEM;
	w->private = p;
	p->core = core;
	p->nap_us = NAP_FIRST_US;
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	p->asks = rte_zmalloc("sy_asks", (size_t)asks, SY_CACHE_LINE);
	if (p->wake_fd < 0 || p->epoll_fd < 0)
		return -errno;
	if (!p->asks ||
	    rte_ring_init(p->asks, "sy_asks", WORKER_ASKS, RING_F_SP_ENQ | RING_F_SC_DEQ))
		return -ENOMEM;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.fd = p->wake_fd};
	if (epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->wake_fd, &ev))
		return -errno;
	clock_start(p);
	worker_clock_read(w);
	p->spin_cycles = rte_get_tsc_hz() / 1000000 * SPIN_US;
	p->round_cycles = rte_get_tsc_hz() / 1000 * SY_ROUND_MS;
	return 0;
}

int workers_open(struct sy_runtime *rt, struct sy_error *err)
{
	unsigned core[SY_MAX_WORKERS];
	int cores = cores_parse(rt->options.cores, core, SY_MAX_WORKERS, err);
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
		rt->worker[i].path_room = rt->routes->room;
		/* More workers than CPUs, as in tests: the scheduler places them. */
		bool pinned = rt->workers <= (unsigned)cores;
		int rc = worker_prepare(rt, &rt->worker[i], pinned ? (int)core[i] : -1);
		if (rc)
			return sy_fail(err, -rc, "worker %u: %s", i, strerror(-rc));
	}
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		rt->slot_worker[slot] = (uint8_t)(slot % rt->workers);
	return handover_open(rt, err);
}

void workers_note_queues(struct sy_runtime *rt)
{
	bool suffice = true;
	for (unsigned i = 0; i < rt->ports; i++)
		suffice = suffice && rt->port[i]->queues >= rt->workers;
	for (unsigned i = 0; i < rt->workers; i++)
		rt->worker[i].queues_suffice = suffice;
}

int workers_bind(struct sy_runtime *rt, struct sy_error *err)
{
	workers_note_queues(rt);
	for (unsigned i = 0; i < rt->ports; i++) {
		for (unsigned q = 0; q < rt->port[i]->queues; q++) {
			struct sy_worker *w = &rt->worker[q % rt->workers];
			int rc = source_add(w, rt->port[i], q);
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
	sigfillset(&all); /* signals are the interaction thread's */
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
		if (!p || !p->running)
			continue;
		__atomic_store_n(&p->stop, true, __ATOMIC_RELAXED);
		worker_wake(&rt->worker[i]);
	}
	for (unsigned i = 0; i < rt->workers; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		if (!p || !p->running)
			continue;
		pthread_join(p->thread, NULL);
		p->running = false;
	}
}

void workers_drain(struct sy_runtime *rt)
{
	bool work = true;
	for (unsigned i = 0; i < rt->workers; i++)
		rt->worker[i].private->round_cycles = UINT64_MAX; /* no sweeps meanwhile */
	for (unsigned turn = 0; work && turn < DRAIN_TURNS; turn++) {
		work = false;
		for (unsigned i = 0; i < rt->workers; i++)
			work |= worker_turn(&rt->worker[i]);
	}
	for (unsigned i = 0; i < rt->workers; i++)
		rt->worker[i].private->sources = 0; /* the devices go next */
	while (work) {
		work = false;
		for (unsigned i = 0; i < rt->workers; i++)
			work |= worker_turn(&rt->worker[i]);
	}
	for (unsigned i = 0; i < rt->workers; i++)
		transmit_waiting(&rt->worker[i], true);
}

void workers_close(struct sy_runtime *rt)
{
	if (!rt->worker)
		return;
	handover_close(rt);
	for (unsigned i = 0; i < rt->workers; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		if (!p)
			continue;
		if (p->wake_fd >= 0)
			close(p->wake_fd);
		if (p->epoll_fd >= 0)
			close(p->epoll_fd);
		rte_free(p->asks);
		rte_free(p);
	}
	free(rt->worker);
}
