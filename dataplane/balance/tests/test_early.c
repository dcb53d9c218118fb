// SPDX-License-Identifier: Apache-2.0
/* What the flow directors are told of the ports of VIPs, and when. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

#define SECOND_NS UINT64_C(1000000000)
#define VIP       "192.0.2.99"

int __wrap_sy_address_serve(struct sy_runtime *rt, const struct sy_addr *addr,
                            const struct sy_port_range *range, size_t count);

/* What was told of VIP last: "6:80-80 17:53-53 ", sorted; "all": nothing is dropped. */
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(told_by_and_by),
	        TEST(a_new_service_is_told_at_once),
	        TEST(a_removed_service_stays_until_its_id_is_free),
	        TEST(ranges),
	        TEST(an_address_that_changes_its_use),
	        TEST(a_refused_change_tells_nothing_false),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
