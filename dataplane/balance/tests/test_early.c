// SPDX-License-Identifier: Apache-2.0
/* The ports of VIPs and blocked sources that are passed to the flow directors, and when. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "access_model.h"
#include "flows.h"

#define SECOND_NS UINT64_C(1000000000)
#define VIP       "192.0.2.99"

int __wrap_sy_address_serve(struct sy_runtime *rt, const struct sy_addr *addr,
                            const struct sy_port_range *range, size_t count);

/* The last ports of VIP: "6:80-80 17:53-53 ", sorted; "all": nothing is dropped. */
static char told[200];

static int range_compare(const void *a, const void *b)
{
	const struct sy_port_range *x = a, *y = b;
	return x->proto != y->proto ? x->proto - y->proto : x->first - y->first;
}

int __wrap_sy_address_serve(struct sy_runtime *rt, const struct sy_addr *addr,
                            const struct sy_port_range *range, size_t count)
{
	const struct sy_addr vip = harness_addr(VIP);
	struct sy_port_range sorted[8];
	size_t at = 0;
	if (!sy_addr_equal(addr, &vip))
		return 0;
	assert_true(count <= SY_ARRAY_LEN(sorted));
	for (size_t i = 0; i < count; i++)
		sorted[i] = range[i];
	qsort(sorted, count, sizeof(sorted[0]), range_compare);
	snprintf(told, sizeof(told), "%s", count ? "" : "all");
	for (size_t i = 0; i < count; i++)
		at += (size_t)snprintf(told + at, sizeof(told) - at, "%u:%u-%u ", sorted[i].proto,
		                       sorted[i].first, sorted[i].last);
	return 0;
}

int __wrap_sy_sources_block(struct sy_runtime *rt, struct sy_blocked_list *list, bool all);
struct sy_blocked_list *__real_sy_blocked_list_make(struct sy_blocked *at, size_t count);
struct sy_blocked_list *__wrap_sy_blocked_list_make(struct sy_blocked *at, size_t count);

/* The last list that was made. */
static const struct sy_blocked *made;

struct sy_blocked_list *__wrap_sy_blocked_list_make(struct sy_blocked *at, size_t count)
{
	made = at;
	return __real_sy_blocked_list_make(at, count);
}

/* The blocked sources, in order. */
static char blocked[200];
static size_t blocked_count;
static int block_fails; /* with this, unless the list is empty */

int __wrap_sy_sources_block(struct sy_runtime *rt, struct sy_blocked_list *of, bool all)
{
	char text[SY_ADDR_TEXT];
	const struct sy_blocked *list = made;
	const size_t count = sy_blocked_list_count(of);
	size_t at = 0;
	(void)rt;
	assert_false(all); /* rules do not end sessions */
	if (block_fails && count)
		return block_fails;
	blocked[0] = 0;
	blocked_count = count;
	for (size_t i = 0; i < count && i < 8; i++)
		at += (size_t)snprintf(blocked + at, sizeof(blocked) - at, "%s/%u ",
		                       sy_addr_format(&list[i].addr, text), list[i].bits);
	return 0;
}

static void service_add(struct changes *c, uint16_t port, uint8_t proto)
{
	struct service_key key = harness_key(VIP, port, proto);
	char name[32];
	snprintf(name, sizeof(name), "early-%u-%u", proto, port);
	put_service(c, &key, name, FLOW_RR, NULL);
}

static void service_remove(struct changes *c, uint16_t port, uint8_t proto)
{
	struct service_key key = harness_key(VIP, port, proto);
	delete_service(c, &key);
}

static int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	struct flows *f = *state;
	told[0] = '\0';
	inspect_set_served(f->harness.b, true);
	service_add(&c, 80, SY_PROTO_TCP);
	service_add(&c, 53, SY_PROTO_UDP);
	flows_commit(f, &c);
	return rc;
}

static void test_told_by_and_by(void **state)
{
	struct flows *f = *state;
	assert_string_equal(told, ""); /* a new VIP: the workers drop what has no service */
	harness_attend(&f->harness);
	assert_string_equal(told, "6:80-80 17:53-53 ");
}

/* Workers answer: what an earlier process was dropping comes to them. */
static void test_with_unknown_ports_nothing_is_dropped(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	f->harness.b->options.unknown_ports = SY_UNAVAILABLE_RESET;
	harness_attend(&f->harness);
	assert_string_equal(told, "all");
	service_add(&c, 443, SY_PROTO_TCP);
	flows_commit(f, &c);
	harness_attend(&f->harness);
	assert_string_equal(told, "all");
}

static void test_a_new_service_is_told_at_once(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	harness_attend(&f->harness);
	service_add(&c, 443, SY_PROTO_TCP);
	flows_commit(f, &c);
	assert_string_equal(told, "6:80-80 6:443-443 17:53-53 ");
}

