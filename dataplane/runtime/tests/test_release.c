// SPDX-License-Identifier: Apache-2.0
/* Opening without acquiring, and releasing without losing packets, over ring ports. */
#include <stdio.h>

#include <rte_byteorder.h>
#include <rte_ethdev.h>

#include "runtime_fixture.h"

#define PACKETS 1500 /* fewer than the capacity of the rings between workers */

static struct ring_port port;
static struct sy_runtime *rt;

/* slot = the packet's number; the slot's owner sends the packet on. */
static void stage_route(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		const struct sy_ipv4 *ip =
		        (const struct sy_ipv4 *)(sy_frame(b->mbuf[i]) + SY_ETH_LEN);
		struct sy_addr dst = sy_addr_v4(ip->dst);
		b->slot[i] = (uint8_t)rte_be_to_cpu_16(ip->id);
		if (sy_slot_worker(w->rt, b->slot[i]) != w->id) {
			sy_burst_steer(w, b, i);
			continue;
		}
		b->path[i] = sy_path_lookup(w->rt, &dst);
		b->next[i] = SY_NEXT_TRANSMIT;
	}
}

static const struct sy_stage pipeline[] = {
        {"route", stage_route}, {"transmit", sy_transmit_stage}, {NULL, NULL}};

static void options_make(struct sy_runtime_options *o, const char *name, unsigned workers)
{
	options_init(o, workers);
	port = ring_port_add(o, name);
	options_reach(o);
	o->pipeline = pipeline;
}

static void inject(unsigned from, unsigned count)
{
	for (unsigned i = from; i < from + count; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);
		assert_non_null(m);
		uint8_t *frame = (uint8_t *)rte_pktmbuf_append(m, 64);
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + SY_ETH_LEN);
		memset(frame, 0, 64);
		((struct sy_eth *)frame)->type = rte_cpu_to_be_16(SY_ETH_IPV4);
		ip->id = rte_cpu_to_be_16((uint16_t)i);
		ip->dst = addr("10.0.0.9").w[3];
		assert_int_equal(rte_ring_enqueue(port.rx, m), 0);
	}
}

static unsigned collect(void)
{
	struct rte_mbuf *m;
	unsigned n = 0;
	while (!rte_ring_dequeue(port.tx, (void **)&m)) {
		rte_pktmbuf_free(m);
		n++;
	}
	return n;
}

static void call_count(struct sy_worker *w, void *ctx)
{
	*(unsigned *)ctx += 1;
}

static void calls_run_here(void)
{
	unsigned called = 0;
	for (unsigned i = 0; i < rt->workers; i++)
		worker_run(sy_worker_at(rt, i), call_count, &called);
	assert_int_equal(called, rt->workers);
}

/* Until it is bound, the device is free, and everything else exists already. */
static void test_open_takes_nothing(void **state)
{
	struct sy_runtime_options o;
	struct sy_error err = {0};
	struct rte_eth_link link;
	struct sy_port_stats stats;
	struct sy_port_info info;
	struct sy_addr vip = addr("10.0.0.80"), other = addr("10.0.0.81"), dst = addr("10.0.0.9");
	uint16_t device;
	options_make(&o, "prepared", 2);
	o.inherit = true;
	o.port[0].mtu = 1400;
	if (sy_runtime_open(&o, &rt, &err))
		fail_msg("%s", err.text);
	assert_int_equal(rte_eth_dev_get_port_by_name(o.port[0].name, &device), 0);
	assert_int_equal(rte_eth_link_get_nowait(device, &link), 0);
	assert_int_equal(link.link_status, RTE_ETH_LINK_DOWN);

	assert_int_equal(sy_worker_count(rt), 2);
	calls_run_here();
	assert_int_not_equal(sy_path_lookup(rt, &dst), SY_PATH_NONE);
	sy_port_get_info(rt, 0, &info);
	assert_int_equal(info.mtu, 1400);
	assert_memory_equal(info.mac, o.port[0].mac, 6);
	sy_port_get_stats(rt, 0, &stats);
	assert_int_equal(stats.rx_packets + stats.rx_missed, 0);
	assert_int_equal(sy_address_claim(rt, &vip, &err), 0);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(sy_address_claim(rt, &other, &err), 0);
	sy_address_release(rt, &other);
	assert_int_equal(rt->inherited_count, 1);
	assert_true(sy_addr_equal(&rt->inherited[0].addr, &vip));

	inject(0, 10);
	if (sy_runtime_bind(rt, &err) || sy_runtime_start(rt, &err))
		fail_msg("%s", err.text);
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	for (unsigned back = 0; back < 10; back += collect())
		runtime_poll(rt, deadline);
	assert_int_equal(sy_runtime_claim(rt, &err), 0);
	assert_int_equal(rt->inherited_count, 0);
	sy_port_get_info(rt, 0, &info);
	assert_true(info.up);
	assert_int_equal(info.queues, 1);
}

