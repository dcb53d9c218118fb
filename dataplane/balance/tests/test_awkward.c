// SPDX-License-Identifier: Apache-2.0
/* Packets with more headers before their transport than Ethernet and IP, forwarded through the
 * balancer. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../../tests/soak/soak_frame.h"
#include "routed.h"

#define UP STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define RR STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR

struct fixture {
	struct harness harness;
	struct rng rng;
	struct service_key key[2]; /* IPv6, IPv4 */
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct changes c = {0};
	assert_non_null(f);
	routed_open(&f->harness, (struct harness_options){0});
	f->rng.state = 1;
	for (unsigned v4 = 0; v4 < 2; v4++) {
		struct sy_addr local = harness_addr(v4 ? "10.0.1.1" : "fd00::1:1");
		struct sy_addr server = harness_addr(v4 ? "10.0.0.1" : "fd00::1");
		f->key[v4] = harness_key(v4 ? "192.0.2.10" : "2001:db8::10", 80, SY_PROTO_TCP);
		put_local(&c, &local);
		put_service(&c, &f->key[v4], v4 ? "four" : "six", RR, NULL);
		put_server(&c, &f->key[v4], &server, 8080, 1, UP);
	}
	routed_commit(&f->harness, &c);
	*state = f;
	return 0;
}

/* A SYN with an MSS of 1460, and these bytes after its IP header. */
static struct frame hello(struct fixture *f, bool v4, const uint8_t *more, unsigned len,
                          uint8_t next)
{
	const struct sy_tuple t = {harness_addr(v4 ? "198.18.0.1" : "2001:db8:c::1"),
	                           f->key[v4].vip, htons(4000), f->key[v4].vport, SY_PROTO_TCP};
	const struct segment syn = {SY_TCP_SYN, 1, 0, 1460};
	struct frame frame;
	unsigned at = SY_ETH_LEN + (v4 ? 20 : 40);
	uint8_t *l3 = frame.bytes + SY_ETH_LEN;
	uint16_t ip_len;

	frame_tcp(&frame, &f->rng, &t, &syn, 0);
	memmove(frame.bytes + at + len, frame.bytes + at, frame.len - at);
	memcpy(frame.bytes + at, more, len);
	frame.len = (uint16_t)(frame.len + len);
	ip_len = htons((uint16_t)(frame.len - (v4 ? SY_ETH_LEN : at)));
	memcpy(l3 + (v4 ? 2 : 4), &ip_len, 2);
	if (v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)l3;
		ip->version_ihl = (uint8_t)(0x45 + len / 4);
		ip->checksum = 0;
		ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, 20 + len));
	} else if (len > 0) {
		l3[6] = next;
	}
	return frame;
}

static void send_in(struct fixture *f, const struct frame *frame)
{
	assert_true(harness_inject(&f->harness, HARNESS_WAN, frame->bytes, frame->len));
	harness_poll(&f->harness);
	harness_attend(&f->harness);
}

/* Rewritten and clamped (the lan's MTU is 1400), with right checksums and otherwise unchanged. */
static void test_forwarded(void **state)
{
	static const uint8_t options[8] = {7, 7, 4, 0, 0, 0, 0, 0};
	static const uint8_t extensions[16] = {60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0};
	struct fixture *f = *state;

	for (unsigned v4 = 0; v4 < 2; v4++) {
		const uint8_t *more = v4 ? options : extensions;
		unsigned len = v4 ? sizeof(options) : sizeof(extensions);
		struct frame frame = hello(f, v4, more, len, 0);
		struct sy_view v;
		send_in(f, &frame);
		struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_LAN);
		assert_non_null(m);
		const uint8_t *out = rte_pktmbuf_mtod(m, const uint8_t *);
		assert_int_equal(sy_packet_parse(out, m->data_len, &v), SY_DROP_NONE);
		assert_int_equal(sy_packet_check_l4(out, &v), SY_CSUM_OK);
		assert_int_equal(v.l4 - v.l3, (v4 ? 20 : 40) + len);
		assert_int_equal(v.tuple.dport, htons(8080));
		assert_int_equal(sy_packet_ttl(out, &v), 63);
		assert_memory_equal(out + v.l4 - len, more, len);
		uint16_t mss = htons((uint16_t)(1400 - 20 - (v4 ? 20 : 40)));
		assert_memory_equal(out + v.l4 + 22, &mss, 2);
		rte_pktmbuf_free(m);
	}
}