static void test_a_removed_service_stays_until_its_id_is_free(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	harness_attend(&f->harness);
	service_remove(&c, 80, SY_PROTO_TCP);
	flows_commit(f, &c);
	harness_attend(&f->harness);
	harness_advance(&f->harness, SECOND_NS);
	assert_string_equal(told, "6:80-80 17:53-53 ");
	harness_advance(&f->harness, HARNESS_RETIRED * SECOND_NS);
	harness_attend(&f->harness);
	assert_string_equal(told, "17:53-53 ");
	service_add(&c, 80, SY_PROTO_TCP);
	flows_commit(f, &c);
	assert_string_equal(told, "6:80-80 17:53-53 ");
}

static void test_ranges(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key some = harness_key(VIP, 8000, SY_PROTO_TCP);
	struct service_key all = harness_key(VIP, 0, SY_PROTO_UDP);
	some.last_port = htons(8099);
	harness_attend(&f->harness);
	put_service(&c, &some, "some", FLOW_RR, NULL);
	put_service(&c, &all, "all", FLOW_RR, NULL);
	flows_commit(f, &c);
	assert_string_equal(told, "6:80-80 6:8000-8099 17:0-65535 17:53-53 ");
}

/* Replies to a local address come to ports that no service has. */
static void test_an_address_that_changes_its_use(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	const struct sy_addr addr = harness_addr(VIP);
	harness_attend(&f->harness);
	service_remove(&c, 80, SY_PROTO_TCP);
	service_remove(&c, 53, SY_PROTO_UDP);
	put_local(&c, &addr);
	flows_commit(f, &c);
	assert_string_equal(told, "all");
	harness_advance(&f->harness, HARNESS_RETIRED * SECOND_NS);
	harness_attend(&f->harness);
	assert_string_equal(told, "all");
	delete_local(&c, &addr);
	service_add(&c, 80, SY_PROTO_TCP);
	flows_commit(f, &c);
	harness_attend(&f->harness);
	assert_string_equal(told, "all"); /* servers may still send to the local address */
}

static void test_a_refused_change_tells_nothing_false(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	harness_attend(&f->harness);
	service_add(&c, 443, SY_PROTO_TCP);
	service_remove(&c, 80, SY_PROTO_TCP);
	service_remove(&c, 81, SY_PROTO_TCP); /* there is none */
	assert_false(harness_commit(&f->harness, &c));
	harness_attend(&f->harness);
	assert_string_equal(told, "6:80-80 17:53-53 ");
}

typedef Steelyard__Forwarder__V1__AccessRule pb_rule;
#define ALLOW STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW
#define DROP  STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP

/* Two rules that drop, the first one with a set, and what another rule before them does to that. */
static void edge_put(struct changes *c, Steelyard__Forwarder__V1__AccessList **list)
{
	Steelyard__Forwarder__V1__AccessSet *set = put_access_set(c, "bad");
	add_access_prefix(c, set, "192.0.2.0", 25);
	add_access_prefix(c, set, "2001:db8::", 32);
	*list = put_access_list(c, "edge", ALLOW);
}

static void edge_commit(struct flows *f, struct changes *c, Steelyard__Forwarder__V1__AccessList *l)
{
	add_access_from_set(c, add_access_rule(c, l, DROP, "10.0.0.0", 8), "bad");
	add_access_rule(c, l, DROP, "192.0.2.7", 32);
	add_access_rule(c, l, DROP, "198.18.0.0", 15);
	add_access_rule(c, l, DROP, "64.0.0.0", 2); /* too short for the director */
	put_global_access(c, "edge");
	flows_commit(f, c);
}

static void test_blocked_sources(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	Steelyard__Forwarder__V1__AccessList *l;
	pb_rule *r;
	for (unsigned other = 0; other < 6; other++) {
		edge_put(&c, &l);
		edge_commit(f, &c, l);
		assert_string_equal(blocked,
		                    "10.0.0.0/8 192.0.2.0/25 198.18.0.0/15 2001:db8::/32 ");
		edge_put(&c, &l);
		r = add_access_rule(&c, l, DROP, "203.0.113.0", 24);
		if (other == 0)
			r->action = ALLOW;
		else if (other == 1)
			r->protocol = STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_TCP;
		else if (other == 2)
			r->log_every = 1;
		else if (other == 3)
			set_access_ports(&c, r, 1, 2);
		else if (other == 4)
			r->n_from = 0;
		else
			r->action = STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_RESET;
		edge_commit(f, &c, l);
		assert_string_equal(blocked, "");
	}
}

/* The set changes alone; the list is no longer the one for all services; the director refuses. */
static void test_blocked_changes(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	Steelyard__Forwarder__V1__AccessList *l;
	edge_put(&c, &l);
	edge_commit(f, &c, l);
	put_access_set(&c, "bad");
	flows_commit(f, &c);
	assert_string_equal(blocked, "10.0.0.0/8 192.0.2.7/32 198.18.0.0/15 ");
	block_fails = -E2BIG;
	put_access_set(&c, "bad");
	flows_commit(f, &c);
	assert_string_equal(blocked, "");
	block_fails = 0;
	put_access_set(&c, "bad");
	flows_commit(f, &c);
	assert_string_not_equal(blocked, "");
	put_global_access(&c, "");
	flows_commit(f, &c);
	assert_string_equal(blocked, "");
}

