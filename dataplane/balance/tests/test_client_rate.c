// SPDX-License-Identifier: Apache-2.0
/* The table of clients' rates: exact counts, also by several threads; time; full buckets. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client_rate.h"

#define SECOND UINT64_C(1000000)
#define DAY    (86400 * SECOND)

/* Clients of one bucket, with different tags. */
static uint64_t client_of(uint64_t n)
{
	return (n + 1) << 40 | 77;
}

static int setup(void **state)
{
	*state = client_rates_create();
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	client_rates_destroy(*state);
	return 0;
}

/* How many sessions the client may begin at once. */
static unsigned spend(struct client_rates *r, uint64_t client, uint64_t now, uint32_t per_second,
                      uint32_t burst)
{
	unsigned taken = 0;
	while (taken < 1000000 && client_rate_charge(r, client, now, per_second, burst))
		taken++;
	return taken;
}

static void tick_all(struct client_rates *r, uint64_t now)
{
	for (unsigned n = 0; n < 65536 / 64; n++)
		client_rates_tick(r, now);
}

static void test_rate(void **state)
{
	struct client_rates *r = *state;
	for (uint64_t now = 1; now < 400 * DAY; now += 100 * DAY) { /* times wrap after 12 days */
		uint64_t client = client_of(1), other = client_of(2);
		assert_int_equal(spend(r, client, now, 20, 40), 40);
		assert_int_equal(spend(r, client, now + SECOND / 20 - 1, 20, 40), 0);
		assert_int_equal(spend(r, client, now + SECOND / 20, 20, 40), 1);
		assert_int_equal(spend(r, client, now + SECOND, 20, 40), 19);
		assert_int_equal(spend(r, client, now + 61 * SECOND, 20, 40), 40);
		assert_int_equal(spend(r, other, now + SECOND, 10000, 1), 1);
		assert_int_equal(spend(r, other, now + SECOND + 100, 10000, 1), 1);
		tick_all(r, now + DAY);
	}
	assert_int_equal(spend(r, client_of(3), 5, 1, CLIENT_BURST_MAX), CLIENT_BURST_MAX);
	/* a change of the limits takes effect at once */
	assert_int_equal(spend(r, client_of(3), 6, 1, 10), 0);
	assert_int_equal(spend(r, client_of(3), 6 + 4 * SECOND, 1, 10), 4);
}

/* With no place left, a client is not counted; places are free when their time is over. */
static void test_full_bucket(void **state)
{
	struct client_rates *r = *state;
	for (unsigned n = 0; n < 8; n++)
		assert_int_equal(spend(r, client_of(n), 1, 1, 2), 2);
	for (unsigned n = 0; n < 100; n++)
		assert_true(client_rate_charge(r, client_of(8), 1, 1, 2));
	for (unsigned n = 0; n < 8; n++)
		assert_int_equal(spend(r, client_of(n), 1, 1, 2), 0);
	assert_int_equal(spend(r, client_of(8), 1 + 2 * SECOND, 1, 2), 2);
	tick_all(r, 1 + 2 * SECOND);
	assert_int_equal(spend(r, client_of(8), 1 + 2 * SECOND, 1, 2), 0);
	assert_int_equal(spend(r, client_of(0), 1 + 2 * SECOND, 1, 2), 2);
}

struct racer {
	struct client_rates *r;
	unsigned taken;
};

static void *race(void *ctx)
{
	struct racer *racer = ctx;
	for (unsigned n = 0; n < 20000; n++)
		racer->taken += client_rate_charge(racer->r, client_of(0), SECOND, 1, 1000);
	return NULL;
}

/* Workers share a limit. A client's first sessions may use two words, or a worker gives up a
 * race. */
static void test_threads(void **state)
{
	struct racer racer[2] = {{*state, 0}, {*state, 0}};
	pthread_t thread[2];
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, race, &racer[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	assert_in_range(racer[0].taken + racer[1].taken, 1000, 1010);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_rate, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_full_bucket, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
