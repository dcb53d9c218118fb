// SPDX-License-Identifier: Apache-2.0
/* Stacks behind a port of rings. The test polls the worker, with a virtual clock: what a poll
 * iteration sends and receives, and when timers run. */
#include <arpa/inet.h>

#include <rte_ring.h>

#include "../segment.h"
#include "../stack.h"
#include "large.h"
#include "runtime_fixture.h"
#include "sy_stack_port.h"
#include "worker.h"

#define SYNS   1000u /* concurrent connects */
#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)

static struct ring_port ring;
static struct sy_runtime *rt;
static struct sy_stack_port *port;
static uint64_t start_ns;

static void serve(struct sy_stack *s, unsigned worker, uint64_t now, void *ctx)
{
}

static void clock_set(uint64_t now_ns)
{
	struct sy_worker *w = &rt->worker[0];

	w->private->clock = (struct worker_clock){.ns = now_ns};
	w->private->round_cycles = UINT64_MAX; /* no rounds */
	w->now_ns = now_ns;
}

static void port_start(void)
{
	struct sy_stack_options options = {.connections = 2 * SYNS, .secret = "port"};
	struct sy_runtime_options o;
	struct sy_error err = {0};

	options_init(&o, 1);
	ring = ring_port_add(&o, "stack");
	options_reach(&o);
	o.pipeline = sy_stack_pipeline;
	o.round = sy_stack_round;
	o.poll = sy_stack_poll;
	o.wake_ns = sy_stack_wake_ns;
	o.offloads = true;
	o.app = port = sy_stack_port_new(serve, NULL);
	rt = runtime_open(&o);
	if (sy_stack_port_open(port, rt, &options, &err))
		fail_msg("%s", err.text);
	start_ns = sy_clock_ns() + SECOND; /* later than the stack's time */
	clock_set(start_ns);
}

static void syns_send(struct sy_stack *s, unsigned count)
{
	const struct sy_stack_endpoint from = {.addr = addr("10.0.0.1")},
	                               to = {.addr = addr("10.0.0.9"), .port = htons(80)};
	sy_stack_id id;

	for (unsigned i = 0; i < count; i++)
		assert_int_equal(sy_stack_connect(s, &from, &to, 0, rt->worker[0].now_ns, &id), 0);
}

/* Counts packets sent since the last call. */
static unsigned sent(void)
{
	struct rte_mbuf *m;
	unsigned count = 0;

	for (; rte_ring_dequeue(ring.tx, (void **)&m) == 0; count++)
		rte_pktmbuf_free(m);
	return count;
}

/* A segment without connection, answered by a reset. */
static struct rte_mbuf *stranger_make(uint16_t sport)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);
	struct sy_ipv4 *ip;
	struct sy_tcp *tcp;
	uint8_t *frame;

	assert_non_null(m);
	frame = (uint8_t *)rte_pktmbuf_append(m, SY_ETH_LEN + sizeof(*ip) + sizeof(*tcp));
	memset(frame, 0, m->data_len);
	((struct sy_eth *)frame)->type = htons(SY_ETH_IPV4);
	ip = (struct sy_ipv4 *)(frame + SY_ETH_LEN);
	*ip = (struct sy_ipv4){.version_ihl = 0x45,
	                       .total_length = htons(sizeof(*ip) + sizeof(*tcp)),
	                       .ttl = 64,
	                       .proto = SY_PROTO_TCP,
	                       .src = addr("10.0.0.9").w[3],
	                       .dst = addr("10.0.0.1").w[3]};
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip)));
	tcp = (struct sy_tcp *)(ip + 1);
	*tcp = (struct sy_tcp){
	        .sport = htons(sport), .dport = htons(1), .offset = 5 << 4, .flags = SY_TCP_ACK};
	tcp->checksum =
	        (uint16_t)~sy_csum_fold(sy_csum_sum(&ip->src, 8) + htons(SY_PROTO_TCP) +
	                                htons(sizeof(*tcp)) + sy_csum_sum(tcp, sizeof(*tcp)));
	return m;
}

static void stranger_from(uint16_t sport)
{
	assert_int_equal(rte_ring_enqueue(ring.rx, stranger_make(sport)), 0);
}

static void stranger(void)
{
	stranger_from(4000);
}

