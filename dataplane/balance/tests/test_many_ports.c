// SPDX-License-Identifier: Apache-2.0
/* Services with a range of ports or all ports: in every mode, both families, TCP and UDP. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

#define SERVICES  4 /* as in flows.h: TCP and UDP over IPv4, then over IPv6 */
#define TICKET    0x1234
#define ONE_PORT  7000 /* the port of the server where the service takes a range */
#define LATE_PORT 9000 /* from here on */

static const char *const client_text[2] = {"198.18.0.1", "2001:db8:c::1"};
static const char *const vip_text[2] = {"192.0.2.40", "2001:db8:a::40"};
static const char *const server_text[2][2] = {{"10.3.0.1", "10.3.0.2"},
                                              {"2001:db8:d::1", "2001:db8:d::2"}};
/* first and last; a port belongs to the narrowest range that contains it */
static const uint16_t ranges[][2] = {{0, 0}, {8000, 8099}, {8010, 8019}, {8015, 0}, {9000, 9099}};
static const uint16_t ports[] = {1,    7999, 8000, 8009, 8010, 8014, 8015, 8016,
                                 8019, 8020, 8099, 8100, 9000, 9050, 9099, 65535};

static struct service_key key_of(unsigned service, const uint16_t range[2])
{
	struct service_key key = harness_key(vip_text[service / 2], range[0],
	                                     service % 2 ? SY_PROTO_UDP : SY_PROTO_TCP);
	key.last_port = htons(range[1]);
	return key;
}

static const uint16_t *range_of(uint16_t port)
{
	if (port == 8015)
		return ranges[3];
	if (port >= 8010 && port <= 8019)
		return ranges[2];
	if (port >= 8000 && port <= 8099)
		return ranges[1];
	return port >= LATE_PORT && port <= 9099 ? ranges[4] : ranges[0];
}

static bool is_translated(enum mode mode)
{
	return mode == MODE_FNAT || mode == MODE_NAT;
}

static void put_ranges(struct flows *f, enum mode mode)
{
	struct changes c = {0};
	for (unsigned s = 0; s < SERVICES; s++)
		for (unsigned i = 0; i < SY_ARRAY_LEN(ranges); i++) {
			const uint16_t *range = ranges[i];
			struct service_key key = key_of(s, range);
			struct sy_addr server = harness_addr(server_text[s / 2][i % 2]);
			uint16_t port = range[0] == 8015 ? 8015 : 0;
			if (is_translated(mode) && range[0] == LATE_PORT)
				port = ONE_PORT;
			put_service(&c, &key, "many", FLOW_RR, NULL);
			set_mode(&c, mode);
			put_server(&c, &key, &server, port, 1, FLOW_UP);
		}
	flows_commit(f, &c);
}

/* A client's connection or datagrams, as both sides see them. */
struct talk {
	enum mode mode;
	struct sy_tuple client, back; /* tuples of arriving packets */
};

/* One client port is enough, except under NAT, where a server allows one session per client
 * port. */
static struct talk talk_of(enum mode mode, unsigned service, unsigned port)
{
	static const uint16_t any[2] = {1, 0};
	const struct service_key key = key_of(service, any);
	uint16_t from = mode == MODE_NAT ? (uint16_t)(2000 + port) : 2000;
	return (struct talk){mode,
	                     {harness_addr(client_text[service / 2]), key.vip, htons(from),
	                      htons(ports[port]), key.proto},
	                     {.proto = 0}};
}

static void make(struct flows *f, struct frame *out, const struct sy_tuple *t, uint8_t flags)
{
	const struct segment s = {flags, 1, 1, 0};
	if (t->proto == SY_PROTO_TCP)
		frame_tcp(out, &f->rng, t, &s, 100);
	else
		frame_udp(out, &f->rng, t, 120);
}

static struct sy_tuple tuple_out(const struct frame *out)
{
	struct sy_view v;
	assert_int_equal(sy_packet_parse(out->bytes, out->len, &v), SY_DROP_NONE);
	assert_int_equal(sy_packet_check_l4(out->bytes, &v), SY_CSUM_OK);
	return v.tuple;
}

