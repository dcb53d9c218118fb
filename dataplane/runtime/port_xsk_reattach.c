// SPDX-License-Identifier: Apache-2.0
/* Reattaches an AF_XDP port to a recreated interface. The kernel unbinds a socket permanently when
 * its interface is deleted, so all sockets are new; the old ones' buffers return to the pool. */
#include <unistd.h>

#include <rte_lcore.h>

#include "port_xsk.h"

#define REAP_NS      UINT64_C(20000000) /* max wait for packets that the kernel is sending */
#define BIND_NS      UINT64_C(100000000)
#define BIND_STEP_NS UINT64_C(10000000) /* duration of an attempt plus the pause after it */

int xsk_director_set(struct port *p, struct sy_error *err)
{
	const struct xsk_port *x = p->impl;
	int rc = sy_director_set(x->director, p->mtu_max + SY_XSK_LINK_BYTES, x->vlans);
	return rc ? sy_fail(err, -rc, "the flow director's settings: %s", strerror(-rc)) : 0;
}

void xsk_set_vlans(struct port *p, bool vlans)
{
	struct xsk_port *x = p->impl;
	if (!x || !x->director || x->vlans == vlans)
		return;
	x->vlans = vlans;
	xsk_director_set(p, NULL);
}

/* Frees unsent packets at once, and packets in the kernel's transmit path once the kernel completes
 * them. */
static void queue_tx_reclaim(struct sy_xsk_queue *q)
{
	uint32_t sent = __atomic_load_n(q->tx.consumer, __ATOMIC_ACQUIRE);
	for (; sent != q->tx.cached_prod; sent++, q->tx_pending--)
		rte_pktmbuf_free(sy_xsk_mbuf(q, xsk_ring_prod__tx_desc(&q->tx, sent)->addr));
	for (uint64_t end = sy_clock_ns() + REAP_NS; q->tx_pending && sy_clock_ns() < end;) {
		sy_xsk_reap(q);
		if (q->tx_pending)
			usleep(100);
	}
	if (q->tx_pending)
		sy_log(SY_LOG_WARN, "runtime", "%u packet buffers are lost with their interface",
		       q->tx_pending);
}

struct reclaim {
	uint16_t mark;
	unsigned count;
};

static void buffer_reclaim(struct rte_mempool *pool, void *ctx, void *object, unsigned index)
{
	struct reclaim *r = ctx;
	struct rte_mbuf *m = object;
	if (m->port != r->mark)
		return;
	m->port = RTE_MBUF_PORT_INVALID;
	rte_pktmbuf_free(m);
	r->count++;
}

/* Closes the queues in parallel: each takes the kernel a while. Afterwards nothing writes to the
 * buffers, and their mark identifies those of the fill rings. */
static void queues_close(struct xsk_port *x)
{
	struct reclaim reclaim = {.mark = x->mark};
	for (unsigned i = 0; i < SY_MAX_QUEUES; i++)
		if (x->queue[i].umem)
			xsk_queue_close_begin(&x->queue[i]);
	for (unsigned i = 0; i < SY_MAX_QUEUES; i++) {
		struct xsk_queue *q = &x->queue[i];
		if (q->closing)
			pthread_join(q->closer, NULL);
		memset(q, 0, sizeof(*q));
	}
	rte_mempool_obj_iter(x->pool, buffer_reclaim, &reclaim);
}

void xsk_lose(struct port *p)
{
	struct xsk_port *x = p->impl;
	for (unsigned i = 0; i < p->queues; i++) {
		sy_director_set_socket(x->director, i, -1);
		if (x->queue[i].socket)
			queue_tx_reclaim(&x->queue[i].rings);
	}
	queues_close(x);
}

static int queue_reattach(struct sy_runtime *rt, struct xsk_port *x, const char *name,
                          unsigned queue, struct sy_error *err)
{
	struct sy_patience patience = sy_patience_begin(BIND_NS, BIND_STEP_NS);
	int rc = xsk_queue_open(x, queue, err);
	if (!rc)
		rc = xsk_queue_bind(x, name, queue, !rt->options.huge, &patience, err);
	if (rc)
		return rc;
	rc = sy_director_set_socket(x->director, queue, x->queue[queue].rings.fd);
	return rc ? sy_fail(err, -rc, "queue %u: the flow director refuses the socket: %s", queue,
	                    strerror(-rc))
	          : 0;
}

/* Buffers available to this thread: not those in other threads' caches. */
static unsigned buffers_there(const struct rte_mempool *pool)
{
	unsigned there = rte_mempool_avail_count(pool), cached = 0;
	for (unsigned i = 0; i < RTE_MAX_LCORE; i++)
		if (i != rte_lcore_id())
			cached += pool->local_cache[i].len;
	return there > cached ? there - cached : 0;
}

/* Are all buffers of the port available at once, and a burst per worker? Other ports use the same
 * pool, and an attempt that fails half way occupies buffers for some time. */
static int buffers_check(const struct sy_runtime *rt, const struct xsk_port *x, unsigned queues,
                         struct sy_error *err)
{
	unsigned there = buffers_there(x->pool);
	unsigned needed = queues * x->ring + rt->workers * SY_BURST;
	if (there >= needed)
		return 0;
	return sy_fail(err, ENOMEM,
	               "%u queue%s, which need %u packet buffers; the pool has %u: give the "
	               "interface fewer queues, or raise --mbufs",
	               queues, queues == 1 ? "" : "s", needed, there);
}

int xsk_reattach(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o, bool *up,
                 struct sy_error *err)
{
	struct xsk_port *x = p->impl;
	unsigned queues = (unsigned)sy_director_queues(x->director);
	if (queues > SY_MAX_QUEUES)
		return sy_fail(err, E2BIG, "%u receive queues, at most %d are supported", queues,
		               SY_MAX_QUEUES);
	int rc = buffers_check(rt, x, queues, err);
	if (rc)
		return rc;
	rc = sy_director_move(x->director, err);
	if (!rc)
		rc = xsk_director_set(p, err);
	for (unsigned i = 0; i < queues && !rc; i++)
		rc = queue_reattach(rt, x, o->name, i, err);
	if (!rc)
		rc = xsk_interface_read(p, up, err);
	if (!rc && p->offloads)
		rc = xsk_large_reattach(p, queues, err);
	if (rc) {
		queues_close(x);
		return rc;
	}
	__atomic_store_n(&p->queues, queues, __ATOMIC_RELAXED);
	snprintf(p->backend, sizeof(p->backend), "xsk %s",
	         sy_director_is_native(x->director) ? "native" : "generic");
	return 0;
}
