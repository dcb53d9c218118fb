// SPDX-License-Identifier: Apache-2.0
/*
 * Floods of valid datagrams with forged sources, all of them answered, at one of two services that
 * share servers and local addresses. The other service loses no session, no local port and no new
 * client. In virtual time, in one of the 256 slots: 40 000 datagrams a second are 156 for a slot.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

#define SLOT    77
#define RATE    (40000 / SY_SLOTS) /* a second */
#define SECONDS 14
#define SERVERS 3
#define KEPT    6 /* sessions of the other service, in the slot: 1400 in all slots */

/* Two services in one mode, with the same servers: [0] is attacked. */
struct target {
	const char *vip[2], *server[SERVERS];
	enum mode mode;
};
static const struct target targets[] = {
        {{"192.0.2.60", "192.0.2.61"}, {"10.0.0.60", "10.0.0.61", "10.0.0.62"}, MODE_FNAT},
        {{"2001:db8:a::60", "2001:db8:a::61"},
         {"2001:db8:b::60", "2001:db8:b::61", "2001:db8:b::62"},
         MODE_FNAT},
        {{"2001:db8:a::62", "2001:db8:a::63"}, {"10.0.0.63", "10.0.0.64", "10.0.0.65"}, MODE_FNAT},
        {{"192.0.2.62", "192.0.2.63"}, {"10.0.0.66", "10.0.0.67", "10.0.0.68"}, MODE_NAT},
        {{"192.0.2.64", "192.0.2.65"}, {"10.3.0.1", "10.3.0.2", "10.3.0.2"}, MODE_DR},
};
#define TARGETS SY_ARRAY_LEN(targets)

static struct service_key key_of(const struct target *t, unsigned service)
{
	return harness_key(t->vip[service], 53, SY_PROTO_UDP);
}

static void configure(struct flows *f)
{
	struct changes c = {0};
	const struct sy_addr more[2] = {harness_addr("10.0.1.2"), harness_addr("2001:db8:b:1::2")};
	for (unsigned i = 0; i < 2; i++)
		put_local(&c, &more[i]);
	for (unsigned i = 0; i < TARGETS; i++)
		for (unsigned service = 0; service < 2; service++) {
			const struct service_key key = key_of(&targets[i], service);
			flows_put(&c, &key, service ? "other" : "attacked", targets[i].mode,
			          targets[i].server, targets[i].mode == MODE_DR ? 2 : SERVERS, 53);
		}
	flows_commit(f, &c);
}

/* With so many records in each slot. */
static void prepare(struct flows *f, unsigned records, unsigned workers)
{
	flows_advance(f, 400); /* the sessions of the test before are over */
	f->options.sessions = (uint64_t)records * SY_SLOTS;
	flows_reopen(f, workers, 0, true);
	configure(f);
	flows_advance(f, 2); /* all slots are counted */
}

static int setup(void **state)
{
	return flows_setup(state);
}

/* A datagram of client n in the slot. */
static struct sy_tuple datagram(const struct service_key *key, unsigned n)
{
	struct sy_addr client = sy_addr_v4(htonl(0xc6120000 + n)); /* 198.18.0.0 and up */
	if (!sy_addr_is_v4(&key->vip)) {
		client = harness_addr("2001:db8:c::1");
		client.b[8] = (uint8_t)(n >> 8);
		client.b[9] = (uint8_t)n;
	}
	return (struct sy_tuple){client, key->vip, htons(ntohs(sy_slot_port(SLOT, &client, 9))),
	                         key->vport, SY_PROTO_UDP};
}

/* Sends a datagram and, unless the mode is one-way, its answer. False: either was dropped. */
static bool exchange(struct flows *f, const struct target *target, const struct sy_tuple *t)
{
	struct frame in, out;
	struct sy_view v;
	flows_frame(f, &in, t, 0, 0, 30);
	if (!flows_through(f, HARNESS_WAN, &in, &out))
		return false;
	if (target->mode == MODE_DR)
		return true;
	assert_int_equal(sy_packet_parse(out.bytes, out.len, &v), SY_DROP_NONE);
	const struct sy_tuple back = {v.tuple.dst, v.tuple.src, v.tuple.dport, v.tuple.sport,
	                              SY_PROTO_UDP};
	flows_frame(f, &in, &back, 0, 0, 200);
	return flows_through(f, HARNESS_LAN, &in, &out);
}

