// SPDX-License-Identifier: Apache-2.0
/* Transactions through the control interface: accepted or refused as a whole, whatever they
 * contain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <rte_hash.h>

#include "address_set.h"
#include "harness.h"
#include "model.h"

#define UP        STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define DRAIN     STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DRAIN
#define RR        STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR
#define WRR       STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_WRR
#define INVALID   STEELYARD__FORWARDER__V1__CODE__CODE_INVALID
#define EXHAUSTED STEELYARD__FORWARDER__V1__CODE__CODE_EXHAUSTED

#define MAX_SERVICES 24000
#define MAX_SERVERS  70000
#define SECOND_NS    UINT64_C(1000000000)

static int setup(void **state)
{
	struct harness *r = calloc(1, sizeof(*r));
	struct sy_error err;
	const struct harness_options o = {.max_services = MAX_SERVICES, .max_servers = MAX_SERVERS};
	if (harness_open(r, &o, &err) < 0)
		fail_msg("%s", err.text);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	harness_close(*state);
	free(*state);
	return 0;
}

static struct service_key key_at(unsigned i)
{
	struct service_key key = harness_key("192.0.0.1", 80, i % 2 ? SY_PROTO_TCP : SY_PROTO_UDP);
	key.vip.b[13] = (uint8_t)(i >> 9);
	key.vip.b[14] = (uint8_t)(i >> 1);
	return key;
}

static void add_service(struct changes *c, unsigned i, unsigned servers)
{
	struct service_key key = key_at(i);
	struct sy_addr server = harness_addr("10.0.0.1");
	put_service(c, &key, "some", WRR, NULL);
	for (unsigned n = 0; n < servers; n++) {
		server.b[15] = (uint8_t)(1 + n);
		put_server(c, &key, &server, 80, 1, UP);
	}
}

static void add_local(struct changes *c, const char *text)
{
	struct sy_addr local = harness_addr(text);
	put_local(c, &local);
}

static void commit(struct harness *r, struct changes *c)
{
	if (!harness_commit(r, c))
		fail_msg("change %u refused: %s", r->change_index, r->error);
}

/* Refused at the change with this index, with nothing changed. */
static void refuse(struct harness *r, struct changes *c, unsigned index, int code)
{
	size_t len_before, len_after;
	uint8_t *before = harness_config(r, &len_before);
	uint64_t revision = inspect_model(r->b)->revision;
	const struct address_set *address_set = inspect_address_set(r->b);
	int addresses = rte_hash_count(inspect_model(r->b)->address);
	assert_false(harness_commit(r, c));
	uint8_t *after = harness_config(r, &len_after);
	assert_int_equal(r->change_index, index);
	assert_int_equal(r->code, code);
	assert_true(strlen(r->error) > 0);
	assert_int_equal(len_before, len_after);
	assert_memory_equal(before, after, len_before);
	assert_int_equal(inspect_model(r->b)->revision, revision);
	assert_ptr_equal(inspect_address_set(r->b), address_set);
	assert_int_equal(rte_hash_count(inspect_model(r->b)->address), addresses);
	free(before);
	free(after);
}

/* A service with two servers over one local address of each family. */
static void begin(struct harness *r)
{
	struct changes c = {0};
	add_local(&c, "10.1.0.1");
	add_local(&c, "2001:db8::1");
	add_service(&c, 0, 2);
	commit(r, &c);
}

static void test_accept(void **state)
{
	struct harness *r = *state;
	begin(r);
	struct service_key key = key_at(0);
	void *id;
	assert_int_equal(inspect_model(r->b)->revision, 1);
	assert_true(rte_hash_lookup_data(inspect_directory(r->b), &key, &id) >= 0);
	assert_int_equal(inspect_service(r->b, (uintptr_t)id)->pool->eligible, 2);
	assert_int_equal(address_set_find(inspect_address_set(r->b), &key.vip), ADDRESS_SET_VIP);
	struct sy_addr local = harness_addr("10.1.0.1");
	assert_int_equal(address_set_find(inspect_address_set(r->b), &local), ADDRESS_SET_LOCAL);
	struct changes c = {0};
	delete_service(&c, &key);
	commit(r, &c);
	assert_true(rte_hash_lookup(inspect_directory(r->b), &key) < 0);
	assert_int_equal(address_set_find(inspect_address_set(r->b), &key.vip), ADDRESS_SET_NONE);
}

