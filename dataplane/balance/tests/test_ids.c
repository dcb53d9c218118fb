// SPDX-License-Identifier: Apache-2.0
/* Ids keep their meaning from process to process. A session never gets another server or local
 * address under its id. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "flows.h"
#include "saved.h"

#define TICKET 7

static void restart(struct flows *f, uint64_t ticket)
{
	f->options.ticket = ticket;
	if (ticket)
		harness_stop(&f->harness, ticket);
	else
		harness_crash(&f->harness);
	flows_open(f);
}

static void open_each(struct flows *f, struct flow flow[FLOW_SERVICES])
{
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		flow_open(f, &flow[s], s, (uint16_t)(1000 + s));
}

/* Which of its service's servers a flow uses. */
static unsigned server_of(const struct flows *f, const struct flow *flow)
{
	return !sy_addr_equal(&flow->server.src, &f->server[flow->service][0]);
}

static uint32_t id_of(const struct flows *f, unsigned service, const struct sy_addr *addr)
{
	const struct model *m = inspect_model(f->harness.b);
	for (uint32_t id = 0; id < m->service_ids.fresh; id++) {
		const struct model_service *s = m->service[id];
		if (!s || memcmp(&s->key, &f->service[service], sizeof(s->key)) != 0)
			continue;
		for (unsigned i = 0; i < s->servers; i++)
			if (sy_addr_equal(&s->server[i].addr, addr))
				return s->server[i].id;
	}
	return UINT32_MAX;
}

/* The saved configuration has the same content in another order. */
static void test_order(void **state)
{
	static const unsigned order[FLOW_SERVICES] = {3, 1, 2, 0};
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	struct changes c = {0};
	open_each(f, flow);
	harness_stop(&f->harness, 0);
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		delete_service(&c, &f->service[s]);
	for (unsigned v6 = 0; v6 < 2; v6++)
		delete_local(&c, &f->local[v6]);
	flows_change_saved(f, &c);
	f->options.store_directory = NULL;
	flows_open(f);
	flows_configure(f, order);
	harness_close(&f->harness);
	f->options.store_directory = f->store;
	flows_open(f);
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		flow_check(f, &flow[s]);
	flows_check_active(f, FLOW_SERVICES);
}

/* A server was removed and another added while no forwarder ran. */
static void test_server_gone(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES], fresh;
	struct changes c = {0};
	struct sy_addr stranger = harness_addr("10.0.0.99");
	open_each(f, flow);
	harness_crash(&f->harness);
	delete_server(&c, &f->service[0], &flow[0].server.src, 8080);
	put_server(&c, &f->service[0], &stranger, 8080, 1, FLOW_UP);
	delete_service(&c, &f->service[3]);
	flows_change_saved(f, &c);
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_SERVER_GONE), 2);
	assert_int_equal(flows_result(f, SESSION_KEPT), 2);
	assert_null(flow_session(f, &flow[0]));
	flow_check(f, &flow[1]);
	flow_check(f, &flow[2]);
	assert_int_not_equal(id_of(f, 0, &stranger), flow[0].server_id);
	flows_check_active(f, 2);
	/* its id is free after some sweeps and then has no name */
	struct session_server_name name;
	const struct id_pool *ids = &inspect_model(f->harness.b)->server_ids;
	uint32_t before = ids->count;
	assert_true(session_server_named(inspect_store(f->harness.b), flow[0].server_id, &name));
	flows_advance(f, HARNESS_RETIRED);
	assert_false(session_server_named(inspect_store(f->harness.b), flow[0].server_id, &name));
	assert_int_equal(ids->count, before + 1 + FLOW_SERVERS);
	flow_open(f, &fresh, 0, 2000);
	restart(f, 0);
	flow_check(f, &fresh);
}

