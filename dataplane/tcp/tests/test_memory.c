// SPDX-License-Identifier: Apache-2.0
/* Memory of connections: only their struct while idle, bounded otherwise. */
#include <arpa/inet.h>
#include <errno.h>

#include "../stack.h"
#include "script.h"

#define MS    UINT64_C(1000000)
#define START (UINT64_C(1000000) * MS)

/* Two stacks without a network between them. */
struct pair {
	struct sy_stack *s[2];
	sy_stack_id id[2];
	uint64_t now;
	bool hole; /* packets of side 0 are lost */
};

static struct sy_stack *stack_new(const struct sy_stack_options *with)
{
	struct sy_stack_options o = *with;
	struct sy_stack *s;

	o.pool = tests_pool();
	o.connections = o.connections ? o.connections : 64;
	assert_int_equal(sy_stack_create(&o, START, &s, NULL), 0);
	return s;
}

static void pair_run(struct pair *p, unsigned ms)
{
	struct rte_mbuf *m[32];
	uint64_t until = p->now + ms * MS;

	do {
		unsigned moved = 0;
		for (unsigned i = 0; i < 2; i++) {
			unsigned count = sy_stack_transmit(p->s[i], m, 32, p->now);
			moved += count;
			if (i == 0 && p->hole)
				rte_pktmbuf_free_bulk(m, count);
			else
				sy_stack_receive(p->s[!i], m, count, p->now);
		}
		if (moved)
			continue;
		p->now += MS;
		for (unsigned i = 0; i < 2; i++)
			sy_stack_advance(p->s[i], p->now);
	} while (p->now < until);
}

static void pair_open(struct pair *p, const struct sy_stack_options *a,
                      const struct sy_stack_options *b)
{
	struct sy_stack_endpoint from = {.port = 0}, to = {.port = htons(80)};
	sy_stack_id listener;

	*p = (struct pair){.s = {stack_new(a), stack_new(b)}, .now = START};
	sy_addr_parse("10.0.0.1", &from.addr);
	sy_addr_parse("10.0.0.2", &to.addr);
	assert_int_equal(sy_stack_listen(p->s[1], &to, 64, 0, &listener), 0);
	assert_int_equal(sy_stack_connect(p->s[0], &from, &to, 0, p->now, &p->id[0]), 0);
	pair_run(p, 1);
	assert_int_equal(sy_stack_accept(p->s[1], listener, 0, NULL, &p->id[1]), 0);
}

static void pair_close(struct pair *p)
{
	sy_stack_destroy(p->s[0]);
	sy_stack_destroy(p->s[1]);
}

static struct sy_stack_usage usage_of(struct sy_stack *s)
{
	struct sy_stack_usage usage;
	sy_stack_usage(s, &usage);
	return usage;
}

/* ---- idle ------------------------------------------------------------------------------------ */

static void test_million(void **state)
{
	const uint64_t million = 1000000;
	uint64_t bytes = million * (sizeof(struct connection) + sizeof(struct wheel_link)) +
	                 (1 << 20) * sizeof(uint32_t);

	assert_true(bytes <= UINT64_C(1000000000));
	assert_int_equal(sizeof(struct connection), 512);
	/* No buffers, ranges or flights are allocated. */
	struct pair p;
	pair_open(&p, &(struct sy_stack_options){0}, &(struct sy_stack_options){0});
	for (unsigned i = 0; i < 2; i++) {
		struct sy_stack_usage usage = usage_of(p.s[i]);
		assert_int_equal(usage.connections, 1);
		assert_int_equal(usage.send_bytes + usage.receive_bytes + usage.ranges, 0);
		assert_int_equal(p.s[i]->flights.taken, 0);
	}
	pair_close(&p);
}

/* 100 000 connections are found by tuple, and ids are not reused immediately. */
static void test_many(void **state)
{
	enum { MANY = 100000 };
	struct sy_stack_options o = {.connections = MANY, .port_first = 1, .port_last = 65535};
	struct sy_stack *s = stack_new(&o);
	struct sy_stack_endpoint from = {.port = 0}, to = {.port = htons(80)};
	sy_stack_id *id = calloc(MANY, sizeof(*id)), again;

	sy_addr_parse("10.0.0.1", &from.addr);
	sy_addr_parse("10.0.0.2", &to.addr);
	for (unsigned i = 0; i < MANY; i++) {
		to.port = htons((uint16_t)(1 + i % 1000));
		assert_int_equal(sy_stack_connect(s, &from, &to, i, START, &id[i]), 0);
	}
	assert_int_equal(sy_stack_connect(s, &from, &to, 0, START, &again), -ENOBUFS);
	for (unsigned i = 0; i < MANY; i++) {
		struct connection *c = connection_of(s, id[i]);
		assert_non_null(c);
		assert_int_equal(c->cookie, i);
		assert_ptr_equal(connection_find(s, &c->tuple), c);
	}
	sy_stack_abort(s, id[5], START);
	assert_int_equal(sy_stack_connect(s, &from, &to, 0, START, &again), 0);
	assert_int_equal(again & INDEX_MASK, id[5] & INDEX_MASK);
	assert_int_not_equal(again, id[5]);
	assert_int_equal(sy_stack_abort(s, id[5], START), -EBADF);
	free(id);
	sy_stack_destroy(s);
}

