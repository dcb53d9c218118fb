// SPDX-License-Identifier: Apache-2.0
/* `sync: strict`: the harness is the master, and the mirror its backup. A SYN leaves when the
 * backup has the session, or is dead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <rte_mempool.h>

#include <cmocka.h>

#include "delay.h"
#include "inspect.h"
#include "pair_fixture.h"
#include "strict.h"

static const unsigned tcp_service[] = {0, 2}; /* IPv4, IPv6 */

static void begin(struct flows *f, struct mirror *m, bool with_peer, unsigned workers)
{
	struct changes c = {0};
	pair_become(f, 1, workers, MASTER);
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		put_service(&c, &f->service[s], "service", FLOW_RR, NULL)->sync =
		        STEELYARD__FORWARDER__V1__SYNC__SYNC_STRICT;
	flows_commit(f, &c);
	if (!with_peer)
		return;
	mirror_open(m, f, 2);
	mirror_run(m, 1000);
}

static struct sy_tuple client_of(const struct flows *f, unsigned service, unsigned port)
{
	const struct service_key *key = &f->service[service];
	const char *client = sy_addr_is_v4(&key->vip) ? "198.18.0.1" : "2001:db8:c::1";
	return (struct sy_tuple){harness_addr(client), key->vip, htons((uint16_t)port), key->vport,
	                         key->proto};
}

/* Frames that have left towards servers. */
static unsigned sent(struct flows *f)
{
	struct rte_mbuf *m;
	unsigned n = 0;
	harness_attend(&f->harness);
	for (; (m = harness_collect(&f->harness, HARNESS_LAN)); n++)
		rte_pktmbuf_free(m);
	assert_null(harness_collect(&f->harness, HARNESS_WAN));
	return n;
}

/* Returns how many frames leave at once. */
static unsigned syn(struct flows *f, unsigned service, unsigned port)
{
	const struct sy_tuple t = client_of(f, service, port);
	struct frame in;
	flows_frame(f, &in, &t, SY_TCP_SYN, 100, 0);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
	harness_poll(&f->harness);
	return sent(f);
}

static uint64_t dropped(const struct flows *f)
{
	return harness_drops(&f->harness, SY_DROP_OPENING);
}

static void test_a_syn_leaves_when_the_peer_has_the_session(void **state)
{
	struct flows *f = *state;
	for (unsigned workers = 1; workers <= 2; workers++) {
		struct mirror m = {0};
		begin(f, &m, true, workers);
		for (unsigned i = 0; i < FLOWS; i++) {
			const unsigned service = tcp_service[i % 2], before = mirror_count(&m);
			assert_int_equal(syn(f, service, 1000 + i), 0);
			assert_int_equal(mirror_count(&m), before);
			mirror_run(&m, 5);
			assert_int_equal(sent(f), 1);
			assert_int_equal(mirror_count(&m), before + 1);
			assert_int_equal(syn(f, service, 1000 + i), 0); /* again */
			mirror_run(&m, 5);
			assert_int_equal(sent(f), 1);
		}
		assert_int_equal(dropped(f), 0);
		mirror_free(&m);
	}
}

/* Both of its SYNs: the server answers one, and ignores the other. */
static void test_syns_wait_for_a_silent_peer_until_it_is_dead(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	begin(f, &m, true, 1);
	mirror_pause(&m, true);
	assert_int_equal(syn(f, 0, 1000), 0);
	mirror_run(&m, 300);
	assert_int_equal(syn(f, 0, 1000), 0);
	mirror_run(&m, 300);
	assert_int_equal(sent(f), 0);
	mirror_run(&m, 1000);
	assert_int_equal(sent(f), 2);
	assert_int_equal(syn(f, 0, 1001), 1);
	mirror_free(&m);
}

/* It numbers its entries anew, and the session is among those that it gets. */
static void test_syns_wait_for_a_peer_that_restarts(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	begin(f, &m, true, 1);
	for (unsigned i = 0; i < FLOWS; i++)
		syn(f, 0, 2000 + i);
	mirror_run(&m, 5);
	assert_int_equal(sent(f), FLOWS);
	mirror_pause(&m, true);
	assert_int_equal(syn(f, 0, 1000), 0);
	mirror_run(&m, 5);
	mirror_close(&m);
	mirror_open(&m, f, 2);
	mirror_pause(&m, false);
	for (unsigned ms = 0; sent(f) == 0; ms++) {
		assert_true(ms < 900);
		mirror_run(&m, 1);
	}
	assert_int_equal(mirror_count(&m), FLOWS + 1);
	mirror_free(&m);
}