static void test_local_gone(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	struct changes c = {0};
	struct sy_addr other = harness_addr("10.0.1.2");
	open_each(f, flow);
	uint8_t old = flow_session(f, &flow[0])->local;
	harness_crash(&f->harness);
	delete_local(&c, &f->local[0]);
	put_local(&c, &other);
	flows_change_saved(f, &c);
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_LOCAL_GONE), 2);
	assert_int_equal(flows_result(f, SESSION_KEPT), 2);
	flow_check(f, &flow[2]);
	flow_open(f, &flow[0], 0, 2000);
	assert_int_not_equal(flow_session(f, &flow[0])->local, old);
	struct sy_addr addr;
	assert_true(session_local_named(inspect_store(f->harness.b), old, &addr));
	flows_advance(f, HARNESS_RETIRED);
	assert_false(session_local_named(inspect_store(f->harness.b), old, &addr));
	restart(f, 0);
	flow_check(f, &flow[0]);
}

/* A successor trusts the file: the sessions are there, and end like those of any removed server. */
static void test_steered(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	struct changes c = {0};
	struct sy_addr stranger = harness_addr("10.0.0.99");
	open_each(f, flow);
	sy_balance_hold_snapshots(f->harness.b, true);
	delete_server(&c, &f->service[0], &f->server[0][0], 8080);
	delete_server(&c, &f->service[0], &f->server[0][1], 8080);
	put_server(&c, &f->service[0], &stranger, 8080, 1, FLOW_UP);
	flows_commit(f, &c);
	restart(f, TICKET);
	assert_int_equal(inspect_found(f->harness.b)->source, SESSION_SOURCE_HANDED_OVER);
	assert_int_equal(flows_result(f, SESSION_KEPT), FLOW_SERVICES);
	flow_check_dropped(f, &flow[0], SY_DROP_SERVER_REMOVED);
	for (unsigned s = 1; s < FLOW_SERVICES; s++)
		flow_check(f, &flow[s]);
	flows_advance(f, HARNESS_RETIRED);
	flows_check_active(f, FLOW_SERVICES - 1);
	flow_open(f, &flow[0], 0, 2000);
	flow_check(f, &flow[0]);
	flows_check_active(f, FLOW_SERVICES);
}

/* A copy of the session file's bytes. */
struct image {
	char path[96];
	uint8_t *bytes;
	size_t len;
};

static uint8_t *image_map(struct image *i)
{
	struct stat st;
	int fd = open(i->path, O_RDWR);
	assert_int_equal(fstat(fd, &st), 0);
	i->len = (size_t)st.st_size;
	uint8_t *file = mmap(NULL, i->len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(file, MAP_FAILED);
	close(fd);
	return file;
}

static void image_read(const struct flows *f, struct image *i)
{
	snprintf(i->path, sizeof(i->path), "%s/harness", f->store);
	uint8_t *file = image_map(i);
	i->bytes = malloc(i->len);
	memcpy(i->bytes, file, i->len);
	munmap(file, i->len);
}

static void image_write(void *image)
{
	struct image *i = image;
	uint8_t *file = image_map(i);
	memcpy(file, i->bytes, i->len);
	munmap(file, i->len);
	free(i->bytes);
}

/* The successor reads the dictionary after servers of the snapshot were removed and before others
 * are added: no id means different servers to it and to its predecessor. */
static void test_steered_late(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES], fresh[FLOW_SERVERS];
	struct changes c = {0};
	struct image prepared, sealed;
	struct sy_addr stranger[FLOW_SERVERS] = {harness_addr("10.0.0.98"),
	                                         harness_addr("10.0.0.99")};
	open_each(f, flow);
	sy_balance_hold_snapshots(f->harness.b, true);
	for (unsigned i = 0; i < FLOW_SERVERS; i++)
		delete_server(&c, &f->service[0], &f->server[0][i], 8080);
	flows_commit(f, &c);
	image_read(f, &prepared);
	for (unsigned i = 0; i < FLOW_SERVERS; i++)
		put_server(&c, &f->service[0], &stranger[i], 8080, 1, FLOW_UP);
	flows_commit(f, &c);
	for (unsigned i = 0; i < FLOW_SERVERS; i++)
		flow_open(f, &fresh[i], 0, (uint16_t)(2000 + i));
	harness_stop(&f->harness, TICKET);
	image_read(f, &sealed);
	image_write(&prepared);
	f->options.ticket = TICKET;
	f->options.meanwhile = image_write;
	f->options.meanwhile_ctx = &sealed;
	flows_open(f);
	f->options.meanwhile = NULL;
	assert_int_equal(inspect_found(f->harness.b)->source, SESSION_SOURCE_HANDED_OVER);
	for (unsigned i = 0; i < FLOW_SERVERS; i++) {
		assert_int_equal(id_of(f, 0, &fresh[i].server.src), fresh[i].server_id);
		flow_check(f, &fresh[i]);
	}
	flow_check_dropped(f, &flow[0], SY_DROP_SERVER_REMOVED);
	flows_advance(f, HARNESS_RETIRED);
	flows_check_active(f, FLOW_SERVICES - 1 + FLOW_SERVERS);
	restart(f, 0);
	for (unsigned i = 0; i < FLOW_SERVERS; i++)
		flow_check(f, &fresh[i]);
}

