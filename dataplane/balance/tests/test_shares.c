// SPDX-License-Identifier: Apache-2.0
/* Measured shares as set on the control socket: they replace weights, disturb no session, and end.
 */
#include <math.h>

#include "schedule_fixture.h"

#define WHOLE 4294967295.0

/* Sets shares of the first servers; error: what the answer says, or NULL. */
static void set_shares(struct fixture *f, const struct service_key *key, uint32_t valid_s,
                       unsigned count, const double *share, const char *error)
{
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	Steelyard__Forwarder__V1__SetSharesRequest set =
	        STEELYARD__FORWARDER__V1__SET_SHARES_REQUEST__INIT;
	Steelyard__Forwarder__V1__ServiceShares service =
	        STEELYARD__FORWARDER__V1__SERVICE_SHARES__INIT;
	Steelyard__Forwarder__V1__ServiceKey k = STEELYARD__FORWARDER__V1__SERVICE_KEY__INIT;
	Steelyard__Forwarder__V1__ServerShare one[SERVERS], *servers[SERVERS];
	Steelyard__Forwarder__V1__ServiceShares *services[] = {&service};
	uint8_t address[SERVERS][4], vip[4];
	memcpy(vip, &key->vip.b[12], 4);
	k.vip = (ProtobufCBinaryData){4, vip};
	k.port = ntohs(key->vport);
	k.protocol = (Steelyard__Forwarder__V1__Protocol)key->proto;
	for (unsigned i = 0; i < count; i++) {
		steelyard__forwarder__v1__server_share__init(&one[i]);
		memcpy(address[i], &f->server[i].b[12], 4);
		one[i].address = (ProtobufCBinaryData){4, address[i]};
		one[i].port = 8080;
		one[i].share = (uint32_t)(share[i] * WHOLE);
		servers[i] = &one[i];
	}
	service.service = &k;
	service.n_servers = count;
	service.servers = servers;
	set.n_services = 1;
	set.services = services;
	set.valid_s = valid_s;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_SET_SHARES;
	q.set_shares = &set;
	pb_response *response = harness_request(&f->harness, &q);
	if (error)
		assert_non_null(strstr(response->error->text, error));
	else
		assert_null(response->error);
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
}

/* The service's shares as listed; returns for how many seconds they count. */
static uint32_t listed(struct fixture *f, double share[SERVERS])
{
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	Steelyard__Forwarder__V1__ListServicesRequest list =
	        STEELYARD__FORWARDER__V1__LIST_SERVICES_REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SERVICES;
	q.list_services = &list;
	pb_response *response = harness_request(&f->harness, &q);
	const Steelyard__Forwarder__V1__ServiceStats *s = response->list_services->services[0];
	uint32_t left = s->shares_valid_s;
	for (size_t i = 0; i < s->n_servers; i++) {
		share[i] = s->servers[i]->share / WHOLE;
		assert_int_equal(s->servers[i]->server->weight, 10); /* as configured */
	}
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return left;
}

static void open_service(struct fixture *f, int scheduler)
{
	put(f, scheduler);
	for (unsigned i = 0; i < 4; i++)
		put_up(f, i, 10);
	commit(f);
}

static void sessions(struct fixture *f, unsigned count, unsigned got[4])
{
	static unsigned client;
	uint64_t before[4];
	for (unsigned i = 0; i < 4; i++)
		before[i] = created(f, i);
	for (unsigned n = 0; n < count; n++, client++)
		assert_true(connects(f, client % 50000, (uint16_t)(1024 + client / 50000)));
	for (unsigned i = 0; i < 4; i++)
		got[i] = (unsigned)(created(f, i) - before[i]);
}

static void test_shares_replace_weights(void **state)
{
	struct fixture *f = *state;
	const double share[] = {0.7, 0.1, 0.1, 0.1};
	double seen[SERVERS];
	unsigned got[4];
	open_service(f, S(WRR));
	sessions(f, 400, got);
	assert_in_range(got[0], 99, 101); /* each worker rotates independently */
	assert_int_equal(listed(f, seen), 0);
	set_shares(f, &f->key, 60, 4, share, NULL);
	assert_in_range(listed(f, seen), 59, 60);
	assert_true(seen[0] > 0.699 && seen[0] < 0.701 && seen[3] > 0.099 && seen[3] < 0.101);
	sessions(f, 1000, got);
	assert_in_range(got[0], 690, 710);
	assert_in_range(got[3], 93, 107);
	for (unsigned i = 0; i < 4; i++) /* and no server has lost a session */
		assert_int_equal(active(f, i), created(f, i));
	put_state(f, 0, 10, DRAIN);
	commit(f);
	sessions(f, 300, got);
	assert_int_equal(got[0], 0);
	assert_in_range(got[1], 98, 102);
}

