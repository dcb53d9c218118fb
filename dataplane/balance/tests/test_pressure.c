// SPDX-License-Identifier: Apache-2.0
/* Floods of embryonic sessions: how much of tables and ports they may use. */
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

static uint64_t evicted(struct flows *f)
{
	return harness_drops(&f->harness, SY_DROP_EMBRYONIC_EVICTED);
}

static struct session_table *table(const struct flows *f, unsigned slot)
{
	return inspect_table(f->harness.b, (uint8_t)slot);
}

/* The nth port, host order and at least 1024, that maps an address to the slot. */
static uint16_t port_of(const struct sy_addr *a, unsigned slot, unsigned n)
{
	return ntohs(sy_slot_port((uint8_t)slot, a, 4 + n));
}

static uint16_t client_port(unsigned slot, unsigned n)
{
	const struct sy_addr client = harness_addr("198.18.0.1");
	return port_of(&client, slot, n);
}

/* The nth forged first packet that falls into the slot; false: it was dropped. */
static bool spoof(struct flows *f, const struct service_key *key, unsigned slot, unsigned n)
{
	const struct sy_addr a = sy_addr_v4(htonl(0xc6120100 + n % 4000)); /* 198.18.1.0 and up */
	const struct sy_tuple t = {a, key->vip, htons(port_of(&a, slot, n % 200)), key->vport,
	                           key->proto};
	struct frame in, out;
	flows_frame(f, &in, &t, SY_TCP_SYN, 1, 0);
	return flows_through(f, HARNESS_WAN, &in, &out);
}

static unsigned flood(struct flows *f, unsigned service, unsigned slot, unsigned count)
{
	unsigned passed = 0;
	for (unsigned n = 0; n < count; n++)
		passed += spoof(f, &f->service[service], slot, n);
	return passed;
}

/* The counters match a count of all sessions. */
static void check_counters(struct flows *f)
{
	struct sy_balance *b = f->harness.b;
	static uint32_t by_service[256], counted[256];
	memset(by_service, 0, sizeof(by_service));
	memset(counted, 0, sizeof(counted));
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = table(f, slot);
		uint32_t cursor = 0, record, embryonic = 0;
		while ((record = session_next(t, &cursor)) != SESSION_NONE) {
			const struct session *s = session_at(t, record);
			if (!session_state_is_embryonic(s->state) || !session_is_counted(t, record))
				continue;
			embryonic++;
			by_service[inspect_endpoint(b, s->server)->service]++;
		}
		assert_int_equal(t->embryonic, embryonic);
	}
	for (unsigned id = 0; id < 16; id++) {
		for (unsigned w = 0; w < b->workers; w++)
			counted[id] += inspect_worker(b, w)->load[id].embryonic;
		assert_int_equal(counted[id], by_service[id]);
	}
}

static void a_flood_has_half_of_a_slot(void **state)
{
	struct flows *f = *state;
	struct flow begun[3], later[3];
	for (unsigned service = TCP; service <= UDP; service++) {
		const unsigned slot = SLOT + service;
		for (unsigned n = 0; n < 3; n++)
			flow_begin(f, &begun[n], !service, client_port(slot, n));
		assert_int_equal(flood(f, service, slot, 10 * RECORDS), 10 * RECORDS);
		assert_int_equal(table(f, slot)->embryonic, RECORDS / 2);
		assert_int_equal(session_count(table(f, slot)), RECORDS / 2);
		for (unsigned n = 0; n < 3; n++) { /* another service's: none was evicted */
			assert_non_null(flow_session(f, &begun[n]));
			flow_open(f, &later[n], service, client_port(slot, n));
		}
		flood(f, service, slot, 2 * RECORDS);
		for (unsigned n = 0; n < 3; n++) {
			assert_non_null(flow_session(f, &begun[n]));
			flow_check(f, &later[n]);
		}
		check_counters(f);
		flows_advance(f, 100); /* the flood is over */
		assert_int_equal(table(f, slot)->embryonic, 0);
	}
	assert_true(evicted(f) > 15 * RECORDS);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SESSION_EVICTED), 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_TABLE_FULL), 0);
}

/* Of a service's embryonic sessions the oldest goes first. */
static void the_oldest_goes_first(void **state)
{
	struct flows *f = *state;
	struct flow flow[RECORDS / 2], more;
	for (unsigned n = 0; n < RECORDS / 2; n++) {
		flow_begin(f, &flow[n], TCP, client_port(SLOT, n));
		if (n == 0)
			flows_advance(f, 1);
	}
	flow_begin(f, &more, TCP, client_port(SLOT, RECORDS));
	for (unsigned n = 0; n < RECORDS / 2; n++)
		assert_true((flow_session(f, &flow[n]) == NULL) == (n == 0));
}

