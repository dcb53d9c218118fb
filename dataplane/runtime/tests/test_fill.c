// SPDX-License-Identifier: Apache-2.0
/* An AF_XDP queue over rings in this test's memory, with the flag that only zero-copy drivers
 * raise: when the kernel is woken for receive buffers, what a burst contains, frames that the
 * kernel drops. And whether buffers suffice for the queues of an interface that is back. */
#include "../port_xsk.c"

#include "runtime_fixture.h"

#define RING PORT_XSK_RING

static uint32_t flags, kicks;
ssize_t __wrap_recvfrom(int fd, void *to, size_t len, int how, struct sockaddr *from,
                        socklen_t *from_len);

ssize_t __wrap_recvfrom(int fd, void *to, size_t len, int how, struct sockaddr *from,
                        socklen_t *from_len)
{
	kicks++;
	return 0;
}

/* The kernel's part of a transmission: reads so many frames, then returns this error. */
static uint32_t tx_consumer;
static unsigned frames_read;
static int send_error;
ssize_t __wrap_sendto(int fd, const void *from, size_t len, int how, const struct sockaddr *to,
                      socklen_t to_len);

ssize_t __wrap_sendto(int fd, const void *from, size_t len, int how, const struct sockaddr *to,
                      socklen_t to_len)
{
	__atomic_fetch_add(&tx_consumer, frames_read, __ATOMIC_RELAXED);
	errno = send_error;
	return send_error ? -1 : 0;
}

static struct sy_runtime *rt;
static struct xsk_port xsk = {.ring = RING};
static struct port port = {.ops = &port_xsk_ops, .impl = &xsk, .queues = 1};
static uint64_t fill_ring[RING], completion_ring[RING];
static struct xdp_desc rx_ring[RING], tx_ring[RING];
static uint32_t fill_producer, fill_consumer, rx_producer, rx_consumer;
static uint32_t tx_producer, tx_flags, completion_producer, completion_consumer;

static unsigned receive(void)
{
	struct rte_mbuf *m[SY_BURST];
	unsigned n = port_xsk_ops.rx(&port, 0, m, SY_BURST);
	if (n)
		rte_pktmbuf_free_bulk(m, n);
	return n;
}

static unsigned kicks_read(void)
{
	unsigned n = kicks;
	kicks = 0;
	return n;
}

static void test_refill_is_signalled(void **state)
{
	struct rte_mbuf *all[8191];
	unsigned held = 0;
	flags = XDP_RING_NEED_WAKEUP;
	while (held < SY_ARRAY_LEN(all) && (all[held] = rte_pktmbuf_alloc(rt->pool)))
		held++;
	xsk.queue[0].rings.fill_missing = 8;
	assert_int_equal(receive(), 0);
	assert_int_equal(kicks_read(), 0); /* nothing new: a kick would be useless */
	assert_true(port_xsk_ops.is_pending(&port, 0));
	rte_pktmbuf_free_bulk(all, held);
	assert_int_equal(receive(), 0); /* no packet, but buffers are available again */
	assert_int_equal(fill_producer, 8);
	assert_int_equal(kicks_read(), 1);
	assert_int_equal(receive(), 0);
	assert_int_equal(kicks_read(), 0);
}

static void test_late_flag_is_seen(void **state)
{
	flags = 0;
	port_xsk_ops.wake(&port, 0);
	assert_int_equal(kicks_read(), 0);
	flags = XDP_RING_NEED_WAKEUP; /* after the last look of rx() */
	port_xsk_ops.wake(&port, 0);
	assert_int_equal(kicks_read(), 1);
}

static void test_packets_tell(void **state)
{
	flags = XDP_RING_NEED_WAKEUP;
	rx_ring[0] = (struct xdp_desc){.addr = fill_ring[0], .len = 60};
	unsigned room;
	assert_int_equal(port_xsk_ops.waiting(&port, 0, &room), 0);
	__atomic_store_n(&rx_producer, 1, __ATOMIC_RELEASE);
	assert_int_equal(port_xsk_ops.waiting(&port, 0, &room), 1);
	assert_int_equal(room, RING);
	assert_int_equal(receive(), 1);
	assert_int_equal(kicks_read(), 1);
	assert_int_equal(port_xsk_ops.waiting(&port, 0, &room), 0);
}

