// SPDX-License-Identifier: Apache-2.0
#include "thread_pool.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include <rte_cycles.h>

/* A port's operations take no context argument; a process has one harness. */
static struct thread_pool *pool;

#define SECOND_NS UINT64_C(1000000000)
#define LONGER_MS 10000 /* that a run which counted nothing goes on at most */

/* Has the worker steered so many packets to another one that a ring could overflow? The pool
 * measures a rate without loss. */
static bool worker_is_ahead(const struct sy_runtime *rt, unsigned id)
{
	for (unsigned w = 0; w < rt->workers; w++)
		if (w != id &&
		    ring_count(rt->worker[w].private->flow_in[id]) > WORKER_FLOW_RING / 2)
			return true;
	return false;
}

/* The next frame to arrive. */
static inline const uint8_t *lane_frame(struct lane *lane, const struct injector_stream *s,
                                        const struct injector_stream *first)
{
	uint64_t *at = first ? &lane->first_at : &lane->at;
	if (*at >= s->count)
		*at = 0;
	return injector_frame(s, (*at)++);
}

static unsigned thread_pool_rx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	/* Distance from buffer to data. Like a vector driver, this initializes only what it
	 * must. */
	const size_t data = sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM;
	struct lane *lane = &pool->lane[p->id][queue];
	const struct injector_stream *first = __atomic_load_n(&lane->first, __ATOMIC_ACQUIRE);
	const struct injector_stream *s = __atomic_load_n(&lane->stream, __ATOMIC_ACQUIRE);
	if (SY_UNLIKELY(first != NULL)) {
		s = first;
		if (n > s->count - lane->first_at)
			n = (unsigned)(s->count - lane->first_at);
	}
	if (!s || worker_is_ahead(pool->fixture->harness.rt, queue) ||
	    rte_mempool_get_bulk(pool->fixture->harness.rt->pool, (void **)m, n) < 0)
		return 0;
	for (unsigned i = 0; i < n; i++) { /* another worker's cache may have the buffer */
		__builtin_prefetch(m[i], 1);
		__builtin_prefetch((uint8_t *)m[i] + data, 1);
	}
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *frame = lane_frame(lane, s, first);
		m[i]->data_off = RTE_PKTMBUF_HEADROOM;
		m[i]->pkt_len = s->len;
		m[i]->data_len = (uint16_t)s->len;
		uint8_t *to = rte_pktmbuf_mtod(m[i], uint8_t *);
		for (uint32_t k = 0; k < s->stride; k += SY_CACHE_LINE)
			memcpy(to + k, frame + k, SY_CACHE_LINE);
	}
	if (SY_UNLIKELY(first && lane->first_at == first->count)) {
		lane->first_at = 0;
		__atomic_store_n(&lane->first, NULL, __ATOMIC_RELEASE);
	}
	return n;
}

static unsigned thread_pool_tx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	rte_mempool_put_bulk(pool->fixture->harness.rt->pool, (void **)m,
	                     n); /* each is one segment */
	return n;
}

static bool thread_pool_is_pending(struct port *p, unsigned queue)
{
	return SY_READ(pool->lane[p->id][queue].stream) != NULL;
}

/* The nth core that this process may use, counted from the last one; −1: there are fewer. */
static int core_from_last(unsigned n)
{
	cpu_set_t address_set;
	if (sched_getaffinity(0, sizeof(address_set), &address_set) == 0)
		for (int core = CPU_SETSIZE - 1; core >= 0; core--)
			if (CPU_ISSET(core, &address_set) && n-- == 0)
				return core;
	return -1;
}

static void cores_share(struct sy_runtime *rt)
{
	int core;
	for (unsigned w = 0; w < rt->workers; w++)
		rt->worker[w].private->core = core_from_last(w);
	cpu_set_t rest;
	CPU_ZERO(&rest);
	for (unsigned n = rt->workers; (core = core_from_last(n)) >= 0; n++)
		CPU_SET(core, &rest);
	if (CPU_COUNT(&rest))
		sched_setaffinity(0, sizeof(rest), &rest);
}