/* An LRO packet larger than a buffer is received unchanged. */
static void test_lro_packets_are_received(void **state)
{
	struct sy_worker *w = &rt->worker[0];
	struct sy_stack *s = sy_stack_port_stack(port, 0);
	struct rte_mbuf *m = stranger_make(4000), *more;
	uint64_t before = sy_stack_counters(s)->packets_in;

	for (unsigned i = 0; i < 3; i++) {
		more = rte_pktmbuf_alloc(rt->pool);
		assert_non_null(more);
		memset(rte_pktmbuf_append(more, 1400), 0, 1400);
		assert_int_equal(rte_pktmbuf_chain(m, more), 0);
	}
	large_finish(m, sizeof(struct sy_ipv4));
	m->ol_flags |= RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	assert_int_equal(rte_ring_enqueue(ring.rx, m), 0);
	while (worker_poll(w))
		;
	assert_int_equal(sent(), 1); /* a reset */
	assert_int_equal(sy_stack_counters(s)->packets_in, before + 1);
	assert_int_equal(sy_stack_counters(s)->lro_packets, 1);
	assert_int_equal(sy_stack_counters(s)->malformed, 0);
}

/* Sends at most four bursts, then receives; the rest follows immediately. */
static void test_polls_send_a_bounded_number(void **state)
{
	struct sy_worker *w = &rt->worker[0];
	struct sy_stack *s = sy_stack_port_stack(port, 0);
	unsigned all = 0, turns = 0;

	worker_poll(w);
	assert_int_equal(sent(), 0);
	syns_send(s, SYNS);
	while (all < SYNS + turns) {
		stranger();
		assert_true(worker_poll(w));
		turns++;
		assert_int_equal(sy_stack_counters(s)->packets_in, turns);
		unsigned now = sent();
		/* the received burst and the poll send once each */
		assert_in_range(now, 1, 2 * 4 * SY_BURST);
		all += now;
		if (all < SYNS + turns)
			assert_int_equal(sy_stack_wake_ns(w), 0); /* it does not sleep */
	}
	assert_int_equal(all, SYNS + turns);
	assert_true(turns >= 2);
	assert_false(worker_poll(w));
}

/* RFC 6298: retransmission timers run on time, not at the next round. */
static void test_timers_run_between_rounds(void **state)
{
	struct sy_worker *w = &rt->worker[0];
	uint64_t due = sy_stack_wake_ns(w);
	unsigned turns = 0;

	assert_true(due > start_ns && due < start_ns + 2 * SECOND); /* the SYNs again */
	clock_set(due - 1);
	assert_false(worker_poll(w));
	assert_int_equal(sent(), 0);
	for (; turns < 300 && sent() == 0; turns++) { /* the wheel may fire early, not late */
		clock_set(sy_stack_wake_ns(w));
		worker_poll(w);
	}
	assert_true(turns < 300);
	assert_in_range(w->now_ns, start_ns + SECOND, start_ns + SECOND + 3 * MS);
}

/* A stalled worker finds packets in its ring and expired timers. No timer runs before all received
 * packets are processed: the ACK may be among them. */
static void test_packets_come_before_timers(void **state)
{
	struct sy_worker *w = &rt->worker[0];
	const unsigned waiting = 3 * SY_BURST + 8;

	while (worker_poll(w))
		sent();
	clock_set(w->now_ns + 10 * SECOND); /* the SYNs again */
	for (unsigned i = 0; i < waiting; i++)
		stranger();
	for (unsigned turns = 0; turns < waiting / SY_BURST; turns++) {
		assert_true(sy_worker_seen_ns(w) < w->now_ns - SECOND);
		worker_poll(w);
		assert_int_equal(sent(), SY_BURST); /* resets */
	}
	worker_poll(w);
	assert_int_equal(sy_worker_seen_ns(w), w->now_ns);
	assert_in_range(sent(), waiting % SY_BURST + 1, 2 * 4 * SY_BURST);
}

static uint8_t by_port(struct sy_hook_packet *p, const uint8_t *payload)
{
	return p->sport == 4001 ? 0 : 7;
}

