// SPDX-License-Identifier: Apache-2.0
/* One thread reads records while another creates and ends sessions in them. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "session_file.h"
#include "session_hot.h"

#define RECORDS   4 /* few, so that they change often */
#define WHOLE     200000
#define CREATIONS 200000

struct place {
	struct session_store *store;
	struct session_table *t;
	uint32_t record[RECORDS];
	bool over;
	uint64_t creations;
};

/* All fields follow from n. */
static struct session session_of(uint32_t n)
{
	return (struct session){.client = {.w = {n, ~n, n * 3, n * 5}},
	                        .client_port = (uint16_t)n,
	                        .local_port = (uint16_t)(n * 7),
	                        .server = n % 1000,
	                        .local = n % 200,
	                        .delta = (uint16_t)(n * 11),
	                        .seen = (uint16_t)(n * 13),
	                        .path = (uint16_t)(n * 17),
	                        .state = SESSION_UDP_ONE_WAY};
}

static bool is_whole(const struct session *s)
{
	struct session want = session_of(s->client.w[0]);
	want.seen = s->seen; /* which any worker may change */
	return memcmp(&want, s, sizeof(want)) == 0;
}

static void *owner_main(void *ctx)
{
	struct place *p = ctx;
	const struct session_cold cold = {0};
	for (uint32_t n = 1; !__atomic_load_n(&p->over, __ATOMIC_RELAXED); n++) {
		uint32_t *record = &p->record[n % RECORDS];
		if (*record != SESSION_NONE)
			session_remove(p->t, *record, n - RECORDS, SESSION_ONE_WAY);
		struct session s = session_of(n);
		*record = session_insert(p->t, &s, &cold, n, SESSION_ONE_WAY);
		if (*record == SESSION_NONE)
			break;
		__atomic_store_n(&p->creations, n, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void test_records_are_whole(void **state)
{
	const struct session_store_options options = {.sessions = 64 * SY_SLOTS, .servers = 1};
	struct place p = {.record = {SESSION_NONE, SESSION_NONE, SESSION_NONE, SESSION_NONE}};
	struct sy_error err;
	pthread_t owner;
	uint64_t whole = 0, torn = 0;

	if (!hot_is_shared())
		skip();
	assert_int_equal(session_store_open(&options, &p.store, &err), 0);
	p.t = session_store_table(p.store, 0);
	assert_int_equal(pthread_create(&owner, NULL, owner_main, &p), 0);
	for (uint32_t n = 0;
	     whole < WHOLE || __atomic_load_n(&p.creations, __ATOMIC_RELAXED) < CREATIONS; n++) {
		struct session *at = session_at(p.t, n % RECORDS), s;
		if (!hot_read(at, &s) || s.state == SESSION_FREE)
			continue;
		whole++;
		torn += !is_whole(&s);
		session_touch(at, s.seen, (uint16_t)n);
	}
	__atomic_store_n(&p.over, true, __ATOMIC_RELAXED);
	pthread_join(owner, NULL);
	session_store_close(p.store);
	assert_int_equal(torn, 0);
}

/* A free record contains no session, although its time was written as it ended. */
static void test_free_records(void **state)
{
	struct session at __attribute__((aligned(32))) = session_of(7), s;
	if (!hot_is_shared())
		skip();
	assert_true(hot_read(&at, &s));
	assert_memory_equal(&at, &s, sizeof(s));
	hot_clear(&at);
	session_touch(&at, at.seen, 5);
	assert_false(hot_read(&at, &s));
	struct session created = session_of(8);
	hot_write(&at, &created);
	assert_true(hot_read(&at, &s));
	assert_memory_equal(&created, &s, sizeof(s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_records_are_whole),
	        cmocka_unit_test(test_free_records),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
