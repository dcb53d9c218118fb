// SPDX-License-Identifier: Apache-2.0
/* A slot whose table is full: which sessions are evicted for which. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

#define RECORDS 64 /* per slot, as in the harness */
#define SLOT    77
#define TCP     0
#define UDP     1

static struct sy_addr stranger(unsigned n)
{
	return sy_addr_v4(htonl(0xc6120100 + n)); /* from 198.18.1.0 up */
}

/* The nth port, host order and at least 1024, that maps an address to the slot. */
static uint16_t port_of(const struct sy_addr *a, unsigned n)
{
	return ntohs(sy_slot_port(SLOT, a, 4 + n));
}

static struct sy_tuple tuple_to(const struct flows *f, unsigned service,
                                const struct sy_addr *client, uint16_t port)
{
	const struct service_key *key = &f->service[service];
	return (struct sy_tuple){*client, key->vip, htons(port), key->vport, key->proto};
}

/* A client's first packet; false: it was dropped. */
static bool stranger_syn(struct flows *f, unsigned service, const struct sy_tuple *t)
{
	struct frame in, out;
	flows_frame(f, &in, t, SY_TCP_SYN, 1, 0);
	return flows_through(f, HARNESS_WAN, &in, &out);
}

/* An attacker that knows the key sends spoofed first packets that all fall into the slot. */
static void spoof(struct flows *f, unsigned service, unsigned count)
{
	for (unsigned n = 0; n < count; n++) {
		const struct sy_addr a = stranger(n);
		const struct sy_tuple t = tuple_to(f, service, &a, port_of(&a, n % 200));
		assert_true(stranger_syn(f, service, &t));
	}
}

static const struct session_table *table(const struct flows *f)
{
	return inspect_table(f->harness.b, SLOT);
}

/* Spoofed packets fill a client's slot as often as they like: the client is not locked out. */
static void spoofed_packets_lock_no_client_out(void **state)
{
	struct flows *f = *state;
	const struct sy_addr client = harness_addr("198.18.0.1");
	for (unsigned service = TCP; service <= UDP; service++) {
		struct flow flow;
		spoof(f, service, RECORDS + 20);
		assert_true(table(f)->embryonic >= RECORDS / 2);
		flow_open(f, &flow, TCP, port_of(&client, service));
		spoof(f, service, 2 * RECORDS);
		flow_check(f, &flow);
	}
	assert_int_equal(harness_drops(&f->harness, SY_DROP_TABLE_FULL), 0);
	assert_true(harness_drops(&f->harness, SY_DROP_EMBRYONIC_EVICTED) > 4 * RECORDS);
}

/* Established connections are never evicted, and the drop reason says why. */
static void established_ones_stay(void **state)
{
	struct flows *f = *state;
	static struct flow flow[RECORDS];
	const struct sy_addr client = harness_addr("198.18.0.1"), other = stranger(1);
	const struct sy_tuple late = tuple_to(f, TCP, &other, port_of(&other, 1));
	for (unsigned n = 0; n < RECORDS; n++)
		flow_open(f, &flow[n], TCP, port_of(&client, n));
	assert_false(stranger_syn(f, TCP, &late));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_TABLE_FULL), 1);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SESSION_EVICTED), 0);
	for (unsigned n = 0; n < RECORDS; n++)
		flow_check(f, &flow[n]);
	flows_check_active(f, RECORDS);
}

/* In a full slot, embryonic sessions are evicted first, the longest silent before others. Answered
 * UDP sessions are evicted when they are silent and no embryonic ones older than a second are left.
 * Another service's handshake is not, because that service has few. */
static void the_least_valuable_goes_first(void **state)
{
	struct flows *f = *state;
	static struct flow flow[RECORDS];
	const struct sy_addr client = harness_addr("198.18.0.1"), other = stranger(1);
	struct flow begun[2], handshake;
	for (unsigned n = 0; n < RECORDS - 3; n++)
		flow_open(f, &flow[n], UDP, port_of(&client, n));
	flow_begin(f, &handshake, TCP, port_of(&client, 0));
	flow_begin(f, &begun[0], UDP, port_of(&client, 100));
	flows_advance(f, 1);
	flow_begin(f, &begun[1], UDP, port_of(&client, 101));
	flows_advance(f, 1);
	for (unsigned n = 0; n < 3; n++) {
		const struct sy_tuple t = tuple_to(f, UDP, &other, port_of(&other, n));
		assert_true(stranger_syn(f, UDP, &t));
		assert_null(flow_session(f, &begun[0]));
		assert_true((flow_session(f, &begun[1]) == NULL) == (n > 0));
	}
	unsigned left = 0;
	for (unsigned n = 0; n < RECORDS - 3; n++)
		left += flow_session(f, &flow[n]) != NULL;
	assert_int_equal(left, RECORDS - 4);
	assert_non_null(flow_session(f, &handshake));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_EMBRYONIC_EVICTED), 2);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SESSION_EVICTED), 1);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_TABLE_FULL), 0);
	flows_check_active(f, RECORDS);
}

