// SPDX-License-Identifier: Apache-2.0
/* Access lists: which new sessions they accept, what is sent to refused clients, and what outlives
 * the process. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "access_model.h"
#include "flows.h"

#define ALLOW  STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW
#define DROP   STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP
#define RESET  STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_RESET
#define COUNT  STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_COUNT
#define TICKET 0x1234

typedef Steelyard__Forwarder__V1__AccessList pb_list;
typedef Steelyard__Forwarder__V1__AccessRule pb_rule;

static const char *const client_net[2] = {"198.18.0.0", "2001:db8:c::"};

/* The first packet of a client; service as in struct flows, host: of the client's network. */
static void first_packet(struct flows *f, struct frame *out, unsigned service, uint16_t port,
                         uint16_t host)
{
	struct sy_tuple t = {harness_addr(client_net[service / 2]), f->service[service].vip,
	                     htons(port), f->service[service].vport,
	                     (uint16_t)f->service[service].proto};
	t.src.h[7] = htons(host);
	flows_frame(f, out, &t, SY_TCP_SYN, 1, 0);
}

/* Originated answers to the client remain for told(). */
static bool is_accepted(struct flows *f, unsigned service, uint16_t port, uint16_t host)
{
	struct frame in;
	struct rte_mbuf *m;
	unsigned sent = 0;
	first_packet(f, &in, service, port, host);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
	harness_poll(&f->harness);
	harness_attend(&f->harness);
	for (; (m = harness_collect(&f->harness, HARNESS_LAN)); sent++)
		rte_pktmbuf_free(m);
	return sent > 0;
}

static void check_dropped(struct flows *f, unsigned service, uint16_t port, uint16_t host,
                          enum sy_drop reason)
{
	uint64_t before = harness_drops(&f->harness, reason);
	uint64_t live = harness_totals(&f->harness).live;
	assert_false(is_accepted(f, service, port, host));
	assert_int_equal(harness_drops(&f->harness, reason), before + 1);
	assert_int_equal(harness_totals(&f->harness).live, live);
}

/* What the forwarder sent the clients of itself: frames, and the last one's protocol. */
static unsigned told(struct flows *f, uint8_t *proto)
{
	unsigned count = 0;
	for (struct rte_mbuf *m; (m = harness_collect(&f->harness, HARNESS_WAN)); count++) {
		struct sy_view v;
		assert_int_equal(sy_packet_parse(rte_pktmbuf_mtod(m, uint8_t *), m->pkt_len, &v),
		                 SY_DROP_NONE);
		*proto = v.proto;
		rte_pktmbuf_free(m);
	}
	return count;
}

static void name_list(struct flows *f, unsigned service, char *name)
{
	struct changes c = {0};
	put_service(&c, &f->service[service], "service", FLOW_RR, NULL)->access_list = name;
	flows_commit(f, &c);
}

static uint64_t matches(struct flows *f, const char *name, unsigned rule)
{
	const struct access_version *v = &f->harness.b->ctl->access->now;
	for (unsigned id = 0; id < ACCESS_LISTS; id++)
		if (v->list[id] && strcmp(v->list[id]->name, name) == 0)
			return access_matches(f->harness.b, v->list[id], rule);
	fail_msg("no list %s", name);
	return 0;
}

/* Hosts 256 to 511 are dropped by their prefix, port 53's by protocol; others are accepted. */
static void edge_put(struct changes *c, int action)
{
	pb_list *l = put_access_list(c, "edge", ALLOW);
	add_access_rule(c, l, action, "198.18.1.0", 24);
	add_access_rule(c, l, action, "2001:db8:c::100", 120);
	put_global_access(c, "edge");
}

static void test_actions(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	uint8_t proto = 0;
	edge_put(&c, DROP);
	flows_commit(f, &c);
	for (unsigned s = 0; s < FLOW_SERVICES; s++) {
		check_dropped(f, s, 4000, 0x101, SY_DROP_ACL_DROP);
		assert_int_equal(told(f, &proto), 0);
		assert_true(is_accepted(f, s, 4000, 1));
	}
	assert_int_equal(matches(f, "edge", 0), 2);
	assert_int_equal(matches(f, "edge", 1), 2);
	assert_int_equal(matches(f, "edge", 2), 4);
	edge_put(&c, RESET);
	flows_commit(f, &c);
	for (unsigned s = 0; s < FLOW_SERVICES; s++) {
		check_dropped(f, s, 4001, 0x101, SY_DROP_ACL_RESET);
		assert_int_equal(told(f, &proto), 1);
		assert_int_equal(proto, s % 2 == 0   ? SY_PROTO_TCP
		                        : s / 2 == 0 ? SY_PROTO_ICMP
		                                     : SY_PROTO_ICMPV6);
	}
	edge_put(&c, COUNT);
	flows_commit(f, &c);
	assert_true(is_accepted(f, 0, 4002, 0x101));
	assert_int_equal(matches(f, "edge", 0), 1);
	put_global_access(&c, "");
	delete_access_list(&c, "edge");
	flows_commit(f, &c);
	assert_true(is_accepted(f, 0, 4003, 0x101));
	assert_null(f->harness.b->access);
}