static void test_ports_are_used_up(void **state)
{
	struct sy_stack_options o = {.port_first = 2000, .port_last = 2004};
	struct sy_stack *s = stack_new(&o);
	struct sy_stack_endpoint from = {.port = 0}, to = {.port = htons(80)};
	sy_stack_id id;

	sy_addr_parse("10.0.0.1", &from.addr);
	sy_addr_parse("10.0.0.2", &to.addr);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(sy_stack_connect(s, &from, &to, 0, START, &id), 0);
	assert_int_equal(sy_stack_connect(s, &from, &to, 0, START, &id), -EADDRNOTAVAIL);
	to.port = htons(81); /* another peer may have the same ports */
	assert_int_equal(sy_stack_connect(s, &from, &to, 0, START, &id), 0);
	from.port = htons(2000);
	to.port = htons(80);
	assert_int_equal(sy_stack_connect(s, &from, &to, 0, START, &id), -EADDRINUSE);
	sy_stack_destroy(s);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static uint64_t fill(struct pair *p, unsigned side)
{
	static uint8_t bytes[65536];
	uint64_t all = 0;
	int64_t done;

	while ((done = sy_stack_send(p->s[side], p->id[side], bytes, sizeof(bytes), 0, p->now)) > 0)
		all += (uint64_t)done;
	assert_int_equal(done, -EAGAIN);
	return all;
}

/* Unread data: window and both buffers limit it. */
static void test_unread_data_closes_the_window(void **state)
{
	struct sy_stack_options o = {.send_max = 1 << 20, .receive_max = 200000};
	struct pair p;

	pair_open(&p, &o, &o);
	for (unsigned i = 0; i < 50; i++) {
		fill(&p, 0);
		pair_run(&p, 20);
	}
	struct sy_stack_info info;
	sy_stack_info(p.s[1], p.id[1], &info);
	assert_in_range(info.unread, 60000, 200000);
	assert_true(usage_of(p.s[1]).receive_bytes <= 2 * 200000 + 64 * 2304);
	assert_true(usage_of(p.s[0]).send_bytes <= (1 << 20) + CHUNK_SIZE);
	sy_stack_info(p.s[0], p.id[0], &info);
	assert_int_equal(info.in_flight, 0);
	pair_close(&p);
}

/* The pair's connection uses all send memory; another one, which is returned, waits for some. */
static sy_stack_id pair_wait_for_memory(struct pair *p)
{
	struct sy_stack_options o = {.send_all = 16 * CHUNK_SIZE}, plain = {0};
	struct sy_stack_endpoint from = {.port = 0}, to = {.port = htons(80)};
	struct sy_stack_event e[8];
	sy_stack_id other;

	pair_open(p, &o, &plain);
	sy_addr_parse("10.0.0.1", &from.addr);
	sy_addr_parse("10.0.0.2", &to.addr);
	assert_int_equal(sy_stack_connect(p->s[0], &from, &to, 1, p->now, &other), 0);
	pair_run(p, 1);
	while (sy_stack_events(p->s[0], e, 8) > 0)
		;
	assert_int_equal(fill(p, 0), 16 * CHUNK_SIZE);
	assert_int_equal(sy_stack_send(p->s[0], other, "x", 1, 0, p->now), -EAGAIN);
	return other;
}

static void assert_writable(struct pair *p, sy_stack_id id)
{
	struct sy_stack_event e[8];
	bool told = false;
	for (unsigned i = 0, count = sy_stack_events(p->s[0], e, 8); i < count; i++)
		told |= e[i].id == id && e[i].what == SY_STACK_WRITABLE;
	assert_true(told);
}

/* One connection uses all send memory; another is notified when there is some. */
static void test_send_memory_is_shared(void **state)
{
	struct pair p;
	sy_stack_id other = pair_wait_for_memory(&p);
	pair_run(&p, 5);
	assert_writable(&p, other);
	assert_int_equal(sy_stack_send(p.s[0], other, "x", 1, 0, p.now), 1);
	pair_close(&p);
}

/* At most one waiting connection per free chunk is notified; one that does not use its chunk does
 * not block the next. */
static void test_send_memory_wakes_one_per_chunk(void **state)
{
	enum { MANY = 40, FREE = 3 };
	struct sy_stack_options o = {.send_all = 16 * CHUNK_SIZE}, plain = {0};
	struct sy_stack_endpoint from = {.port = 0}, to = {.port = htons(80)};
	struct sy_stack_event e[MANY];
	sy_stack_id id[MANY];
	struct pair p;
	unsigned told = 0, each;

	pair_open(&p, &o, &plain);
	sy_addr_parse("10.0.0.1", &from.addr);
	sy_addr_parse("10.0.0.2", &to.addr);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(sy_stack_connect(p.s[0], &from, &to, i, p.now, &id[i]), 0);
	pair_run(&p, 5);
	while (sy_stack_events(p.s[0], e, MANY) > 0)
		;
	for (unsigned i = 0; i < MANY; i++) /* the first 16 use all memory */
		assert_int_equal(sy_stack_send(p.s[0], id[i], "x", 1, 0, p.now),
		                 i < 16 ? 1 : -EAGAIN);
	assert_int_equal(sy_stack_events(p.s[0], e, MANY), 0);
	for (unsigned i = 0; i < FREE; i++)
		assert_int_equal(sy_stack_abort(p.s[0], id[i], p.now), 0);
	assert_int_equal(sy_stack_events(p.s[0], e, MANY), FREE);
	for (unsigned i = 0; i < FREE; i++) {
		assert_int_equal(e[i].what, SY_STACK_WRITABLE);
		assert_int_equal(e[i].id, id[16 + i]);
	}
	while ((each = sy_stack_events(p.s[0], e, MANY)) > 0) { /* none of them sends */
		assert_in_range(each, 1, FREE);
		told += each;
	}
	assert_int_equal(told, MANY - 16 - FREE);
	pair_close(&p);
}

/* Memory of an ended connection is reported, too. */
static void test_send_memory_of_ended_connections_is_reported(void **state)
{
	struct pair p;
	sy_stack_id other = pair_wait_for_memory(&p);
	assert_int_equal(sy_stack_abort(p.s[0], p.id[0], p.now), 0);
	assert_writable(&p, other);
	pair_close(&p);
}

/* In-order data, too, is bounded by the memory; dropped data is retransmitted. */
static void test_receive_memory_is_bounded(void **state)
{
	struct sy_stack_options o = {0}, few = {.receive_all = 16384};
	static uint8_t bytes[1 << 17];
	struct pair p;
	uint64_t sent, got = 0;
	int64_t more;

	pair_open(&p, &o, &few);
	sent = fill(&p, 0);
	assert_true(sent > 2 * 16384);
	pair_run(&p, 50);
	assert_in_range(usage_of(p.s[1]).receive_bytes, 16384, 16384 + 2 * 2304);
	assert_true(sy_stack_counters(p.s[1])->refused_memory > 0);
	for (unsigned i = 0; i < 2000 && got < sent; i++, pair_run(&p, 50))
		while ((more = sy_stack_receive_bytes(p.s[1], p.id[1], bytes, sizeof(bytes),
		                                      p.now)) > 0)
			got += (uint64_t)more;
	assert_int_equal(got, sent);
	pair_close(&p);
}

/* Single bytes are merged into few packets. */
static void test_single_bytes(void **state)
{
	struct sy_stack_options o = {0};
	struct pair p;

	pair_open(&p, &o, &o);
	sy_stack_set(p.s[0], p.id[0], SY_STACK_NO_DELAY, 1, p.now);
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(sy_stack_send(p.s[0], p.id[0], "x", 1, 0, p.now), 1);
		pair_run(&p, 1);
	}
	assert_true(usage_of(p.s[1]).receive_bytes <= 2 * 2304);
	char bytes[1001];
	assert_int_equal(sy_stack_receive_bytes(p.s[1], p.id[1], bytes, 1001, p.now), 1000);
	assert_int_equal(usage_of(p.s[1]).receive_bytes, 0);
	pair_close(&p);
}