/* Returns the destination port of the next packet. */
static uint16_t sent_to(void)
{
	struct rte_mbuf *m = NULL;
	const struct sy_tcp *tcp;
	uint16_t dport;

	rte_ring_dequeue(ring.tx, (void **)&m);
	assert_non_null(m);
	tcp = (const struct sy_tcp *)(sy_frame(m) + SY_ETH_LEN + sizeof(struct sy_ipv4));
	dport = ntohs(tcp->dport);
	rte_pktmbuf_free(m);
	return dport;
}

/* With a packet hook, the driver's ring is drained before processing: its last packet may be the
 * most urgent. */
static void test_ring_is_drained_before_processing(void **state)
{
	struct sy_worker *w = &rt->worker[0];
	struct sy_stack *s = sy_stack_port_stack(port, 0);
	int hook = sy_hooks_load(sy_stack_hooks(s), "port",
	                         &(struct sy_hook_source){.packet = by_port}, NULL);

	clock_set(w->now_ns + 1000 * SECOND); /* expires the state of earlier tests */
	worker_poll(w);
	sent();
	assert_int_equal(sy_stack_packet_hook(s, (unsigned)hook), 0);
	worker_poll(w);
	for (unsigned i = 0; i < 3 * SY_BURST; i++)
		stranger();
	stranger_from(4001);
	for (unsigned i = 0; i < 3; i++) { /* full bursts: there may be more */
		assert_true(worker_poll(w));
		assert_int_equal(sy_stack_queued(s), (i + 1) * SY_BURST);
		assert_int_equal(sent(), 0);
	}
	assert_true(worker_poll(w));
	assert_int_equal(sy_stack_queued(s), 3 * SY_BURST + 1 - 8);
	assert_int_equal(sent_to(), 4001);
	assert_int_equal(sent(), 7);
	assert_true(sy_stack_wake_ns(w) <= w->now_ns); /* it does not sleep */
	for (unsigned left = 3 * SY_BURST - 7; left > 0; left -= left < 8 ? left : 8)
		assert_true(worker_poll(w));
	assert_int_equal(sy_stack_queued(s), 0);
	assert_int_equal(sent(), 3 * SY_BURST - 7);
	sy_stack_packet_hook(s, SY_HOOK_NONE);
}

/* Draining is bounded: a driver with endless packets does not starve the stack. */
static void test_draining_is_bounded(void **state)
{
	struct sy_worker *w = &rt->worker[0];
	struct sy_stack *s = sy_stack_port_stack(port, 0);
	unsigned turns = 0;

	sy_stack_packet_hook(s, sy_hooks_find(sy_stack_hooks(s), "port"));
	while (sent() == 0) {
		assert_true(turns++ < 40);
		for (unsigned i = 0; i < SY_BURST; i++)
			stranger();
		worker_poll(w);
	}
	assert_in_range(turns, 30, 34);
	sy_stack_packet_hook(s, SY_HOOK_NONE);
	while (sy_stack_queued(s) > 0) {
		worker_poll(w);
		sent();
	}
}

/* ---- large segments -------------------------------------------------------------------------- */

#define MSS 1448

/* What the port has sent, in pieces. */
static unsigned pieces_sent(void)
{
	struct rte_mbuf *m;
	unsigned pieces = 0;

	for (; rte_ring_dequeue(ring.tx, (void **)&m) == 0; rte_pktmbuf_free(m))
		pieces += segment_pieces(m);
	return pieces;
}

/* Exchanges packets until both are idle. */
static void peer_settle(struct sy_stack *peer)
{
	struct sy_worker *w = &rt->worker[0];
	struct rte_mbuf *m;
	bool more = true;

	while (more) {
		while (worker_poll(w))
			;
		while (rte_ring_dequeue(ring.tx, (void **)&m) == 0)
			sy_stack_receive(peer, &m, 1, w->now_ns);
		for (more = false; sy_stack_transmit(peer, &m, 1, w->now_ns) > 0; more = true)
			assert_int_equal(rte_ring_enqueue(ring.rx, m), 0);
	}
}

/* A connection with a large window and segments of four pieces. */
static struct sy_stack *peer_open(struct sy_stack *s, sy_stack_id *id)
{
	struct sy_stack_endpoint from = {.addr = addr("10.0.0.1")},
	                         to = {.addr = addr("10.0.0.9"), .port = htons(81)};
	struct sy_stack_options o = {.pool = rt->pool, .connections = 4, .secret = "peer"};
	uint64_t now = rt->worker[0].now_ns;
	struct sy_stack *peer;
	sy_stack_id listener;