/* Staged changes have no effect until they are committed; a refusal discards the staged changes. */
static void test_refuse_index(void **state)
{
	struct harness *r = *state;
	begin(r);
	struct changes c = {0};
	struct service_key missing = key_at(99);
	for (unsigned i = 0; i < 2500; i++)
		add_service(&c, 1 + i, 0);
	delete_service(&c, &missing);
	/* Key 99 is among those put, so it must be deleted twice before it is missing. */
	delete_service(&c, &missing);
	add_service(&c, 9000, 0);
	refuse(r, &c, 2501, INVALID);
	add_service(&c, 1, 1);
	commit(r, &c);
	assert_int_equal(inspect_model(r->b)->services, 2);
}

static void refuse_one(struct harness *r, struct changes *c)
{
	refuse(r, c, (unsigned)c->count - 1, INVALID);
}

static void test_refuse_fields(void **state)
{
	struct harness *r = *state;
	begin(r);
	struct changes c = {0};
	struct service_key key = key_at(1), wrong = key;
	struct sy_addr server = harness_addr("10.0.0.9");
	char longest[MODEL_NAME + 1];
	pb_timeouts slow = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;

	wrong.proto = 1;
	put_service(&c, &wrong, "icmp", RR, NULL);
	refuse_one(r, &c);
	wrong = key;
	wrong.last_port = wrong.vport;
	put_service(&c, &wrong, "one port's range", RR, NULL);
	refuse_one(r, &c);
	wrong.vport = 0;
	put_service(&c, &wrong, "from port 0", RR, NULL);
	refuse_one(r, &c);
	wrong = key;
	wrong.vip = harness_addr("ff02::1");
	put_service(&c, &wrong, "group", RR, NULL);
	refuse_one(r, &c);
	put_service(&c, &key, "scheduler", 99, NULL);
	refuse_one(r, &c);
	put_service(&c, &key, "new\nline", RR, NULL);
	refuse_one(r, &c);
	memset(longest, 'x', MODEL_NAME);
	longest[MODEL_NAME] = '\0';
	put_service(&c, &key, longest, RR, NULL);
	refuse_one(r, &c);
	slow.udp_s = 32768;
	put_service(&c, &key, "slow", RR, &slow);
	refuse_one(r, &c);

	put_server(&c, &key, &server, 80, 1, UP); /* its service does not exist */
	refuse_one(r, &c);
	key = key_at(0);
	put_server(&c, &key, &server, 0, 1, UP);
	refuse_one(r, &c);
	put_server(&c, &key, &server, 80, 1, UP);
	c.change[0]->put_server->server->port = 65536;
	refuse_one(r, &c);
	put_server(&c, &key, &server, 80, 65536, UP);
	refuse_one(r, &c);
	put_server(&c, &key, &server, 80, 1, 0);
	refuse_one(r, &c);
	delete_server(&c, &key, &server, 80);
	refuse_one(r, &c);
	put_server(&c, &key, &server, 80, 1, UP);
	c.change[0]->put_server->server->address.len = 5;
	refuse_one(r, &c);
	delete_local(&c, &server);
	refuse_one(r, &c);
	add_service(&c, 1, 1);
	c.change[0]->kind_case = 0;
	refuse(r, &c, 0, STEELYARD__FORWARDER__V1__CODE__CODE_UNSUPPORTED);
}