/* ---- windows that grow ----------------------------------------------------------------------- */

/* A link of 20 ms each way without bandwidth limit. */
static uint32_t read_for(struct pair *p, unsigned rounds)
{
	enum { SLOTS = 64, MAX = 8192 };
	static struct {
		struct rte_mbuf *m[MAX];
		unsigned count;
	} way[2][SLOTS];
	static uint8_t bytes[1 << 20];
	struct sy_stack_info info;

	memset(way, 0, sizeof(way));
	for (unsigned ms = 0; ms < rounds * 40; ms++) {
		p->now += MS;
		fill(p, 0);
		while (sy_stack_receive_bytes(p->s[1], p->id[1], bytes, sizeof(bytes), p->now) > 0)
			;
		for (unsigned i = 0; i < 2; i++) {
			sy_stack_advance(p->s[i], p->now);
			unsigned in = ms % SLOTS, out = (ms + 20) % SLOTS;
			sy_stack_receive(p->s[i], way[!i][in].m, way[!i][in].count, p->now);
			way[!i][in].count = 0;
			way[i][out].count +=
			        sy_stack_transmit(p->s[i], way[i][out].m + way[i][out].count,
			                          MAX - way[i][out].count, p->now);
		}
	}
	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < SLOTS; k++)
			rte_pktmbuf_free_bulk(way[i][k].m, way[i][k].count);
	sy_stack_info(p->s[1], p->id[1], &info);
	return info.receive_window;
}