/* UDP sessions that their clients have validated fill the slot. A new one of their service ends
 * neither those, which are not silent, nor the few embryonic ones of another service. */
static void established_sessions_evict_no_embryonic_ones_of_other_services(void **state)
{
	struct flows *f = *state;
	static struct flow flow[RECORDS], handshake[3];
	const struct sy_addr client = harness_addr("198.18.0.1"), other = stranger(1);
	const struct sy_tuple late = tuple_to(f, UDP, &other, port_of(&other, 1));
	for (unsigned n = 0; n < RECORDS - 3; n++)
		flow_open(f, &flow[n], UDP, port_of(&client, n));
	for (unsigned n = 0; n < 3; n++)
		flow_begin(f, &handshake[n], TCP, port_of(&client, n));
	assert_false(stranger_syn(f, UDP, &late));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_TABLE_FULL), 1);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_EMBRYONIC_EVICTED), 0);
	for (unsigned n = 0; n < 3; n++)
		assert_non_null(flow_session(f, &handshake[n]));
	flows_check_active(f, RECORDS);
}

/* A one-way session whose client has closed keeps its record for a minute: its server may still
 * send. Then a new session evicts it. */
static void closed_one_way_sessions_give_way(void **state)
{
	static const char *const server[] = {"10.3.0.1"};
	struct flows *f = *state;
	struct service_key key = harness_key("192.0.2.20", 80, SY_PROTO_TCP);
	const struct sy_addr client = harness_addr("198.18.0.1"), other = stranger(1);
	const struct sy_tuple late = tuple_to(f, TCP, &other, port_of(&other, 1));
	struct changes c = {0};
	flows_put(&c, &key, "direct", MODE_DR, server, 1, 80);
	flows_commit(f, &c);
	for (unsigned n = 0; n < RECORDS; n++) {
		const struct sy_tuple t = {client, key.vip, htons(port_of(&client, n)), key.vport,
		                           key.proto};
		struct frame in, out;
		flows_frame(f, &in, &t, SY_TCP_SYN, 1, 0);
		assert_true(flows_through(f, HARNESS_WAN, &in, &out));
		flows_frame(f, &in, &t, SY_TCP_ACK | SY_TCP_FIN, 2, 10);
		assert_true(flows_through(f, HARNESS_WAN, &in, &out));
		assert_int_equal(flows_find(f, &t)->state, SESSION_FIN_WAIT);
	}
	flows_advance(f, 58);
	assert_false(stranger_syn(f, TCP, &late));
	flows_advance(f, 3);
	assert_true(stranger_syn(f, TCP, &late));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SESSION_EVICTED), 1);
}

/* Addresses and ports that count up together, as from scanners and load generators, use all slots:
 * a quarter of the table fits without any drop. */
static void counted_up_clients_fill_evenly(void **state)
{
	struct flows *f = *state;
	const unsigned count = RECORDS * SY_SLOTS / 4;
	for (unsigned n = 0; n < count; n++) {
		const struct sy_addr a = stranger(n);
		const struct sy_tuple t = tuple_to(f, UDP, &a, (uint16_t)(1024 + n));
		assert_true(stranger_syn(f, UDP, &t));
	}
	assert_int_equal(harness_totals(&f->harness).live, count);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_EMBRYONIC_EVICTED), 0);
}

static int setup(void **state)
{
	return flows_setup(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(spoofed_packets_lock_no_client_out, setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(established_ones_stay, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(the_least_valuable_goes_first, setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(
	                established_sessions_evict_no_embryonic_ones_of_other_services, setup,
	                flows_teardown),
	        cmocka_unit_test_setup_teardown(closed_one_way_sessions_give_way, setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(counted_up_clients_fill_evenly, setup,
	                                        flows_teardown),
	};
	return cmocka_run_group_tests_name("evict", tests, NULL, NULL);
}
