// SPDX-License-Identifier: Apache-2.0
/*
 * AF_XDP sockets and memory that the keeper has made: this process maps them and fills the rings,
 * which takes no privilege. EAL is there for the packet pool alone (eal.c).
 *
 * As in the runtime's ports, each socket's UMEM is the whole pool, and a chunk begins at a buffer's
 * room: no packet is copied between them.
 */
#include <errno.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <xdp/xsk.h>

#include <rte_errno.h>
#include <rte_mbuf.h>

#include <sy_large.h>
#include <sy_patience.h>
#include <sy_seen.h>

#include "preload.h"
#include "real.h"

#define TX_RING      MESSAGE_TX_RING
#define BURST        64
#define KICKS        (TX_RING / 32)
#define FILL_PART    8 /* a ring of which so great a part is missing is filled at once */
#define BIND_NS      UINT64_C(2000000000)
#define BIND_STEP_NS UINT64_C(10000000) /* an attempt and the pause after it */

enum { MAPS = 4 }; /* rings of a socket */

struct queue {
	int fd;
	struct {
		void *at;
		size_t len;
	} map[MAPS];
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons rx, completion;
	unsigned fill_missing, tx_flying;
	struct sy_seen seen;
};

static struct {
	char *base;
	size_t bytes;
	struct rte_mempool *pool;
	struct queue queue[MESSAGE_QUEUES];
	unsigned queues, next;
	unsigned ring; /* packets that a receive queue holds */
	int large;
	uint64_t unsent; /* atomic: also counted without the lock */
	unsigned kicks;  /* atomic: threads in device_kick() */
	bool kick;       /* frames are in the transmit ring that the kernel was not notified of */
} device;

struct rte_mempool *device_pool(void)
{
	return device.pool;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A child process gets none of it: the device writes here. */
static int memory_map(const struct message_answer *c, int fd, struct sy_error *err)
{
	void *at = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);

	table_disown(fd);
	if (at == MAP_FAILED)
		return sy_fail(err, errno, "%lu MB for packets: %s", c->bytes >> 20,
		               strerror(errno));
	madvise(at, c->bytes, MADV_DONTFORK);
	device.base = at;
	device.bytes = c->bytes;
	return 0;
}

static int pool_make(const struct message_answer *c, struct sy_error *err)
{
	struct rte_pktmbuf_pool_private private = {.mbuf_data_room_size = (uint16_t)c->room};
	char name[RTE_MEMPOOL_NAMESIZE];
	unsigned size = (unsigned)sizeof(struct rte_mbuf) + c->room;
	unsigned count = (unsigned)(c->bytes / rte_mempool_calc_obj_size(size, 0, NULL)) - 1;
	int rc;

	snprintf(name, sizeof(name), "sy_packets-%d", getpid()); /* beside that of its parent */
	device.pool = rte_mempool_create_empty(name, count, size, 256, sizeof(private),
	                                       SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	if (!device.pool)
		return sy_fail(err, rte_errno, "%u packets: %s", count, rte_strerror(rte_errno));
	rc = rte_mempool_set_ops_byname(device.pool, "ring_mp_mc", NULL);
	if (rc)
		return sy_fail(err, -rc, "the packets' pool: %s", rte_strerror(-rc));
	rte_pktmbuf_pool_init(device.pool, &private);
	rc = rte_mempool_populate_virt(device.pool, device.base, c->bytes, 4096, NULL, NULL);
	if (rc < (int)count)
		return sy_fail(err, rc < 0 ? -rc : ENOMEM, "%u packets: %d fit", count, rc);
	rte_mempool_obj_iter(device.pool, rte_pktmbuf_init, NULL);
	return 0;
}

/* ---- sockets --------------------------------------------------------------------------------- */

static uint64_t chunk_of(const struct rte_mbuf *m)
{
	return (uint64_t)((char *)m->buf_addr - device.base);
}

static struct rte_mbuf *mbuf_of(uint64_t address)
{
	char *room = device.base + xsk_umem__extract_addr(address);
	return (struct rte_mbuf *)(room - sizeof(struct rte_mbuf));
}

/* A ring of a socket: its size, and where the kernel has it. */
struct ring_place {
	const struct xdp_ring_offset *at;
	uint64_t page;
	uint32_t size;
	size_t entry; /* bytes */
};

static char *ring_map(struct queue *q, unsigned ring, const struct ring_place *p)
{
	size_t len = p->at->desc + p->size * p->entry;
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, q->fd,
	                (off_t)p->page);
	if (at == MAP_FAILED)
		return NULL;
	madvise(at, len, MADV_DONTFORK);
	q->map[ring].at = at;
	q->map[ring].len = len;
	return at;
}

