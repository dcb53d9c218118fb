// SPDX-License-Identifier: Apache-2.0
/* Limits on spliced sessions, of services under SYN defence: originated packets are not charged,
 * queued ones are charged when they are forwarded. */
#include "defence_fixture.h"
#include "limit_fixture.h"

static void test_spliced(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	put_limit(&c, "packets", PACKETS, 1, 1000);
	put_limit(&c, "sessions", SESSIONS, 1, 1000);
	flows_commit(f, &c);
	for (unsigned i = 0; i < SY_ARRAY_LEN(kinds); i++) {
		const uint64_t before = limit_show(f, "packets").passed;
		struct talk k;
		struct got g;
		talk_syn(f, &k, &kinds[i], 4000);
		assert_int_equal(limit_show(f, "packets").passed, before);
		assert_int_equal(limit_show(f, "sessions").passed, i);
		talk_ack(&k, 10); /* the server's SYN leaves in its place; the data waits */
		assert_int_equal(limit_show(f, "packets").passed, before + 1);
		assert_int_equal(limit_show(f, "sessions").passed, i + 1);
		talk_splice(&k, 7);
		while (collect(&k, HARNESS_LAN, &g)) /* the data */
			;
		assert_int_equal(limit_show(f, "packets").passed, before + 2);
		from_server(&k, ACK, S_NUMBER + 1, C_NUMBER + 11, 0, 200);
		ignore_sent(&k);
		assert_int_equal(limit_show(f, "packets").passed, before + 3);
	}
	assert_int_equal(limit_show(f, "packets").above, 0);
}

/* A flood of SYNs that are answered by cookies is not charged to its victim. */
static void test_flood(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct talk k;
	put_limit(&c, "sessions", SESSIONS, 1, 2);
	flows_commit(f, &c);
	for (uint16_t port = 1000; port < 1100; port++)
		talk_syn(f, &k, &kinds[0], port);
	assert_int_equal(limit_show(f, "sessions").left, 2);
	for (unsigned n = 0; n < 3; n++) {
		talk_syn(f, &k, &kinds[0], (uint16_t)(4000 + n));
		if (n < 2)
			talk_ack(&k, 0);
	}
	from_client(&k, ACK, C_NUMBER + 1, k.cookie + 1, 0);
	assert_int_equal(state_of(&k), SESSION_FREE);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SESSION_RATE), 1);
}

static int splice_setup(void **state)
{
	int rc = setup(state);
	flows_advance(*state, 1);
	return rc;
}

static int splice_setup_queued(void **state)
{
	int rc = setup(state);
	limits_queue(*state);
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_spliced, splice_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_flood, splice_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_spliced, splice_setup_queued,
	                                        limits_teardown_queued),
	        cmocka_unit_test_setup_teardown(test_flood, splice_setup_queued,
	                                        limits_teardown_queued),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
