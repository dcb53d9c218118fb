// SPDX-License-Identifier: Apache-2.0
/*
 * One worker: its loop and its clock; worker_sleep.c has its sleep. Its thread (started by
 * workers.c) runs worker_main(), which calls worker_poll() repeatedly, and worker_sleep() if there
 * is no work:
 *
 *   source_poll()      a burst from each queue          ─┐
 *   steer_receive()    bursts from other workers        ─┼─► burst_run(): the pipeline's stages
 *   resubmitted_run()  packets that a stage resubmitted ─┘
 *   options.poll()     packets from other sources
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include <sy_confine.h>
#include <sy_post.h>
#include <sy_shaping.h>

#include "route.h"

/* From this many waiting packets on, in a queue at least half full, the worker is behind. */
#define BEHIND_FROM 1024
/* Assumed capacity of a queue that does not report its fill level. */
#define UNCOUNTED 4096
/* Max step of the clock between two rounds. */
#define CLOCK_STEP_NS UINT64_C(1000000000)

/* ---- time: TSC, disciplined against CLOCK_MONOTONIC each round ------------------------------- */

void worker_clock_start(struct sy_worker_private *p)
{
	struct worker_clock *c = &p->clock;
	c->tsc = c->rate_tsc = rte_rdtsc();
	c->ns = c->rate_ns = sy_clock_ns();
	c->rate = (UINT64_C(1000000000) << 32) / rte_get_tsc_hz();
}

/* The time at `tsc`. The TSC may step if the machine was migrated or the worker moved to another
 * socket. A step back counts as no time, a step forward as CLOCK_STEP_NS; the next round corrects
 * it. */
static uint64_t clock_ns_at(const struct worker_clock *c, uint64_t tsc)
{
	int64_t cycles = (int64_t)(tsc - c->tsc);
	__uint128_t passed = cycles > 0 ? (__uint128_t)cycles * c->rate >> 32 : 0;
	return c->ns + (passed < CLOCK_STEP_NS ? (uint64_t)passed : CLOCK_STEP_NS);
}

void worker_clock_read(struct sy_worker *w)
{
	w->tsc = rte_rdtsc();
	uint64_t ns = clock_ns_at(&w->private->clock, w->tsc);
	if (ns > w->now_ns) /* never goes back */
		w->now_ns = ns;
}

uint64_t sy_worker_clock_ns(const struct sy_worker *w)
{
	uint64_t ns = clock_ns_at(&w->private->clock, rte_rdtsc());
	return ns > w->now_ns ? ns : w->now_ns;
}