/* The kernel's part: so many packets more. */
static void packets_come(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);
		assert_non_null(m);
		rx_ring[(rx_producer + i) % RING] =
		        (struct xdp_desc){.addr = sy_xsk_chunk(&xsk.queue[0].rings, m), .len = 60};
	}
	__atomic_store_n(&rx_producer, rx_producer + count, __ATOMIC_RELEASE);
}

/* A short burst means an empty ring: it has what has come since the last look. */
static void test_a_short_burst_is_all(void **state)
{
	unsigned room;
	packets_come(SY_BURST + 8);
	assert_int_equal(receive(), SY_BURST);
	packets_come(16);
	assert_int_equal(receive(), 8 + 16);
	assert_int_equal(port_xsk_ops.waiting(&port, 0, &room), 0);
	packets_come(2 * SY_BURST + 1);
	assert_int_equal(receive(), SY_BURST);
	assert_int_equal(receive(), SY_BURST);
	assert_int_equal(receive(), 1);
	kicks_read();
}

/* What was received is made up for by the burst that is sent next; or at once, if it is much. */
static void test_sending_fills(void **state)
{
	struct xsk_queue *q = &xsk.queue[0];
	struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);
	assert_non_null(m);
	assert_int_equal(receive(), 0);
	assert_false(port_xsk_ops.is_pending(&port, 0));
	uint32_t before = fill_producer;
	q->socket = (struct xsk_socket *)q; /* nothing looks into it */
	packets_come(3);
	assert_int_equal(receive(), 3);
	assert_int_equal(fill_producer, before);
	kicks_read();
	assert_int_equal(port_xsk_ops.tx(&port, 0, &m, 1), 1);
	assert_int_equal(fill_producer, before + 3);
	assert_int_equal(kicks_read(), 1);
	assert_int_equal(q->rings.tx_pending, 1);
	rte_pktmbuf_free(m); /* the kernel would give it back */
	q->rings.tx_pending = 0;
	q->socket = NULL;

	before = fill_producer;
	for (unsigned i = 0; i <= RING / SY_XSK_FILL_PART / SY_BURST; i++) {
		assert_int_equal(fill_producer, before);
		packets_come(SY_BURST);
		assert_int_equal(receive(), SY_BURST);
	}
	assert_int_equal(fill_producer, before + RING / SY_XSK_FILL_PART + SY_BURST);
	kicks_read();
}

/* The link has no carrier, and the port is not down yet: each call drops a frame. */
static void test_frames_without_carrier_are_counted(void **state)
{
	struct xsk_queue *q = &xsk.queue[0];
	struct sy_port_stats stats;
	struct rte_mbuf *m[2];
	rt->port[1] = &port; /* for its counters */
	rt->ports = 2;
	q->socket = (struct xsk_socket *)q; /* nothing looks into it */
	tx_flags = XDP_RING_NEED_WAKEUP;
	send_error = EBUSY;
	frames_read = 1;
	assert_int_equal(rte_pktmbuf_alloc_bulk(rt->pool, m, 2), 0);
	tx_consumer = tx_producer;
	assert_int_equal(sy_port_drops(rt, SY_DROP_PORT_DOWN), 0);
	assert_int_equal(port_xsk_ops.tx(&port, 0, m, 2), 2);
	assert_int_equal(sy_port_drops(rt, SY_DROP_PORT_DOWN), 1);
	assert_int_equal(receive(), 0); /* sends what is left in the ring */
	assert_int_equal(sy_port_drops(rt, SY_DROP_PORT_DOWN), 2);
	sy_port_get_stats(rt, 1, &stats);
	assert_int_equal(stats.tx_failed, 2);
	assert_int_equal(sy_port_drops(rt, SY_DROP_TX_FULL), 0);
	rte_pktmbuf_free_bulk(m, 2); /* the kernel would return them */
	q->rings.tx_pending = 0;
	q->socket = NULL;
	tx_flags = 0;
	rt->ports = 1;
}