/* Every datagram of the flood is answered, so its sessions are not embryonic. */
static void an_answered_flood_takes_its_own(void **state)
{
	struct flows *f = *state;
	struct flow begun[3], kept[3], asked;
	for (unsigned n = 0; n < 3; n++) {
		flow_open(f, &kept[n], TCP, client_port(SLOT, 100 + n));
		flow_begin(f, &begun[n], TCP, client_port(SLOT, n));
	}
	for (unsigned n = 0; n < 200; n++) {
		const struct service_key *key = &f->service[UDP];
		struct frame frame, out;
		if (n % 20 == 0)
			flows_advance(f, 1);
		for (unsigned i = 0; i < 3; i++) /* it is repeated */
			flows_through(f, HARNESS_WAN, &begun[i].in[SESSION_CLIENT], &out);
		const struct sy_addr a = sy_addr_v4(htonl(0xc6120100 + n));
		asked.client = (struct sy_tuple){a, key->vip, htons(port_of(&a, SLOT, n)),
		                                 key->vport, key->proto};
		flows_frame(f, &frame, &asked.client, 0, 1, 0);
		assert_true(flows_through(f, HARNESS_WAN, &frame, &out));
		flow_session(f, &asked)->state = SESSION_UDP_BOTH_WAYS;
		table(f, SLOT)->embryonic--;
		inspect_worker(f->harness.b, 0)
		        ->load[inspect_endpoint(f->harness.b, flow_session(f, &asked)->server)
		                       ->service]
		        .embryonic--;
		check_counters(f);
	}
	assert_true(harness_drops(&f->harness, SY_DROP_SESSION_EVICTED) > 100);
	for (unsigned n = 0; n < 3; n++) {
		flow_check(f, &kept[n]);
		assert_non_null(flow_session(f, &begun[n]));
	}
}

#define MANY 1024 /* records per slot: more than there are ports */

static void flows_reopen_large(struct flows *f)
{
	f->options.sessions = MANY * SY_SLOTS;
	flows_reopen(f, 1, 0, true);
	flows_advance(f, 2); /* all slots are counted */
}

/* Two services have the same servers. A flood at one of them uses all ports towards these; it
 * evicts its own sessions only. */
static void a_flood_takes_ports_of_its_own(void **state)
{
	struct flows *f = *state;
	const struct service_key other = harness_key("192.0.2.77", 80, SY_PROTO_TCP);
	const struct sy_addr client = harness_addr("198.18.0.1");
	const struct sy_tuple t = {client, other.vip, htons(client_port(SLOT, 50)), other.vport,
	                           other.proto};
	struct flow kept[20], late[20];
	struct changes c = {0};
	struct frame in, out;
	flows_reopen_large(f);
	put_service(&c, &other, "other", FLOW_RR, NULL);
	for (unsigned n = 0; n < FLOW_SERVERS; n++)
		put_server(&c, &other, &f->server[TCP][n], 8000, 1, FLOW_UP);
	flows_commit(f, &c);
	flows_frame(f, &in, &t, SY_TCP_SYN, 1, 0);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	for (unsigned n = 0; n < 20; n++)
		flow_open(f, &kept[n], TCP, client_port(SLOT, n));
	assert_int_equal(flood(f, TCP, SLOT, 4 * MANY), 4 * MANY);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_LOCAL_PORT), 0);
	assert_non_null(flows_find(f, &t));
	for (unsigned n = 0; n < 20; n++) {
		flow_check(f, &kept[n]);
		flow_open(f, &late[n], TCP, client_port(SLOT, 100 + n));
	}
	check_counters(f);
}

static uint32_t embryonic_after(struct flows *f, unsigned begun, unsigned seconds)
{
	flood(f, UDP, SLOT, begun);
	flows_advance(f, seconds);
	return table(f, SLOT)->embryonic;
}

/* Under pressure embryonic sessions end sooner, as many as it takes. */
static void timeouts_fall_with_the_fill(void **state)
{
	struct flows *f = *state;
	assert_int_equal(embryonic_after(f, RECORDS / 4, 6), RECORDS / 4);
	flows_advance(f, 60);
	assert_int_equal(table(f, SLOT)->embryonic, 0);
	assert_int_equal(embryonic_after(f, RECORDS / 2, 2), RECORDS / 2);
	assert_int_equal(embryonic_after(f, 0, 6), 0); /* recovered, long before the timeout */
	check_counters(f);
}

/* ---- at random ------------------------------------------------------------------------------- */