#define RING_INIT(r, map, p)                                                                       \
	do {                                                                                       \
		(r)->mask = (p)->size - 1;                                                         \
		(r)->size = (p)->size;                                                             \
		(r)->producer = (void *)((map) + (p)->at->producer);                               \
		(r)->consumer = (void *)((map) + (p)->at->consumer);                               \
		(r)->flags = (void *)((map) + (p)->at->flags);                                     \
		(r)->ring = (map) + (p)->at->desc;                                                 \
		(r)->cached_prod = *(r)->producer;                                                 \
		(r)->cached_cons = *(r)->consumer;                                                 \
	} while (0)

static int rings_map(struct queue *q)
{
	struct xdp_mmap_offsets off;
	socklen_t len = sizeof(off);
	const struct ring_place fill = {&off.fr, XDP_UMEM_PGOFF_FILL_RING, device.ring,
	                                sizeof(uint64_t)},
	                        completion = {&off.cr, XDP_UMEM_PGOFF_COMPLETION_RING, TX_RING,
	                                      sizeof(uint64_t)},
	                        rx = {&off.rx, XDP_PGOFF_RX_RING, device.ring,
	                              sizeof(struct xdp_desc)},
	                        tx = {&off.tx, XDP_PGOFF_TX_RING, TX_RING, sizeof(struct xdp_desc)};
	char *at[MAPS];

	if (REAL(getsockopt)(q->fd, SOL_XDP, XDP_MMAP_OFFSETS, &off, &len))
		return -errno;
	at[0] = ring_map(q, 0, &fill);
	at[1] = ring_map(q, 1, &completion);
	at[2] = ring_map(q, 2, &rx);
	at[3] = ring_map(q, 3, &tx);
	if (!at[0] || !at[1] || !at[2] || !at[3])
		return -ENOMEM;
	RING_INIT(&q->fill, at[0], &fill);
	RING_INIT(&q->completion, at[1], &completion);
	RING_INIT(&q->rx, at[2], &rx);
	RING_INIT(&q->tx, at[3], &tx);
	/* A producer's copy of the consumer is ahead by the size: what is free is the difference.
	 */
	q->fill.cached_cons = *q->fill.consumer + device.ring;
	q->tx.cached_cons = *q->tx.consumer + TX_RING;
	return 0;
}

static void fill_more(struct queue *q)
{
	struct rte_mbuf *m[BURST];
	uint32_t at;

	while (q->fill_missing) {
		unsigned n = q->fill_missing < BURST ? q->fill_missing : BURST;
		if (rte_pktmbuf_alloc_bulk(device.pool, m, n))
			break; /* again at the next turn */
		if (xsk_ring_prod__reserve(&q->fill, n, &at) != n) {
			rte_pktmbuf_free_bulk(m, n);
			break;
		}
		for (unsigned i = 0; i < n; i++)
			*xsk_ring_prod__fill_addr(&q->fill, at + i) = chunk_of(m[i]);
		xsk_ring_prod__submit(&q->fill, n);
		q->fill_missing -= n;
	}
}

/* Linux before 6.4. The socket of a process that was killed keeps the queue for some milliseconds.
 */
static int queue_bind(struct queue *q, int ifindex, unsigned number)
{
	struct sockaddr_xdp to = {.sxdp_family = AF_XDP,
	                          .sxdp_flags = XDP_USE_NEED_WAKEUP,
	                          .sxdp_ifindex = (uint32_t)ifindex,
	                          .sxdp_queue_id = number};
	struct sy_patience patience = sy_patience_begin(BIND_NS, BIND_STEP_NS);

	while (REAL(bind)(q->fd, (void *)&to, sizeof(to))) {
		if (errno == EOPNOTSUPP && !(to.sxdp_flags & XDP_COPY))
			to.sxdp_flags |= XDP_COPY; /* small pages are no memory for zero copy */
		else if (errno != EBUSY || sy_patience_left(&patience) == 0)
			return -errno;
		else
			usleep(1000);
	}
	return 0;
}

