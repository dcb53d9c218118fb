// SPDX-License-Identifier: Apache-2.0
/* SNAT rules: beside NAT services, across processes, changed, and refused. */
#include <stdlib.h>

#include <rte_hash.h>

#include "snat_fixture.h"

#define TICKET 0x1234

/* A crash, a stop and a hand-over, with one worker and two, beside FNAT sessions; another table
 * size. */
static void test_restart(void **state)
{
	enum { TALKS = 60 };
	struct flows *f = *state;
	struct flow fnat[FLOW_SERVICES];
	struct talk k[TALKS];
	for (unsigned i = 0; i < TALKS; i++) {
		k[i] = talk_of(i % KINDS, (uint16_t)(2000 + i), (uint16_t)(100 + i));
		talk_open(f, &k[i]);
	}
	for (unsigned i = 0; i < FLOW_SERVICES; i++)
		flow_open(f, &fnat[i], i, (uint16_t)(1000 + i));
	for (unsigned cycle = 0; cycle < 7; cycle++) {
		flows_advance(f, 1);
		if (cycle == 6)
			f->options.sessions = 2 * 64 * SY_SLOTS;
		flows_reopen(f, 1 + cycle % 2, cycle % 3 == 2 ? TICKET : 0, cycle % 3 == 0);
		assert_int_equal(flows_result(f, SESSION_KEPT), TALKS + FLOW_SERVICES);
		for (unsigned i = 0; i < TALKS; i++) {
			struct talk same = k[i];
			to_inside(f, &k[i], SY_TCP_ACK);
			to_remote(f, &same, SY_TCP_ACK);
			assert_memory_equal(&same.back, &k[i].back, sizeof(same.back));
		}
		for (unsigned i = 0; i < FLOW_SERVICES; i++)
			flow_check(f, &fnat[i]);
	}
	/* deleting a rule or a pool address ends its sessions */
	struct changes c = {0};
	harness_crash(&f->harness);
	delete_snat(&c, rule_name[0]);
	flows_change_saved(f, &c);
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_SERVER_GONE), TALKS / 2);
	put_snat(&c, rule_name[1], network_text[1], network_bits[1], pool_text[1], 0);
	assert_false(harness_commit(&f->harness, &c));
	delete_snat(&c, rule_name[1]);
	flows_commit(f, &c);
	flows_advance(f, HARNESS_RETIRED);
	assert_int_equal(live(f), FLOW_SERVICES);
}

/* A NAT service's server answers clients as before; SNAT translates its own traffic. */
static void test_beside_nat(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = harness_key("192.0.2.30", 80, SY_PROTO_TCP);
	struct sy_addr server = harness_addr(inside_text[0]);
	put_service(&c, &key, "nat", FLOW_RR, NULL);
	set_mode(&c, MODE_NAT);
	put_server(&c, &key, &server, 8080, 1, FLOW_UP);
	flows_commit(f, &c);
	struct sy_tuple client = {harness_addr(remote_text[0]), key.vip, htons(999), key.vport,
	                          SY_PROTO_TCP};
	struct frame in, out;
	struct sy_view view;
	make(f, &in, &client, SY_TCP_SYN, false);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	const struct sy_tuple answer = {server, client.src, htons(8080), client.sport,
	                                SY_PROTO_TCP};
	make(f, &in, &answer, SY_TCP_SYN | SY_TCP_ACK, false);
	assert_true(flows_through(f, HARNESS_LAN, &in, &out));
	assert_int_equal(sy_packet_parse(out.bytes, out.len, &view), SY_DROP_NONE);
	assert_true(sy_addr_equal(&view.tuple.src, &key.vip));
	struct talk k = talk_of(0, 8081, 80);
	talk_open(f, &k);
	/* an inside host is an ordinary client of a VIP, which is unreachable here */
	k.out.dst = key.vip;
	k.out.dport = htons(81);
	check_dropped(f, HARNESS_LAN, &k.out, SY_TCP_SYN, SY_DROP_NO_SERVICE);
}

