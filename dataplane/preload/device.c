// SPDX-License-Identifier: Apache-2.0
/*
 * AF_XDP queues of this process. The supervisor has opened their sockets and the memory for
 * packets; this process maps both and fills the rings, which requires no privilege. EAL runs for
 * the packet pool only (device_eal.c).
 */
#include <errno.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#include <rte_errno.h>
#include <rte_mbuf.h>

#include <sy_large.h>
#include <sy_patience.h>
#include <sy_seen.h>
#include <sy_xsk_queue.h>

#include "packets.h"
#include "real.h"

#define TX_RING      MESSAGE_TX_RING
#define KICKS        (TX_RING / 32) /* system calls that send the whole ring */
#define BIND_NS      UINT64_C(2000000000)
#define BIND_STEP_NS UINT64_C(10000000) /* an attempt and the pause after it */

enum { MAPS = 4 }; /* rings of a socket */

struct queue {
	struct sy_xsk_queue rings;
	struct {
		void *at;
		size_t len;
	} map[MAPS];
	struct sy_seen seen;
};

static struct {
	char *base;
	size_t bytes;
	struct rte_mempool *pool;
	struct queue queue[MESSAGE_QUEUES];
	unsigned queues, next;
	int large;
	uint64_t dropped; /* atomic: also counted without the lock */
	unsigned kicks;   /* atomic: threads in device_kick() */
	bool kick;        /* frames are in the transmit ring that the kernel was not notified of */
} device;