/* In whatever order they come, with servers among them that the service does not have. */
static void test_any_order(void **state)
{
	struct fixture *f = *state;
	static const unsigned orders[][4] = {{3, 2, 1, 0}, {1, 3, 0, 2}, {0, 2, 4, 1}};
	struct sy_addr as_they_are[5];
	open_service(f, S(WRR));
	memcpy(as_they_are, f->server, sizeof(as_they_are));
	for (unsigned n = 0; n < SY_ARRAY_LEN(orders); n++) {
		double share[4], seen[SERVERS];
		for (unsigned i = 0; i < 4; i++) {
			f->server[i] = as_they_are[orders[n][i]];
			share[i] = (1 + orders[n][i]) * 0.05;
		}
		set_shares(f, &f->key, 60, 4, share, NULL);
		memcpy(f->server, as_they_are, sizeof(as_they_are));
		listed(f, seen);
		for (unsigned i = 0; i < 4; i++) {
			bool told = n < 2 || i != 3; /* instead of it, one that is not there */
			assert_true(fabs(seen[i] - (told ? (1 + i) * 0.05 : 0)) < 0.001);
		}
	}
}

/* A transaction keeps them; a server that it adds counts as the mean of the others. */
static void test_shares_and_changes(void **state)
{
	struct fixture *f = *state;
	const double share[] = {0.6, 0.2, 0.2};
	double seen[SERVERS];
	unsigned got[4];
	put(f, S(WRR));
	for (unsigned i = 0; i < 3; i++)
		put_up(f, i, 10);
	commit(f);
	set_shares(f, &f->key, 60, 3, share, NULL);
	put_up(f, 3, 10);
	commit(f);
	listed(f, seen);
	assert_true(seen[0] > 0.59 && seen[3] == 0);
	sessions(f, 1200, got);
	assert_in_range(got[0], 520, 560); /* 0.6 of 1.333 */
	assert_in_range(got[3], 285, 315);
	put(f, S(SHARE));
	commit(f);
	sessions(f, 1200, got);
	assert_in_range(got[0], 450, 630);
}

static void test_shares_end(void **state)
{
	struct fixture *f = *state;
	const double share[] = {0.7, 0.1, 0.1, 0.1};
	double seen[SERVERS];
	unsigned got[4];
	open_service(f, S(WRR));
	set_shares(f, &f->key, 5, 4, share, NULL);
	harness_advance(&f->harness, 4 * SECOND_NS);
	harness_poll(&f->harness);
	service_tick(f->harness.b);
	assert_in_range(listed(f, seen), 1, 1);
	harness_advance(&f->harness, SECOND_NS);
	harness_poll(&f->harness);
	service_tick(f->harness.b);
	assert_int_equal(listed(f, seen), 0);
	assert_true(seen[0] == 0);
	sessions(f, 400, got);
	assert_in_range(got[0], 99, 101);
	set_shares(f, &f->key, 5, 4, share, NULL);
	set_shares(f, &f->key, 5, 0, NULL, NULL); /* removed */
	assert_int_equal(listed(f, seen), 0);
	sessions(f, 400, got);
	assert_in_range(got[0], 99, 101);
}

/* Shares that hardly change move no client of a scheduler that hashes. */
static void test_hashing_waits_for_a_sixteenth(void **state)
{
	struct fixture *f = *state;
	const double even[] = {0.25, 0.25, 0.25, 0.25}, near[] = {0.26, 0.24, 0.255, 0.245},
	             far[] = {0.3, 0.1, 0.3, 0.3};
	struct model_service *s;
	open_service(f, S(MAGLEV));
	s = inspect_model(f->harness.b)->service[0];
	set_shares(f, &f->key, 60, 4, even, NULL);
	const uint32_t before = s->server[1].measured, ceiling = s->ceiling;
	const void *table = inspect_service(f->harness.b, 0)->pool->made;
	set_shares(f, &f->key, 60, 4, near, NULL);
	assert_int_equal(s->server[1].measured, before);
	assert_int_equal(s->server[1].reported, (uint32_t)(0.24 * WHOLE));
	assert_int_equal(s->ceiling, ceiling);
	set_shares(f, &f->key, 60, 4, far, NULL);
	assert_int_equal(s->server[1].measured, (uint32_t)(0.1 * WHOLE));
	assert_ptr_equal(inspect_service(f->harness.b, 0)->pool->made, table);
}

static void test_shares_refused(void **state)
{
	struct fixture *f = *state;
	const double share[] = {0.5, 0.5, 0.5, 0.5, 0.5}, none[] = {0, 1};
	double seen[SERVERS];
	open_service(f, S(WRR));
	set_shares(f, &f->key, 0, 2, share, "not within");
	set_shares(f, &f->key, 3601, 2, share, "not within");
	set_shares(f, &f->key, 60, 2, none, "a share of 0");
	assert_int_equal(listed(f, seen), 0);
	set_shares(f, &f->udp, 60, 2, share, NULL); /* unknown, and counted as such */
	set_shares(f, &f->key, 60, 5, share, NULL);
	assert_in_range(listed(f, seen), 59, 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_shares_replace_weights),
	        TEST(test_any_order),
	        TEST(test_shares_and_changes),
	        TEST(test_shares_end),
	        TEST(test_hashing_waits_for_a_sixteenth),
	        TEST(test_shares_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