#define SETS    6 /* of so many prefixes each: a thread finds all of these */
#define MEMBERS 4096u

/* A list that drops the members of the first `sets` sets. */
static void many_change(struct changes *c, unsigned sets)
{
	static char name[SETS][8];
	Steelyard__Forwarder__V1__AccessList *l = put_access_list(c, "edge", ALLOW);
	pb_rule *r = sets ? add_access_rule(c, l, DROP, NULL, 0) : NULL;
	for (unsigned s = 0; s < sets; s++) {
		snprintf(name[s], sizeof(name[s]), "set-%u", s);
		add_access_from_set(c, r, name[s]);
	}
	put_global_access(c, "edge");
}

static void many_put(struct flows *f, unsigned sets)
{
	struct changes c = {0};
	many_change(&c, sets);
	flows_commit(f, &c);
}

static void sets_put(struct flows *f)
{
	char from[SY_ADDR_TEXT];
	for (unsigned s = 0; s < SETS; s++) {
		struct changes c = {0};
		char name[8];
		snprintf(name, sizeof(name), "set-%u", s);
		Steelyard__Forwarder__V1__AccessSet *set = put_access_set(&c, name);
		for (uint32_t i = 0; i < MEMBERS; i++) { /* each set between the others */
			const struct sy_addr a =
			        sy_addr_v4(htonl((UINT32_C(11) << 24) + (i * SETS + s) * 2));
			add_access_prefix(&c, set, sy_addr_format(&a, from), 32);
		}
		flows_commit(f, &c);
	}
}

static void wait_published(struct flows *f, size_t count)
{
	while (blocked_count != count)
		assert_int_equal(loop_poll(f->harness.rt->loop, 1000), 0);
}

/* Many sources are published when a background thread has found them, and a change meanwhile is not
 * lost. */
static void test_many_sources(void **state)
{
	struct flows *f = *state;
	sets_put(f);
	flows_reopen(f, 1, 0, false);
	inspect_set_served(f->harness.b, true);
	many_put(f, 1);
	assert_int_equal(blocked_count, MEMBERS); /* few: at once */
	many_put(f, SETS);
	assert_int_equal(blocked_count, MEMBERS);
	wait_published(f, (size_t)SETS * MEMBERS);
	assert_memory_equal(blocked, "11.0.0.0/32 11.0.0.2/32 11.0.0.4/32 ", 36);
	many_put(f, SETS - 1);
	many_put(f, SETS - 1); /* both while a thread may be at work */
	many_put(f, 2);
	wait_published(f, (size_t)2 * MEMBERS);
	while (f->harness.b->ctl->access->blocking) /* nothing older follows */
		assert_int_equal(loop_poll(f->harness.rt->loop, 1000), 0);
	assert_int_equal(blocked_count, 2 * MEMBERS);
	many_put(f, SETS);
	many_put(f, 0);
	wait_published(f, 0);
	many_put(f, SETS); /* the process ends while a thread is at work */
}

/* A background thread ends while a transaction is open that is refused later: the transaction's
 * changes are never published, and a list that it has deleted is not missed. */
static void test_a_refused_change_blocks_nothing(void **state)
{
	struct flows *f = *state;
	sets_put(f);
	flows_reopen(f, 1, 0, false);
	struct access_model **m = &f->harness.b->ctl->access; /* of this process */
	inspect_set_served(f->harness.b, true);
	many_put(f, 1); /* the process has settled: threads are used from now on */
	for (unsigned way = 0; way < 2; way++) {
		struct changes c = {0};
		struct sy_error err = {0};
		many_put(f, SETS);
		many_put(f, SETS - 1);
		assert_non_null((*m)->blocking); /* it runs again at its end */
		if (way == 0)
			many_change(&c, 1);
		else
			delete_access_list(&c, "edge");
		model_begin(f->harness.b);
		for (size_t i = 0; i < c.count; i++)
			assert_int_equal(model_change_apply(f->harness.b, c.change[i], &err), 0);
		while ((*m)->blocking)
			assert_int_equal(loop_poll(f->harness.rt->loop, 1000), 0);
		model_rollback(f->harness.b);
		changes_free(&c);
		assert_int_equal(blocked_count, (SETS - 1) * MEMBERS);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(told_by_and_by),
	        TEST(with_unknown_ports_nothing_is_dropped),
	        TEST(a_new_service_is_told_at_once),
	        TEST(a_removed_service_stays_until_its_id_is_free),
	        TEST(ranges),
	        TEST(an_address_that_changes_its_use),
	        TEST(a_refused_change_tells_nothing_false),
	        cmocka_unit_test_setup_teardown(test_blocked_sources, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_blocked_changes, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_many_sources, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_a_refused_change_blocks_nothing, flows_setup,
	                                        flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