struct rte_mempool *device_pool(void)
{
	return device.pool;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Maps the memory for packets. Child processes do not get it: the device writes there. */
static int memory_map(const struct message_answer *c, int fd, struct sy_error *err)
{
	void *at = mmap(NULL, c->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
	                fd, 0);

	table_disown(fd);
	if (at == MAP_FAILED)
		return sy_fail(err, errno, "%lu MB for packets: %s", c->memory_bytes >> 20,
		               strerror(errno));
	madvise(at, c->memory_bytes, MADV_DONTFORK);
	device.base = at;
	device.bytes = c->memory_bytes;
	return 0;
}

static int pool_make(const struct message_answer *c, struct sy_error *err)
{
	struct rte_pktmbuf_pool_private private = {.mbuf_data_room_size = (uint16_t)c->chunk_bytes};
	char name[RTE_MEMPOOL_NAMESIZE];
	unsigned size = (unsigned)sizeof(struct rte_mbuf) + c->chunk_bytes;
	unsigned count = (unsigned)(c->memory_bytes / rte_mempool_calc_obj_size(size, 0, NULL)) - 1;
	int rc;

	snprintf(name, sizeof(name), "sy_packets-%d", getpid()); /* distinct from its parent's */
	device.pool = rte_mempool_create_empty(name, count, size, 256, sizeof(private),
	                                       SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	if (!device.pool)
		return sy_fail(err, rte_errno, "%u packets: %s", count, rte_strerror(rte_errno));
	rc = rte_mempool_set_ops_byname(device.pool, "ring_mp_mc", NULL);
	if (rc)
		return sy_fail(err, -rc, "the packets' pool: %s", rte_strerror(-rc));
	rte_pktmbuf_pool_init(device.pool, &private);
	rc = rte_mempool_populate_virt(device.pool, device.base, c->memory_bytes, 4096, NULL, NULL);
	if (rc < (int)count)
		return sy_fail(err, rc < 0 ? -rc : ENOMEM, "%u packets: %d fit", count, rc);
	rte_mempool_obj_iter(device.pool, rte_pktmbuf_init, NULL);
	return 0;
}

/* ---- sockets --------------------------------------------------------------------------------- */

/* A ring of a socket: its size and its offsets in the kernel's mapping. */
struct ring_layout {
	const struct xdp_ring_offset *at;
	uint64_t page;
	uint32_t size;
	size_t entry; /* bytes */
};

static char *ring_map(struct queue *q, unsigned ring, const struct ring_layout *p)
{
	size_t len = p->at->desc + p->size * p->entry;
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, q->rings.fd,
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

static int rings_map(struct queue *q, uint32_t rx_size)
{
	struct sy_xsk_queue *r = &q->rings;
	struct xdp_mmap_offsets off;
	socklen_t len = sizeof(off);
	const struct ring_layout fill = {&off.fr, XDP_UMEM_PGOFF_FILL_RING, rx_size,
	                                 sizeof(uint64_t)},
	                         completion = {&off.cr, XDP_UMEM_PGOFF_COMPLETION_RING, TX_RING,
	                                       sizeof(uint64_t)},
	                         rx = {&off.rx, XDP_PGOFF_RX_RING, rx_size,
	                               sizeof(struct xdp_desc)},
	                         tx = {&off.tx, XDP_PGOFF_TX_RING, TX_RING,
	                               sizeof(struct xdp_desc)};
	char *at[MAPS];

	if (REAL(getsockopt)(r->fd, SOL_XDP, XDP_MMAP_OFFSETS, &off, &len))
		return -errno;
	at[0] = ring_map(q, 0, &fill);
	at[1] = ring_map(q, 1, &completion);
	at[2] = ring_map(q, 2, &rx);
	at[3] = ring_map(q, 3, &tx);
	if (!at[0] || !at[1] || !at[2] || !at[3])
		return -ENOMEM;
	RING_INIT(&r->fill, at[0], &fill);
	RING_INIT(&r->completion, at[1], &completion);
	RING_INIT(&r->rx, at[2], &rx);
	RING_INIT(&r->tx, at[3], &tx);
	/* A producer's copy of the consumer index is ahead by the ring's size, so that the
	 * difference is the free space. */
	r->fill.cached_cons = *r->fill.consumer + rx_size;
	r->tx.cached_cons = *r->tx.consumer + TX_RING;
	return 0;
}

/* Binds a socket that the supervisor has left unbound, before Linux 6.4. The socket of a killed
 * process keeps the queue for some milliseconds. */
static int queue_bind(struct queue *q, int ifindex, unsigned number)
{
	struct sy_patience patience = sy_patience_begin(BIND_NS, BIND_STEP_NS);
	int rc;

	while ((rc = sy_xsk_bind(q->rings.fd, ifindex, number, REAL(bind))) == -EBUSY &&
	       sy_patience_left(&patience) > 0)
		usleep(1000);
	return rc;
}

static int queue_open(struct queue *q, int fd, const struct message_answer *c, unsigned number)
{
	int rc;

	q->rings.fd = fd;
	rc = rings_map(q, c->ring);
	if (rc)
		return rc;
	q->rings.base = device.base;
	q->rings.pool = device.pool;
	q->rings.mark = RTE_MBUF_PORT_INVALID;
	q->rings.fill_missing = c->ring;
	sy_xsk_fill(&q->rings);
	if (!c->bound)
		return queue_bind(q, c->ifindex, number);
	sy_xsk_kick_rx(&q->rings, REAL(recvfrom)); /* the ring was empty at bind() */
	return 0;
}

int device_open(const struct message_answer *c, int memory, const int *fd, int large,
                struct sy_error *err)
{
	int rc = device_prepare(err);

	device.large = large;
	if (!rc)
		rc = memory_map(c, memory, err);
	if (!rc)
		rc = pool_make(c, err);
	for (uint32_t i = 0; !rc && i < c->queues; i++) {
		rc = queue_open(&device.queue[i], fd[i], c, c->queue[i]);
		if (rc)
			return sy_fail(err, -rc, "queue %u of %s: %s", c->queue[i], c->ifname,
			               strerror(-rc));
		device.queues++;
	}
	return rc;
}

void device_set_inherited(bool on)
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

/* Leaves the pool in the copy of EAL's memory: its packets are not mapped here. */
void device_forget(void)
{
	memset(&device, 0, sizeof(device));
}

/* ---- packets --------------------------------------------------------------------------------- */

static void tx_kick(struct queue *q)
{
	unsigned frames = sy_xsk_kick_tx(&q->rings, KICKS, REAL(sendto));

	__atomic_fetch_add(&device.dropped, frames, __ATOMIC_RELAXED);
}

/* Kicks now, because the next packets need free slots, or use another socket and must not
 * overtake. */
static void tx_flush(struct queue *q)
{
	if (!device.kick)
		return;
	device.kick = false;
	tx_kick(q);
	sy_xsk_reap(&q->rings);
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

static unsigned queue_receive(struct queue *q, struct rte_mbuf **m, unsigned max, uint64_t now_ns)
{
	struct sy_xsk_queue *r = &q->rings;

	if (r->tx_pending) {
		sy_xsk_reap(r);
		/* The kernel has left frames, unless another thread is kicking. */
		device.kick |=
		        sy_xsk_has_unsent(r) && !__atomic_load_n(&device.kicks, __ATOMIC_RELAXED);
	}
	unsigned n = sy_xsk_receive(r, m, max, REAL(recvfrom));
	sy_seen_burst(&q->seen, n, sy_xsk_waiting(r), now_ns);
	return n;
}

unsigned device_receive(struct rte_mbuf **m, unsigned max, uint64_t now_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < device.queues && n < max; i++)
		n += queue_receive(&device.queue[device.next++ % device.queues], m + n, max - n,
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
	struct sy_xsk_queue *r = &q->rings;

	sy_xsk_reap(r);
	if (TX_RING - r->tx_pending < count)
		tx_flush(q);
	sy_xsk_refill(r, REAL(recvfrom));
	unsigned n = sy_xsk_enqueue(r, m, count);
	device.kick = true;
	if (n < count)
		rte_pktmbuf_free_bulk(m + n, count - n);
	__atomic_fetch_add(&device.dropped, count - n, __ATOMIC_RELAXED);
}

static void large_send(struct rte_mbuf *m)
{
	tx_flush(&device.queue[0]);
	if (!sy_large_send(device.large, m, REAL(writev)))
		__atomic_fetch_add(&device.dropped, 1, __ATOMIC_RELAXED);
	rte_pktmbuf_free(m);
}

uint64_t device_unsent(void)
{
	return __atomic_load_n(&device.dropped, __ATOMIC_RELAXED);
}

uint64_t device_missed(void)
{
	uint64_t missed = 0;

	for (unsigned i = 0; i < device.queues; i++)
		missed += sy_xsk_missed(device.queue[i].rings.fd, REAL(getsockopt));
	return missed;
}

/* Sends frames and large segments by different sockets, in their order. */
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