static const struct endpoint *endpoint_of(struct flows *f, const struct talk *k)
{
	const struct flow flow = {.client = k->client};
	const struct session *s = flow_session(f, &flow);
	return s ? inspect_endpoint(f->harness.b, s->server) : NULL;
}

static void to_server(struct flows *f, struct talk *k, uint8_t flags)
{
	const uint16_t *range = range_of(ntohs(k->client.dport));
	struct frame in, out;
	make(f, &in, &k->client, flags);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	const struct endpoint *e = endpoint_of(f, k);
	assert_non_null(e);
	assert_int_equal(ntohs(e->first_port), range[0]);
	assert_int_equal(ntohs(e->last_port), range[1]);
	if (k->mode == MODE_IPIP)
		return;
	struct sy_tuple t = tuple_out(&out);
	bool moved = is_translated(k->mode);
	assert_true(sy_addr_equal(&t.dst, moved ? &e->addr : &k->client.dst));
	assert_int_equal(ntohs(t.dport),
	                 moved && range[0] == LATE_PORT ? ONE_PORT : ntohs(k->client.dport));
	k->back = (struct sy_tuple){t.dst, t.src, t.dport, t.sport, t.proto};
}

static void to_client(struct flows *f, const struct talk *k, uint8_t flags)
{
	struct frame in, out;
	if (!is_translated(k->mode))
		return;
	make(f, &in, &k->back, flags);
	assert_true(flows_through(f, HARNESS_LAN, &in, &out));
	const struct sy_tuple t = tuple_out(&out),
	                      want = {k->client.dst, k->client.src, k->client.dport,
	                              k->client.sport, k->client.proto};
	assert_memory_equal(&t, &want, sizeof(t));
}

static void exchange(struct flows *f, struct talk *k)
{
	to_server(f, k, SY_TCP_ACK);
	to_client(f, k, SY_TCP_ACK);
}

#define TALKS (SERVICES * SY_ARRAY_LEN(ports))

static void open_all(struct flows *f, enum mode mode, struct talk talk[TALKS])
{
	for (unsigned i = 0; i < TALKS; i++) {
		talk[i] = talk_of(mode, i / SY_ARRAY_LEN(ports), i % SY_ARRAY_LEN(ports));
		to_server(f, &talk[i], SY_TCP_SYN);
		to_client(f, &talk[i], SY_TCP_SYN | SY_TCP_ACK);
	}
}

/* Every port has its own session, through a crash, a stop and a hand-over. */
static void live_on(struct flows *f, enum mode mode)
{
	struct talk talk[TALKS];
	put_ranges(f, mode);
	open_all(f, mode, talk);
	for (unsigned cycle = 0; cycle < 4; cycle++) {
		for (unsigned i = 0; i < TALKS; i++)
			exchange(f, &talk[i]);
		assert_int_equal(harness_totals(&f->harness).live, TALKS);
		flows_advance(f, 2);
		flows_reopen(f, 1 + cycle % 2, cycle % 3 == 2 ? TICKET : 0, cycle % 3 == 0);
		assert_int_equal(flows_result(f, SESSION_KEPT), TALKS);
	}
	flows_advance(f, 1000);
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

static void test_fnat(void **state)
{
	live_on(*state, MODE_FNAT);
}

static void test_nat(void **state)
{
	live_on(*state, MODE_NAT);
}

static void test_dr(void **state)
{
	live_on(*state, MODE_DR);
}

static void test_ipip(void **state)
{
	live_on(*state, MODE_IPIP);
}

/* Ports of no service; port 0 belongs to no service, not even to one with all ports. */
static void test_unserved(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct frame in, out;
	put_ranges(f, MODE_FNAT);
	for (unsigned s = 0; s < SERVICES; s++) {
		uint64_t before = harness_drops(&f->harness, SY_DROP_NO_SERVICE);
		struct talk k = talk_of(MODE_FNAT, s, 0);
		k.client.dport = 0;
		make(f, &in, &k.client, SY_TCP_SYN);
		assert_false(flows_through(f, HARNESS_WAN, &in, &out));
		struct service_key all = key_of(s, ranges[0]);
		delete_service(&c, &all);
		flows_commit(f, &c);
		k = talk_of(MODE_FNAT, s, 0);
		make(f, &in, &k.client, SY_TCP_SYN);
		assert_false(flows_through(f, HARNESS_WAN, &in, &out));
		assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SERVICE), before + 2);
		k = talk_of(MODE_FNAT, s, 2);
		to_server(f, &k, SY_TCP_SYN);
	}
}

