// SPDX-License-Identifier: Apache-2.0
/* `syn_defence: auto`: a flood switches it on for its service alone, its end switches it off, and
 * clients go on all the while. */
#include "defence_fixture.h"

#define AUTO  STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_AUTO
#define V4    (&kinds[0])
#define V6    (&kinds[1])
#define NAT   (&kinds[4])
#define FLOOD 1200 /* more than a sixteenth of the table */

/* A service of DR, of which the answers are not seen. */
static const struct kind direct = {"dr", "192.0.2.60", "10.3.0.1", MODE_DR, 0, false};

static void put_auto(struct changes *c, const struct kind *k)
{
	const struct service_key key = key_of(k);
	const struct sy_addr server = harness_addr(k->server);
	put_kind(c, k, AUTO);
	put_server(c, &key, &server, k->mode == MODE_DR ? 80 : 8080, 1, FLOW_UP);
}

static int setup_auto(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	put_auto(&c, V4);
	put_auto(&c, V6);
	put_auto(&c, NAT);
	put_auto(&c, &direct);
	flows_commit(*state, &c);
	flows_advance(*state, 1);
	return rc;
}

static void set_defence(struct flows *f, const struct kind *k, int defence)
{
	struct changes c = {0};
	put_kind(&c, k, defence);
	flows_commit(f, &c);
	flows_advance(f, 1);
}

static void drain(struct flows *f)
{
	struct rte_mbuf *m;
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		while ((m = harness_collect(&f->harness, port)))
			rte_pktmbuf_free(m);
}

/* SYNs of so many forged sources; none of another call. */
static void flood(struct flows *f, const struct kind *k, unsigned count)
{
	static unsigned n;
	const struct service_key key = key_of(k);
	bool v4 = sy_addr_is_v4(&key.vip);
	for (unsigned i = 0; i < count; i++, n++) {
		struct sy_tuple t = {harness_addr(v4 ? "198.18.64.0" : "2001:db8:c::100:0"),
		                     key.vip, htons((uint16_t)(1024 + n % 60000)), htons(80),
		                     SY_PROTO_TCP};
		struct frame in;
		t.src.b[15] = (uint8_t)n;
		t.src.b[14] = (uint8_t)(n >> 8);
		if (v4) /* within 198.18.64.0/18 */
			t.src.b[14] = (uint8_t)(64 + n / 256 % 64);
		flows_frame(f, &in, &t, SYN, n, 0);
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
		harness_poll(&f->harness);
		drain(f);
	}
}

/* ---- what is told ---------------------------------------------------------------------------- */

static pb_response *list(struct flows *f, const struct kind *k)
{
	Steelyard__Forwarder__V1__ListServicesRequest ask =
	        STEELYARD__FORWARDER__V1__LIST_SERVICES_REQUEST__INIT;
	Steelyard__Forwarder__V1__ServiceKey only = STEELYARD__FORWARDER__V1__SERVICE_KEY__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	const struct service_key key = key_of(k);
	uint8_t vip[16];
	only.protocol = STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_TCP;
	only.vip.data = vip;
	only.vip.len = sy_addr_to_bytes(&key.vip, vip);
	only.port = 80;
	ask.only = &only;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SERVICES;
	q.list_services = &ask;
	pb_response *response = harness_request(&f->harness, &q);
	assert_null(response->error);
	assert_int_equal(response->list_services->n_services, 1);
	return response;
}

/* why: part of the reason; "": none. */
static void check_reported(struct flows *f, const struct kind *k, bool on, unsigned times,
                           const char *why)
{
	pb_response *response = list(f, k);
	const Steelyard__Forwarder__V1__DefenceStats *d =
	        response->list_services->services[0]->syn_defence;
	assert_non_null(d);
	assert_int_equal(d->on, on);
	assert_int_equal(d->switched_on, times);
	assert_true((d->since_unix_ms != 0) == (*why != '\0'));
	assert_true(*why ? strstr(d->why, why) != NULL : *d->why == '\0');
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
}

static bool is_on(struct flows *f, const struct kind *k)
{
	pb_response *response = list(f, k);
	bool on = response->list_services->services[0]->syn_defence->on;
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return on;
}

static uint64_t embryonic_reported(struct flows *f)
{
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	Steelyard__Forwarder__V1__StatusRequest ask =
	        STEELYARD__FORWARDER__V1__STATUS_REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_STATUS;
	q.status = &ask;
	pb_response *response = harness_request(&f->harness, &q);
	assert_null(response->error);
	uint64_t embryonic = response->status->sessions_embryonic;
	assert_true(embryonic <= response->status->sessions);
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return embryonic;
}

