// SPDX-License-Identifier: Apache-2.0
/* AF_XDP on a kernel interface. Every queue has a socket with its own UMEM; all UMEMs cover the
 * packet pool (sy_xsk_queue.h). */
#include "port_xsk.h"
#include <linux/ethtool.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sy_large.h>

#define FLUSH_NS UINT64_C(2000000) /* for unsent packets when the port is released */
#define KICKS    4                 /* system calls for one burst, at most */

static struct sy_director *xsk_director(const struct port *p)
{
	return p->impl ? ((struct xsk_port *)p->impl)->director : NULL;
}

static struct sy_xsk_queue *rings_of(const struct port *p, unsigned queue)
{
	return &((struct xsk_port *)p->impl)->queue[queue].rings;
}

/* What the kernel is too busy for stays in the ring until the next xsk_rx(). */
static void tx_kick(struct port *p, unsigned queue)
{
	struct sy_xsk_queue *q = rings_of(p, queue);
	if (!xsk_ring_prod__needs_wakeup(&q->tx))
		return;
	unsigned dropped = sy_xsk_kick_tx(q, KICKS, sendto);
	if (SY_UNLIKELY(dropped))
		SY_COUNT(p->counters[queue].no_carrier, dropped);
	sy_xsk_reap(q);
}

/* ---- receive --------------------------------------------------------------------------------- */

static unsigned xsk_rx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct sy_xsk_queue *q = rings_of(p, queue);
	if (q->tx_pending) {
		sy_xsk_reap(q);
		if (sy_xsk_has_unsent(q))
			tx_kick(p, queue);
	}
	return sy_xsk_receive(q, m, n, recvfrom);
}

static unsigned xsk_waiting(struct port *p, unsigned queue, unsigned *room)
{
	*room = ((const struct xsk_port *)p->impl)->ring;
	return sy_xsk_waiting(rings_of(p, queue));
}

static void xsk_wake(struct port *p, unsigned queue)
{
	sy_xsk_kick_rx(rings_of(p, queue), recvfrom);
}

/* ---- transmit -------------------------------------------------------------------------------- */

static unsigned frames_send(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct sy_xsk_queue *q = rings_of(p, queue);
	sy_xsk_reap(q);
	sy_xsk_refill(q, recvfrom);
	n = sy_xsk_enqueue(q, m, n);
	tx_kick(p, queue);
	return n;
}

/* Frames and large segments take different ways, in their order. */
static unsigned mixed_send(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct xsk_queue *q = &((struct xsk_port *)p->impl)->queue[queue];

	for (unsigned done = 0, end, sent; done < n;) {
		if (sy_is_large(m[done])) {
			if (!sy_large_send(q->large_fd, m[done], writev)) /* it alone is lost */
				SY_COUNT(p->counters[queue].unfit, 1);
			rte_pktmbuf_free(m[done++]);
			continue;
		}
		for (end = done + 1; end < n && !sy_is_large(m[end]);)
			end++;
		sent = frames_send(p, queue, m + done, end - done);
		done += sent;
		if (done < end)
			return done;
	}
	return n;
}

static unsigned xsk_tx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	const struct xsk_queue *q = &((struct xsk_port *)p->impl)->queue[queue];
	if (SY_UNLIKELY(!q->socket)) /* the interface is gone */
		return 0;
	return SY_UNLIKELY(q->cuts) ? mixed_send(p, queue, m, n) : frames_send(p, queue, m, n);
}

static unsigned xsk_sending(struct port *p, unsigned queue)
{
	return rings_of(p, queue)->tx_pending;
}

static bool xsk_is_pending(struct port *p, unsigned queue)
{
	const struct sy_xsk_queue *q = rings_of(p, queue);
	return q->fill_missing || (q->tx_pending && sy_xsk_has_unsent(q));
}

static int xsk_descriptor(struct port *p, unsigned queue)
{
	return rings_of(p, queue)->fd;
}

static void xsk_stats(struct port *p, struct sy_port_stats *out)
{
	struct xsk_port *x = p->impl;
	for (unsigned i = 0; i < p->queues; i++)
		out->rx_missed += sy_xsk_missed(x->queue[i].rings.fd, getsockopt);
	sy_director_read_stats(x->director, &out->director);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Reads the interface's present state from the kernel; the mirror reports changes. */
int xsk_interface_read(struct port *p, bool *up, struct sy_error *err)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = fd < 0 ? -errno : 0;
	memcpy(request.ifr_name, p->name, sizeof(request.ifr_name) - 1);
	if (!rc && !ioctl(fd, SIOCGIFHWADDR, &request))
		memcpy(&p->mac, request.ifr_hwaddr.sa_data, 6);
	else if (!rc)
		rc = -errno;
	if (!rc && !ioctl(fd, SIOCGIFMTU, &request))
		port_set_mtu(p, (unsigned)request.ifr_mtu);
	if (!rc && !ioctl(fd, SIOCGIFFLAGS, &request))
		*up = (request.ifr_flags & IFF_UP) && (request.ifr_flags & IFF_RUNNING);
	if (fd >= 0)
		close(fd);
	p->ifindex = (int)if_nametoindex(p->name);
	if (!rc && !p->ifindex) /* deleted meanwhile */
		rc = -ENODEV;
	return rc ? sy_fail(err, -rc, "reading the interface: %s", strerror(-rc)) : 0;
}