static void window_grows(bool no_timestamps)
{
	struct sy_stack_options o = {.receive_max = 4 << 20, .no_timestamps = no_timestamps};
	struct pair p;

	pair_open(&p, &o, &o);
	assert_in_range(read_for(&p, 1), 20000, 200000);
	assert_true(read_for(&p, 20) > 400000);
	pair_close(&p);
	/* Not for an application that sets a limit. */
	pair_open(&p, &o, &o);
	sy_stack_set(p.s[1], p.id[1], SY_STACK_RECEIVE_BYTES, 100000, p.now);
	assert_true(read_for(&p, 20) <= 100000);
	pair_close(&p);
}

static void test_window_grows(void **state)
{
	window_grows(false);
}

static void test_window_grows_without_timestamps(void **state)
{
	window_grows(true);
}

/* ---- without packets ------------------------------------------------------------------------- */

/* Without a buffer, a segment is sent later. */
static void test_segments_wait_for_buffers(void **state)
{
	struct sy_stack_options o = {0};
	static struct rte_mbuf *taken[70000];
	unsigned count = 0;
	struct pair p;
	char byte;

	pair_open(&p, &o, &o);
	while ((taken[count] = rte_pktmbuf_alloc(tests_pool())) != NULL)
		count++;
	assert_int_equal(sy_stack_send(p.s[0], p.id[0], "x", 1, 0, p.now), 1);
	pair_run(&p, 5);
	assert_true(sy_stack_counters(p.s[0])->no_buffer > 0);
	rte_pktmbuf_free_bulk(taken, count);
	pair_run(&p, 50);
	assert_int_equal(sy_stack_receive_bytes(p.s[1], p.id[1], &byte, 1, p.now), 1);
	pair_close(&p);
}

/* The pool is empty, unnoticed by the stack. Its own consumed packets suffice for an ACK. */
static void test_consumed_packets_are_reused(void **state)
{
	static struct rte_mbuf *all[1 << 15];
	struct rte_mbuf *m[2];
	unsigned held = 0;
	struct pair p;
	char byte;

	pair_open(&p, &(struct sy_stack_options){0}, &(struct sy_stack_options){0});
	assert_int_equal(sy_stack_send(p.s[0], p.id[0], "x", 1, 0, p.now), 1);
	assert_int_equal(sy_stack_transmit(p.s[0], m, 2, p.now), 1);
	while ((all[held] = rte_pktmbuf_alloc(tests_pool())) != NULL)
		held++;
	sy_stack_receive(p.s[1], m, 1, p.now);
	assert_int_equal(sy_stack_transmit(p.s[1], m, 2, p.now), 0);
	assert_int_equal(sy_stack_receive_bytes(p.s[1], p.id[1], &byte, 1, p.now), 1);
	assert_int_equal(rte_mempool_avail_count(tests_pool()), 0); /* it is kept for a while */
	assert_int_equal(sy_stack_send(p.s[1], p.id[1], "y", 1, 0, p.now), 1);
	assert_int_equal(sy_stack_transmit(p.s[1], m, 2, p.now), 1);
	sy_stack_receive(p.s[0], m, 1, p.now);
	assert_int_equal(sy_stack_receive_bytes(p.s[0], p.id[0], &byte, 1, p.now), 1);
	assert_int_equal(byte, 'y');
	rte_pktmbuf_free_bulk(all, held);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_million),
	        cmocka_unit_test(test_many),
	        cmocka_unit_test(test_ports_are_used_up),
	        cmocka_unit_test(test_unread_data_closes_the_window),
	        cmocka_unit_test(test_send_memory_is_shared),
	        cmocka_unit_test(test_send_memory_of_ended_connections_is_reported),
	        cmocka_unit_test(test_send_memory_wakes_one_per_chunk),
	        cmocka_unit_test(test_receive_memory_is_bounded),
	        cmocka_unit_test(test_single_bytes),
	        cmocka_unit_test(test_window_grows),
	        cmocka_unit_test(test_window_grows_without_timestamps),
	        cmocka_unit_test(test_segments_wait_for_buffers),
	        cmocka_unit_test(test_consumed_packets_are_reused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