/* What is done about the only attack. */
static bool attack_reports(struct flows *f, const char *words)
{
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	Steelyard__Forwarder__V1__ListAttacksRequest ask =
	        STEELYARD__FORWARDER__V1__LIST_ATTACKS_REQUEST__INIT;
	bool told = false;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_ATTACKS;
	q.list_attacks = &ask;
	pb_response *response = harness_request(&f->harness, &q);
	assert_null(response->error);
	assert_int_equal(response->list_attacks->n_attacks, 1);
	const Steelyard__Forwarder__V1__Attack *attack = response->list_attacks->attacks[0];
	for (size_t i = 0; i < attack->n_done; i++)
		told |= strstr(attack->done[i], words) != NULL;
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return told;
}

/* ---- clients --------------------------------------------------------------------------------- */

static struct talk talk_of(struct flows *f, const struct kind *k, uint16_t port)
{
	const struct service_key key = key_of(k);
	bool v4 = sy_addr_is_v4(&key.vip);
	return (struct talk){.f = f,
	                     .client = {harness_addr(v4 ? "198.18.0.1" : "2001:db8:c::1"), key.vip,
	                                htons(port), htons(80), SY_PROTO_TCP}};
}

/* A connection without the defence; its packets are not changed but for addresses and ports. */
static void plain_open(struct flows *f, struct talk *k, const struct kind *kind, uint16_t port)
{
	struct got g;
	*k = talk_of(f, kind, port);
	from_client(k, SYN, C_NUMBER, 0, 0);
	check_got(k, HARNESS_LAN, &g, SYN, C_NUMBER, 0, 0);
	k->server = (struct sy_tuple){g.v.tuple.dst, g.v.tuple.src, g.v.tuple.dport,
	                              g.v.tuple.sport, SY_PROTO_TCP};
	if (kind->mode != MODE_DR) {
		from_server(k, SYN | ACK, S_NUMBER, C_NUMBER + 1, 7, 0);
		check_got(k, HARNESS_WAN, &g, SYN | ACK, S_NUMBER, C_NUMBER + 1, 0);
	}
	from_client(k, ACK, C_NUMBER + 1, S_NUMBER + 1, 0);
	check_got(k, HARNESS_LAN, &g, ACK, C_NUMBER + 1, S_NUMBER + 1, 0);
	assert_int_equal(state_of(k), SESSION_ESTABLISHED);
	check_silent(k);
}

static void plain_check(struct talk *k)
{
	struct got g;
	from_client(k, ACK, C_NUMBER + 1, S_NUMBER + 1, 100);
	check_got(k, HARNESS_LAN, &g, ACK, C_NUMBER + 1, S_NUMBER + 1, 100);
	check_silent(k);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void check_a_flood(struct flows *f, const struct kind *flooded, const struct kind *neighbour)
{
	struct talk lasting, one;
	plain_open(f, &lasting, flooded, 1000);
	check_reported(f, flooded, false, 0, "");
	flood(f, flooded, FLOOD);
	assert_true(embryonic_reported(f) > FLOOD * 3 / 4);
	flows_advance(f, 1);
	check_reported(f, flooded, true, 1, "half-open sessions");
	check_reported(f, neighbour, false, 0, "");
	for (unsigned second = 0; second < 60; second++) {
		uint64_t before = live(&lasting);
		flood(f, flooded, 200);
		assert_int_equal(live(&lasting), before); /* they change nothing */
		flows_advance(f, 1);
		drain(f);
		assert_true(is_on(f, flooded));
		plain_check(&lasting);
	}
	assert_int_equal(embryonic_reported(f), 0);
	talk_open(f, &one, flooded, 1001);
	check_data(&one, 0);
	plain_open(f, &one, neighbour, 1002);
	for (unsigned second = 0; second < 9; second++) {
		flows_advance(f, 1);
		assert_true(is_on(f, flooded));
	}
	flows_advance(f, 2);
	check_reported(f, flooded, false, 1, "clients return");
	ignore_sent(&one);
	plain_open(f, &one, flooded, 1003);
	plain_check(&lasting);
}

static void a_flood_at_fnat(void **state)
{
	check_a_flood(*state, V4, V6);
}

static void a_flood_at_fnat_of_ipv6(void **state)
{
	check_a_flood(*state, V6, NAT);
}

static void a_flood_at_nat(void **state)
{
	check_a_flood(*state, NAT, V4);
}

/* A client that was connected before is not challenged; another one is. */
static void a_flood_at_dr(void **state)
{
	struct flows *f = *state;
	struct talk lasting, again, unknown;
	struct got g;
	plain_open(f, &lasting, &direct, 1000);
	flood(f, &direct, FLOOD);
	flows_advance(f, 1);
	check_reported(f, &direct, true, 1, "half-open sessions");
	check_reported(f, V4, false, 0, "");
	plain_check(&lasting);
	plain_open(f, &again, &direct, 1001);
	unknown = talk_of(f, &direct, 1000);
	unknown.client.src = harness_addr("198.18.0.2");
	from_client(&unknown, SYN, C_NUMBER, 0, 0);
	assert_true(collect(&unknown, HARNESS_WAN, &g));
	assert_int_equal(g.tcp.flags, ACK);
	check_silent(&unknown);
	for (unsigned second = 0; second < 30; second++) {
		flood(f, &direct, 200);
		flows_advance(f, 1);
		drain(f);
		assert_true(is_on(f, &direct));
	}
	flows_advance(f, 11);
	check_reported(f, &direct, false, 1, "clients return");
	drain(f);
	unknown.client.sport = htons(1001);
	from_client(&unknown, SYN, C_NUMBER, 0, 0);
	check_got(&unknown, HARNESS_LAN, &g, SYN, C_NUMBER, 0, 0);
	plain_check(&lasting);
}

/* An answer that arrives when the defence is off again is not forwarded: it would end the
 * session. */
static void a_late_proof_ends_nothing(void **state)
{
	struct flows *f = *state;
	struct talk unknown = talk_of(f, &direct, 1000);
	struct got g;
	uint32_t cookie;
	flood(f, &direct, FLOOD);
	flows_advance(f, 1);
	from_client(&unknown, SYN, C_NUMBER, 0, 0);
	assert_true(collect(&unknown, HARNESS_WAN, &g));
	assert_int_equal(g.tcp.flags, ACK);
	cookie = ntohl(g.tcp.ack);
	flows_advance(f, 11);
	check_reported(f, &direct, false, 1, "clients return");
	drain(f);
	plain_open(f, &unknown, &direct, 1000);
	uint64_t proofs = harness_drops(&f->harness, SY_DROP_SYN_PROOF);
	from_client(&unknown, RST, cookie, 0, 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SYN_PROOF), proofs + 1);
	assert_int_equal(state_of(&unknown), SESSION_ESTABLISHED);
	check_silent(&unknown);
}