/* A runtime that is opened and closed without binding. */
static void test_open_and_close(void **state)
{
	struct sy_runtime_options o;
	struct sy_error err = {0};
	struct sy_addr vip = addr("10.0.0.80");
	options_make(&o, "given_up", 1);
	o.inherit = true;
	if (sy_runtime_open(&o, &rt, &err))
		fail_msg("%s", err.text);
	assert_int_equal(sy_address_claim(rt, &vip, &err), 0);
}

static void open_and_start(const char *name, unsigned workers)
{
	struct sy_runtime_options o;
	struct sy_error err = {0};
	options_make(&o, name, workers);
	rt = runtime_open(&o);
	inject(0, PACKETS);
	if (sy_runtime_start(rt, &err))
		fail_msg("%s", err.text);
}

static void tick_count(void *ctx)
{
	*(unsigned *)ctx += 1;
}

/* Packets that were received, or under way between workers, still leave. */
static void quiesce(const char *name, unsigned workers)
{
	struct sy_port_stats stats;
	struct sy_port_info info;
	uint64_t deadline;
	open_and_start(name, workers);
	sy_runtime_quiesce(rt);
	for (unsigned i = 1; i < SY_DROP_COUNT; i++)
		assert_int_equal(drops(rt, i), 0);
	assert_int_equal(collect(), PACKETS);
	assert_int_equal(rte_mempool_in_use_count(rt->pool), 0);

	sy_port_get_stats(rt, 0, &stats);
	assert_int_equal(stats.rx_packets, PACKETS);
	assert_int_equal(stats.tx_packets, PACKETS);
	sy_port_get_info(rt, 0, &info);
	assert_int_equal(info.mtu, 1500);
	calls_run_here();
	deadline = sy_clock_ns() + WAIT_NS;
	unsigned ticks = 0;
	assert_int_equal(sy_runtime_every(rt, 100, tick_count, &ticks), 0);
	while (ticks < 3)
		runtime_poll(rt, deadline); /* the runtime's own ticks still work */
	inject(0, 1);
	runtime_poll(rt, deadline);
	assert_int_equal(collect(), 0);
}

static void test_quiesce_one(void **state)
{
	quiesce("quiesce_one", 1);
}

static void test_quiesce_two(void **state)
{
	quiesce("quiesce_two", 2);
}

static void test_quiesce_before_start(void **state)
{
	struct sy_runtime_options o;
	options_make(&o, "unstarted", 2);
	rt = runtime_open(&o);
	inject(0, PACKETS);
	sy_runtime_quiesce(rt);
	assert_int_equal(collect(), PACKETS);
}

static int close_runtime(void **state)
{
	struct rte_mbuf *m;
	while (!rte_ring_dequeue(port.rx, (void **)&m) || !rte_ring_dequeue(port.tx, (void **)&m))
		rte_pktmbuf_free(m);
	sy_runtime_close(rt);
	rt = NULL;
	return 0;
}

#define TEST(name) cmocka_unit_test_teardown(name, close_runtime)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_open_takes_nothing),   TEST(test_open_and_close),
	        TEST(test_quiesce_one),          TEST(test_quiesce_two),
	        TEST(test_quiesce_before_start),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
