// SPDX-License-Identifier: Apache-2.0
/* How sessions end: by their state's timeout, when their server goes, when their local address
 * goes. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../../tests/soak/soak_frame.h"
#include "model.h"
#include "routed.h"

#define SECOND_NS UINT64_C(1000000000)
#define UP        STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define DRAIN     STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DRAIN
#define RR        STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR

struct fixture {
	struct harness harness;
	struct rng rng;
	struct service_key tcp, udp;
	struct sy_addr server[2], local[2];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct changes c = {0};
	routed_open(&f->harness, (struct harness_options){0});
	f->rng.state = 1;
	f->tcp = harness_key("192.0.2.10", 80, SY_PROTO_TCP);
	f->udp = harness_key("192.0.2.10", 53, SY_PROTO_UDP);
	for (unsigned i = 0; i < 2; i++) {
		f->server[i] = harness_addr(i ? "10.0.0.2" : "10.0.0.1");
		f->local[i] = harness_addr(i ? "10.0.1.2" : "10.0.1.1");
	}
	put_local(&c, &f->local[0]);
	put_service(&c, &f->tcp, "tcp", RR, NULL);
	put_service(&c, &f->udp, "udp", RR, NULL);
	put_server(&c, &f->tcp, &f->server[0], 8080, 1, UP);
	put_server(&c, &f->udp, &f->server[0], 5353, 1, UP);
	routed_commit(&f->harness, &c);
	*state = f;
	return 0;
}

static void collect(struct fixture *f, unsigned sent)
{
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		for (struct rte_mbuf *m; (m = harness_collect(&f->harness, port)); sent--)
			rte_pktmbuf_free(m);
	assert_int_equal(sent, 0);
}

static void client_sends(struct fixture *f, const struct service_key *key, uint16_t port,
                         uint8_t flags, unsigned sent)
{
	struct frame frame;
	const struct sy_tuple t = {harness_addr("198.18.0.1"), key->vip, htons(port), key->vport,
	                           key->proto};
	const struct segment s = {flags, 1, 1, 0};
	if (key->proto == SY_PROTO_TCP)
		frame_tcp(&frame, &f->rng, &t, &s, 0);
	else
		frame_udp(&frame, &f->rng, &t, 10);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, frame.bytes, frame.len));
	harness_poll(&f->harness);
	harness_attend(&f->harness);
	collect(f, sent);
}

/* The only session. */
static struct session *only(struct fixture *f)
{
	struct session *found = NULL;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		uint32_t cursor = 0, record;
		while ((record = session_next(inspect_table(f->harness.b, slot), &cursor)) !=
		       SESSION_NONE) {
			assert_null(found);
			found = session_at(inspect_table(f->harness.b, slot), record);
		}
	}
	assert_non_null(found);
	return found;
}

static void check_live(struct fixture *f, uint64_t live)
{
	struct sy_balance_totals t = harness_totals(&f->harness);
	assert_int_equal(t.live, live);
	assert_int_equal(t.created - t.ended, live);
}

/* The session lasts as long as its timeout, and at most one sweep longer. */
static void check_timeout(struct fixture *f, enum session_state state, unsigned seconds)
{
	bool tcp = state < SESSION_UDP_ONE_WAY;
	client_sends(f, tcp ? &f->tcp : &f->udp, 1000, SY_TCP_SYN, 1);
	struct session *s = only(f);
	assert_int_equal(s->state, tcp ? SESSION_SYN_SENT : SESSION_UDP_ONE_WAY);
	s->state = (uint8_t)state;
	if (state == SESSION_FIN_WAIT || state == SESSION_CLOSING)
		s->flags = SESSION_CLIENT_FIN | SESSION_CLIENT_FIN_ACKED;
	harness_advance(&f->harness, seconds * SECOND_NS);
	check_live(f, 1);
	harness_advance(&f->harness, 3 * SECOND_NS);
	check_live(f, 0);
}

static void test_timeouts(void **state)
{
	for (unsigned s = SESSION_SYN_SENT; s < SESSION_RESET_BY_CLIENT; s++)
		check_timeout(*state, s, session_timeout_default[s]);
}

static void test_own_timeouts(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	pb_timeouts t = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
	t.syn_sent_s = 2;
	t.established_s = 32767; /* half of the tick's range */
	t.reset_s = 1;
	put_service(&c, &f->tcp, "tcp", RR, &t);
	routed_commit(&f->harness, &c);
	check_timeout(f, SESSION_SYN_SENT, 2);
	check_timeout(f, SESSION_RESET, 1);
	check_timeout(f, SESSION_TIME_WAIT, session_timeout_default[SESSION_TIME_WAIT]);
	check_timeout(f, SESSION_ESTABLISHED, 32767);
}

/* A packet restarts the timeout; a shorter timeout also applies to existing sessions. */
static void test_refresh(void **state)
{
	struct fixture *f = *state;
	for (unsigned i = 0; i < 5; i++) {
		client_sends(f, &f->udp, 1000, 0, 1);
		harness_advance(&f->harness, 29 * SECOND_NS);
		check_live(f, 1);
	}
	client_sends(f, &f->udp, 1000, 0, 1);
	struct changes c = {0};
	pb_timeouts t = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
	t.udp_one_way_s = 3;
	put_service(&c, &f->udp, "udp", RR, &t);
	routed_commit(&f->harness, &c);
	harness_advance(&f->harness, 6 * SECOND_NS);
	check_live(f, 0);
}

