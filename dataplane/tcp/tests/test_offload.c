// SPDX-License-Identifier: Apache-2.0
/* Checksum offload: of transmitted and received packets. */
#include <rte_ip.h>

#include "script.h"

#define MS UINT64_C(1000000)

static const struct sy_stack_endpoint here = {.addr = {{{10, 0, 0, 1}}}, .port = 0x0700},
                                      there = {.addr = {{{10, 0, 0, 2}}}};

static struct sy_stack *stack_open(bool offload, bool trusting)
{
	const struct sy_stack_options o = {.pool = tests_pool(),
	                                   .connections = 4,
	                                   .offload_checksum = offload,
	                                   .trust_checksum = trusting};
	struct sy_stack *s;
	struct sy_error err;
	sy_stack_id id;

	assert_int_equal(sy_stack_create(&o, MS, &s, &err), 0);
	assert_int_equal(sy_stack_listen(s, &here, 4, 0, &id), 0);
	return s;
}

static struct rte_mbuf *packet_of(struct sy_stack *s)
{
	struct rte_mbuf *m;

	assert_int_equal(sy_stack_transmit(s, &m, 1, MS), 1);
	return m;
}

/* Computes the checksum as the port does. */
static void port_computes(struct rte_mbuf *m)
{
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)(frame + m->l2_len);
	struct sy_tcp *tcp = (struct sy_tcp *)((uint8_t *)ip + m->l3_len);
	uint16_t len = (uint16_t)(m->data_len - m->l2_len - m->l3_len);

	assert_true(m->ol_flags & RTE_MBUF_F_TX_TCP_CKSUM && m->ol_flags & RTE_MBUF_F_TX_IPV6);
	assert_int_equal(m->l3_len, sizeof(*ip));
	assert_int_equal(tcp->checksum, rte_ipv6_phdr_cksum(ip, 0));
	tcp->checksum = (uint16_t)~rte_raw_cksum(tcp, len);
	m->ol_flags = 0;
}

/* Both sides leave all checksums to the port. */
static void test_sent(void **state)
{
	struct sy_stack *s = stack_open(true, false), *peer = stack_open(true, false);
	struct rte_mbuf *m;
	sy_stack_id id;

	assert_int_equal(sy_stack_connect(s, &there, &here, 0, MS, &id), 0);
	for (unsigned n = 0; n < 3; n++) {
		struct sy_stack *from = n % 2 ? peer : s, *to = n % 2 ? s : peer;
		m = packet_of(from);
		port_computes(m);
		sy_stack_receive(to, &m, 1, MS);
		assert_int_equal(sy_stack_counters(to)->bad_checksums, 0);
	}
	assert_int_equal(sy_stack_counters(peer)->accepted, 1);
	assert_int_equal(sy_stack_counters(s)->offloaded, 2);
	sy_stack_destroy(s);
	sy_stack_destroy(peer);
}

/* A reset belongs to no connection. */
static void test_reset(void **state)
{
	struct sy_stack *s = stack_open(true, false), *peer = stack_open(true, false);
	const struct sy_stack_endpoint closed = {.addr = here.addr, .port = 0x0800};
	struct rte_mbuf *m;
	sy_stack_id id;

	assert_int_equal(sy_stack_connect(s, &there, &closed, 0, MS, &id), 0);
	m = packet_of(s);
	port_computes(m);
	sy_stack_receive(peer, &m, 1, MS);
	assert_int_equal(sy_stack_counters(peer)->resets_out, 1);
	m = packet_of(peer);
	port_computes(m);
	sy_stack_receive(s, &m, 1, MS);
	assert_int_equal(sy_stack_counters(s)->resets_in, 1);
	sy_stack_destroy(s);
	sy_stack_destroy(peer);
}

/* The device's result applies, right or wrong; without one, the stack verifies. */
static void test_received(void **state)
{
	static const struct {
		uint64_t says;
		bool wrong, taken;
	} all[] = {
	        {0, false, true},
	        {0, true, false},
	        {RTE_MBUF_F_RX_L4_CKSUM_GOOD, true, true}, /* not verified again */
	        {RTE_MBUF_F_RX_L4_CKSUM_BAD, false, false},
	        {RTE_MBUF_F_RX_L4_CKSUM_NONE, true, true}, /* unfinished, and yet sound */
	};

	for (unsigned i = 0; i < SY_ARRAY_LEN(all); i++) {
		struct sy_stack *s = stack_open(false, false), *peer = stack_open(false, false);
		struct rte_mbuf *m;
		sy_stack_id id;
		assert_int_equal(sy_stack_connect(s, &there, &here, 0, MS, &id), 0);
		m = packet_of(s);
		assert_int_equal(m->ol_flags & RTE_MBUF_F_TX_L4_MASK, 0);
		rte_pktmbuf_mtod(m, uint8_t *)[m->l2_len + m->l3_len + 16] ^= all[i].wrong;
		m->ol_flags |= all[i].says;
		sy_stack_receive(peer, &m, 1, MS);
		assert_int_equal(sy_stack_counters(peer)->bad_checksums, !all[i].taken);
		sy_stack_destroy(s);
		sy_stack_destroy(peer);
	}
}

/* A sender on the same host left the checksum to a device that computes none. On a wire it is
 * wrong. */
static void test_unfinished(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		const bool may = i & 1, wrong = i & 2;
		const struct sy_stack_options o = {
		        .pool = tests_pool(), .connections = 4, .unfinished = may};
		struct sy_stack *s = stack_open(true, false), *peer;
		struct rte_mbuf *m;
		sy_stack_id id;
		assert_int_equal(sy_stack_create(&o, MS, &peer, NULL), 0);
		assert_int_equal(sy_stack_listen(peer, &here, 4, 0, &id), 0);
		assert_int_equal(sy_stack_connect(s, &there, &here, 0, MS, &id), 0);
		m = packet_of(s);
		rte_pktmbuf_mtod(m, uint8_t *)[m->l2_len + m->l3_len + 16] ^= wrong;
		m->ol_flags = 0;
		sy_stack_receive(peer, &m, 1, MS);
		assert_int_equal(sy_stack_counters(peer)->unfinished, may && !wrong);
		assert_int_equal(sy_stack_counters(peer)->unfinished_dropped, !may && !wrong);
		assert_int_equal(sy_stack_counters(peer)->bad_checksums, wrong || !may);
		assert_int_equal(sy_stack_transmit(peer, &m, 1, MS), may && !wrong);
		if (may && !wrong)
			rte_pktmbuf_free(m);
		sy_stack_destroy(s);
		sy_stack_destroy(peer);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_sent),
	        cmocka_unit_test(test_reset),
	        cmocka_unit_test(test_received),
	        cmocka_unit_test(test_unfinished),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