static void test_addresses(void **state)
{
	struct harness *r = *state;
	begin(r);
	struct changes c = {0};
	struct service_key key = key_at(0), other = key_at(2);
	struct sy_addr local = harness_addr("10.1.0.1"), second = harness_addr("10.1.0.2");

	delete_local(&c, &local); /* the last of its family */
	refuse(r, &c, 1, INVALID);
	put_local(&c, &key.vip);
	refuse_one(r, &c);
	other.vip = local;
	put_service(&c, &other, "local", RR, NULL);
	refuse_one(r, &c);
	put_server(&c, &key, &key.vip, 80, 1, UP);
	refuse(r, &c, 1, INVALID);
	put_server(&c, &key, &local, 80, 1, UP);
	refuse(r, &c, 1, INVALID);
	put_local(&c, &second); /* a server's address, in a later transaction */
	put_server(&c, &key, &second, 80, 1, UP);
	refuse(r, &c, 2, INVALID);
	put_server(&c, &key, &second, 80, 1, UP);
	commit(r, &c);
	put_local(&c, &second);
	refuse(r, &c, 1, INVALID);
	other = key_at(2);
	other.vip = second;
	put_service(&c, &other, "server", RR, NULL);
	refuse(r, &c, 1, INVALID);

	/* The family's other address can be deleted, and a service can take it. */
	delete_server(&c, &key, &second, 80);
	put_local(&c, &second);
	delete_local(&c, &local);
	other.vip = local;
	put_service(&c, &other, "was local", RR, NULL);
	commit(r, &c);
	assert_int_equal(address_set_find(inspect_address_set(r->b), &local), ADDRESS_SET_VIP);
	assert_int_equal(address_set_find(inspect_address_set(r->b), &second), ADDRESS_SET_LOCAL);
}

/* An address that changes its kind within a refused transaction keeps its old kind. */
static void test_rollback_kinds(void **state)
{
	struct harness *r = *state;
	begin(r);
	struct changes c = {0};
	struct service_key key = key_at(0), other = key_at(2), missing = key_at(9);
	struct sy_addr local = harness_addr("10.1.0.1");
	other.vip = local;
	delete_local(&c, &local);
	put_service(&c, &other, "was local", RR, NULL);
	delete_service(&c, &key);
	put_local(&c, &key.vip);
	delete_service(&c, &missing);
	refuse(r, &c, 4, INVALID);
	assert_int_equal(address_kind(r->b, &local), ADDRESS_SET_LOCAL);
	assert_int_equal(address_kind(r->b, &key.vip), ADDRESS_SET_VIP);
	delete_service(&c, &key);
	commit(r, &c);
	assert_int_equal(address_kind(r->b, &key.vip), ADDRESS_SET_NONE);
	delete_local(&c, &local);
	commit(r, &c);
	assert_int_equal(address_kind(r->b, &local), ADDRESS_SET_NONE);
}

static uint32_t service_id(struct harness *r, const struct service_key *key)
{
	void *id;
	assert_true(rte_hash_lookup_data(inspect_directory(r->b), key, &id) >= 0);
	return (uint32_t)(uintptr_t)id;
}

/* Deleted and put again in one transaction: another id, and other servers too. */
static void test_delete_and_put(void **state)
{
	struct harness *r = *state;
	begin(r);
	struct changes c = {0};
	struct service_key key = key_at(0);
	uint32_t before = service_id(r, &key),
	         server = inspect_model(r->b)->service[before]->server[0].id;
	delete_service(&c, &key);
	add_service(&c, 0, 2);
	commit(r, &c);
	uint32_t after = service_id(r, &key);
	assert_int_not_equal(before, after);
	assert_null(inspect_service(r->b, before));
	assert_int_equal(inspect_endpoint(r->b, server)->removed, 1);
	/* Put, deleted and put within one transaction. */
	add_service(&c, 4, 1);
	struct service_key fourth = key_at(4);
	delete_service(&c, &fourth);
	add_service(&c, 4, 2);
	commit(r, &c);
	assert_int_equal(inspect_service(r->b, service_id(r, &fourth))->pool->eligible, 2);
	/* The same again, but the service is gone at the end. */
	add_service(&c, 6, 1);
	fourth = key_at(6);
	delete_service(&c, &fourth);
	commit(r, &c);
	assert_true(rte_hash_lookup(inspect_directory(r->b), &fourth) < 0);
	assert_int_equal(inspect_model(r->b)->services, 2);
	assert_int_equal(inspect_model(r->b)->servers, 4);
}

