// SPDX-License-Identifier: Apache-2.0
/* The table of clients' sessions: exact counts, also by several threads; full buckets. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client_count.h"

#define THREADS 4
#define ROUNDS  200000u

/* Clients of one bucket, with different tags. */
static uint64_t client_of(uint64_t n)
{
	return (n + 1) << 30 | 77;
}

static int setup(void **state)
{
	*state = client_counts_create();
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	client_counts_destroy(*state);
	return 0;
}

static void test_limit(void **state)
{
	struct client_counts *c = *state;
	const uint64_t client = client_of(1), other = client_of(2);
	for (unsigned n = 0; n < 10; n++) {
		assert_int_equal(client_count_read(c, client), n);
		assert_int_equal(client_count_acquire(c, client, 10), CLIENT_COUNTED);
	}
	assert_int_equal(client_count_acquire(c, client, 10), CLIENT_OVER);
	assert_int_equal(client_count_acquire(c, client, 3), CLIENT_OVER); /* lowered */
	assert_int_equal(client_count_acquire(c, other, 1), CLIENT_COUNTED);
	assert_int_equal(client_count_acquire(c, other, 1), CLIENT_OVER);
	client_count_release(c, client);
	assert_int_equal(client_count_acquire(c, client, 10), CLIENT_COUNTED);
	assert_int_equal(client_count_acquire(c, client, 10), CLIENT_OVER);
	for (unsigned n = 0; n < 10; n++)
		client_count_release(c, client);
	assert_int_equal(client_count_read(c, client), 0);
	assert_int_equal(client_counts_sum(c), 1);
	assert_int_equal(client_counts_lost(c), 0);
	client_count_release(c, client); /* nothing was acquired */
	assert_int_equal(client_counts_lost(c), 1);
	assert_int_equal(client_counts_sum(c), 1);
}

/* A client without a place is not counted; a place is free when its client has no session. */
static void test_full_bucket(void **state)
{
	struct client_counts *c = *state;
	for (unsigned n = 0; n < 8; n++)
		assert_int_equal(client_count_acquire(c, client_of(n), 2), CLIENT_COUNTED);
	for (unsigned n = 0; n < 100; n++)
		assert_int_equal(client_count_acquire(c, client_of(8), 2), CLIENT_UNCOUNTED);
	assert_int_equal(client_count_acquire(c, client_of(3), 2), CLIENT_COUNTED);
	client_count_release(c, client_of(5));
	assert_int_equal(client_count_acquire(c, client_of(8), 2), CLIENT_COUNTED);
	assert_int_equal(client_counts_sum(c), 9);
}

/* A count that is as high as its bits allow does not run into the tag. */
static void test_most(void **state)
{
	struct client_counts *c = *state;
	const uint32_t max = (1u << 24) - 1;
	for (uint32_t n = 0; n < max; n++)
		if (client_count_acquire(c, client_of(1), UINT32_MAX) != CLIENT_COUNTED)
			fail_msg("not counted after %u", n);
	assert_int_equal(client_count_acquire(c, client_of(1), UINT32_MAX), CLIENT_UNCOUNTED);
	assert_int_equal(client_count_read(c, client_of(1)), max);
	assert_int_equal(client_counts_sum(c), max);
}

#define CLIENTS 3
#define PLACES  3 /* of a client */
#define WANTED  3 /* by each racer at once: together four times as many as there are */

struct racer {
	struct client_counts *c;
	unsigned *taken; /* [CLIENTS]: by all racers */
	unsigned held, max[CLIENTS], refused;
};

/* Acquires and releases a client's sessions. */
static void race_for(struct racer *r, unsigned client)
{
	unsigned own = 0;
	for (unsigned n = 0; n < WANTED; n++) {
		if (client_count_acquire(r->c, client_of(client), PLACES) != CLIENT_COUNTED) {
			r->refused++;
			continue;
		}
		unsigned now = __atomic_add_fetch(&r->taken[client], 1, __ATOMIC_SEQ_CST);
		r->max[client] = now > r->max[client] ? now : r->max[client];
		own++;
	}
	sched_yield();
	for (; own > 0; own--) {
		__atomic_sub_fetch(&r->taken[client], 1, __ATOMIC_SEQ_CST);
		client_count_release(r->c, client_of(client));
	}
}

static void *race(void *ctx)
{
	struct racer *r = ctx;
	for (unsigned n = 0; n < ROUNDS; n++) {
		if (n % 10 == 0)
			race_for(r, n / 10000 % CLIENTS);
		if (n % 1000 == 0 &&
		    client_count_acquire(r->c, client_of(9), UINT32_MAX) == CLIENT_COUNTED)
			r->held++;
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct racer racer[THREADS];
	pthread_t thread[THREADS];
	unsigned taken[CLIENTS] = {0}, max[CLIENTS] = {0}, held = 0, refused = 0;
	/* The first client always has one, so all see its word. */
	assert_int_equal(client_count_acquire(*state, client_of(0), PLACES), CLIENT_COUNTED);
	taken[0] = 1;
	for (unsigned i = 0; i < THREADS; i++) {
		racer[i] = (struct racer){.c = *state, .taken = taken};
		assert_int_equal(pthread_create(&thread[i], NULL, race, &racer[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		held += racer[i].held;
		refused += racer[i].refused;
		for (unsigned n = 0; n < CLIENTS; n++)
			max[n] = racer[i].max[n] > max[n] ? racer[i].max[n] : max[n];
	}
	assert_int_equal(max[0], PLACES);
	/* Racers may have used two words for a client's first sessions. */
	for (unsigned n = 1; n < CLIENTS; n++)
		assert_in_range(max[n], PLACES, PLACES + THREADS - 1);
	assert_true(refused > 0);
	client_count_release(*state, client_of(0));
	assert_int_equal(held, THREADS * ROUNDS / 1000);
	assert_int_equal(client_count_read(*state, client_of(9)), held);
	assert_int_equal(client_counts_sum(*state), held);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_full_bucket, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_most, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
