// SPDX-License-Identifier: Apache-2.0
/* Whatever happens to sessions, services and processes, the counts of clients' sessions are those
 * of the sessions. */
#include "client_sessions_fixture.h"

#define TICKET 0x1234
#define MANY   48 /* flows */
#define STEPS  4000

static void step_flow(struct flows *f, struct flow *flow)
{
	static const uint8_t flags[] = {
	        SY_TCP_SYN, SY_TCP_SYN | SY_TCP_ACK, SY_TCP_ACK, SY_TCP_FIN | SY_TCP_ACK,
	        SY_TCP_RST, SY_TCP_RST | SY_TCP_ACK, SY_TCP_ACK};
	struct frame frame;
	const unsigned from = rng_below(&f->rng, 2);
	struct session *s = flows_find(f, &flow->client);
	if (s) {
		const struct session_cold *cold = session_cold_beside(
		        inspect_table(f->harness.b, sy_slot_of(&s->client, s->client_port)), s);
		flow->server = session_server_tuple(f->harness.b, s, cold,
		                                    inspect_endpoint(f->harness.b, s->server));
	}
	if (from == SESSION_SERVER && !s)
		return;
	flows_frame(f, &frame, from == SESSION_CLIENT ? &flow->client : &flow->server,
	            flags[rng_below(&f->rng, sizeof(flags))], rng_below(&f->rng, 3),
	            rng_below(&f->rng, 2) * 50);
	assert_true(harness_inject(&f->harness, from == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN,
	                           frame.bytes, frame.len));
	if (rng_below(&f->rng, 3)) /* else it shares a burst with the next one */
		harness_poll(&f->harness);
}

static void drain(struct flows *f)
{
	harness_poll(&f->harness);
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		for (struct rte_mbuf *m; (m = harness_collect(&f->harness, port));)
			rte_pktmbuf_free(m);
}

static void step_control(struct flows *f)
{
	struct changes c = {0};
	unsigned service = rng_below(&f->rng, FLOW_SERVICES);
	const struct sy_addr *server = &f->server[service][rng_below(&f->rng, FLOW_SERVERS)];
	uint16_t port = f->service[service].proto == SY_PROTO_TCP ? 8080 : 5353;
	switch (rng_below(&f->rng, 6)) {
	case 0:
		limit_all(f, rng_below(&f->rng, 5));
		break;
	case 1:
		delete_server(&c, &f->service[service], server, port);
		flows_commit(f, &c);
		flows_advance(f, 1 + rng_below(&f->rng, 8));
		put_server(&c, &f->service[service], server, port, 1, FLOW_UP);
		flows_commit(f, &c);
		break;
	case 2: {
		const unsigned way = rng_below(&f->rng, 3);
		flows_reopen(f, 1 + rng_below(&f->rng, 2), way == 2 ? TICKET : 0, way == 0);
		break;
	}
	default:
		flows_advance(f, 1 + rng_below(&f->rng, 40));
	}
	drain(f);
	flows_advance(f, 3); /* the sweep has counted what was found or got a limit */
	drain(f);
	check_sum(f);
}

static void whatever_happens(void **state)
{
	struct flows *f = *state;
	static struct flow flow[MANY];
	uint64_t max = 0;
	for (unsigned n = 0; n < MANY; n++) {
		const struct service_key *key = &f->service[n % FLOW_SERVICES];
		struct sy_addr client =
		        harness_addr(n % FLOW_SERVICES / 2 ? "2001:db8:c::1" : "198.18.0.1");
		client.b[15] = (uint8_t)(1 + n / 4 % 2);
		flow[n] = (struct flow){.client = {client, key->vip, htons((uint16_t)(1000 + n)),
		                                   key->vport, key->proto}};
	}
	for (unsigned n = 0; n < STEPS; n++) {
		step_flow(f, &flow[rng_below(&f->rng, MANY)]);
		if (n % 16 == 0)
			drain(f);
		if (n % 200 == 199)
			step_control(f);
		check(f);
		if (n % 200 == 100) {
			uint64_t sum = client_counts_sum(f->harness.b->client_counts);
			max = sum > max ? sum : max;
		}
	}
	drain(f);
	assert_true(max > 2 * LIMIT); /* of several clients */
	assert_true(dropped(f) > 0);
	flows_advance(f, 1000);
	check(f);
	assert_int_equal(client_counts_sum(f->harness.b->client_counts), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(whatever_happens, client_sessions_setup,
	                                        flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