/* Ids are free again once sweeps had time to reset both ends of their sessions, and not before. */
static void test_ids(void **state)
{
	struct harness *r = *state;
	begin(r);
	struct changes c = {0};
	struct service_key key = key_at(0);
	const struct model *m = inspect_model(r->b);
	delete_service(&c, &key);
	commit(r, &c);
	uint64_t over = r->now_ns + RESET_BOTH_SECONDS * SECOND_NS;
	while (r->now_ns < over) {
		assert_int_equal(m->service_ids.count, 0);
		assert_int_equal(m->server_ids.count, 0);
		harness_advance(r, SECOND_NS / 50);
	}
	harness_advance(r, (HARNESS_RETIRED - RESET_BOTH_SECONDS) * SECOND_NS);
	assert_int_equal(m->service_ids.count, 1);
	assert_int_equal(m->server_ids.count, 2);
	add_service(&c, 0, 2);
	commit(r, &c);
	assert_int_equal(m->service_ids.fresh, 1);
	assert_int_equal(m->server_ids.fresh, 2);
}

static void test_same_twice(void **state)
{
	struct harness *r = *state;
	begin(r);
	size_t len_before, len_after;
	uint8_t *before = harness_config(r, &len_before);
	begin(r);
	uint8_t *after = harness_config(r, &len_after);
	assert_int_equal(len_before, len_after);
	assert_memory_equal(before, after, len_before);
	assert_int_equal(inspect_model(r->b)->server_ids.fresh, 2);
	assert_null(inspect_retired(r->b));
	free(before);
	free(after);
}

static void test_many(void **state)
{
	struct harness *r = *state;
	struct changes c = {0};
	const unsigned services = 20000;
	begin(r);
	for (unsigned i = 1; i < services; i++)
		add_service(&c, i, 3);
	commit(r, &c);
	assert_int_equal(inspect_model(r->b)->services, services);
	assert_int_equal(inspect_model(r->b)->servers, 3 * services - 1);
	for (unsigned i = 0; i < services; i++) {
		struct service_key key = key_at(i);
		assert_int_equal(inspect_service(r->b, service_id(r, &key))->pool->eligible,
		                 i ? 3 : 2);
		assert_int_equal(address_set_find(inspect_address_set(r->b), &key.vip),
		                 ADDRESS_SET_VIP);
	}
	for (unsigned i = services; i <= MAX_SERVICES; i++)
		add_service(&c, i, 0);
	refuse(r, &c, MAX_SERVICES - services, EXHAUSTED);
	for (unsigned i = 0; i < services; i++) {
		struct service_key key = key_at(i);
		delete_service(&c, &key);
	}
	commit(r, &c);
	assert_int_equal(inspect_model(r->b)->services, 0);
	assert_int_equal(inspect_model(r->b)->servers, 0);
	assert_int_equal(rte_hash_count(inspect_model(r->b)->address), 2);
}

static void test_many_locals(void **state)
{
	struct harness *r = *state;
	struct changes c = {0};
	struct sy_addr local = harness_addr("10.9.0.0");
	for (unsigned i = 0; i <= MAX_LOCALS; i++) {
		local.b[14] = (uint8_t)(i >> 8);
		local.b[15] = (uint8_t)i;
		put_local(&c, &local);
	}
	refuse(r, &c, MAX_LOCALS, EXHAUSTED);
}

/* ---- malformed messages ---------------------------------------------------------------------- */

struct answer {
	unsigned count;
	Steelyard__Forwarder__V1__Code code;
};

static void on_answer(void *ctx, const uint8_t *bytes, size_t len)
{
	struct answer *a = ctx;
	pb_response *response = steelyard__forwarder__v1__response__unpack(NULL, len, bytes);
	assert_non_null(response);
	a->count++;
	a->code = response->error ? response->error->code : 0;
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
}

static void test_malformed(void **state)
{
	struct harness *r = *state;
	struct answer a = {0};
	const uint8_t junk[] = {0xff, 0xff, 0xff}, newer[] = {0x08, 0x63, 0x52, 0x00};
	const uint8_t unversioned[] = {0x52, 0x00}, bodiless[] = {0x08, 0x01};
	sy_balance_request(r->b, junk, sizeof(junk), on_answer, &a);
	assert_int_equal(a.code, STEELYARD__FORWARDER__V1__CODE__CODE_MALFORMED);
	sy_balance_request(r->b, newer, sizeof(newer), on_answer, &a);
	assert_int_equal(a.code, STEELYARD__FORWARDER__V1__CODE__CODE_UNSUPPORTED);
	sy_balance_request(r->b, unversioned, sizeof(unversioned), on_answer, &a);
	assert_int_equal(a.code, STEELYARD__FORWARDER__V1__CODE__CODE_MALFORMED);
	sy_balance_request(r->b, bodiless, sizeof(bodiless), on_answer, &a);
	assert_int_equal(a.code, STEELYARD__FORWARDER__V1__CODE__CODE_UNSUPPORTED);
	sy_balance_request(r->b, NULL, 0, on_answer, &a);
	assert_int_equal(a.code, STEELYARD__FORWARDER__V1__CODE__CODE_MALFORMED);
	assert_int_equal(a.count, 5);
}