/* A narrower service is added and removed: existing sessions on its ports stay where they are. */
static void test_narrower(void **state)
{
	static const uint16_t narrow[2] = {8095, 8099};
	struct flows *f = *state;
	struct changes c = {0};
	put_ranges(f, MODE_FNAT);
	struct service_key key = key_of(0, narrow);
	struct sy_addr server = harness_addr(server_text[0][0]);
	struct talk before = talk_of(MODE_FNAT, 0, 10), after = before;
	to_server(f, &before, SY_TCP_SYN);
	put_service(&c, &key, "narrower", FLOW_RR, NULL);
	put_server(&c, &key, &server, 0, 1, FLOW_UP);
	flows_commit(f, &c);
	exchange(f, &before);
	after.client.sport = htons(2001);
	struct frame in, out;
	make(f, &in, &after.client, SY_TCP_SYN);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	assert_int_equal(ntohs(endpoint_of(f, &after)->first_port), narrow[0]);
	delete_service(&c, &key);
	flows_commit(f, &c);
	exchange(f, &before);
	make(f, &in, &after.client, SY_TCP_SYN);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	assert_int_equal(ntohs(endpoint_of(f, &after)->first_port), 8000);
}

/* A service with another range is another service: it does not inherit sessions. */
static void test_changed_while_away(void **state)
{
	static const uint16_t wider[2] = {8000, 8199};
	struct flows *f = *state;
	struct talk talk[TALKS];
	struct changes c = {0};
	put_ranges(f, MODE_FNAT);
	open_all(f, MODE_FNAT, talk);
	harness_crash(&f->harness);
	struct service_key old = key_of(0, ranges[1]), now = key_of(0, wider);
	struct sy_addr server = harness_addr(server_text[0][1]);
	delete_service(&c, &old);
	put_service(&c, &now, "wider", FLOW_RR, NULL);
	put_server(&c, &now, &server, 0, 1, FLOW_UP);
	flows_change_saved(f, &c);
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_SERVER_GONE), 4); /* 8000, 8009, 8020, 8099 */
	assert_int_equal(flows_result(f, SESSION_KEPT), TALKS - 4);
}

static void refuse(struct flows *f, struct changes *c, const char *why)
{
	assert_false(harness_commit(&f->harness, c));
	if (!strstr(f->harness.error, why))
		fail_msg("\"%s\" does not say \"%s\"", f->harness.error, why);
}

static void test_refused(void **state)
{
	static const uint16_t across[2] = {8050, 8150};
	struct flows *f = *state;
	struct changes c = {0};
	struct sy_addr server = harness_addr(server_text[0][0]);
	struct service_key key = key_of(0, across), old = key_of(0, ranges[1]),
	                   one = key_of(0, ranges[3]);
	put_ranges(f, MODE_DR);
	put_service(&c, &key, "across", FLOW_RR, NULL);
	refuse(f, &c, "ports 8050-8150 overlap with the ports 8000-8099");
	static const uint16_t whole[2] = {1, 65535};
	struct service_key max = key_of(0, whole);
	put_service(&c, &max, "most", FLOW_RR, NULL);
	refuse(f, &c, "its ports 1-65535 are all ports, and service");
	put_server(&c, &old, &server, 8000, 1, FLOW_UP);
	refuse(f, &c, "must be the service's, 0 for any of many");
	put_server(&c, &one, &server, 0, 1, FLOW_UP);
	refuse(f, &c, "port 0 is not within");
	/* in any order: only the state at the end counts */
	put_service(&c, &key, "across", FLOW_RR, NULL);
	delete_service(&c, &old);
	flows_commit(f, &c);
	key.vip.b[15]++;
	key.last_port = htons(9150);
	put_service(&c, &old, "back", FLOW_RR, NULL);
	refuse(f, &c, "overlap");
	put_service(&c, &key, "another VIP", FLOW_RR, NULL);
	flows_commit(f, &c);
}