static int queue_open(struct queue *q, const struct message_answer *c, unsigned number)
{
	int rc = rings_map(q);

	if (rc)
		return rc;
	q->fill_missing = device.ring;
	fill_more(q);
	if (!c->bound)
		return queue_bind(q, c->ifindex, number);
	if (xsk_ring_prod__needs_wakeup(&q->fill)) /* the driver found an empty ring at bind() */
		REAL(recvfrom)(q->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
	return 0;
}

int device_open(const struct message_answer *c, int memory, const int *fd, int large,
                struct sy_error *err)
{
	int rc = device_prepare(err);

	device.large = large;
	device.ring = c->ring;
	if (!rc)
		rc = memory_map(c, memory, err);
	if (!rc)
		rc = pool_make(c, err);
	for (uint32_t i = 0; !rc && i < c->queues; i++) {
		device.queue[i].fd = fd[i];
		rc = queue_open(&device.queue[i], c, c->queue[i]);
		if (rc)
			return sy_fail(err, -rc, "queue %u of %s: %s", c->queue[i], c->ifname,
			               strerror(-rc));
		device.queues++;
	}
	return rc;
}

void device_bequeath(bool on)
{
	int how = on ? MADV_DOFORK : MADV_DONTFORK;

	madvise(device.base, device.bytes, how);
	for (unsigned i = 0; i < device.queues; i++)
		for (unsigned ring = 0; ring < MAPS; ring++)
			madvise(device.queue[i].map[ring].at, device.queue[i].map[ring].len, how);
}

void device_inherit(void)
{
	device.kicks = 0; /* the parent's threads */
	device.kick = true;
}

void device_close(void)
{
	for (unsigned i = 0; i < MESSAGE_QUEUES; i++)
		for (unsigned ring = 0; ring < MAPS; ring++)
			if (device.queue[i].map[ring].at)
				munmap(device.queue[i].map[ring].at, device.queue[i].map[ring].len);
	rte_mempool_free(device.pool);
	if (device.base)
		munmap(device.base, device.bytes);
	memset(&device, 0, sizeof(device));
}

/* The pool stays in the copy of EAL's memory: its packets are not there. */
void device_forget(void)
{
	memset(&device, 0, sizeof(device));
}

/* ---- packets --------------------------------------------------------------------------------- */

/* Gives the device buffers in the place of what was received. Before a burst is sent: the pool's
 * cache gives first what it got last, and the buffers of the burst, which are in this core's cache,
 * are left for new segments. Where nothing is sent, or much is missing, when packets are received.
 */
static void fill_again(struct queue *q)
{
	if (!q->fill_missing)
		return;
	fill_more(q);
	if (xsk_ring_prod__needs_wakeup(&q->fill))
		REAL(recvfrom)(q->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

static void completions_reap(struct queue *q)
{
	struct rte_mbuf *m[BURST];
	uint32_t at;

	while (q->tx_flying) {
		unsigned n = xsk_ring_cons__peek(&q->completion, BURST, &at);
		if (!n)
			return;
		for (unsigned i = 0; i < n; i++)
			m[i] = mbuf_of(*xsk_ring_cons__comp_addr(&q->completion, at + i));
		xsk_ring_cons__release(&q->completion, n);
		q->tx_flying -= n;
		rte_pktmbuf_free_bulk(m, n);
	}
}

static bool has_unsent(const struct queue *q)
{
	return __atomic_load_n(q->tx.consumer, __ATOMIC_RELAXED) != q->tx.cached_prod;
}

/* In copy mode one call sends 32 frames. */
static void tx_kick(struct queue *q)
{
	for (unsigned i = 0; i < KICKS && xsk_ring_prod__needs_wakeup(&q->tx); i++) {
		int rc = REAL(sendto)(q->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 ? errno : 0;
		/* The link has no carrier: one frame is gone. */
		__atomic_fetch_add(&device.unsent, rc == EBUSY, __ATOMIC_RELAXED);
		if (rc != EAGAIN || !has_unsent(q))
			return;
	}
}

/* Kicks now: what follows needs free slots, or goes another way and must not overtake. */
static void tx_flush(struct queue *q)
{
	if (!device.kick)
		return;
	device.kick = false;
	tx_kick(q);
	completions_reap(q);
}

bool device_kick_wanted(void)
{
	bool wanted = device.kick;

	device.kick = false;
	return wanted;
}

void device_kick(void)
{
	__atomic_fetch_add(&device.kicks, 1, __ATOMIC_RELAXED);
	tx_kick(&device.queue[0]);
	__atomic_fetch_sub(&device.kicks, 1, __ATOMIC_RELAXED);
}

/* The library looks for what has come only where it knows of nothing: it would take a part of it
 * for all. */
static void rx_look(struct queue *q)
{
	q->rx.cached_prod = __atomic_load_n(q->rx.producer, __ATOMIC_ACQUIRE);
}

static unsigned queue_receive(struct queue *q, struct rte_mbuf **m, unsigned most, uint64_t now_ns)
{
	uint32_t at;

	if (q->tx_flying) {
		completions_reap(q);
		/* What the kernel has left; or else another thread is at it. */
		device.kick |= has_unsent(q) && !__atomic_load_n(&device.kicks, __ATOMIC_RELAXED);
	}
	rx_look(q);
	unsigned n = xsk_ring_cons__peek(&q->rx, most, &at);
	sy_seen_burst(&q->seen, n, q->rx.cached_prod - q->rx.cached_cons, now_ns);
	for (unsigned i = 0; i < n; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&q->rx, at + i);
		m[i] = mbuf_of(d->addr);
		m[i]->data_off = (uint16_t)xsk_umem__extract_offset(d->addr);
		m[i]->data_len = (uint16_t)d->len;
		m[i]->pkt_len = d->len;
	}
	if (n)
		xsk_ring_cons__release(&q->rx, n);
	q->fill_missing += n;
	if (!n || q->fill_missing > device.ring / FILL_PART)
		fill_again(q);
	return n;
}

unsigned device_receive(struct rte_mbuf **m, unsigned most, uint64_t now_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < device.queues && n < most; i++)
		n += queue_receive(&device.queue[device.next++ % device.queues], m + n, most - n,
		                   now_ns);
	return n;
}

uint64_t device_seen_ns(void)
{
	uint64_t seen = NEVER;

	for (unsigned i = 0; i < device.queues; i++)
		if (device.queue[i].seen.ns < seen)
			seen = device.queue[i].seen.ns;
	return seen;
}

static void frames_send(struct rte_mbuf **m, unsigned count)
{
	struct queue *q = &device.queue[0];
	uint32_t at;

	completions_reap(q);
	if (TX_RING - q->tx_flying < count)
		tx_flush(q);
	fill_again(q);
	unsigned n = xsk_prod_nb_free(&q->tx, count), room = TX_RING - q->tx_flying;
	n = n < count ? n : count;
	n = n < room ? n : room;
	if (n && xsk_ring_prod__reserve(&q->tx, n, &at) == n) {
		for (unsigned i = 0; i < n; i++) {
			struct xdp_desc *d = xsk_ring_prod__tx_desc(&q->tx, at + i);
			d->addr = chunk_of(m[i]) | (uint64_t)m[i]->data_off
			                                   << XSK_UNALIGNED_BUF_OFFSET_SHIFT;
			d->len = m[i]->pkt_len;
			d->options = 0;
		}
		xsk_ring_prod__submit(&q->tx, n);
		q->tx_flying += n;
	} else {
		n = 0;
	}
	device.kick = true;
	if (n < count)
		rte_pktmbuf_free_bulk(m + n, count - n);
	__atomic_fetch_add(&device.unsent, count - n, __ATOMIC_RELAXED);
}

/* The kernel has copied it when the call returns. */
static void large_send(struct rte_mbuf *m)
{
	struct iovec part[SY_LARGE_PARTS];
	struct sy_large h;
	unsigned parts = sy_large_parts(&h, m, part);

	tx_flush(&device.queue[0]);
	if (!parts || REAL(writev)(device.large, part, (int)parts) < 0)
		__atomic_fetch_add(&device.unsent, 1, __ATOMIC_RELAXED);
	rte_pktmbuf_free(m);
}

uint64_t device_unsent(void)
{
	return __atomic_load_n(&device.unsent, __ATOMIC_RELAXED);
}

uint64_t device_missed(void)
{
	uint64_t missed = 0;

	for (unsigned i = 0; i < device.queues; i++) {
		struct xdp_statistics told = {0};
		socklen_t len = sizeof(told);
		if (!REAL(getsockopt)(device.queue[i].fd, SOL_XDP, XDP_STATISTICS, &told, &len))
			missed += told.rx_dropped + told.rx_ring_full;
	}
	return missed;
}

/* Frames and large segments take different ways, in their order. */
void device_send(struct rte_mbuf **m, unsigned count)
{
	for (unsigned done = 0, end; done < count; done = end) {
		end = done + 1;
		if (sy_is_large(m[done])) {
			large_send(m[done]);
			continue;
		}
		while (end < count && !sy_is_large(m[end]))
			end++;
		frames_send(m + done, end - done);
	}
}
