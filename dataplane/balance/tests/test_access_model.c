// SPDX-License-Identifier: Apache-2.0
/* Random access lists, as they are built, against a search through every rule. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../base/tests/test_random.h"
#include "access_model.h"
#include "flows.h"

#define ALLOW STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW
#define DROP  STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP
#define COUNT STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_COUNT

typedef Steelyard__Forwarder__V1__AccessList pb_list;
typedef Steelyard__Forwarder__V1__AccessRule pb_rule;

static const char *const client_net[2] = {"198.18.0.0", "2001:db8:c::"};

static unsigned random_below(unsigned n)
{
	return (unsigned)(random_next() % n);
}

/* Sets of one letter; 'a' has bit 0. */
static bool rule_matches(const pb_rule *r, const struct sy_tuple *t, uint32_t sets)
{
	bool from = r->n_from == 0 && r->n_from_sets == 0, port = r->n_ports == 0;
	for (size_t i = 0; i < r->n_from_sets; i++)
		from |= sets >> (*r->from_sets[i] - 'a') & 1;
	for (size_t i = 0; i < r->n_from; i++) {
		struct sy_addr a;
		sy_addr_from_bytes(r->from[i]->address.data, r->from[i]->address.len, &a);
		const unsigned first = sy_addr_is_v4(&a) ? 96 : 0;
		bool in = sy_addr_is_v4(&a) == sy_addr_is_v4(&t->src);
		for (unsigned bit = first; bit < first + r->from[i]->length; bit++)
			in &= !((a.b[bit / 8] ^ t->src.b[bit / 8]) & 0x80 >> bit % 8);
		from |= in;
	}
	for (size_t i = 0; i < r->n_ports; i++)
		port |= r->ports[i]->first <= ntohs(t->dport) &&
		        ntohs(t->dport) <= r->ports[i]->last;
	return from && port && (!r->protocol || r->protocol == (unsigned)t->proto);
}

static void random_rule(struct changes *c, pb_list *l)
{
	static const char *const from[] = {"198.18.0.0",   "198.18.1.0",      "198.18.1.128",
	                                   "2001:db8:c::", "2001:db8:c::100", NULL};
	static const uint8_t length[] = {16, 24, 25, 48, 120, 0};
	unsigned n = random_below(6);
	pb_rule *r = add_access_rule(c, l, 1 + (int)random_below(4), from[n], length[n]);
	r->protocol = (int[]){0, SY_PROTO_TCP, SY_PROTO_UDP}[random_below(3)];
	r->log_every = random_below(2);
	static const char *const set[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	for (unsigned k = random_below(2) ? random_below(4) : 0; k > 0; k--)
		add_access_from_set(c, r, set[random_below(8)]);
	if (random_below(3) == 0)
		set_access_ports(c, r, 1 + random_below(100), 100 + random_below(60000));
}

static void check_list(const pb_list *pb, const struct access_list *l)
{
	static uint64_t hits[ACCESS_COUNTERS];
	uint64_t expect[64] = {0};
	struct sy_tuple tuple[SY_BURST];
	struct access_query query = {.count = SY_BURST};
	struct access_answer answer;
	uint16_t right[SY_BURST], counted[SY_BURST] = {0};
	uint64_t refused = 0;
	memset(hits, 0, sizeof(hits));
	for (unsigned i = 0; i < SY_BURST; i++) {
		const unsigned family = random_below(2);
		struct sy_tuple t = {.src = harness_addr(client_net[family]),
		                     .sport = htons(1000),
		                     .dport = htons((uint16_t)random_below(200)),
		                     .proto = random_below(2) ? SY_PROTO_TCP : SY_PROTO_UDP};
		t.src.h[7] = htons((uint16_t)random_below(1024));
		if (random_below(4) == 0)
			t.src.b[4 + 8 * !family] ^= 1; /* none of the networks */
		const uint32_t sets = random_below(2) ? random_below(256) : 0;
		tuple[i] = t;
		query.client[i] = &tuple[i].src;
		query.proto[i] = (uint8_t)t.proto;
		query.sets[i] = sets;
		query.members |= (uint64_t)(sets != 0) << i;
		right[i] = (uint16_t)pb->n_rules;
		for (unsigned r = 0; r < pb->n_rules && right[i] == pb->n_rules; r++) {
			if (!rule_matches(pb->rules[r], &t, sets))
				continue;
			if (pb->rules[r]->action != COUNT)
				right[i] = (uint16_t)r;
			for (unsigned cat = 1; cat <= ACCESS_COUNTING; cat++)
				if (pb->rules[r]->action == COUNT && l->counting[cat] == r &&
				    l->counting_logs >> cat & 1)
					counted[i] |= (uint16_t)(1u << cat);
			expect[r]++;
		}
	}
	refused = access_list_evaluate(l, &query, hits, &answer);
	for (unsigned i = 0; i < SY_BURST; i++) {
		assert_int_equal(answer.rule[i], right[i]);
		if (l->counting_logs)
			assert_int_equal(answer.counted[i] & l->counting_logs, counted[i]);
		assert_int_equal(refused >> i & 1,
		                 (right[i] < pb->n_rules ? pb->rules[right[i]]->action
		                                         : pb->otherwise) != ALLOW);
	}
	for (unsigned r = 0; r < pb->n_rules; r++)
		assert_int_equal(hits[l->rule[r].counter], expect[r]);
}

static void test_model(void **state)
{
	uint64_t contexts = 1u << 20;
	struct model_set set[8] = {0};
	struct access_version sets = {0};
	for (unsigned i = 0; i < 8; i++) {
		set[i].name[0] = (char)('a' + i);
		sets.set[i] = &set[i];
	}
	for (unsigned round = 0; round < 150; round++) {
		struct changes c = {0};
		struct access_list *l = NULL;
		struct sy_error err;
		pb_list *pb = put_access_list(&c, "model", 1 + (int)random_below(3));
		for (unsigned n = random_below(14); n > 0; n--)
			random_rule(&c, pb);
		assert_int_equal(access_list_build(pb, &sets, &contexts, &l, &err), 0);
		for (unsigned r = 0; r < l->rules; r++)
			l->rule[r].counter = r;
		l->counter = l->rules;
		check_list(pb, l);
		access_list_free(l);
		changes_free(&c);
	}
}

/* Every set in a rule of its own, before rules of prefixes and ports. */
static void test_many_sets(void **state)
{
	struct model_set set[ADDRESS_SETS] = {0};
	struct access_version sets = {0};
	struct changes c = {0};
	struct access_list *l = NULL;
	struct sy_error err;
	uint64_t contexts = 1u << 21;
	pb_list *pb = put_access_list(&c, "many", ALLOW);
	char from[16];
	for (unsigned i = 0; i < ADDRESS_SETS; i++) {
		snprintf(set[i].name, sizeof(set[i].name), "set-%u", i);
		sets.set[i] = &set[i];
		pb_rule *r = add_access_rule(&c, pb, i % 2 ? DROP : ALLOW, NULL, 0);
		add_access_from_set(&c, r, set[i].name);
		snprintf(from, sizeof(from), "198.18.%u.0", i);
		if (i < 31)
			add_access_rule(&c, pb, i % 2 ? ALLOW : DROP, from, 24);
	}
	set_access_ports(&c, add_access_rule(&c, pb, DROP, NULL, 0), 100, 200);
	assert_int_equal(access_list_build(pb, &sets, &contexts, &l, &err), 0);
	access_list_free(l);
	changes_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_many_sets, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_model, flows_setup, flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