	assert_int_equal(sy_stack_create(&o, now, &peer, NULL), 0);
	assert_int_equal(sy_stack_listen(peer, &to, 4, 0, &listener), 0);
	assert_int_equal(sy_stack_connect(s, &from, &to, 0, now, id), 0);
	sy_stack_round(&rt->worker[0]);
	peer_settle(peer);
	s->options.tso.ipv4 = true;
	s->max_large = 4 * MSS;
	sy_stack_set(s, *id, SY_STACK_SEND_BYTES, 1 << 21, now);
	connection_of(s, *id)->congestion.window = 4000000;
	connection_of(s, *id)->snd_wnd = 4000000;
	return peer;
}

/* The limit counts TSO pieces, not packets. */
static void test_tso_pieces_count(void **state)
{
	static const uint8_t bytes[1500000];
	struct sy_worker *w = &rt->worker[0];
	struct sy_stack *s = sy_stack_port_stack(port, 0), *peer;
	sy_stack_id id;

	clock_set(w->now_ns + 1000 * SECOND); /* expires the state of earlier tests */
	worker_poll(w);
	sent();
	peer = peer_open(s, &id);
	assert_int_equal(sy_stack_send(s, id, bytes, sizeof(bytes), 0, w->now_ns), sizeof(bytes));
	sy_stack_round(w);
	assert_true(worker_poll(w)); /* and what the round has left */
	assert_int_equal(pieces_sent(), 2 * 4 * SY_BURST);
	assert_int_equal(sy_stack_wake_ns(w), 0);
	assert_true(worker_poll(w));
	assert_int_equal(pieces_sent(), 4 * SY_BURST);
	sy_stack_abort(s, id, w->now_ns);
	s->options.tso.ipv4 = false;
	while (worker_poll(w))
		;
	sent();
	sy_stack_destroy(peer);
}

/* A poll iteration sends the pieces of four bursts plus the rest of the last segment, even with the
 * largest segments. */
static void test_large_bursts_are_bounded(void **state)
{
	static const uint8_t bytes[1500000];
	const unsigned large = 44, max = 4 * SY_BURST + large - 1;
	struct sy_worker *w = &rt->worker[0];
	struct sy_stack *s = sy_stack_port_stack(port, 0), *peer;
	const struct sy_stack_counters *c = sy_stack_counters(s);
	uint64_t begun = c->tso_pieces, before, in;
	unsigned turns = 0;
	sy_stack_id id;

	clock_set(w->now_ns + 1000 * SECOND); /* expires the state of earlier tests */
	worker_poll(w);
	sent();
	peer = peer_open(s, &id);
	s->max_large = large * MSS;
	assert_int_equal(sy_stack_send(s, id, bytes, sizeof(bytes), 0, w->now_ns), sizeof(bytes));
	while (c->tso_pieces - begun < sizeof(bytes) / MSS) {
		assert_true(turns++ < 8);
		before = c->tso_pieces;
		sy_stack_round(w);
		assert_in_range(c->tso_pieces - before, 1, max);
		in = c->packets_in;
		stranger(); /* received while the rest is pending */
		worker_poll(w);
		assert_int_equal(c->packets_in, in + 1);
		sent();
	}
	assert_true(turns > 1);
	sy_stack_abort(s, id, w->now_ns);
	s->options.tso.ipv4 = false;
	while (worker_poll(w))
		;
	sent();
	sy_stack_destroy(peer);
}

static int setup(void **state)
{
	port_start();
	return 0;
}

static int teardown(void **state)
{
	sy_stack_port_close(port);
	sy_runtime_close(rt);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_polls_send_a_bounded_number),
	        cmocka_unit_test(test_timers_run_between_rounds),
	        cmocka_unit_test(test_packets_come_before_timers),
	        cmocka_unit_test(test_ring_is_drained_before_processing),
	        cmocka_unit_test(test_draining_is_bounded),
	        cmocka_unit_test(test_lro_packets_are_received),
	        cmocka_unit_test(test_tso_pieces_count),
	        cmocka_unit_test(test_large_bursts_are_bounded),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
