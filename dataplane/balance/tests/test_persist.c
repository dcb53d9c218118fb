// SPDX-License-Identifier: Apache-2.0
/* Client prefixes stay with their servers, on two workers. */
#include <pthread.h>

#include "schedule_fixture.h"

/* ---- persistence ----------------------------------------------------------------------------- */

static void put_persistent(struct fixture *f, int scheduler)
{
	set_persistence(&f->c, put(f, scheduler), 30, 24, 64);
	for (unsigned i = 0; i < 4; i++)
		put_up(f, i, 1);
	commit(f);
}

/* All clients of 198.18.n.0/24 go to one server, whichever worker they reach, and prefixes spread
 * over the servers. */
static void test_prefix(void **state)
{
	struct fixture *f = *state;
	uint64_t got[4];
	put_persistent(f, S(RR));
	for (unsigned prefix = 0; prefix < 40; prefix++) {
		unsigned server = server_of(f, 4, prefix << 8, 1000);
		for (unsigned n = 1; n < 20; n++)
			assert_int_equal(server_of(f, 4, prefix << 8 | n, (uint16_t)(1000 + n)),
			                 server);
	}
	for (unsigned i = 0; i < 4; i++) {
		got[i] = created(f, i);
		/* each worker rotates independently: at most 20 prefixes more or less */
		assert_in_range(got[i], 200 - 20, 200 + 20);
	}
}

/* The binding lasts while sessions are created, then it expires. Changes of scheduler and weights
 * keep it. */
static void test_prefix_timeout(void **state)
{
	struct fixture *f = *state;
	put_persistent(f, S(RR));
	unsigned first = server_of(f, 4, 1, 1000);
	server_of(f, 4, 256, 1000); /* another prefix: moves the rotation to the next server */
	for (uint16_t n = 1; n < 5; n++) {
		harness_advance(&f->harness, 25 * SECOND_NS);
		assert_int_equal(server_of(f, 4, n, (uint16_t)(1000 + n)), first);
		set_persistence(&f->c, put(f, n % 2 ? S(LC) : S(RR)), 30, 24, 64);
		put_up(f, 3, n);
		commit(f);
	}
	harness_advance(&f->harness, 32 * SECOND_NS);
	assert_int_not_equal(server_of(f, 4, 9, 2000), first);
}

/* Its server drains, fails or is removed: the prefix moves to another server and stays there. */
static void test_prefix_server_lost(void **state)
{
	struct fixture *f = *state;
	put_persistent(f, S(RR));
	unsigned now = server_of(f, 4, 1, 1000);
	for (unsigned n = 0; n < 9; n++) {
		unsigned lost = now;
		if (n % 3 == 2)
			delete_server(&f->c, &f->key, &f->server[lost], 8080);
		else
			put_state(f, lost, 1, n % 3 ? DRAIN : DOWN);
		commit(f);
		if (n % 3 == 2) {
			put_up(f, lost, 1); /* added again, under a new id */
			put_state(f, lost, 1, DOWN);
			commit(f);
		}
		now = server_of(f, 4, 2, (uint16_t)(2000 + n));
		assert_int_not_equal(now, lost);
		put_up(f, lost, 1);
		commit(f);
		for (uint16_t k = 0; k < 5; k++)
			assert_int_equal(server_of(f, 4, 3 + k, (uint16_t)(3000 + n)), now);
		harness_advance(&f->harness, 5 * SECOND_NS);
	}
}

/* A full server is skipped; a server of another service is not mistaken for it. */
static void test_prefix_full(void **state)
{
	struct fixture *f = *state;
	put_persistent(f, S(RR));
	unsigned first = server_of(f, 4, 1, 1000);
	put_up(f, first, 1)->max_sessions = 1;
	commit(f);
	unsigned second = server_of(f, 4, 2, 1000);
	assert_int_not_equal(second, first);
	for (uint16_t n = 0; n < 10; n++)
		assert_int_equal(server_of(f, 4, n, (uint16_t)(1100 + n)), second);
}