/* Both lists must accept a session; the service's is its own. */
static void test_service_list(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	add_access_rule(&c, put_access_list(&c, "few", DROP), ALLOW, "198.18.1.0", 24);
	edge_put(&c, ALLOW);
	flows_commit(f, &c);
	name_list(f, 0, "few");
	assert_true(is_accepted(f, 0, 5000, 0x101));
	check_dropped(f, 0, 5000, 1, SY_DROP_ACL_DROP);
	assert_true(is_accepted(f, 1, 5000, 1)); /* another service */
	edge_put(&c, DROP);
	flows_commit(f, &c);
	check_dropped(f, 0, 5001, 0x101, SY_DROP_ACL_DROP);
	delete_access_list(&c, "few");
	flows_check_refused(f, &c, "names a deleted access list");
	delete_access_list(&c, "edge");
	flows_check_refused(f, &c, "applies to all services");
	check_dropped(f, 0, 5002, 1, SY_DROP_ACL_DROP); /* as before the refused changes */
	name_list(f, 0, "");
	assert_true(is_accepted(f, 0, 5003, 1));
	delete_access_list(&c, "few");
	flows_commit(f, &c);
}

/* A set's members, and a list that names it. */
static void members_put(struct changes *c, const char *v4, const char *v6)
{
	typedef Steelyard__Forwarder__V1__AccessSet pb_set;
	pb_set *set = put_access_set(c, "members");
	add_access_prefix(c, set, v4, 24);
	add_access_prefix(c, set, v6, 120);
}

/* A rule may name sets; they change without their lists, and for all workers at once. */
static void test_sets(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	for (unsigned many = 0; many < 2; many++) { /* evaluated rule by rule, or by rte_acl */
		members_put(&c, "198.18.1.0", "2001:db8:c::100");
		pb_list *l = put_access_list(&c, "edge", ALLOW);
		pb_rule *r = add_access_rule(&c, l, DROP, many ? "198.18.3.0" : NULL, 24);
		add_access_from_set(&c, r, "members");
		put_global_access(&c, "edge");
		flows_commit(f, &c);
		for (unsigned s = 0; s < FLOW_SERVICES; s++) {
			check_dropped(f, s, (uint16_t)(3000 + many), 0x101, SY_DROP_ACL_DROP);
			assert_true(is_accepted(f, s, (uint16_t)(3000 + many), 0x201));
		}
		members_put(&c, "198.18.2.0", "2001:db8:c::200");
		flows_commit(f, &c);
		for (unsigned s = 0; s < FLOW_SERVICES; s++) {
			check_dropped(f, s, (uint16_t)(3002 + many), 0x201, SY_DROP_ACL_DROP);
			assert_true(is_accepted(f, s, (uint16_t)(3002 + many), 0x101));
		}
		if (many)
			check_dropped(f, 0, 3004, 0x301, SY_DROP_ACL_DROP);
		delete_access_set(&c, "members");
		flows_check_refused(f, &c, "names a deleted access set");
		check_dropped(f, 0, (uint16_t)(3005 + many), 0x201, SY_DROP_ACL_DROP);
		put_global_access(&c, "");
		delete_access_list(&c, "edge");
		delete_access_set(&c, "members");
		flows_commit(f, &c);
		assert_true(is_accepted(f, 0, (uint16_t)(3007 + many), 0x201));
		assert_null(f->harness.b->ctl->access->now.ranges);
	}
}