bool thread_pool_open(struct thread_pool *c, struct fixture *s)
{
	struct sy_runtime *rt = s->harness.rt;
	struct sy_error err;
	*c = (struct thread_pool){.fixture = s};
	pool = c;
	for (unsigned p = 0; p < HARNESS_PORTS; p++) {
		struct port *port = rt->port[p];
		c->injector[p] = port->ops;
		c->ops[p] = *port->ops;
		c->ops[p].rx = thread_pool_rx;
		c->ops[p].tx = thread_pool_tx;
		c->ops[p].is_pending = thread_pool_is_pending;
		port->ops = &c->ops[p];
	}
	for (unsigned w = 0; w < rt->workers; w++)
		rt->worker[w].private->round_cycles = rte_get_tsc_hz() / 1000 * SY_ROUND_MS;
	cores_share(rt);
	if (sy_runtime_start(rt, &err) == 0)
		return true;
	fprintf(stderr, "%s\n", err.text);
	return false;
}

void thread_pool_close(struct thread_pool *c)
{
	static const struct injector_stream *const nothing[2];
	if (!c->fixture)
		return;
	struct sy_runtime *rt = c->fixture->harness.rt;
	for (unsigned w = 0; w < rt->workers; w++)
		thread_pool_inject(c, w, nothing);
	workers_stop(rt);
	for (unsigned p = 0; p < HARNESS_PORTS; p++)
		rt->port[p]->ops = c->injector[p];
	*c = (struct thread_pool){0};
}

void thread_pool_inject(struct thread_pool *c, unsigned w,
                        const struct injector_stream *const stream[2])
{
	for (unsigned from = 0; from < 2; from++)
		__atomic_store_n(&c->lane[c->fixture->port[from]][w].stream, stream[from],
		                 __ATOMIC_RELEASE);
}

static void pause_until(uint64_t ns)
{
	const struct timespec t = {(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

void thread_pool_inject_once(struct thread_pool *c, unsigned w, unsigned port,
                             const struct injector_stream *stream)
{
	const struct injector_stream **first = &c->lane[port][w].first;
	__atomic_store_n(first, stream, __ATOMIC_RELEASE);
	while (__atomic_load_n(first, __ATOMIC_ACQUIRE))
		pause_until(sy_clock_ns() + SECOND_NS / 10000);
}

static double cpu_ns(pthread_t thread)
{
	clockid_t clock;
	struct timespec t = {0};
	if (pthread_getcpuclockid(thread, &clock) == 0)
		clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static struct pool_work work_now(const struct thread_pool *c)
{
	const struct sy_runtime *rt = c->fixture->harness.rt;
	struct pool_work now = {.seconds = (double)sy_clock_ns() / 1e9,
	                        .dropped = fixture_drops(c->fixture)};
	for (unsigned w = 0; w < rt->workers; w++) {
		const struct sy_worker *worker = &rt->worker[w];
		now.sent += SY_READ(worker->counters.tx_packets);
		now.steered += SY_READ(worker->counters.steered_out);
		now.cpu_ns += cpu_ns(worker->private->thread);
	}
	return now;
}

void thread_pool_pause(unsigned ms)
{
	pause_until(sy_clock_ns() + ms * UINT64_C(1000000));
}

struct pool_work thread_pool_watch(struct thread_pool *c, unsigned ms, void (*meanwhile)(void *ctx),
                                   void *ctx, unsigned times)
{
	uint64_t start = sy_clock_ns(), ns = ms * UINT64_C(1000000);
	struct pool_work from = work_now(c);
	for (unsigned i = 0; meanwhile && i < times; i++) {
		pause_until(start + ns * i / times);
		meanwhile(ctx);
	}
	pause_until(start + ns);
	struct pool_work to = work_now(c);
	for (unsigned i = 0; to.sent == from.sent && i < LONGER_MS; i++, to = work_now(c))
		thread_pool_pause(1);
	return (struct pool_work){to.seconds - from.seconds, to.cpu_ns - from.cpu_ns,
	                          to.sent - from.sent, to.dropped - from.dropped,
	                          to.steered - from.steered};
}