/* If the TTL runs out, the sender gets an ICMP error that quotes the options. */
static void test_expired(void **state)
{
	static const uint8_t options[4] = {1, 1, 1, 0};
	struct fixture *f = *state;
	struct frame frame = hello(f, true, options, sizeof(options), 0);
	struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame.bytes + SY_ETH_LEN);
	struct sy_view v;
	struct sy_quote q;

	ip->ttl = 1;
	ip->checksum = 0;
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, 24));
	send_in(f, &frame);
	struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_WAN);
	assert_non_null(m);
	const uint8_t *out = rte_pktmbuf_mtod(m, const uint8_t *);
	assert_int_equal(sy_packet_parse(out, m->data_len, &v), SY_DROP_NONE);
	assert_int_equal(sy_packet_check_l4(out, &v), SY_CSUM_OK);
	assert_int_equal(sy_packet_parse_quote(out, &v, &q), SY_DROP_NONE);
	assert_int_equal(q.kind, SY_QUOTE_TIME_EXCEEDED);
	assert_int_equal(q.l4 - q.l3, 24);
	assert_int_equal(q.tuple.dport, htons(80));
	rte_pktmbuf_free(m);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_TTL_EXPIRED), 1);
}

static void tag_put(struct frame *frame, uint8_t type0, uint8_t type1, uint16_t tci)
{
	memmove(frame->bytes + 16, frame->bytes + 12, frame->len - 12u);
	memcpy(frame->bytes + 12,
	       (const uint8_t[]){type0, type1, (uint8_t)(tci >> 8), (uint8_t)tci}, 4);
	frame->len += 4;
}

/* Priority tags are removed, whether there is one or two. */
static void test_priority(void **state)
{
	struct fixture *f = *state;
	for (unsigned n = 0; n < 4; n++) {
		bool v4 = n % 2;
		struct frame frame = hello(f, v4, (const uint8_t[]){0}, 0, 0), same = frame;
		struct rte_mbuf *m[2];
		tag_put(&frame, 0x81, 0, 0xa000);
		if (n > 1)
			tag_put(&frame, 0x88, 0xa8, 0x1000);
		send_in(f, &frame);
		m[0] = harness_collect(&f->harness, HARNESS_LAN);
		send_in(f, &same);
		m[1] = harness_collect(&f->harness, HARNESS_LAN);
		assert_non_null(m[0]);
		assert_non_null(m[1]);
		assert_int_equal(m[0]->data_len, m[1]->data_len);
		assert_memory_equal(rte_pktmbuf_mtod(m[0], void *), rte_pktmbuf_mtod(m[1], void *),
		                    m[0]->data_len);
		rte_pktmbuf_free(m[0]);
		rte_pktmbuf_free(m[1]);
	}
	assert_int_equal(harness_drops(&f->harness, SY_DROP_VLAN), 0);
}

/* Packets that the balancer cannot handle yet are dropped with a specific reason. */
static void test_dropped(void **state)
{
	static const uint8_t atomic[8] = {6, 0, 0, 0, 1, 2, 3, 4};
	struct fixture *f = *state;
	struct frame frame = hello(f, true, atomic, 0, 0);

	tag_put(&frame, 0x81, 0, 5);
	send_in(f, &frame);
	assert_null(harness_collect(&f->harness, HARNESS_LAN));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_VLAN), 1);
	tag_put(&frame, 0x81, 0, 0xe000); /* a priority tag outside of it */
	send_in(f, &frame);
	assert_null(harness_collect(&f->harness, HARNESS_LAN));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_VLAN), 2);
	/* a fragment header alone does not make a fragment */
	frame = hello(f, false, atomic, sizeof(atomic), 44);
	send_in(f, &frame);
	struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_LAN);
	assert_non_null(m);
	rte_pktmbuf_free(m);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, routed_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_forwarded), TEST(test_expired),
	                                   TEST(test_priority), TEST(test_dropped)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