static void a_cookie_outlives_the_switch(void **state)
{
	struct flows *f = *state;
	struct talk k;
	flood(f, V4, FLOOD);
	flows_advance(f, 1);
	talk_syn(f, &k, V4, 1000);
	flows_advance(f, 11);
	assert_false(is_on(f, V4));
	ignore_sent(&k);
	talk_ack(&k, 0);
	talk_splice(&k, 7);
	check_data(&k, 0);
}

static void a_cookie_outlives_the_process(void **state)
{
	struct flows *f = *state;
	struct talk k, lasting;
	plain_open(f, &lasting, V4, 999);
	flood(f, V4, FLOOD);
	flows_advance(f, 1);
	talk_syn(f, &k, V4, 1000);
	flows_reopen(f, 2, 0, true);
	talk_ack(&k, 0);
	talk_splice(&k, 7);
	check_data(&k, 0);
	plain_check(&lasting);
	check_reported(f, V4, false, 0, "");
	flows_advance(f, 1);
	flood(f, V4, FLOOD); /* the new process notices by itself */
	flows_advance(f, 1);
	assert_true(is_on(f, V4));
}

/* The attack report shows that it is on, and that it is off again. */
static void an_attack_tells_what_is_done(void **state)
{
	struct flows *f = *state;
	flows_advance(f, 15); /* what is usual */
	for (unsigned second = 0; second < 4; second++) {
		flood(f, V4, FLOOD);
		flows_advance(f, 1);
	}
	assert_true(attack_reports(f, "; it is on (auto)"));
	flows_advance(f, 12);
	assert_true(attack_reports(f, "; it is off again (auto)"));
}

/* Handshakes that are completed do not count, however many. */
static void a_crowd_is_no_flood(void **state)
{
	struct flows *f = *state;
	struct talk k;
	for (unsigned n = 0; n < 3000; n++) {
		if (n % 200 == 0)
			flood(f, V4, 20);
		plain_open(f, &k, V4, (uint16_t)(1024 + n));
		if (n % 1500 == 1499)
			flows_advance(f, 1);
	}
	assert_false(is_on(f, V4));
}

static void the_configuration_decides(void **state)
{
	struct flows *f = *state;
	struct talk k;
	flood(f, V4, FLOOD);
	flows_advance(f, 1);
	assert_true(is_on(f, V4));
	set_defence(f, V4, NOT_DEFENDED);
	drain(f);
	plain_open(f, &k, V4, 1000);
	flood(f, V4, FLOOD);
	flows_advance(f, 5);
	drain(f);
	plain_open(f, &k, V4, 1001);
	set_defence(f, V4, AUTO);
	check_reported(f, V4, false, 0, "");
	set_defence(f, V4, DEFENDED);
	drain(f);
	talk_syn(f, &k, V4, 1002);
	check_reported(f, V4, true, 0, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_auto, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_flood_at_fnat),
	        TEST(a_flood_at_fnat_of_ipv6),
	        TEST(a_flood_at_nat),
	        TEST(a_flood_at_dr),
	        TEST(a_late_proof_ends_nothing),
	        TEST(a_cookie_outlives_the_switch),
	        TEST(a_cookie_outlives_the_process),
	        TEST(an_attack_tells_what_is_done),
	        TEST(a_crowd_is_no_flood),
	        TEST(the_configuration_decides),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