/* The session list filtered by service. */
static void test_listing(void **state)
{
	struct flows *f = *state;
	struct talk talk[TALKS];
	put_ranges(f, MODE_FNAT);
	open_all(f, MODE_FNAT, talk);
	Steelyard__Forwarder__V1__ListSessionsRequest list =
	        STEELYARD__FORWARDER__V1__LIST_SESSIONS_REQUEST__INIT;
	Steelyard__Forwarder__V1__ServiceKey key = STEELYARD__FORWARDER__V1__SERVICE_KEY__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	struct sy_addr vip = harness_addr(vip_text[0]);
	uint8_t bytes[16];
	key.protocol = STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_TCP;
	key.vip.len = sy_addr_to_bytes(&vip, bytes);
	key.vip.data = bytes;
	key.port = LATE_PORT;
	key.last_port = 9099;
	list.service = &key;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SESSIONS;
	q.list_sessions = &list;
	pb_response *response = harness_request(&f->harness, &q);
	assert_null(response->error);
	assert_int_equal(response->list_sessions->n_sessions, 3);
	uint32_t sum = 0;
	for (unsigned i = 0; i < 3; i++) {
		sum += response->list_sessions->sessions[i]->vport;
		assert_int_equal(response->list_sessions->sessions[i]->server_port, ONE_PORT);
	}
	assert_int_equal(sum, 9000 + 9050 + 9099);
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
}

/* A client stays with its server on all ports of a service. */
static void test_persistence(void **state)
{
	static const uint16_t range[2] = {20000, 20999};
	struct flows *f = *state;
	struct changes c = {0};
	for (unsigned s = 0; s < SERVICES; s++) {
		struct service_key key = key_of(s, range);
		set_persistence(&c, put_service(&c, &key, "kept", FLOW_RR, NULL), 60, 0, 0);
		for (unsigned i = 0; i < 2; i++) {
			struct sy_addr server = harness_addr(server_text[s / 2][i]);
			put_server(&c, &key, &server, 0, 1, FLOW_UP);
		}
	}
	flows_commit(f, &c);
	flows_advance(f, 1); /* the workers have published the time */
	for (unsigned s = 0; s < SERVICES; s++) {
		unsigned seen[2] = {0, 0};
		for (unsigned client = 0; client < 4; client++) {
			struct talk k = talk_of(MODE_FNAT, s, 0);
			const struct endpoint *first = NULL;
			k.client.src.b[15] = (uint8_t)(1 + client);
			for (unsigned port = 0; port < 20; port++) {
				struct frame in, out;
				k.client.dport = htons((uint16_t)(20000 + port));
				make(f, &in, &k.client, SY_TCP_SYN);
				assert_true(flows_through(f, HARNESS_WAN, &in, &out));
				const struct endpoint *e = endpoint_of(f, &k);
				assert_non_null(e);
				if (first && e != first)
					fail_msg("service %u client %u port %u: %u after %u", s,
					         client, port, e->addr.b[15], first->addr.b[15]);
				first = e;
			}
			seen[first->addr.b[15] - 1]++;
		}
		assert_int_equal(seen[0], 2);
		assert_int_equal(seen[1], 2);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, flows_setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(fnat),
	        TEST(nat),
	        TEST(dr),
	        TEST(ipip),
	        TEST(unserved),
	        TEST(narrower),
	        TEST(changed_while_away),
	        TEST(refused),
	        TEST(listing),
	        TEST(persistence),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
