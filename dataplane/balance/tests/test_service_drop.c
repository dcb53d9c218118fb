// SPDX-License-Identifier: Apache-2.0
/* Drops count under their service, by reason, and with it they go. */
#include "service_dropped.h"

#define TCP4 0 /* services of flows.h */
#define UDP4 1

/* An ACK of no connection. */
static void stray_send(struct flows *f, uint16_t port)
{
	const struct service_key *key = &f->service[TCP4];
	const struct sy_tuple t = {harness_addr("198.18.0.9"), key->vip, htons(port), key->vport,
	                           key->proto};
	struct frame in, out;
	flows_frame(f, &in, &t, SY_TCP_ACK, 1, 20);
	assert_false(flows_through(f, HARNESS_WAN, &in, &out));
}

/* Sends a frame of IPv4 with a TTL of 1. Its sender gets an ICMP error. */
static void ttl_send(struct flows *f, unsigned port, struct frame *frame)
{
	struct sy_view v;
	struct rte_mbuf *m;
	assert_int_equal(sy_packet_parse(frame->bytes, frame->len, &v), SY_DROP_NONE);
	struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame->bytes + v.l3);
	ip->checksum = sy_csum_apply(ip->checksum,
	                             sy_csum_delta(htons((uint16_t)(ip->ttl << 8)), htons(1 << 8)));
	ip->ttl = 1;
	assert_true(harness_inject(&f->harness, port, frame->bytes, frame->len));
	harness_poll(&f->harness);
	for (unsigned p = 0; p < 2; p++)
		while ((m = harness_collect(&f->harness, p)))
			rte_pktmbuf_free(m);
}

static void test_counts(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	assert_int_equal(service_dropped(f, TCP4, SY_DROP_NO_SESSION), 0);
	for (uint16_t n = 0; n < 3; n++)
		stray_send(f, (uint16_t)(1000 + n));
	assert_int_equal(service_dropped(f, TCP4, SY_DROP_NO_SESSION), 3);
	assert_int_equal(service_dropped(f, TCP4, SY_DROP_NO_SERVER), 0);
	assert_int_equal(service_dropped(f, UDP4, SY_DROP_NO_SESSION), 0);

	/* Of a session, in both directions: the TTL ends here. */
	flow_open(f, &flow, TCP4, 2000);
	ttl_send(f, HARNESS_WAN, &flow.in[SESSION_CLIENT]);
	assert_int_equal(service_dropped(f, TCP4, SY_DROP_TTL_EXPIRED), 1);
	ttl_send(f, HARNESS_LAN, &flow.in[SESSION_SERVER]);
	assert_int_equal(service_dropped(f, TCP4, SY_DROP_TTL_EXPIRED), 2);
	assert_int_equal(service_dropped(f, UDP4, SY_DROP_TTL_EXPIRED), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_counts, flows_setup, flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