/* It is neither the server's delay nor a SYN that the client has repeated. */
static void test_the_wait_is_not_blamed_on_the_server(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	struct frame in, out;
	uint64_t measured = 0;
	begin(f, &m, true, 1);
	mirror_pause(&m, true);
	assert_int_equal(syn(f, 0, 1000), 0);
	mirror_run(&m, 1500);
	assert_int_equal(sent(f), 1);
	const struct flow flow = {.client = client_of(f, 0, 1000)};
	struct session *s = flow_session(f, &flow);
	const uint8_t slot = sy_slot_of(&flow.client.src, flow.client.sport);
	const struct sy_tuple server = session_server_tuple(
	        f->harness.b, s, session_cold_beside(inspect_table(f->harness.b, slot), s),
	        inspect_endpoint(f->harness.b, s->server));
	flows_frame(f, &in, &server, SY_TCP_SYN | SY_TCP_ACK, 0, 0);
	assert_true(flows_through(f, HARNESS_LAN, &in, &out));
	const struct delay_share sum = delay_sum(f->harness.b, s->server);
	for (unsigned i = 0; i < DELAY_BUCKETS; i++)
		measured += sum.bucket[i];
	assert_int_equal(measured, 1);
	assert_int_equal(sum.repeated, 0);
	assert_true(sum.sum_ns < 1000000000);
	mirror_free(&m);
}

static void test_nothing_waits_without_a_peer(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	begin(f, &m, false, 1);
	assert_int_equal(syn(f, 0, 1000), 1);
	assert_int_equal(syn(f, 2, 1000), 1);
}

/* Only connections wait. */
static void test_datagrams_do_not_wait(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	begin(f, &m, true, 1);
	assert_int_equal(syn(f, 1, 1000), 1);
	mirror_run(&m, 5);
	assert_int_equal(mirror_count(&m), 1);
	mirror_free(&m);
}

static void test_packets_of_a_session_that_ends_are_dropped(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	struct changes c = {0};
	begin(f, &m, true, 1);
	mirror_pause(&m, true);
	const unsigned in_use = rte_mempool_in_use_count(f->harness.rt->pool);
	for (unsigned i = 0; i < FLOWS; i++)
		assert_int_equal(syn(f, 0, 1000 + i), 0);
	assert_int_equal(rte_mempool_in_use_count(f->harness.rt->pool), in_use + FLOWS);
	delete_service(&c, &f->service[0]);
	flows_commit(f, &c);
	mirror_run(&m, 900);
	assert_int_equal(harness_totals(&f->harness).live, 0);
	assert_int_equal(sent(f), 0);
	assert_int_equal(dropped(f), FLOWS);
	assert_int_equal(rte_mempool_in_use_count(f->harness.rt->pool), in_use);
	mirror_free(&m);
}

/* Clients repeat their SYNs, which then wait in turn. */
static void test_only_so_many_sessions_wait(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	begin(f, &m, true, 1);
	mirror_pause(&m, true);
	for (unsigned i = 0; i < STRICT_SESSIONS + FLOWS; i++)
		assert_int_equal(syn(f, 0, 1000 + i), 0);
	assert_int_equal(dropped(f), FLOWS);
	mirror_pause(&m, false);
	mirror_run(&m, 500);
	assert_int_equal(sent(f), STRICT_SESSIONS);
	for (unsigned i = 0; i < FLOWS; i++)
		assert_int_equal(syn(f, 0, 1000 + STRICT_SESSIONS + i), 0);
	mirror_run(&m, 5);
	assert_int_equal(sent(f), FLOWS);
	mirror_free(&m);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, flows_setup, pair_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(a_syn_leaves_when_the_peer_has_the_session),
	        TEST(syns_wait_for_a_silent_peer_until_it_is_dead),
	        TEST(syns_wait_for_a_peer_that_restarts),
	        TEST(the_wait_is_not_blamed_on_the_server),
	        TEST(nothing_waits_without_a_peer),
	        TEST(datagrams_do_not_wait),
	        TEST(packets_of_a_session_that_ends_are_dropped),
	        TEST(only_so_many_sessions_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
