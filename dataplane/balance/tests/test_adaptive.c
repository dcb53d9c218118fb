// SPDX-License-Identifier: Apache-2.0
/* An attacker who knows the tuple of a connection and sees the balancer's answers could halve the
 * window in which he searches its number. No answer may reveal the half: challenges (RFC 5961) are
 * equal for every number. And an attacker who forges ICMP errors about live connections and UDP
 * sessions. */
#include "defence_fixture.h"

#define KINDS 6
#define BITS  32

/* What leaves the balancer for one forged segment: the forwarded segment, and answers. */
struct seen {
	unsigned back, on; /* frames to the client, and to the server */
};

static struct seen forge(struct talk *k, uint8_t flags, uint32_t seq)
{
	struct seen seen = {0};
	struct got g;
	from_client(k, flags, seq, k->cookie + 1, 0);
	while (collect(k, HARNESS_WAN, &g))
		seen.back++;
	while (collect(k, HARNESS_LAN, &g))
		seen.on++;
	return seen;
}

/* The client, which is unaware, goes on sending: that undoes the effect of a forged segment. */
static void go_on(struct talk *k)
{
	check_data(k, 0);
	const enum session_state state = state_of(k);
	assert_true(state == SESSION_ESTABLISHED || state == SESSION_FIN_WAIT);
}

static void halve(struct talk *k, uint8_t flags)
{
	uint32_t low = 0;
	for (unsigned bit = BITS - 1; bit > 0; bit--) {
		const uint32_t half = UINT32_C(1) << bit, middle = low + half / 2;
		const struct seen one = forge(k, flags, middle);
		go_on(k);
		const struct seen other = forge(k, flags, middle + half);
		go_on(k);
		/* The halves do not differ, though one of them has the number. */
		assert_int_equal(one.back, other.back);
		assert_int_equal(one.on, other.on);
		low += one.back >= other.back ? 0 : half;
	}
	/* Nor would the exact number, or the numbers beside it. */
	const struct seen exact = forge(k, flags, C_NUMBER + 1);
	go_on(k);
	for (int32_t off = -2; off <= 2; off++) {
		const struct seen near = forge(k, flags, C_NUMBER + 1 + (uint32_t)off);
		go_on(k);
		assert_int_equal(near.back, exact.back);
		assert_int_equal(near.on, exact.on);
	}
}

static void test_halving(void **state)
{
	static const uint8_t flags[] = {RST, RST | ACK, SYN, ACK};
	struct flows *f = *state;
	for (unsigned i = 0; i < KINDS; i++) {
		for (unsigned n = 0; n < SY_ARRAY_LEN(flags); n++) {
			struct talk k;
			talk_open(f, &k, &kinds[i], (uint16_t)(3000 + 10 * i + n));
			halve(&k, flags[n]);
			assert_int_equal(state_of(&k), SESSION_ESTABLISHED);
		}
	}
}

/* ICMP errors about packets of a live connection or UDP session, of which the attacker knows the
 * tuple, from both sides. Whether they reach an end or not: the session goes on as it was. */
static void test_icmp_errors(void **state)
{
	static const uint8_t types4[][2] = {{3, 0},  {3, 1},  {3, 2},  {3, 3},  {3, 4}, {3, 9},
	                                    {3, 13}, {11, 0}, {11, 1}, {12, 0}, {4, 0}};
	static const uint8_t types6[][2] = {{1, 0}, {1, 1}, {1, 3}, {1, 4}, {2, 0},
	                                    {3, 0}, {3, 1}, {4, 0}, {4, 1}};
	static const uint32_t rest[] = {0, 68, 1280, 0xffffffff};
	static const unsigned port[2] = {HARNESS_LAN, HARNESS_WAN};
	struct flows *f = *state;
	for (unsigned service = 0; service < FLOW_SERVICES; service++) {
		const bool v4 = service < 2;
		const struct sy_addr router = harness_addr(v4 ? "203.0.113.9" : "2001:db8:99::9");
		const unsigned types = v4 ? SY_ARRAY_LEN(types4) : SY_ARRAY_LEN(types6);
		struct flow flow;
		unsigned through = 0;
		flow_open(f, &flow, service, (uint16_t)(4000 + service));
		const struct session before = *flow_session(f, &flow);
		for (unsigned n = 0; n < 2 * types * SY_ARRAY_LEN(rest); n++) {
			const unsigned way = n % 2, kind = n / 2 % types;
			const struct frame *about = &flow.out[way];
			struct frame error = {.port = (uint8_t)port[way]};
			struct rte_mbuf *m;
			frame_error(&error, &f->rng, &router, v4 ? types4[kind] : types6[kind],
			            rest[n / 2 / types], about->bytes,
			            n / 2 % 3 ? 48 : about->len - SY_ETH_LEN);
			assert_true(harness_inject(&f->harness, port[way], error.bytes, error.len));
			harness_poll(&f->harness);
			for (unsigned out = 0; out < HARNESS_PORTS; out++)
				while ((m = harness_collect(&f->harness, out))) {
					through++;
					rte_pktmbuf_free(m);
				}
			flow_check(f, &flow);
			const struct session *now = flow_session(f, &flow);
			assert_int_equal(now->state, before.state);
			assert_int_equal(now->server, before.server);
			assert_int_equal(now->local_port, before.local_port);
		}
		assert_true(through > 0); /* errors that look right are the ends' to judge */
	}
	assert_int_equal(harness_totals(&f->harness).live, FLOW_SERVICES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_halving, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_icmp_errors, flows_setup, flows_teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
