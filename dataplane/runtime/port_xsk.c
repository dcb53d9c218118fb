// SPDX-License-Identifier: Apache-2.0
/*
 * AF_XDP on a kernel interface. Every queue has a socket with its own UMEM; all UMEMs cover the
 * same memory, the packet pool. So a packet received on one port leaves by another without a copy
 * in this process.
 *
 *   mempool object:  | header | struct rte_mbuf | data room …                     |
 *   UMEM chunk:                                 | 256 (XDP_PACKET_HEADROOM) frame |
 *                                               ↑ chunk address = buf_addr − start of the pool
 *
 * Chunks are unaligned: the kernel takes any address, returns it with the frame's offset in the
 * upper 16 bits, and never touches the struct before the data room.
 */
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

#define RING      PORT_XSK_RING
#define FLUSH_NS  UINT64_C(2000000) /* for unsent packets when the port is released */
#define FILL_PART 8 /* a ring of which so great a part is missing is filled at once */
#define KICKS     4 /* at most, for one burst: in copy mode, one system call sends 32 frames */

static struct sy_director *xsk_director(const struct port *p)
{
	return p->impl ? ((struct xsk_port *)p->impl)->director : NULL;
}

static uint64_t chunk_of(const struct xsk_port *x, const struct rte_mbuf *m)
{
	return (uint64_t)((char *)m->buf_addr - x->base);
}

struct rte_mbuf *xsk_mbuf_of(const struct xsk_port *x, uint64_t address)
{
	char *data_room = x->base + xsk_umem__extract_addr(address);
	return (struct rte_mbuf *)(data_room - sizeof(struct rte_mbuf));
}

/* ---- receive --------------------------------------------------------------------------------- */

bool xsk_fill_more(struct xsk_port *x, struct xsk_queue *q)
{
	struct rte_mbuf *m[SY_BURST];
	uint32_t at;
	bool some = false;
	while (q->fill_missing) {
		unsigned n = q->fill_missing < SY_BURST ? q->fill_missing : SY_BURST;
		if (rte_pktmbuf_alloc_bulk(x->pool, m, n))
			break; /* retry at the next turn */
		if (xsk_ring_prod__reserve(&q->fill, n, &at) != n) {
			rte_pktmbuf_free_bulk(m, n);
			break;
		}
		for (unsigned i = 0; i < n; i++) {
			m[i]->port = x->mark;
			*xsk_ring_prod__fill_addr(&q->fill, at + i) = chunk_of(x, m[i]);
		}
		xsk_ring_prod__submit(&q->fill, n);
		q->fill_missing -= n;
		some = true;
	}
	return some;
}