static int xsk_open(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
                    struct sy_error *err)
{
	struct xsk_port *x = calloc(1, sizeof(*x));
	void *base;
	if (!x)
		return sy_fail(err, ENOMEM, "no memory");
	p->impl = x;
	x->pool = rt->pool;
	x->ring = port_ring(o);
	x->mark = (uint16_t)(PORT_XSK_MARK | p->id);
	pool_area(rt->pool, &base, &x->len);
	x->base = base;
	p->mtu_max = (uint16_t)port_xsk_mtu_max(rte_pktmbuf_data_room_size(rt->pool));
	snprintf(p->backend, sizeof(p->backend), "xsk");
	int rc = xsk_interface_read(p, &p->up, err);
	if (!rc)
		rc = rt->options.inherit ? sy_director_prepare(o->name, o->mode, &x->director, err)
		                         : sy_director_open(o->name, o->mode, &x->director, err);
	if (rc)
		return rc;
	unsigned queues = (unsigned)sy_director_queues(x->director);
	if (queues > SY_MAX_QUEUES)
		return sy_fail(err, E2BIG,
		               "%u receive queues, at most %d are supported; remedy: ethtool -L %s "
		               "combined %d",
		               queues, SY_MAX_QUEUES, o->name, SY_MAX_QUEUES);
	for (; p->queues < queues && !rc; p->queues++)
		rc = xsk_queue_open(x, p->queues, err);
	return rc;
}

static int xsk_bind(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
                    struct sy_patience *patience, struct sy_error *err)
{
	struct xsk_port *x = p->impl;
	unsigned wait_ms = (unsigned)(sy_patience_left(patience) / 1000000);
	int rc = rt->options.inherit ? sy_director_acquire(x->director, wait_ms, err) : 0;
	if (!rc)
		rc = xsk_director_set(p, err);
	if (rc)
		return rc;
	for (unsigned i = 0; i < p->queues; i++) {
		rc = xsk_queue_bind(x, o->name, i, !rt->options.huge, patience, err);
		if (rc)
			return rc;
		rc = sy_director_set_socket(x->director, i, x->queue[i].rings.fd);
		if (rc)
			return sy_fail(err, -rc,
			               "queue %u: the flow director refuses the socket: %s", i,
			               strerror(-rc));
	}
	if (rt->options.offloads)
		xsk_large_begin(p);
	snprintf(p->backend, sizeof(p->backend), "xsk %s",
	         sy_director_is_native(x->director) ? "native" : "generic");
	return 0;
}

/* ---- releasing ------------------------------------------------------------------------------- */

/* From here on, its packets are dropped and do not wait in a ring that no process reads. */
static void xsk_shut(struct port *p)
{
	struct xsk_port *x = p->impl;
	for (unsigned i = 0; i < p->queues; i++)
		if (x->queue[i].socket)
			sy_director_set_socket(x->director, i, -1);
}

static void queue_flush(struct port *p, unsigned queue, uint64_t deadline)
{
	struct sy_xsk_queue *q = rings_of(p, queue);
	for (sy_xsk_reap(q); q->tx_pending; sy_xsk_reap(q)) {
		if (sy_clock_ns() > deadline)
			return;
		tx_kick(p, queue);
	}
}

static void xsk_release(struct port *p)
{
	struct xsk_port *x = p->impl;
	uint64_t deadline = sy_clock_ns() + FLUSH_NS;
	for (unsigned i = 0; i < p->queues; i++)
		if (x->queue[i].socket)
			queue_flush(p, i, deadline);
	sy_director_close(x->director); /* the successor may continue; it waits for each queue */
	x->director = NULL;
	for (unsigned i = 0; i < p->queues; i++)
		xsk_queue_close_begin(&x->queue[i]);
}

static void xsk_close(struct port *p)
{
	struct xsk_port *x = p->impl;
	if (x->director) {
		xsk_shut(p);
		xsk_release(p);
	}
	for (unsigned i = 0; i < p->queues; i++)
		if (x->queue[i].closing)
			pthread_join(x->queue[i].closer, NULL);
	free(x);
}

const struct port_ops port_xsk_ops = {
        .ring = PORT_XSK_RING,
        .mtu_max = PORT_XSK_MTU_MAX,
        .needs = xsk_needs,
        .open = xsk_open,
        .bind = xsk_bind,
        .rx = xsk_rx,
        .waiting = xsk_waiting,
        .tx = xsk_tx,
        .sending = xsk_sending,
        .is_pending = xsk_is_pending,
        .wake = xsk_wake,
        .descriptor = xsk_descriptor,
        .stats = xsk_stats,
        .shut = xsk_shut,
        .release = xsk_release,
        .lose = xsk_lose,
        .reattach = xsk_reattach,
        .close = xsk_close,
        .director = xsk_director,
        .set_vlans = xsk_set_vlans,
};