/* Removed and added again within a second: old sessions end, newer ones continue. */
static void test_removed_and_back(void **state)
{
	struct flows *f = *state;
	struct flow before, since;
	struct changes c = {0};
	flow_open(f, &before, 0, 1000);
	unsigned n = server_of(f, &before);
	delete_server(&c, &f->service[0], &f->server[0][0], 8080);
	delete_server(&c, &f->service[0], &f->server[0][1], 8080);
	flows_commit(f, &c);
	put_server(&c, &f->service[0], &f->server[0][n], 8080, 1, FLOW_UP);
	flows_commit(f, &c);
	flow_open(f, &since, 0, 1001);
	assert_int_not_equal(before.server_id, since.server_id);
	for (unsigned cycle = 0; cycle < 3; cycle++) {
		restart(f, 0);
		assert_int_equal(flows_result(f, SESSION_SERVER_GONE), cycle == 0);
		flow_check(f, &since);
		assert_null(flow_session(f, &before));
	}
	flows_check_active(f, 1);
}

/* A local address that is added again before its id is free continues as if it had never been
 * removed. */
static void test_local_back(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	struct changes c = {0};
	struct sy_addr other = harness_addr("10.0.1.2");
	flow_open(f, &flow, 0, 1000);
	put_local(&c, &other);
	delete_local(&c, &f->local[0]);
	flows_commit(f, &c);
	put_local(&c, &f->local[0]);
	flows_commit(f, &c);
	flow_check(f, &flow);
	flows_advance(f, HARNESS_RETIRED);
	flow_check(f, &flow);
	delete_local(&c, &f->local[0]);
	flows_commit(f, &c);
	flows_advance(f, HARNESS_RETIRED); /* now it is free */
	assert_null(flow_session(f, &flow));
	assert_false(inspect_model(f->harness.b)->local_retired[0]);
	flow_open(f, &flow, 0, 1001);
	put_local(&c, &f->local[0]);
	flows_commit(f, &c);
	restart(f, 0);
	flow_check(f, &flow);
}

/* A refused transaction frees the ids that it allocated, including those of sessions that were
 * found. */
static void test_rolled_back(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	struct changes c = {0};
	flow_open(f, &flow, 0, 1000);
	struct sy_balance *b = f->harness.b;
	uint32_t ids = inspect_model(b)->server_ids.fresh - inspect_model(b)->server_ids.count;
	struct sy_addr added = harness_addr("10.0.0.50");
	put_server(&c, &f->service[0], &added, 1, 1, FLOW_UP);
	put_server(&c, &f->service[0], &f->service[0].vip, 1, 1, FLOW_UP);
	assert_false(harness_commit(&f->harness, &c));
	assert_int_equal(inspect_model(b)->server_ids.fresh - inspect_model(b)->server_ids.count,
	                 ids);
	flow_check(f, &flow);
	restart(f, 0);
	flow_check(f, &flow);
	assert_int_equal(inspect_model(f->harness.b)->server_ids.fresh -
	                         inspect_model(f->harness.b)->server_ids.count,
	                 FLOW_SERVICES * FLOW_SERVERS);
}