/* The same with a service on all ports: no port is left for the server's own traffic. */
static void test_beside_nat_of_all_ports(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = harness_key("192.0.2.30", 0, SY_PROTO_UDP);
	struct sy_addr server = harness_addr(inside_text[0]);
	put_service(&c, &key, "nat", FLOW_RR, NULL);
	set_mode(&c, MODE_NAT);
	put_server(&c, &key, &server, 0, 1, FLOW_UP);
	flows_commit(f, &c);
	const struct sy_tuple client = {harness_addr(remote_text[0]), key.vip, htons(999),
	                                htons(8080), SY_PROTO_UDP};
	const struct sy_tuple answer = {server, client.src, client.dport, client.sport,
	                                SY_PROTO_UDP};
	struct sy_tuple left;
	pass(f, HARNESS_WAN, &client, 0, &left);
	pass(f, HARNESS_LAN, &answer, 0, &left);
	assert_true(sy_addr_equal(&left.src, &key.vip));
	assert_int_equal(left.sport, client.dport);
	/* SNAT still translates another host's UDP, and this host's TCP */
	struct talk k = talk_of(1, 8080, 80);
	k.out.src.b[15]++;
	talk_open(f, &k);
	k = talk_of(0, 8080, 80);
	talk_open(f, &k);
}

static bool refused(struct flows *f, struct changes *c, const char *why)
{
	bool accepted = harness_commit(&f->harness, c);
	if (!accepted && !strstr(f->harness.error, why))
		fail_msg("refused for another reason: %s", f->harness.error);
	return !accepted;
}

/* A refused transaction gives a reason and changes nothing. */
static void test_refusals(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	size_t before_len, after_len;
	uint8_t *before = harness_config(&f->harness, &before_len), *after;
	const char *const two[2] = {"192.0.2.60", "2001:db8:a::60"};
	struct sy_addr addr = f->local[0];
	char text[SY_ADDR_TEXT];
	const char *const pool_local[1] = {sy_addr_format(&addr, text)};
	put_snat(&c, "x", "10.3.9.0", 24, pool_local, 1);
	assert_true(refused(f, &c, "is a local address already"));
	put_snat(&c, "x", "10.3.9.1", 24, two, 1);
	assert_true(refused(f, &c, "is not a prefix"));
	put_snat(&c, "x", "10.3.9.0", 33, two, 1);
	assert_true(refused(f, &c, "is not within 1–32"));
	put_snat(&c, "x", "10.3.9.0", 24, two + 1, 1);
	assert_true(refused(f, &c, "no IPv4 address"));
	put_snat(&c, "x", network_text[0], network_bits[0], two, 1);
	assert_true(refused(f, &c, "is already in rule out4"));
	put_snat(&c, "", "10.3.9.0", 24, two, 1);
	assert_true(refused(f, &c, "a name has"));
	delete_snat(&c, "x");
	assert_true(refused(f, &c, "there is no SNAT rule x"));
	addr = harness_addr(pool_text[0][0]);
	put_local(&c, &addr);
	assert_true(refused(f, &c, "is a pool address already"));
	struct service_key key = f->service[0];
	put_server(&c, &key, &addr, 80, 1, FLOW_UP);
	assert_true(refused(f, &c, "pool address itself"));
	/* changes of every kind, refused at the end */
	delete_snat(&c, rule_name[0]);
	put_local(&c, &addr);
	put_snat(&c, rule_name[1], "2001:db8:d::", 65, two + 1, 1);
	put_snat(&c, "y", "10.3.9.0", 24, two, 1);
	put_server(&c, &key, &addr, 80, 1, FLOW_UP);
	assert_true(refused(f, &c, "pool address itself"));
	after = harness_config(&f->harness, &after_len);
	assert_int_equal(after_len, before_len);
	assert_memory_equal(after, before, after_len);
	free(before);
	free(after);
	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct talk k = talk_of(kind, 4000, 80);
		talk_open(f, &k);
	}
	/* the same transaction, valid */
	delete_snat(&c, rule_name[0]);
	delete_snat(&c, rule_name[1]);
	put_local(&c, &addr);
	flows_commit(f, &c);
	assert_int_equal(rte_hash_count(inspect_model(f->harness.b)->source), 0);
	assert_null(inspect_snat(f->harness.b));
	flows_advance(f, HARNESS_RETIRED);
	assert_int_equal(live(f), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(restart),
	        TEST(beside_nat),
	        TEST(beside_nat_of_all_ports),
	        TEST(refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
