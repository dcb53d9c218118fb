// SPDX-License-Identifier: Apache-2.0
/* Packets whose source is this host's, a VIP, a local address, or a network's broadcast address
 * begin no session, in any mode, and get no answer. */
#include "ways.h"

static const struct way ways[] = WAYS_OF_MODES;

static int setup(void **state)
{
	return ways_setup(state, ways, SY_ARRAY_LEN(ways));
}

/* Adds these addresses to the host, as the mirror of the kernel does. */
static void host_has(struct flows *f, const struct sy_link_addr *at, unsigned count)
{
	struct sy_runtime *rt = f->harness.rt;
	free(rt->connected);
	rt->connected = calloc(count + 1, sizeof(*at));
	assert_non_null(rt->connected);
	if (count)
		memcpy(rt->connected, at, count * sizeof(*at));
	rt->connected_count = count;
	rt->connected_version++;
	harness_attend(&f->harness);
}

/* Sends a client's first packet from this source. Returns whether it passed. */
static bool passes(struct flows *f, const struct way *way, uint8_t proto, struct sy_addr source)
{
	struct sy_tuple t = client_of(way, proto, 4000);
	struct frame in, out;
	const uint64_t before = harness_drops(&f->harness, SY_DROP_OWN_SOURCE);
	t.src = source;
	flows_frame(f, &in, &t, SY_TCP_SYN, 1, 0);
	const bool passed = flows_through(f, HARNESS_WAN, &in, &out);
	if (!passed)
		assert_null(flows_find(f, &t));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_OWN_SOURCE), before + !passed);
	return passed;
}

/* An echo request to the way's VIP. Returns whether it is answered. */
static bool is_answered(struct flows *f, const struct way *way, struct sy_addr source)
{
	struct sy_tuple t = client_of(way, SY_PROTO_ICMP, 0);
	struct frame in;
	t.src = source;
	frame_icmp(&in, &f->rng, &t, way->client6 ? 128 : 8, 0, 20);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
	harness_poll(&f->harness);
	struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_WAN);
	rte_pktmbuf_free(m);
	return m != NULL;
}

static void test_own_sources(void **state)
{
	static const char *const own[2][5] = {
	        {"10.0.1.1", "198.18.7.5", "198.18.7.255", "198.18.7.0", "198.18.0.4"},
	        {"2001:db8:b:1::1", "2001:db8:c::5", NULL, NULL, NULL},
	};
	/* The other one of a network of two, and of a network that has no broadcast address. */
	static const char *const others[2][3] = {{"198.18.7.254", "198.18.0.5", "198.18.0.1"},
	                                         {"2001:db8:c::", "2001:db8:c::ffff", NULL}};
	const struct sy_link_addr host[] = {
	        {.ifindex = 1, .addr = harness_addr("198.18.7.5"), .prefix_len = 24},
	        {.ifindex = 1, .addr = harness_addr("198.18.0.4"), .prefix_len = 31},
	        {.ifindex = 1, .addr = harness_addr("2001:db8:c::5"), .prefix_len = 64}};
	struct flows *f = *state;
	for (unsigned n = 0; n < 2 * SY_ARRAY_LEN(ways); n++) {
		const struct way *way = &ways[n / 2];
		const uint8_t proto = n % 2 ? SY_PROTO_UDP : SY_PROTO_TCP;
		host_has(f, host, SY_ARRAY_LEN(host));
		const struct sy_addr vip = f->service[way->client6 ? 2 : 0].vip;
		assert_false(passes(f, way, proto, vip));
		assert_false(is_answered(f, way, vip));
		for (unsigned i = 0; i < 5 && own[way->client6][i]; i++) {
			const struct sy_addr source = harness_addr(own[way->client6][i]);
			assert_false(passes(f, way, proto, source));
			assert_false(is_answered(f, way, source));
		}
		for (unsigned i = 0; i < 3 && others[way->client6][i]; i++)
			assert_true(passes(f, way, proto, harness_addr(others[way->client6][i])));
		/* the host has removed its addresses: another host may have them now */
		const struct sy_addr former = harness_addr(own[way->client6][1]);
		host_has(f, NULL, 0);
		assert_true(passes(f, way, proto, former));
		assert_true(is_answered(f, way, former));
		assert_false(passes(f, way, proto, vip));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_own_sources, setup, flows_teardown),
	};
	return cmocka_run_group_tests_name("own sources", tests, NULL, NULL);
}
