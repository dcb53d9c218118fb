// SPDX-License-Identifier: Apache-2.0
/* Connections whose ends exchange frames directly, without a balancer. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../connections.h"
#include <sy_packet.h>

static const struct connections_options options[2] = {
        {.port = 80, .own_mac = {{2, 1}, {2, 2}}, .gate_mac = {{2, 3}, {2, 4}}},
        {.port = 443, .own_mac = {{2, 5}, {2, 6}}, .gate_mac = {{2, 7}, {2, 8}}},
};

static void connections_make(struct connections *l, bool v4)
{
	struct connections_options o = options[v4];
	assert_int_equal(sy_addr_parse(v4 ? "198.18.0.0" : "2001:db8:8::", &o.client), 0);
	assert_int_equal(sy_addr_parse(v4 ? "192.0.2.10" : "2001:db8:1::10", &o.vip), 0);
	connections_init(l, &o);
}

/* Sends a step, checks its frame, gives it to the other end. */
static unsigned pass(struct connections *l, const struct connection_step *w,
                     struct connection_step out[2])
{
	uint8_t frame[CONNECTION_FRAME_MAX];
	enum connection_side from = connection_side_of(w->packet);
	uint32_t len = connections_answer(l, w, frame);
	assert_true(len <= CONNECTION_FRAME_MAX);
	assert_true(connections_check(frame, len));
	assert_memory_equal(frame, l->options.gate_mac[from], 6);
	assert_memory_equal(frame + 6, l->options.own_mac[from], 6);
	frame[len - 1] ^= 1;
	assert_false(connections_check(frame, len));
	frame[len - 1] ^= 1;
	return connections_receive(
	        l, from == CONNECTION_CLIENT ? CONNECTION_SERVER : CONNECTION_CLIENT, frame, len,
	        out);
}

/* All steps of connection n, in the order of sending. */
static unsigned play(struct connections *l, uint64_t n,
                     struct connection_step said[CONNECTION_PACKETS + 2])
{
	unsigned count = 1;
	connections_begin(l, n, &said[0]);
	for (unsigned i = 0; i < count; i++) {
		assert_true(count <= CONNECTION_PACKETS);
		count += pass(l, &said[i], &said[count]);
	}
	return count;
}

static void test_connection(void **state)
{
	for (unsigned v4 = 0; v4 < 2; v4++) {
		struct connections l;
		connections_make(&l, v4);
		for (unsigned n = 0; n < 1000; n++) {
			struct connection_step said[CONNECTION_PACKETS + 2];
			assert_int_equal(play(&l, n, said), CONNECTION_PACKETS);
			for (unsigned i = 0; i < CONNECTION_PACKETS; i++)
				assert_int_equal(said[i].packet, i);
		}
		assert_int_equal(l.begun, 1000);
		assert_int_equal(l.completed, 1000);
		assert_int_equal(l.strange, 0);
	}
}

/* A duplicate, a reset, another protocol, a truncated frame: none gets an answer. */
static void test_strange(void **state)
{
	for (unsigned v4 = 0; v4 < 2; v4++) {
		struct connections l;
		struct connection_step said[CONNECTION_PACKETS + 2], out[2];
		uint8_t frame[CONNECTION_FRAME_MAX];
		connections_make(&l, v4);
		play(&l, 7, said);
		struct connection_step w = said[CONNECTION_GET];
		w.ack = htonl(ntohl(w.ack) + 5);
		assert_int_equal(pass(&l, &w, out), 0);
		assert_int_equal(l.strange, 1);

		uint32_t l4 = SY_ETH_LEN + (v4 ? 20 : 40);
		uint32_t len = connections_answer(&l, &said[CONNECTION_GET], frame);
		((struct sy_tcp *)(frame + l4))->flags = SY_TCP_RST;
		assert_int_equal(connections_receive(&l, CONNECTION_SERVER, frame, len, out), 0);
		assert_int_equal(l.strange, 2);
		assert_int_equal(l.resets, 1);

		len = connections_answer(&l, &said[CONNECTION_GET], frame);
		assert_int_equal(connections_receive(&l, CONNECTION_SERVER, frame, l4 + 19, out),
		                 0);
		frame[SY_ETH_LEN + (v4 ? 9 : 6)] = SY_PROTO_UDP;
		assert_int_equal(connections_receive(&l, CONNECTION_SERVER, frame, len, out), 0);
		assert_int_equal(l.strange, 4);
		assert_int_equal(l.resets, 1);
	}
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* No two connections have the same tuple, and slots get about equal numbers. */
static void test_tuples(void **state)
{
	enum { N = 200000 };
	static uint64_t seen[N];
	unsigned slot[SY_SLOTS] = {0};
	struct connections l;
	connections_make(&l, true);
	sy_slot_init();
	for (unsigned n = 0; n < N; n++) {
		struct connection_step w;
		connections_begin(&l, n, &w);
		seen[n] = (uint64_t)ntohl(w.src.w[3]) << 16 | ntohs(w.sport);
		assert_in_range(ntohl(w.src.w[3]), 0xc6120000, 0xc613ffff);
		slot[sy_slot_of(&w.src, w.sport)]++;
	}
	qsort(seen, N, sizeof(seen[0]), compare);
	for (unsigned n = 1; n < N; n++)
		assert_true(seen[n] != seen[n - 1]);
	for (unsigned s = 0; s < SY_SLOTS; s++)
		assert_in_range(slot[s], N / SY_SLOTS / 2, N / SY_SLOTS * 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_connection),
	        cmocka_unit_test(test_strange),
	        cmocka_unit_test(test_tuples),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