static void clock_discipline(struct sy_worker *w)
{
	struct worker_clock *c = &w->private->clock;
	c->tsc = rte_rdtsc();
	c->ns = sy_clock_ns();
	bool stepped = c->tsc <= c->rate_tsc; /* stepped back: measure the rate again */
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

/* ---- drops and packets ----------------------------------------------------------------------- */

void sy_packet_drop(struct sy_worker *w, struct rte_mbuf *m, enum sy_drop reason)
{
	SY_COUNT(w->counters.drop[reason], 1);
	if (SY_UNLIKELY(--w->private->sample_left[SY_SAMPLE_DROPPED] < 0))
		sample_drop(w, m, reason);
	rte_pktmbuf_free(m);
}

void sy_burst_drop(struct sy_worker *w, struct sy_burst *b, unsigned i, enum sy_drop reason)
{
	b->next[i] = SY_NEXT_DROPPED;
	sy_packet_drop(w, b->mbuf[i], reason);
}

struct rte_mbuf *sy_packet_alloc(struct sy_worker *w)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(w->rt->pool);
	if (SY_LIKELY(m != NULL))
		sy_packet_set_service(m, 0);
	return m;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void burst_run(struct sy_worker *w, unsigned n, bool steered)
{
	struct sy_burst *b = &w->private->burst;
	b->count = n;
	b->steered = steered;
	memset(b->next, SY_NEXT_LOOKUP, n);
	memset(b->via, 0, n * sizeof(b->via[0]));
	for (const struct sy_stage *s = w->rt->options.pipeline; s->name; s++)
		s->run(w, b);
	for (unsigned i = 0; i < b->count; i++)
		if (!sy_next_has_left(b->next[i])) /* no stage handled it */
			sy_burst_drop(w, b, i, SY_DROP_UNKNOWN_DESTINATION);
	transmit_flush(w);
	steer_push(w);
	SY_COUNT(w->counters.bursts, 1);
}

/* Polls of a running worker are never this far apart: it sleeps for less. So its thread did not
 * run. */
#define STALL_NS UINT64_C(20000000)
/* A stall excuses a full queue at most this often: a worker that stalls all the time cannot keep
 * up. */
#define EXCUSE_NS UINT64_C(1000000000)
/* Upper bound of the time in which a worker empties a full receive queue. */
#define CATCH_UP_NS UINT64_C(100000000)

static void poll_note(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	uint64_t gap = p->poll_ns ? w->now_ns - p->poll_ns : 0;
	p->poll_ns = w->now_ns;
	p->stalled = false;
	if (SY_LIKELY(gap <= STALL_NS))
		return;
	p->lag_ns = gap;
	p->lag_until_ns = w->now_ns + CATCH_UP_NS;
	p->stalled = w->now_ns >= p->excuse_ns;
	if (p->stalled)
		p->excuse_ns = w->now_ns + EXCUSE_NS;
}

bool worker_is_excused(unsigned *excused, bool stalled, unsigned n, unsigned waiting)
{
	if (stalled)
		*excused = n + waiting;
	if (*excused == 0)
		return false;
	*excused -= n < *excused ? n : *excused;
	return true;
}

uint64_t sy_worker_lag_ns(const struct sy_worker *w)
{
	const struct sy_worker_private *p = w->private;
	return w->now_ns < p->lag_until_ns ? p->lag_ns : 0;
}

/* Call after a burst of n packets. The worker is behind from when its queue is half full until a
 * quarter is left. Packets that arrived while the worker did not run do not count. */
static bool source_is_behind(struct worker_source *s, unsigned n, uint64_t now_ns, bool stalled)
{
	unsigned capacity;
	if (n < SY_BURST) {
		s->excused = 0;
		sy_seen_burst(&s->seen, n, 0, now_ns);
		return false;
	}
	unsigned waiting = s->port->ops->waiting(s->port, s->queue, &capacity);
	unsigned max = capacity / 2 < BEHIND_FROM ? capacity / 2 : BEHIND_FROM;
	sy_seen_burst(&s->seen, n, capacity ? waiting : UNCOUNTED, now_ns);
	if (SY_UNLIKELY(stalled || s->excused) &&
	    worker_is_excused(&s->excused, stalled, n, waiting))
		return false;
	return waiting > (s->behind ? max / 2 : max);
}

uint64_t sy_worker_seen_ns(const struct sy_worker *w)
{
	const struct sy_worker_private *p = w->private;
	uint64_t seen = w->now_ns;
	for (unsigned i = 0; i < p->sources; i++)
		seen = p->source[i].seen.ns < seen ? p->source[i].seen.ns : seen;
	if (w->rt->workers > 1 && p->steered.seen_ns < seen)
		seen = p->steered.seen_ns;
	return seen;
}

/* Receives a burst from one queue of one port and runs the pipeline on it. */
static bool source_poll(struct sy_worker *w, struct worker_source *s)
{
	struct rte_mbuf **m = w->private->burst.mbuf;
	unsigned n = s->port->ops->rx(s->port, s->queue, m, SY_BURST), bytes = 0;
	w->private->burst.behind = s->behind =
	        source_is_behind(s, n, w->now_ns, w->private->stalled);
	if (!n)
		return false;
	w->private->burst.mac = SY_READ(s->port->mac);
	for (unsigned i = 0; i < n; i++) {
		m[i]->port = (uint16_t)s->port->id;
		bytes += m[i]->pkt_len;
	}
	if (SY_UNLIKELY(SY_READ(w->rt->shaping)))
		for (unsigned i = 0; i < n; i++)
			sy_packet_set_service(m[i], 0);
	struct port_queue_counters *c = &s->port->counters[s->queue];
	SY_COUNT(c->rx_packets, n);
	SY_COUNT(c->rx_bytes, bytes);
	SY_COUNT(w->counters.rx_packets, n);
	SY_COUNT(w->counters.rx_bytes, bytes);
	if (SY_UNLIKELY((w->private->sample_left[SY_SAMPLE_RECEIVED] -= n) < 0))
		sample_burst(w, m, n);
	burst_run(w, n, false);
	return true;
}

/* Sends the packets that another worker has queued for this worker's transmit queue. */
static bool transmit_ring_poll(struct sy_worker *w, unsigned from)
{
	struct rte_mbuf *m[SY_BURST];
	struct ring *ring = w->private->transmit_in[from];
	unsigned bursts = 0, n;
	do {
		n = ring_dequeue(ring, m, SY_BURST);
		for (unsigned i = 0; i < n; i++)
			sy_transmit_ready(w, m[i]);
		transmit_flush(w);
	} while (n == SY_BURST && ++bursts < RING_BURSTS);
	if (ring->left == ring->tail)
		return false;
	__atomic_store_n(&ring->left, ring->tail, __ATOMIC_RELEASE);
	return true;
}

bool sy_packets_resubmit(struct sy_worker *w, struct rte_mbuf *const *m, unsigned count)
{
	struct resubmitted *a = &w->private->resubmitted;
	if (count > WORKER_RESUBMITTED - a->count)
		return false;
	for (unsigned i = 0; i < count; i++)
		a->mbuf[(a->first + a->count++) % WORKER_RESUBMITTED] = m[i];
	a->behind |= w->private->burst.behind;
	return true;
}

bool sy_packet_resubmit(struct sy_worker *w, struct rte_mbuf *m)
{
	return sy_packets_resubmit(w, &m, 1);
}

unsigned sy_packet_buffers(const struct sy_runtime *rt)
{
	return rt->pool->size;
}

/* Runs the packets of sy_packet_resubmit() after the bursts that resubmitted them. What they steer
 * follows what those bursts steered. Packets resubmitted here wait for the next poll. */
static void resubmitted_run(struct sy_worker *w)
{
	struct resubmitted *a = &w->private->resubmitted;
	const bool behind = a->behind;
	a->behind = false;
	for (unsigned left = a->count; left > 0;) {
		unsigned n = left < SY_BURST ? left : SY_BURST;
		for (unsigned i = 0; i < n; i++)
			w->private->burst.mbuf[i] = a->mbuf[(a->first + i) % WORKER_RESUBMITTED];
		a->first = (a->first + n) % WORKER_RESUBMITTED;
		a->count -= n;
		left -= n;
		w->private->burst.behind = behind;
		burst_run(w, n, true);
	}
}

static void round_run(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	clock_discipline(w);
	p->round_tsc = w->tsc;
	cpu_wait_note(&p->cpu_wait, cpu_wait_ns(p->cpu_wait.fd), w->now_ns);
	worker_sources_wake(w);
	sample_round(w);
	if (p->unresolved.count)
		unresolved_update(w);
	if (w->rt->options.round)
		w->rt->options.round(w);
}

bool worker_poll(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	bool work = false;
	worker_clock_read(w);
	poll_note(w);
	w->link_epoch = (uint64_t)SY_RCU_READ(w->rt->links_changed) << 40 | p->now_s;
	steer_begin(w);
	for (unsigned i = 0; i < p->sources; i++)
		work |= source_poll(w, &p->source[i]);
	for (unsigned from = 0; from < w->rt->workers; from++)
		if (from != w->id)
			work |= transmit_ring_poll(w, from);
	for (unsigned n; (n = steer_receive(w, &p->burst)) > 0; work = true)
		burst_run(w, n, true);
	steer_note_seen(w);
	if (p->resubmitted.count)
		resubmitted_run(w);
	if (w->rt->options.poll)
		work |= w->rt->options.poll(w);
	steer_notify(w);
	steer_flush(w);
	if (SY_READ(p->call)) {
		call_run(w);
		work = true;
	}
	if (SY_READ(p->posts)) {
		posts_run(w);
		work = true;
	}
	uint32_t changed = SY_RCU_READ(p->neighbours_changed);
	if (p->unresolved.count && changed != p->neighbours_seen)
		unresolved_update(w);
	p->neighbours_seen = changed;
	if (w->tsc - p->round_tsc >= p->round_cycles)
		round_run(w);
	transmit_flush(w); /* packets from calls, rounds and queues */
	steer_flush(w);
	if (SY_UNLIKELY(p->shaped))
		work |= shaping_poll(w);
	return work || p->resubmitted.count; /* rounds resubmit packets too */
}

/* If the workers use all CPUs of the process's affinity, the host's programs (ssh, BGP, health
 * checks) have none of their own. Then no worker has priority over them; the control thread keeps
 * the process's priority. */
static void worker_yield_to_host(const struct sy_worker *w)
{
	cpu_set_t all;
	id_t thread = (id_t)gettid();
	if (sched_getaffinity(0, sizeof(all), &all) || w->rt->workers < (unsigned)CPU_COUNT(&all))
		return;
	if (getpriority(PRIO_PROCESS, thread) < 0 && setpriority(PRIO_PROCESS, thread, 0))
		sy_log(SY_LOG_WARN, "runtime", "worker %u stays ahead of the host's programs: %s",
		       w->id, strerror(errno));
}

static void worker_pin(struct sy_worker *w)
{
	cpu_set_t set;
	char name[16];
	worker_yield_to_host(w);
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

void worker_begin(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	p->backoff_us = WORKER_BACKOFF_US;
	/* optional: gives the thread a pool cache; EAL's own threads have one */
	if (rte_lcore_id() == LCORE_ID_ANY && rte_thread_register())
		sy_log(SY_LOG_WARN, "runtime", "EAL does not register worker %u: %s", w->id,
		       rte_strerror(rte_errno));
	rte_rcu_qsbr_thread_register(rcu_qsbr(w->rt->rcu), w->id);
	rte_rcu_qsbr_thread_online(rcu_qsbr(w->rt->rcu), w->id);
	clock_discipline(w);
	p->cpu_wait.fd = cpu_wait_open();
	p->cpu_wait.waited_ns = cpu_wait_ns(p->cpu_wait.fd);
	p->cpu_wait.at_ns = w->now_ns;
	p->last_work = w->tsc;
}

void worker_end(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	unresolved_drop_all(w);
	if (p->cpu_wait.fd >= 0)
		close(p->cpu_wait.fd);
	p->cpu_wait.fd = -1;
	rte_rcu_qsbr_thread_offline(rcu_qsbr(w->rt->rcu), w->id);
	rte_rcu_qsbr_thread_unregister(rcu_qsbr(w->rt->rcu), w->id);
	if (rte_eal_lcore_role(rte_lcore_id()) == ROLE_NON_EAL)
		rte_thread_unregister();
}

bool worker_rests(struct sy_worker *w, bool work)
{
	struct sy_worker_private *p = w->private;
	uint64_t now = rte_rdtsc();
	if (work) {
		p->last_work = now;
		p->backoff_us = WORKER_BACKOFF_US;
		return false;
	}
	return p->cpu_wait.shared || now - p->last_work > p->spin_cycles;
}

void *worker_main(void *arg)
{
	struct sy_worker *w = arg;
	struct sy_worker_private *p = w->private;
	worker_pin(w);
	worker_begin(w);
	sy_confine_worker(); /* from here on it processes untrusted bytes */
	uint64_t before = w->tsc;
	while (!SY_READ(p->stop)) {
		bool work = worker_poll(w), rests;
		rte_rcu_qsbr_quiescent(rcu_qsbr(w->rt->rcu), w->id);
		rests = worker_rests(w, work);
		if (rests)
			worker_sleep(w);
		else if (!work)
			rte_pause();
		uint64_t now = rte_rdtsc();
		if (work)
			SY_COUNT(w->counters.busy_cycles, now - before);
		else
			SY_COUNT(w->counters.idle_cycles, now - before);
		before = now;
	}
	worker_end(w);
	return NULL;
}