/* At its next packet, with a drop reason; then by the sweep. */
static void test_server_removed(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	for (uint16_t port = 1000; port < 1010; port++)
		client_sends(f, &f->tcp, port, SY_TCP_SYN, 1);
	delete_server(&c, &f->tcp, &f->server[0], 8080);
	routed_commit(&f->harness, &c);
	check_live(f, 10);
	client_sends(f, &f->tcp, 1000, SY_TCP_ACK, 1); /* reset: there is no server */
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SERVER_REMOVED), 1);
	check_live(f, 9);
	client_sends(f, &f->tcp, 1000, SY_TCP_ACK,
	             1); /* now treated like any unknown packet: reset, as there is no server */
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SESSION), 1);
	client_sends(f, &f->tcp, 1001, SY_TCP_SYN,
	             1); /* a new connection, but there is no server: reset */
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SERVER), 1);
	put_server(&c, &f->tcp, &f->server[1], 8080, 1, UP);
	routed_commit(&f->harness, &c);
	client_sends(f, &f->tcp, 1002, SY_TCP_SYN, 1); /* now there is a server */
	check_live(f, 8);
	harness_advance(&f->harness, 3 * SECOND_NS);
	check_live(f, 1);
}

static void test_service_removed(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	client_sends(f, &f->tcp, 1000, SY_TCP_SYN, 1);
	client_sends(f, &f->udp, 1000, 0, 1);
	delete_service(&c, &f->tcp);
	routed_commit(&f->harness, &c);
	client_sends(f, &f->tcp, 1000, SY_TCP_ACK,
	             0); /* the VIP still belongs to the other service */
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SERVER_REMOVED), 1);
	client_sends(f, &f->tcp, 1000, SY_TCP_SYN, 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SERVICE), 1);
	delete_service(&c, &f->udp);
	routed_commit(&f->harness, &c);
	client_sends(f, &f->udp, 1000, 0, 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_UNKNOWN_DESTINATION), 1);
	check_live(f, 1);
	harness_advance(&f->harness, 3 * SECOND_NS);
	check_live(f, 0);
}

static void test_drain(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	client_sends(f, &f->tcp, 1000, SY_TCP_SYN, 1);
	put_server(&c, &f->tcp, &f->server[0], 8080, 1, DRAIN);
	routed_commit(&f->harness, &c);
	client_sends(f, &f->tcp, 1000, SY_TCP_ACK, 1); /* continues */
	client_sends(f, &f->tcp, 1001, SY_TCP_SYN, 1); /* reset */
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SERVER), 1);
	check_live(f, 1);
}

static void test_local_removed(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	client_sends(f, &f->tcp, 1000, SY_TCP_SYN, 1);
	put_local(&c, &f->local[1]);
	delete_local(&c, &f->local[0]);
	routed_commit(&f->harness, &c);
	client_sends(f, &f->tcp, 1000, SY_TCP_SYN,
	             1); /* ends the old session and creates another */
	assert_true(sy_addr_equal(inspect_local(f->harness.b, only(f)->local), &f->local[1]));
	check_live(f, 1);
	assert_int_equal(harness_totals(&f->harness).created, 2);
}

/* Protocol, port and address each distinguish services. */
static void test_directory(void **state)
{
	struct fixture *f = *state;
	struct service_key key = f->tcp;
	key.vport = f->udp.vport;
	client_sends(f, &key, 1000, SY_TCP_SYN, 0);
	key = f->udp;
	key.vport = f->tcp.vport;
	client_sends(f, &key, 1000, 0, 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SERVICE), 2);
	key = f->tcp;
	key.vip.b[15]++;
	client_sends(f, &key, 1000, SY_TCP_SYN, 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_UNKNOWN_DESTINATION), 1);
	check_live(f, 0);
}

/* A removed server's traffic stays in its service's totals, before and after its id is free. */
static void test_sums(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	for (uint16_t port = 1000; port < 1010; port++)
		client_sends(f, &f->tcp, port, SY_TCP_SYN, 1);
	delete_server(&c, &f->tcp, &f->server[0], 8080);
	put_server(&c, &f->tcp, &f->server[1], 8080, 1, UP);
	routed_commit(&f->harness, &c);
	for (unsigned second = 0; second < HARNESS_RETIRED; second++) {
		struct sy_balance_totals t = harness_totals(&f->harness);
		assert_int_equal(t.created, 10);
		assert_int_equal(t.created - t.ended, t.live);
		assert_int_equal(inspect_model(f->harness.b)->service[0]->gone.packets_in, 10);
		harness_advance(&f->harness, SECOND_NS);
	}
	const struct model *m = inspect_model(f->harness.b);
	assert_int_equal(m->server_ids.count, 1);
	assert_int_equal(m->service[0]->gone.created, 10);
	assert_int_equal(m->service[0]->gone.ended, 10);
	assert_int_equal(m->service[0]->gone.packets_in, 10);
	assert_int_equal(m->service[0]->gone.bytes_in, 400);
	check_live(f, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, routed_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_timeouts),       TEST(test_own_timeouts),    TEST(test_refresh),
	        TEST(test_server_removed), TEST(test_service_removed), TEST(test_drain),
	        TEST(test_local_removed),  TEST(test_directory),       TEST(test_sums),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