#define FLOWS 96
#define STEPS 3000

struct plain {
	struct flows *f;
	struct flow flow[FLOWS];
	enum session_state state[FLOWS]; /* FREE: it is not known; ESTABLISHED: it must live */
	/* Since a restart, when sessions that begin before a sweep may exceed the share. */
	bool exceeds;
	uint64_t evicted; /* by processes before this one */
};

static void plain_begin(struct plain *m, unsigned n)
{
	flow_begin(m->f, &m->flow[n], n % FLOW_SERVICES, client_port(SLOT + n % 3, n));
	m->state[n] = SESSION_FREE;
}

static void plain_step(struct plain *m)
{
	struct flows *f = m->f;
	unsigned n = rng_below(&f->rng, FLOWS), service = n % FLOW_SERVICES;
	uint16_t port = client_port(SLOT + n % 3, n);
	struct frame in, out;
	if (service >= 2) /* IPv6 has other slots */
		return;
	switch (rng_below(&f->rng, 12)) {
	case 0:
	case 1:
		if (m->state[n] == SESSION_FREE && !flow_session(f, &m->flow[n])) {
			flow_open(f, &m->flow[n], service, port);
			m->state[n] = service == TCP ? SESSION_ESTABLISHED : SESSION_FREE;
		}
		break;
	case 2:
	case 3:
		if (m->state[n] == SESSION_FREE && !flow_session(f, &m->flow[n]))
			plain_begin(m, n);
		break;
	case 4: /* a late answer, or a repeated one */
		if (m->state[n] == SESSION_FREE && flow_session(f, &m->flow[n])) {
			flows_frame(f, &in, &m->flow[n].server, SY_TCP_SYN | SY_TCP_ACK, 1, 0);
			flows_through(f, HARNESS_LAN, &in, &out);
		}
		break;
	case 5: /* refused */
		if (m->state[n] == SESSION_FREE && flow_session(f, &m->flow[n])) {
			flows_frame(f, &in, &m->flow[n].server, SY_TCP_RST | SY_TCP_ACK, 0, 0);
			flows_through(f, HARNESS_LAN, &in, &out);
		}
		break;
	case 6:
		flows_advance(f, 1 + rng_below(&f->rng, 3));
		break;
	case 7:
		flow_session(f, &m->flow[n]);
		if (m->state[n] == SESSION_ESTABLISHED)
			flow_check(f, &m->flow[n]);
		break;
	case 8:
		if (rng_percent(&f->rng, 3)) {
			bool crash = rng_percent(&f->rng, 30);
			uint64_t ticket = rng_percent(&f->rng, 50) ? 7 : 0;
			uint64_t evictions = evicted(f);
			flows_reopen(f, 1 + rng_below(&f->rng, 2), crash ? 0 : ticket, crash);
			m->exceeds = true;
			m->evicted += evictions;
		}
		break;
	default:
		flood(f, rng_below(&f->rng, 2), SLOT + rng_below(&f->rng, 3),
		      rng_below(&f->rng, 30));
	}
}

static void plain_check_shares(struct plain *m)
{
	bool exceeds = false, counted = true;
	for (unsigned slot = SLOT; slot < SLOT + 3; slot++) {
		exceeds |= table(m->f, slot)->embryonic > RECORDS / 2;
		counted &= table(m->f, slot)->counted;
	}
	m->exceeds &= exceeds || !counted;
	assert_true(!exceeds || m->exceeds);
}

/* Whatever comes: counters are exact, shares are kept, no established connection is lost. */
static void random_load(void **state)
{
	struct plain *m = calloc(1, sizeof(*m));
	m->f = *state;
	for (unsigned i = 0; i < STEPS; i++) {
		plain_step(m);
		check_counters(m->f);
		plain_check_shares(m);
		for (unsigned n = 0; n < FLOWS; n++) {
			if (m->state[n] != SESSION_ESTABLISHED)
				continue;
			struct session *s = flow_session(m->f, &m->flow[n]);
			assert_non_null(s);
			assert_int_equal(s->state, SESSION_ESTABLISHED);
		}
	}
	assert_true(m->evicted + evicted(m->f) > 100);
	free(m);
}

static int setup(void **state)
{
	return flows_setup(state);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(a_flood_has_half_of_a_slot),      TEST(the_oldest_goes_first),
	        TEST(an_answered_flood_takes_its_own), TEST(a_flood_takes_ports_of_its_own),
	        TEST(timeouts_fall_with_the_fill),     TEST(random_load),
	};
	return cmocka_run_group_tests_name("pressure", tests, NULL, NULL);
}