/* The maximum number of servers, with other servers than before in the last second. */
static void test_no_id_left(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	struct changes c = {0};
	struct sy_addr stranger = harness_addr("10.0.0.99");
	f->options.max_servers = FLOW_SERVICES * FLOW_SERVERS;
	restart(f, 0);
	delete_server(&c, &f->service[0], &f->server[0][0], 8080);
	flows_commit(f, &c);
	config_file_flush(f->harness.b, true);
	flows_advance(f, HARNESS_RETIRED);
	inspect_hold(f->harness.b, true);
	put_server(&c, &f->service[0], &stranger, 8080, 1, FLOW_UP);
	flows_commit(f, &c);
	delete_server(&c, &f->service[1], &f->server[1][0], 5353);
	flows_commit(f, &c);
	flows_advance(f, HARNESS_RETIRED);
	open_each(f, flow);
	restart(f, 0);
	assert_int_equal(inspect_model(f->harness.b)->servers, FLOW_SERVICES * FLOW_SERVERS - 1);
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		flow_check(f, &flow[s]);
}

/* Transactions that removed servers and added them again, read from the journal. */
static void test_exchanged(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	struct changes c = {0};
	config_file_flush(f->harness.b, true);
	inspect_hold(f->harness.b, true);
	for (unsigned n = 0; n < FLOW_SERVERS; n++) {
		delete_server(&c, &f->service[0], &f->server[0][n], 8080);
		put_server(&c, &f->service[0], &f->server[0][n], 8080, 1, FLOW_UP);
	}
	delete_service(&c, &f->service[2]);
	put_service(&c, &f->service[2], "again", FLOW_RR, NULL);
	for (unsigned n = 0; n < FLOW_SERVERS; n++)
		put_server(&c, &f->service[2], &f->server[2][n], 8080, 1, FLOW_UP);
	flows_commit(f, &c);
	open_each(f, flow);
	restart(f, 0);
	assert_int_equal(flows_result(f, SESSION_KEPT), FLOW_SERVICES);
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		flow_check(f, &flow[s]);
	flows_check_active(f, FLOW_SERVICES);
}

/* Tables that could not grow have no names for more servers than before. More servers are refused,
 * because the sessions of a server without a name would not be found again. */
static void test_no_name_left(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	struct changes c = {0};
	struct sy_addr stranger = harness_addr("10.0.0.99");
	char next[96];
	harness_close(&f->harness);
	f->options.max_servers = FLOW_SERVICES * FLOW_SERVERS;
	flows_open(f);
	open_each(f, flow);
	harness_stop(&f->harness, 0);
	snprintf(next, sizeof(next), "%s/harness.next", f->store);
	assert_int_equal(mkdir(next, 0700), 0);
	f->options.max_servers = 0;
	flows_open(f);
	put_server(&c, &f->service[0], &stranger, 8080, 1, FLOW_UP);
	assert_false(harness_commit(&f->harness, &c));
	assert_int_equal(f->harness.code, STEELYARD__FORWARDER__V1__CODE__CODE_EXHAUSTED);
	assert_int_equal(rmdir(next), 0);
	for (unsigned cycle = 0; cycle < 2; cycle++) {
		restart(f, cycle ? TICKET : 0);
		put_server(&c, &f->service[0], &stranger, 8080, 1, FLOW_UP);
		flows_commit(f, &c);
		for (unsigned s = 0; s < FLOW_SERVICES; s++)
			flow_check(f, &flow[s]);
	}
}

/* A damaged name is invalid, and its sessions have no server. */
static void test_name_lost(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	open_each(f, flow);
	session_name_server(inspect_store(f->harness.b), flow[0].server_id, NULL);
	session_name_local(inspect_store(f->harness.b), flow_session(f, &flow[2])->local, NULL);
	restart(f, 0);
	assert_int_equal(flows_result(f, SESSION_UNKNOWN_ID), 3);
	assert_int_equal(flows_result(f, SESSION_KEPT), 1);
	flow_check(f, &flow[1]);
	flow_open(f, &flow[0], 0, 2000);
	restart(f, 0);
	flow_check(f, &flow[0]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, flows_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_order),        TEST(test_server_gone),      TEST(test_local_gone),
	        TEST(test_steered),      TEST(test_removed_and_back), TEST(test_local_back),
	        TEST(test_rolled_back),  TEST(test_no_id_left),       TEST(test_exchanged),
	        TEST(test_steered_late), TEST(test_name_lost),        TEST(test_no_name_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