static void test_refused_sets(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	add_access_from_set(&c, add_access_rule(&c, put_access_list(&c, "x", ALLOW), DROP, NULL, 0),
	                    "none");
	flows_check_refused(f, &c, "no access set none");
	delete_access_set(&c, "none");
	flows_check_refused(f, &c, "no access set none");
	put_access_set(&c, "");
	flows_check_refused(f, &c, "1 to 63 bytes");
	add_access_prefix(&c, put_access_set(&c, "x"), "198.18.1.1", 24);
	flows_check_refused(f, &c, "prefix 1 has bits behind");
	add_access_prefix(&c, put_access_set(&c, "x"), "198.18.1.0", 33);
	flows_check_refused(f, &c, "prefix 1 is wrong");
	add_access_prefix(&c, put_access_set(&c, "x"), "198.18.1.0", 24);
	prefix_as_mapped(&c, c.change[0]->put_access_set->prefixes[0]);
	flows_check_refused(f, &c, "prefix 1 is wrong");
	members_put(&c, "198.18.1.0", "2001:db8:c::100");
	add_access_prefix(&c, c.change[0]->put_access_set, "198.18.2.0", 24);
	flows_check_refused(f, &c, "prefix 3 has bits behind its length, or is not behind");
	char name[ADDRESS_SETS + 1][8];
	for (unsigned i = 0; i <= ADDRESS_SETS; i++) {
		snprintf(name[i], sizeof(name[i]), "set-%u", i);
		put_access_set(&c, name[i]);
	}
	flows_check_refused(f, &c, "no room for another access set");
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++)
		assert_null(f->harness.b->ctl->access->now.set[bit]);
}

static void test_refused_changes(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	put_service(&c, &f->service[0], "service", FLOW_RR, NULL)->access_list = "none";
	flows_check_refused(f, &c, "no access list none");
	put_global_access(&c, "none");
	flows_check_refused(f, &c, "no access list none");
	delete_access_list(&c, "none");
	flows_check_refused(f, &c, "no access list none");
	put_access_list(&c, "", ALLOW);
	flows_check_refused(f, &c, "1 to 63 bytes");
	put_access_list(&c, "x", COUNT);
	flows_check_refused(f, &c, "otherwise");
	add_access_rule(&c, put_access_list(&c, "x", ALLOW), 9, NULL, 0);
	flows_check_refused(f, &c, "unknown action");
	add_access_rule(&c, put_access_list(&c, "x", ALLOW), DROP, "198.18.1.1", 24);
	flows_check_refused(f, &c, "bits behind");
	add_access_rule(&c, put_access_list(&c, "x", ALLOW), DROP, "198.18.1.1", 33);
	flows_check_refused(f, &c, "prefix is wrong");
	prefix_as_mapped(
	        &c, add_access_rule(&c, put_access_list(&c, "x", ALLOW), DROP, "198.18.0.0", 16)
	                    ->from[0]);
	flows_check_refused(f, &c, "prefix is wrong");
	set_access_ports(&c, add_access_rule(&c, put_access_list(&c, "x", ALLOW), DROP, NULL, 0), 9,
	                 8);
	flows_check_refused(f, &c, "ports are not within");
	pb_list *l = put_access_list(&c, "x", ALLOW);
	for (unsigned i = 0; i < 16; i++)
		add_access_rule(&c, l, COUNT, NULL, 0);
	flows_check_refused(f, &c, "more than 15");
	assert_null(f->harness.b->access);
	for (uint32_t i = 0; i < ACCESS_COUNTERS; i++)
		assert_int_equal(f->harness.b->ctl->access->counter_holders[i], 0);
}

/* A rule that stays keeps its count, wherever it stands. */
static void test_counts_stay(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	edge_put(&c, DROP);
	flows_commit(f, &c);
	check_dropped(f, 0, 6000, 0x101, SY_DROP_ACL_DROP);
	pb_list *l = put_access_list(&c, "edge", ALLOW);
	add_access_rule(&c, l, ALLOW, "198.18.1.9", 32);
	add_access_rule(&c, l, DROP, "198.18.1.0", 24);
	flows_commit(f, &c);
	assert_int_equal(matches(f, "edge", 0), 0);
	assert_int_equal(matches(f, "edge", 1), 1);
	assert_true(is_accepted(f, 0, 6001, 0x109));
	assert_int_equal(matches(f, "edge", 0), 1);
	l = put_access_list(&c, "edge", ALLOW);
	add_access_rule(&c, l, DROP, "198.18.1.0", 24)->name = "scanners";
	flows_commit(f, &c);
	assert_int_equal(matches(f, "edge", 0), 1);
}

