// SPDX-License-Identifier: Apache-2.0
#include "crowd.h"

#include <stdio.h>
#include <time.h>

#include <rte_cycles.h>

/* A port's operations get nothing of ours; there is one rig in a process. */
static struct crowd *crowd;

/* So much waits for another worker that more might be lost: a rate without loss is looked for. */
static bool worker_is_ahead(const struct sy_runtime *rt, unsigned id)
{
	for (unsigned w = 0; w < rt->workers; w++)
		if (w != id &&
		    rte_ring_count(rt->worker[w].private->flow_in[id]) > WORKER_FLOW_RING / 2)
			return true;
	return false;
}

static unsigned crowd_rx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	/* From buffer to data; like a vector driver, which initializes no more than it must. */
	const size_t data = sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM;
	struct lane *lane = &crowd->lane[p->id][queue];
	const struct feed_stream *s = __atomic_load_n(&lane->stream, __ATOMIC_ACQUIRE);
	if (!s || worker_is_ahead(crowd->scene->rig.rt, queue) ||
	    rte_mempool_get_bulk(crowd->scene->rig.rt->pool, (void **)m, n) < 0)
		return 0;
	for (unsigned i = 0; i < n; i++) { /* another worker may have had it last */
		__builtin_prefetch(m[i], 1);
		__builtin_prefetch((uint8_t *)m[i] + data, 1);
	}
	for (unsigned i = 0; i < n; i++) {
		if (lane->at >= s->count)
			lane->at = 0;
		const uint8_t *frame = feed_frame(s, lane->at++);
		m[i]->data_off = RTE_PKTMBUF_HEADROOM;
		m[i]->pkt_len = s->len;
		m[i]->data_len = (uint16_t)s->len;
		uint8_t *to = rte_pktmbuf_mtod(m[i], uint8_t *);
		for (uint32_t k = 0; k < s->stride; k += SY_CACHE_LINE)
			memcpy(to + k, frame + k, SY_CACHE_LINE);
	}
	return n;
}

static unsigned crowd_tx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	rte_mempool_put_bulk(crowd->scene->rig.rt->pool, (void **)m, n); /* each is one segment */
	return n;
}

static bool crowd_is_pending(struct port *p, unsigned queue)
{
	return SY_READ(crowd->lane[p->id][queue].stream) != NULL;
}

bool crowd_open(struct crowd *c, struct scene *s)
{
	struct sy_runtime *rt = s->rig.rt;
	struct sy_error err;
	*c = (struct crowd){.scene = s};
	crowd = c;
	for (unsigned p = 0; p < RIG_PORTS; p++) {
		struct port *port = rt->port[p];
		c->feed[p] = port->ops;
		c->ops[p] = *port->ops;
		c->ops[p].rx = crowd_rx;
		c->ops[p].tx = crowd_tx;
		c->ops[p].is_pending = crowd_is_pending;
		port->ops = &c->ops[p];
	}
	for (unsigned w = 0; w < rt->workers; w++)
		rt->worker[w].private->round_cycles = rte_get_tsc_hz() / 1000 * SY_ROUND_MS;
	if (sy_runtime_start(rt, &err) == 0)
		return true;
	fprintf(stderr, "%s\n", err.text);
	return false;
}

void crowd_close(struct crowd *c)
{
	static const struct feed_stream *const nothing[2];
	if (!c->scene)
		return;
	struct sy_runtime *rt = c->scene->rig.rt;
	for (unsigned w = 0; w < rt->workers; w++)
		crowd_feed(c, w, nothing);
	workers_stop(rt);
	for (unsigned p = 0; p < RIG_PORTS; p++)
		rt->port[p]->ops = c->feed[p];
	*c = (struct crowd){0};
}

void crowd_feed(struct crowd *c, unsigned w, const struct feed_stream *const stream[2])
{
	for (unsigned from = 0; from < 2; from++)
		__atomic_store_n(&c->lane[c->scene->port[from]][w].stream, stream[from],
		                 __ATOMIC_RELEASE);
}

static double cpu_ns(pthread_t thread)
{
	clockid_t clock;
	struct timespec t = {0};
	if (pthread_getcpuclockid(thread, &clock) == 0)
		clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static struct crowd_work work_now(const struct crowd *c)
{
	const struct sy_runtime *rt = c->scene->rig.rt;
	struct crowd_work now = {.seconds = (double)sy_clock_ns() / 1e9,
	                         .dropped = scene_drops(c->scene)};
	for (unsigned w = 0; w < rt->workers; w++) {
		const struct sy_worker *worker = &rt->worker[w];
		now.sent += SY_READ(worker->counters.tx_packets);
		now.handed_over += SY_READ(worker->counters.handed_out);
		now.cpu_ns += cpu_ns(worker->private->thread);
	}
	return now;
}

static void pause_ms(unsigned ms)
{
	const struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
	nanosleep(&t, NULL);
}

struct crowd_work crowd_watch(struct crowd *c, unsigned ms, void (*meanwhile)(void *ctx), void *ctx,
                              unsigned period_ms)
{
	struct crowd_work from = work_now(c);
	uint64_t end = sy_clock_ns() + ms * UINT64_C(1000000);
	while (meanwhile && sy_clock_ns() < end) {
		meanwhile(ctx);
		pause_ms(period_ms);
	}
	if (!meanwhile)
		pause_ms(ms);
	struct crowd_work to = work_now(c);
	return (struct crowd_work){to.seconds - from.seconds, to.cpu_ns - from.cpu_ns,
	                           to.sent - from.sent, to.dropped - from.dropped,
	                           to.handed_over - from.handed_over};
}