/* A driver that found the ring empty has stopped, and looks again only on a system call. */
static void fill_kick(struct xsk_queue *q)
{
	if (xsk_ring_prod__needs_wakeup(&q->fill))
		recvfrom(q->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

/*
 * Before a burst is sent, the ring gets buffers in the place of what was received. The pool's cache
 * gives first what it got last: so the buffers of the burst, which are in this core's cache, are
 * left for whoever makes packets. Where nothing is sent, or much is missing, reception fills the
 * ring.
 */
static void fill_before(struct xsk_port *x, struct xsk_queue *q)
{
	if (q->fill_missing && xsk_fill_more(x, q))
		fill_kick(q);
}

static bool fill_after(struct xsk_port *x, struct xsk_queue *q, unsigned received)
{
	q->fill_missing += received;
	return (!received || q->fill_missing > x->ring / FILL_PART) && xsk_fill_more(x, q);
}

void xsk_completions_reap(struct xsk_port *x, struct xsk_queue *q)
{
	struct rte_mbuf *m[SY_BURST];
	uint32_t at;
	while (q->tx_flying) {
		unsigned n = xsk_ring_cons__peek(&q->completion, SY_BURST, &at);
		if (!n)
			return;
		for (unsigned i = 0; i < n; i++)
			m[i] = xsk_mbuf_of(x, *xsk_ring_cons__comp_addr(&q->completion, at + i));
		xsk_ring_cons__release(&q->completion, n);
		q->tx_flying -= n;
		rte_pktmbuf_free_bulk(m, n);
	}
}

static bool tx_has_unsent(const struct xsk_queue *q)
{
	return __atomic_load_n(q->tx.consumer, __ATOMIC_RELAXED) != q->tx.cached_prod;
}

/* Lets the kernel send; packets it is too busy for stay in the ring until the next rx(). */
static void tx_kick(struct xsk_port *x, struct xsk_queue *q)
{
	for (unsigned i = 0; i < KICKS && xsk_ring_prod__needs_wakeup(&q->tx); i++) {
		int rc = sendto(q->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 ? errno : 0;
		xsk_completions_reap(x, q);
		if (rc != EAGAIN || !tx_has_unsent(q))
			return;
	}
}

/* The library looks for what has come only where it knows of nothing. It would give a part of it,
 * and a short burst says that the ring is empty. */
static void rx_look(struct xsk_ring_cons *rx, unsigned wanted)
{
	if (rx->cached_prod - rx->cached_cons < wanted)
		rx->cached_prod = __atomic_load_n(rx->producer, __ATOMIC_ACQUIRE);
}

static unsigned xsk_rx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct xsk_port *x = p->impl;
	struct xsk_queue *q = &x->queue[queue];
	uint32_t at;
	if (q->tx_flying) {
		xsk_completions_reap(x, q);
		if (tx_has_unsent(q))
			tx_kick(x, q);
	}
	rx_look(&q->rx, n);
	n = xsk_ring_cons__peek(&q->rx, n, &at);
	for (unsigned i = 0; i < n; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&q->rx, at + i);
		m[i] = xsk_mbuf_of(x, d->addr);
		m[i]->data_off = (uint16_t)xsk_umem__extract_offset(d->addr);
		m[i]->data_len = (uint16_t)d->len;
		m[i]->pkt_len = d->len;
	}
	if (n)
		xsk_ring_cons__release(&q->rx, n);
	if (fill_after(x, q, n) || n)
		fill_kick(q);
	return n;
}

static unsigned xsk_waiting(struct port *p, unsigned queue, unsigned *room)
{
	const struct xsk_port *x = p->impl;
	const struct xsk_queue *q = &x->queue[queue];
	*room = x->ring;
	return __atomic_load_n(q->rx.producer, __ATOMIC_RELAXED) - q->rx.cached_cons;
}

static void xsk_wake(struct port *p, unsigned queue)
{
	fill_kick(&((struct xsk_port *)p->impl)->queue[queue]);
}

/* ---- transmit -------------------------------------------------------------------------------- */

static unsigned frames_send(struct xsk_port *x, struct xsk_queue *q, struct rte_mbuf **m,
                            unsigned n)
{
	uint32_t at;
	xsk_completions_reap(x, q);
	fill_before(x, q);
	/* The completion ring must have space for all packets under way. */
	unsigned completions = RING - q->tx_flying;
	unsigned free = xsk_prod_nb_free(&q->tx, n);
	if (n > completions)
		n = completions;
	if (n > free)
		n = free;
	if (!n || xsk_ring_prod__reserve(&q->tx, n, &at) != n) {
		tx_kick(x, q);
		return 0;
	}
	for (unsigned i = 0; i < n; i++) {
		struct xdp_desc *d = xsk_ring_prod__tx_desc(&q->tx, at + i);
		uint64_t offset = m[i]->data_off;
		d->addr = chunk_of(x, m[i]) | offset << XSK_UNALIGNED_BUF_OFFSET_SHIFT;
		d->len = m[i]->pkt_len;
		d->options = 0;
	}
	xsk_ring_prod__submit(&q->tx, n);
	q->tx_flying += n;
	tx_kick(x, q);
	return n;
}

/* Frames and large segments take different ways, in their order. */
static unsigned mixed_send(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct xsk_port *x = p->impl;
	struct xsk_queue *q = &x->queue[queue];

	for (unsigned done = 0, end, sent; done < n;) {
		if (sy_is_large(m[done])) {
			if (!xsk_large_send(q, m[done])) /* it alone is lost */
				SY_COUNT(p->counters[queue].unfit, 1);
			rte_pktmbuf_free(m[done++]);
			continue;
		}
		for (end = done + 1; end < n && !sy_is_large(m[end]);)
			end++;
		sent = frames_send(x, q, m + done, end - done);
		done += sent;
		if (done < end)
			return done;
	}
	return n;
}

static unsigned xsk_tx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct xsk_port *x = p->impl;
	struct xsk_queue *q = &x->queue[queue];
	if (SY_UNLIKELY(!q->socket)) /* the interface is gone */
		return 0;
	return SY_UNLIKELY(q->cuts) ? mixed_send(p, queue, m, n) : frames_send(x, q, m, n);
}

static unsigned xsk_sending(struct port *p, unsigned queue)
{
	return ((struct xsk_port *)p->impl)->queue[queue].tx_flying;
}

static bool xsk_is_pending(struct port *p, unsigned queue)
{
	const struct xsk_queue *q = &((struct xsk_port *)p->impl)->queue[queue];
	return q->fill_missing || (q->tx_flying && tx_has_unsent(q));
}

static int xsk_descriptor(struct port *p, unsigned queue)
{
	return ((struct xsk_port *)p->impl)->queue[queue].fd;
}

static void xsk_stats(struct port *p, struct sy_port_stats *out)
{
	struct xsk_port *x = p->impl;
	for (unsigned i = 0; i < p->queues; i++) {
		struct xdp_statistics s = {0};
		socklen_t len = sizeof(s);
		if (!getsockopt(x->queue[i].fd, SOL_XDP, XDP_STATISTICS, &s, &len))
			out->rx_missed += s.rx_dropped + s.rx_ring_full;
	}
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
	int rc = rt->options.inherit ? sy_director_take(x->director, wait_ms, err) : 0;
	if (!rc)
		rc = xsk_director_set(p, err);
	if (rc)
		return rc;
	for (unsigned i = 0; i < p->queues; i++) {
		rc = xsk_queue_bind(x, o->name, i, !rt->options.huge, patience, err);
		if (rc)
			return rc;
		rc = sy_director_set_socket(x->director, i, x->queue[i].fd);
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

static void queue_flush(struct xsk_port *x, struct xsk_queue *q, uint64_t deadline)
{
	for (xsk_completions_reap(x, q); q->tx_flying; xsk_completions_reap(x, q)) {
		if (sy_clock_ns() > deadline)
			return;
		tx_kick(x, q);
	}
}

static void xsk_release(struct port *p)
{
	struct xsk_port *x = p->impl;
	uint64_t deadline = sy_clock_ns() + FLUSH_NS;
	for (unsigned i = 0; i < p->queues; i++)
		if (x->queue[i].socket)
			queue_flush(x, &x->queue[i], deadline);
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
        .again = xsk_again,
        .close = xsk_close,
        .director = xsk_director,
        .set_vlans = xsk_set_vlans,
};