/* ---- an interface that is back --------------------------------------------------------------- */

static unsigned queues_now, moves;
int __wrap_sy_director_queues(const struct sy_director *d);
int __wrap_sy_director_move(struct sy_director *d, struct sy_error *err);

int __wrap_sy_director_queues(const struct sy_director *d)
{
	return (int)queues_now;
}

/* Is only reached when queues are about to be opened, and ends the attempt. */
int __wrap_sy_director_move(struct sy_director *d, struct sy_error *err)
{
	moves++;
	return sy_fail(err, EIO, "not in this test");
}

/* More queues than the pool has buffers for take none of them: other ports need some. */
static void test_more_queues_than_buffers(void **state)
{
	struct sy_port_options o = {.name = "fill"};
	struct sy_error err = {0};
	unsigned there = rte_mempool_avail_count(rt->pool);
	bool up;
	xsk.mark = PORT_XSK_MARK;
	queues_now = there / RING + 1;
	assert_true(queues_now <= SY_MAX_QUEUES);
	assert_int_equal(xsk_reattach(rt, &port, &o, &up, &err), -ENOMEM);
	assert_non_null(strstr(err.text, "--mbufs"));
	assert_int_equal(moves, 0);
	/* enough for the queues, but not for the other ports meanwhile */
	unsigned taken = there % RING;
	struct rte_mbuf *m[RING];
	for (unsigned i = 0; i < taken; i++)
		assert_non_null(m[i] = rte_pktmbuf_alloc(rt->pool));
	queues_now--;
	assert_int_equal(xsk_reattach(rt, &port, &o, &up, &err), -ENOMEM);
	rte_pktmbuf_free_bulk(m, taken);
	assert_int_equal(moves, 0);
	assert_int_equal(rte_mempool_avail_count(rt->pool), there);
	queues_now = 1;
	assert_int_equal(xsk_reattach(rt, &port, &o, &up, &err), -EIO);
	assert_int_equal(moves, 1);
}

static int setup(void **state)
{
	struct sy_runtime_options o;
	struct sy_xsk_queue *q = &xsk.queue[0].rings;
	void *base;
	options_init(&o, 1);
	ring_port_add(&o, "fill");
	rt = runtime_open(&o);
	xsk.pool = rt->pool;
	pool_area(rt->pool, &base, &xsk.len);
	xsk.base = base;
	q->base = base;
	q->pool = rt->pool;
	q->fill = (struct xsk_ring_prod){.cached_cons = RING,
	                                 .mask = RING - 1,
	                                 .size = RING,
	                                 .producer = &fill_producer,
	                                 .consumer = &fill_consumer,
	                                 .ring = fill_ring,
	                                 .flags = &flags};
	q->rx = (struct xsk_ring_cons){.mask = RING - 1,
	                               .size = RING,
	                               .producer = &rx_producer,
	                               .consumer = &rx_consumer,
	                               .ring = rx_ring,
	                               .flags = &flags};
	q->tx = (struct xsk_ring_prod){.cached_cons = RING,
	                               .mask = RING - 1,
	                               .size = RING,
	                               .producer = &tx_producer,
	                               .consumer = &tx_consumer,
	                               .ring = tx_ring,
	                               .flags = &tx_flags};
	q->completion = (struct xsk_ring_cons){.mask = RING - 1,
	                                       .size = RING,
	                                       .producer = &completion_producer,
	                                       .consumer = &completion_consumer,
	                                       .ring = completion_ring,
	                                       .flags = &tx_flags};
	return 0;
}

static int teardown(void **state)
{
	sy_runtime_close(rt);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_refill_is_signalled),
	        cmocka_unit_test(test_late_flag_is_seen),
	        cmocka_unit_test(test_packets_tell),
	        cmocka_unit_test(test_a_short_burst_is_all),
	        cmocka_unit_test(test_sending_fills),
	        cmocka_unit_test(test_frames_without_carrier_are_counted),
	        cmocka_unit_test(test_more_queues_than_buffers),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
