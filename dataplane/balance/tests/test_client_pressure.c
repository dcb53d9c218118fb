// SPDX-License-Identifier: Apache-2.0
/* client_limits: sessions, in a slot whose table is full or grows: the counts are always exactly
 * those of the live sessions, also of evicted ones and of records that a table gained. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client_sessions_check.h"
#include "flows.h"

#define RECORDS 64 /* per slot, initially */
#define SLOT    77
#define TCP     0
#define UDP     1
#define LIMIT   1000 /* more than there will be */
#define ACK     SY_TCP_ACK
#define FIN     SY_TCP_FIN

static const char *const one_client = "198.18.0.1";

static void limit_all(struct flows *f)
{
	struct changes c = {0};
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		set_client_sessions(&c, put_service(&c, &f->service[s], "service", FLOW_RR, NULL),
		                    LIMIT);
	flows_commit(f, &c);
}

static int setup_of(void **state, unsigned growth)
{
	flows_setup(state);
	struct flows *f = *state;
	f->options.sessions = UINT64_C(1) * RECORDS * SY_SLOTS;
	f->options.sessions_limit = growth * f->options.sessions;
	flows_reopen(f, 1, 0, false);
	limit_all(f);
	return 0;
}

static int setup(void **state)
{
	return setup_of(state, 1);
}

static int setup_growing(void **state)
{
	return setup_of(state, 8);
}

/* The nth port, host order, that maps the client to the slot. */
static uint16_t port_of(const char *client, unsigned n)
{
	const struct sy_addr a = harness_addr(client);
	return ntohs(sy_slot_port(SLOT, &a, 4 + n));
}

/* Are the counts of clients with sessions right? */
static void check(struct flows *f)
{
	assert_true(client_sessions_are_right(f->harness.b, false));
}

/* Are all counts right? Returns how many sessions are counted. Takes milliseconds. */
static uint64_t counted(struct flows *f)
{
	assert_true(client_sessions_are_right(f->harness.b, true));
	return client_counts_sum(f->harness.b->client_counts);
}

static uint32_t capacity(const struct flows *f)
{
	return session_capacity(inspect_table(f->harness.b, SLOT));
}

static uint64_t evicted(struct flows *f)
{
	return harness_drops(&f->harness, SY_DROP_SESSION_EVICTED);
}

/* First packets of other clients of the slot; the counts are right after each of them. */
static void strangers_syn(struct flows *f, unsigned service, unsigned count)
{
	for (unsigned n = 0; n < count; n++) {
		const struct sy_addr a = sy_addr_v4(htonl(0xc6120100 + n));
		const struct service_key *key = &f->service[service];
		const struct sy_tuple t = {a, key->vip, sy_slot_port(SLOT, &a, 4 + n % 200),
		                           key->vport, key->proto};
		struct frame in, out;
		flows_frame(f, &in, &t, SY_TCP_SYN, 1, 0);
		flows_through(f, HARNESS_WAN, &in, &out);
		check(f);
	}
	counted(f);
}