/* An answer alone validates nothing: the client's next datagram does. */
static void an_answer_is_no_proof(void **state)
{
	struct flows *f = *state;
	for (unsigned workers = 1; workers <= 2; workers++) {
		prepare(f, 64, workers);
		for (unsigned i = 0; i < TARGETS; i++) {
			const struct target *target = &targets[i];
			const struct service_key key = key_of(target, 0);
			for (unsigned n = 0; n < 8; n++) {
				const struct sy_tuple t = datagram(&key, 100 * workers + n);
				assert_true(exchange(f, target, &t));
				assert_true(session_state_is_embryonic(flows_find(f, &t)->state));
				if (n % 2)
					assert_true(exchange(f, target, &t));
				if (target->mode != MODE_DR)
					assert_int_equal(flows_find(f, &t)->state,
					                 n % 2 ? SESSION_UDP_BOTH_WAYS
					                       : SESSION_UDP_ANSWERED);
			}
		}
		flows_advance(f, 32); /* udp_one_way, not udp */
		for (unsigned i = 0; i < TARGETS; i++) {
			const struct service_key key = key_of(&targets[i], 0);
			for (unsigned n = 0; n < 8; n++) {
				const struct sy_tuple t = datagram(&key, 100 * workers + n);
				assert_true((flows_find(f, &t) != NULL) ==
				            (n % 2 && targets[i].mode != MODE_DR));
			}
		}
	}
}

/* A session that an older build has marked as answered, and the states of this build, are found by
 * the next process. */
static void found_sessions_go_on(void **state)
{
	struct flows *f = *state;
	const struct target *target = &targets[0];
	for (unsigned how = 0; how < 3; how++) { /* a crash, a stop, a hand-over */
		struct service_key key;
		struct sy_tuple t[3];
		prepare(f, 64, 1);
		key = key_of(target, 0);
		for (unsigned n = 0; n < 3; n++) {
			t[n] = datagram(&key, 10 * how + n);
			assert_true(exchange(f, target, &t[n]));
		}
		assert_true(exchange(f, target, &t[1]));
		flows_find(f, &t[2])->state = SESSION_UDP_BOTH_WAYS;
		flows_find(f, &t[2])->flags |= SESSION_UNSHOWN;
		inspect_table(f->harness.b, SLOT)->embryonic--;
		flows_reopen(f, 1, how == 2 ? 7 : 0, how == 0);
		for (unsigned n = 0; n < 3; n++) {
			assert_non_null(flows_find(f, &t[n]));
			assert_true(exchange(f, target, &t[n]));
			assert_int_equal(flows_find(f, &t[n])->state, SESSION_UDP_BOTH_WAYS);
			assert_int_equal(flows_find(f, &t[n])->flags, 0);
		}
	}
}

/* A flood at service 0 of a target, each source sending `times` datagrams, while clients of service
 * 1 come and have sessions there. Service 1 loses none. */
static void flood_beside(struct flows *f, const struct target *target, unsigned times)
{
	const struct service_key attacked = key_of(target, 0), other = key_of(target, 1);
	struct sy_tuple kept[KEPT], t;
	unsigned source = 4000, client = 1000;
	for (unsigned n = 0; n < KEPT; n++) {
		kept[n] = datagram(&other, n);
		assert_true(exchange(f, target, &kept[n]));
		assert_true(exchange(f, target, &kept[n]));
	}
	for (unsigned second = 0; second < SECONDS; second++) {
		for (unsigned n = 0; n < RATE; n++) {
			t = datagram(&attacked, source++);
			for (unsigned again = 0; again < times; again++)
				exchange(f, target, &t);
			if (n % (RATE / 4) == 0) {
				t = datagram(&other, client++);
				assert_true(exchange(f, target, &t));
				assert_true(exchange(f, target, &t));
			}
		}
		flows_advance(f, 1);
		if (target->mode == MODE_DR) /* its clients go on talking */
			for (unsigned n = 0; n < KEPT; n++)
				assert_true(exchange(f, target, &kept[n]));
	}
	for (unsigned n = 0; n < KEPT; n++) {
		assert_non_null(flows_find(f, &kept[n]));
		assert_true(exchange(f, target, &kept[n]));
	}
	for (unsigned n = 0; n < 40; n++) { /* and at once after it */
		t = datagram(&other, client++);
		assert_true(exchange(f, target, &t));
	}
}