/* ---- messages that grow ---------------------------------------------------------------------- */

/* A request of a whole frame: `head`, then the field `body` of a request with `unit` again and
 * again. */
static Steelyard__Forwarder__V1__Code send_bomb(struct harness *r, uint8_t body, const char *unit,
                                                size_t unit_len, size_t size)
{
	struct answer a = {0};
	uint8_t *bytes = malloc(size);
	assert_non_null(bytes);
	size_t n = (size - 8) / unit_len * unit_len;
	const uint8_t head[8] = {0x08,
	                         1, /* version */
	                         body,
	                         (uint8_t)(n & 0x7f) | 0x80,
	                         (uint8_t)(n >> 7 & 0x7f) | 0x80,
	                         (uint8_t)(n >> 14 & 0x7f) | 0x80,
	                         (uint8_t)(n >> 21 & 0x7f) | 0x80,
	                         (uint8_t)(n >> 28)};
	memcpy(bytes, head, sizeof(head));
	for (size_t i = 0; i < n; i++)
		bytes[sizeof(head) + i] = (uint8_t)unit[i % unit_len];
	sy_balance_request(r->b, bytes, sizeof(head) + n, on_answer, &a);
	free(bytes);
	assert_int_equal(a.count, 1);
	return a.code;
}

#define APPLY_FIELD    (11u << 3 | 2)
#define EMPTY_CHANGE   "\x0a\x00" /* ApplyRequest.changes */
#define UNKNOWN_FIELD  "\xf8\x07\x00"
#define UNKNOWN_LENGTH 3

/* Small on the wire, large in memory: refused before it is there, and nothing of it stays. */
static void test_bombs(void **state)
{
	struct harness *r = *state;
	begin(r);
	size_t before = inspect_control(r->b)->budget.used;
	assert_int_equal(send_bomb(r, APPLY_FIELD, EMPTY_CHANGE, 2, SY_CONTROL_MAX),
	                 STEELYARD__FORWARDER__V1__CODE__CODE_TOO_LARGE);
	assert_int_equal(send_bomb(r, APPLY_FIELD, UNKNOWN_FIELD, UNKNOWN_LENGTH, SY_CONTROL_MAX),
	                 STEELYARD__FORWARDER__V1__CODE__CODE_TOO_LARGE);
	assert_int_equal(inspect_control(r->b)->budget.used, before);
	struct changes c = {0};
	add_service(&c, 1, 2);
	commit(r, &c);
}

/* Requests that wait for a commit count by their memory. */
static void test_staged_bombs(void **state)
{
	struct harness *r = *state;
	unsigned staged = 0;
	begin(r);
	size_t before = inspect_control(r->b)->budget.used;
	Steelyard__Forwarder__V1__Code code;
	while ((code = send_bomb(r, APPLY_FIELD, EMPTY_CHANGE, 2, SY_CONTROL_MAX / 4)) == 0)
		assert_true(++staged < 100);
	assert_int_equal(code, EXHAUSTED);
	assert_true(staged > 4);
	assert_int_equal(inspect_control(r->b)->budget.used,
	                 before); /* those that waited are dropped */
	struct changes c = {0};
	add_service(&c, 1, 2);
	commit(r, &c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_accept),       TEST(test_refuse_index),   TEST(test_refuse_fields),
	        TEST(test_addresses),    TEST(test_rollback_kinds), TEST(test_delete_and_put),
	        TEST(test_ids),          TEST(test_same_twice),     TEST(test_many),
	        TEST(test_many_locals),  TEST(test_malformed),      TEST(test_bombs),
	        TEST(test_staged_bombs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