static void all_end(struct flows *f)
{
	flows_advance(f, 4000);
	assert_int_equal(counted(f), 0);
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

static void segment_send(struct flows *f, const struct flow *flow, enum session_direction from,
                         uint8_t flags, uint32_t seq, uint32_t ack)
{
	const struct segment s = {flags, seq, ack, 0};
	struct frame in, out;
	frame_tcp(&in, &f->rng, from == SESSION_CLIENT ? &flow->client : &flow->server, &s, 0);
	assert_true(
	        flows_through(f, from == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN, &in, &out));
}

/* Silent UDP sessions of a full slot are evicted, and their clients' counts released. */
static void evicted_datagrams(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	for (unsigned n = 0; n < RECORDS; n++) {
		flow_open(f, &flow, UDP, port_of(one_client, n));
		check(f);
	}
	flows_advance(f, 3);
	assert_int_equal(counted(f), RECORDS);
	strangers_syn(f, UDP, 2 * RECORDS);
	assert_true(evicted(f) > 0);
	assert_int_equal(counted(f), RECORDS - evicted(f));
	/* Records of evicted sessions are reused by sessions that count. */
	for (unsigned n = 0; n < RECORDS / 4; n++)
		flow_open(f, &flow, UDP, port_of(one_client, 2 * RECORDS + n));
	counted(f);
	all_end(f);
}

/* Connections that count are evicted when both sides have sent their FIN, established ones are
 * not. */
static void evicted_connections(void **state)
{
	struct flows *f = *state;
	static struct flow flow[RECORDS];
	for (unsigned n = 0; n < RECORDS; n++)
		flow_open(f, &flow[n], TCP, port_of(one_client, n));
	for (unsigned n = 0; n < RECORDS / 2; n++) {
		segment_send(f, &flow[n], SESSION_CLIENT, FIN | ACK, 101, 201);
		segment_send(f, &flow[n], SESSION_SERVER, FIN | ACK, 201, 102);
		assert_int_equal(flow_session(f, &flow[n])->state, SESSION_CLOSING);
		check(f);
	}
	assert_int_equal(counted(f), RECORDS);
	flows_advance(f, 3);
	strangers_syn(f, TCP, 2 * RECORDS);
	assert_true(evicted(f) > 0);
	assert_int_equal(counted(f), RECORDS - evicted(f));
	for (unsigned n = RECORDS / 2; n < RECORDS; n++)
		flow_check(f, &flow[n]);
	all_end(f);
}

/* Records that a slot gains have a bit too; the others keep theirs. */
static void growth(void **state)
{
	struct flows *f = *state;
	static struct flow flow[4 * RECORDS];
	assert_int_equal(capacity(f), RECORDS);
	for (unsigned n = 0; n < SY_ARRAY_LEN(flow); n++) {
		flow_open(f, &flow[n], n % 2 ? UDP : TCP, port_of(one_client, n / 2));
		check(f);
		if (n % RECORDS == RECORDS - 1)
			assert_int_equal(counted(f), n + 1);
	}
	assert_true(capacity(f) >= SY_ARRAY_LEN(flow));
	assert_int_equal(evicted(f), 0);
	for (unsigned n = 0; n < SY_ARRAY_LEN(flow); n++)
		flow_check(f, &flow[n]);
	/* The sessions are found by the next process, in a table of the new size. */
	flows_reopen(f, 2, 0, true);
	assert_true(capacity(f) >= SY_ARRAY_LEN(flow));
	flows_advance(f, 3);
	assert_int_equal(counted(f), SY_ARRAY_LEN(flow));
	all_end(f);
}

/* A slot that grows up to its limit, is full there, and evicts, all with sessions that count. */
static void growth_until_it_is_full(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	f->options.sessions_limit = UINT64_C(1) * RECORDS * SY_SLOTS + RECORDS;
	flows_reopen(f, 1, 0, true);
	for (unsigned n = 0; n < 2 * RECORDS; n++)
		flow_open(f, &flow, UDP, port_of(one_client, n));
	assert_int_equal(capacity(f), 2 * RECORDS);
	assert_int_equal(counted(f), 2 * RECORDS);
	flows_advance(f, 3);
	strangers_syn(f, UDP, 3 * RECORDS);
	assert_true(evicted(f) > 0);
	assert_int_equal(capacity(f), 2 * RECORDS);
	assert_int_equal(counted(f), 2 * RECORDS - evicted(f));
	flows_reopen(f, 1, 0, true);
	flows_advance(f, 3);
	counted(f);
	all_end(f);
}

int main(void)
{
#define TEST(name, setup) cmocka_unit_test_setup_teardown(name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(evicted_datagrams, setup),
	        TEST(evicted_connections, setup),
	        TEST(growth, setup_growing),
	        TEST(growth_until_it_is_full, setup_growing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