static void services_share_ports(void **state)
{
	struct flows *f = *state;
	for (unsigned times = 1; times <= 2; times++)
		for (unsigned i = 0; i < TARGETS; i++) {
			prepare(f, 4096, 1);
			flood_beside(f, &targets[i], times);
		}
}

/* --max-sessions 65536 */
static void services_share_records(void **state)
{
	struct flows *f = *state;
	for (unsigned times = 1; times <= 2; times++)
		for (unsigned i = 0; i < TARGETS; i++) {
			prepare(f, 65536 / SY_SLOTS, 1 + i % 2);
			flood_beside(f, &targets[i], times);
		}
}

/* Unreplied sessions of the other service keep their whole timeout too. */
static void timeouts_are_a_services_own(void **state)
{
	struct flows *f = *state;
	const struct target *target = &targets[0];
	const struct service_key attacked = key_of(target, 0), other = key_of(target, 1);
	struct sy_tuple t, waiting;
	prepare(f, 256, 1);
	waiting = datagram(&other, 1);
	assert_true(exchange(f, target, &waiting));
	for (unsigned n = 0; n < SECONDS * RATE; n++) {
		t = datagram(&attacked, 4000 + n);
		exchange(f, target, &t);
		if (n % RATE == 0)
			flows_advance(f, 1);
	}
	assert_non_null(flows_find(f, &waiting));
	flows_advance(f, 6);
	assert_null(flows_find(f, &t));
	assert_non_null(flows_find(f, &waiting));
}

/* ---- SNAT: two rules share a pool address -------------------------------------------------------
 */

static const char *const pool[] = {"192.0.2.90"};

static void rules_share_a_pool(void **state)
{
	struct flows *f = *state;
	const struct sy_addr inside[2] = {harness_addr("10.3.0.1"), harness_addr("10.3.0.2")};
	struct changes c = {0};
	struct frame in, out;
	struct sy_view v;
	prepare(f, 1024, 1);
	put_snat(&c, "flooding", "10.3.0.1", 32, pool, 1);
	put_snat(&c, "other", "10.3.0.2", 32, pool, 1);
	flows_commit(f, &c);
	for (unsigned n = 0; n < 252 + 20; n++) {
		const struct sy_addr *a = &inside[n >= 252];
		struct sy_tuple t = {*a, harness_addr("198.18.0.9"),
		                     sy_slot_port(SLOT, a, 4 + n % 252), htons(53), SY_PROTO_UDP};
		flows_frame(f, &in, &t, 0, 0, 30);
		bool passes = flows_through(f, HARNESS_LAN, &in, &out);
		if (n >= 252)
			assert_true(passes);
		if (!passes)
			continue;
		sy_packet_parse(out.bytes, out.len, &v);
		t = (struct sy_tuple){v.tuple.dst, v.tuple.src, v.tuple.dport, v.tuple.sport,
		                      SY_PROTO_UDP};
		flows_frame(f, &in, &t, 0, 0, 30);
		assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	}
	assert_true(harness_drops(&f->harness, SY_DROP_EMBRYONIC_EVICTED) > 10);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(an_answer_is_no_proof),       TEST(found_sessions_go_on),
	        TEST(services_share_ports),        TEST(services_share_records),
	        TEST(timeouts_are_a_services_own), TEST(rules_share_a_pool),
	};
	return cmocka_run_group_tests_name("answered", tests, NULL, NULL);
}