/* A backup keeps its prefixes only while it is needed. */
static void test_prefix_backup(void **state)
{
	struct fixture *f = *state;
	put_persistent(f, S(RR));
	put_up(f, 3, 1)->backup = true;
	for (unsigned i = 0; i < 3; i++)
		put_state(f, i, 1, DOWN);
	commit(f);
	assert_int_equal(server_of(f, 4, 1, 1000), 3);
	put_up(f, 1, 1);
	commit(f);
	assert_int_equal(server_of(f, 4, 2, 1000), 1);
}

/* More prefixes than a bucket has entries: the newest are remembered. */
static void test_prefix_many(void **state)
{
	struct fixture *f = *state;
	struct sy_balance *b = f->harness.b;
	struct sy_addr a = harness_addr("2001:db8::");
	put_persistent(f, S(RR));
	const struct service *s = inspect_service(b, 0);
	uint32_t now = (uint32_t)(f->harness.now_ns / SECOND_NS);
	unsigned found = 0, bound = 0;
	for (unsigned n = 0; n < 3000000; n++) {
		memcpy(a.b + 4, &n, sizeof(n));
		uint32_t server = server_id(f, n % 4);
		bound += persist_bind(b, s, &a, server, SERVER_NONE, now + n / 300000) != server;
	}
	for (unsigned n = 0; n < 3000000; n++) {
		memcpy(a.b + 4, &n, sizeof(n));
		uint32_t server = persist_find(b, s, &a, now + 10);
		bound += server != SERVER_NONE && server != server_id(f, n % 4);
		found += server != SERVER_NONE;
	}
	/* Each lookup compares eight 24-bit tags: one in two million matches another prefix. */
	assert_in_range(bound, 0, 30);
	/* 1 M entries; nearly all are used. */
	assert_in_range(found, 900000, 1048576);
}

/* ---- threads --------------------------------------------------------------------------------- */

#define RACED 100000u /* prefixes */

struct racer {
	struct fixture *f;
	uint32_t server; /* the server that it would choose */
	uint32_t *got;
	uint32_t places;
	uint32_t *taken;
	pthread_barrier_t *start;
};

static void *race(void *arg)
{
	struct racer *r = arg;
	struct sy_balance *b = r->f->harness.b;
	const struct service *s = inspect_service(b, 0);
	struct sy_addr a = harness_addr("2001:db8::");
	uint32_t now = (uint32_t)(r->f->harness.now_ns / SECOND_NS);
	pthread_barrier_wait(r->start);
	for (unsigned n = 0; n < RACED; n++) {
		memcpy(a.b + 4, &n, sizeof(n));
		uint32_t got = persist_find(b, s, &a, now);
		r->got[n] = got != SERVER_NONE
		                    ? got
		                    : persist_bind(b, s, &a, r->server, SERVER_NONE, now);
		r->places += load_acquire(r->taken, RACED);
	}
	return NULL;
}

/* Two threads create the same prefixes at the same time and always agree; together they use one
 * entry per prefix. */
static void test_race(void **state)
{
	struct fixture *f = *state;
	struct racer racer[2];
	pthread_t thread[2];
	pthread_barrier_t start;
	uint32_t taken = 0;
	put_persistent(f, S(RR));
	pthread_barrier_init(&start, NULL, 2);
	for (unsigned i = 0; i < 2; i++) {
		racer[i] = (struct racer){f, server_id(f, i), calloc(RACED, sizeof(uint32_t)),
		                          0, &taken,          &start};
		assert_int_equal(pthread_create(&thread[i], NULL, race, &racer[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	for (unsigned n = 0; n < RACED; n++) {
		assert_int_equal(racer[0].got[n], racer[1].got[n]);
	}
	assert_int_equal(taken, RACED);
	assert_int_equal(racer[0].places + racer[1].places, RACED);
	free(racer[0].got);
	free(racer[1].got);
	pthread_barrier_destroy(&start);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_prefix),      TEST(test_prefix_timeout), TEST(test_prefix_server_lost),
	        TEST(test_prefix_full), TEST(test_prefix_backup),  TEST(test_prefix_many),
	        TEST(test_race),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