/* The next process has the lists, after a crash, a stop and a take-over. */
static void test_restarts(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	edge_put(&c, DROP);
	members_put(&c, "198.18.2.0", "2001:db8:c::200");
	add_access_from_set(&c,
	                    add_access_rule(&c, put_access_list(&c, "few", DROP), ALLOW, NULL, 0),
	                    "members");
	put_service(&c, &f->service[0], "service", FLOW_RR, NULL)->access_list = "few";
	flows_commit(f, &c);
	for (unsigned life = 0; life < 4; life++) {
		check_dropped(f, 1, (uint16_t)(7000 + life), 0x101, SY_DROP_ACL_DROP);
		check_dropped(f, 0, (uint16_t)(7000 + life), 1, SY_DROP_ACL_DROP);
		assert_true(is_accepted(f, 0, (uint16_t)(7000 + life), 0x201));
		flows_reopen(f, 1 + life % 2, life == 2 ? TICKET : 0, life == 0);
	}
}

/* Lists are not evaluated for established sessions; a burst's packets of refused clients harm no
 * others. */
static void test_established(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	flow_open(f, &flow, 0, 8000);
	put_access_list(&c, "no-client", DROP);
	put_global_access(&c, "no-client");
	flows_commit(f, &c);
	flow_check(f, &flow);
	check_dropped(f, 0, 8001, 0x101, SY_DROP_ACL_DROP);
	flow_check(f, &flow);
}

static void test_bursts(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	edge_put(&c, DROP);
	flows_commit(f, &c);
	unsigned sent = 0, good = 0;
	for (unsigned i = 0; i < SY_BURST; i++) {
		struct frame in;
		bool bad = i % 3 == 0;
		first_packet(f, &in, i % FLOW_SERVICES, (uint16_t)(9000 + i / 2),
		             (uint16_t)(bad ? 0x100 + i : 1 + i));
		good += !bad;
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
	}
	harness_poll(&f->harness);
	for (struct rte_mbuf *m; (m = harness_collect(&f->harness, HARNESS_LAN)); sent++)
		rte_pktmbuf_free(m);
	assert_int_equal(sent, good);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_ACL_DROP), SY_BURST - good);
}

/* What has been left for the log; *last: the last one. */
static uint32_t logged(struct flows *f, struct access_record *last)
{
	const struct access_worker *aw = f->harness.b->worker[0].access;
	*last = aw->record[(aw->written - 1) % ACCESS_RECORDS];
	return aw->written;
}

/* One of N matches of a rule is logged, whatever its action, also of one that only counts and of
 * one that does not decide; by lists that are evaluated rule by rule, and by those of rte_acl. */
static void test_log(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct access_record r;
	for (unsigned many = 0; many < 2; many++) {
		const uint32_t before = f->harness.b->worker[0].access->written;
		const uint16_t port = (uint16_t)(2000 + 100 * many);
		uint64_t counted = 0;
		pb_list *l = put_access_list(&c, "edge", ALLOW);
		add_access_rule(&c, l, COUNT, many ? "198.18.0.0" : NULL, 16)->log_every = 3;
		add_access_rule(&c, l, COUNT, many ? "198.18.0.0" : NULL, 16);
		pb_rule *last = add_access_rule(&c, l, DROP, many ? "198.18.1.0" : NULL, 24);
		last->protocol = STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_UDP;
		last->log_every = 2;
		put_global_access(&c, "edge");
		flows_commit(f, &c);
		for (unsigned n = 1; n <= 6; n++) {
			assert_true(is_accepted(f, 0, (uint16_t)(port + n), 0x101));
			assert_int_equal(logged(f, &r) - before, n / 3);
		}
		assert_int_equal(r.rule, 0);
		assert_int_equal(r.action, ACCESS_COUNT);
		assert_int_equal(ntohs(r.client.sport), port + 6);
		for (unsigned n = 1; n <= 6; n++) { /* two rules log */
			check_dropped(f, 1, (uint16_t)(port + n), 0x101, SY_DROP_ACL_DROP);
			assert_int_equal(logged(f, &r) - before, 2 + n / 3 + n / 2);
		}
		assert_int_equal(r.rule, 2);
		assert_int_equal(r.action, ACCESS_DROP);
		counted = matches(f, "edge", 1);
		assert_int_equal(counted, 12);
		/* A burst: as many as one after the other. */
		for (unsigned i = 0; i < 30; i++) {
			struct frame in;
			first_packet(f, &in, 0, (uint16_t)(port + 10 + i), 0x101);
			assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
		}
		harness_poll(&f->harness);
		assert_int_equal(logged(f, &r) - before, 2 + 5 + 10);
		for (struct rte_mbuf *m; (m = harness_collect(&f->harness, HARNESS_LAN));)
			rte_pktmbuf_free(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_actions, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_service_list, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_sets, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_refused_sets, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_refused_changes, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_counts_stay, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_restarts, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_established, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_bursts, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_log, flows_setup, flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
