// SPDX-License-Identifier: Apache-2.0
/* Clients return the SYN cookies of a node that has died: the other one opens their connections. */
#include "defence_fixture.h"
#include "pair_fixture.h"

#define KINDS 5 /* of defence_fixture.h: FNAT of all families, NAT */

#define AUTOMATIC STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_AUTO

static void become(struct flows *f, uint8_t node, int defence)
{
	struct changes c = {0};
	pair_become(f, node, 1, BACKUP);
	for (unsigned i = 0; i < KINDS; i++) {
		put_kind(&c, &kinds[i], defence);
		put_kind_server(&c, &kinds[i]);
	}
	flows_commit(f, &c);
}

static void syns_answer(struct flows *f, struct talk talk[KINDS])
{
	become(f, 1, DEFENDED);
	peers_set_role(f->harness.b, MASTER, true);
	for (unsigned i = 0; i < KINDS; i++)
		talk_syn(f, &talk[i], &kinds[i], (uint16_t)(2000 + i));
}

/* The other host booted at another time, so its clock differs; its session file has other keys. */
static void test_the_survivor_opens_them(void **state)
{
	struct flows *f = *state;
	struct talk talk[KINDS];
	syns_answer(f, talk);
	flows_pass(f, 5000);
	become(f, 2, DEFENDED);
	peers_set_role(f->harness.b, MASTER, true);
	for (unsigned i = 0; i < KINDS; i++) {
		talk_ack(&talk[i], i % 2 ? 100 : 0);
		talk_splice(&talk[i], 7);
		ignore_sent(&talk[i]);
		check_data(&talk[i], 0);
	}
}

static void test_another_cookie_opens_nothing(void **state)
{
	struct flows *f = *state;
	struct talk talk[KINDS];
	syns_answer(f, talk);
	become(f, 2, DEFENDED);
	peers_set_role(f->harness.b, MASTER, true);
	talk[0].cookie ^= 0x100;
	from_client(&talk[0], ACK, C_NUMBER + 1, talk[0].cookie + 1, 0);
	assert_int_equal(state_of(&talk[0]), SESSION_FREE);
}

/* A secret is changed in three steps: in each of them both nodes accept the other one's cookies. */
static void test_secrets_change(void **state)
{
	static const struct sy_peers_secret old = {.id = 1, .len = SYNC_SECRET, .bytes = "old"},
	                                    new = {.id = 2, .len = SYNC_SECRET, .bytes = "new"};
	static const struct {
		struct sy_peers_secret made[2], accepted[2];
		bool fits;
	} steps[] = {
	        {{old}, {old, new}, true},      {{old, new}, {old}, true},
	        {{old, new}, {new, old}, true}, {{new, old}, {old, new}, true},
	        {{new, old}, {new}, true},      {{new}, {new, old}, true},
	        {{old}, {new}, false},
	};
	struct flows *f = *state;
	struct talk talk[KINDS];
	const struct sy_peers_secret usual = pair_secret[0];
	for (unsigned i = 0; i < SY_ARRAY_LEN(steps); i++) {
		memcpy(pair_secret, steps[i].made, sizeof(pair_secret));
		syns_answer(f, talk);
		memcpy(pair_secret, steps[i].accepted, sizeof(pair_secret));
		become(f, 2, DEFENDED);
		peers_set_role(f->harness.b, MASTER, true);
		if (steps[i].fits) {
			talk_ack(&talk[0], 0);
			continue;
		}
		from_client(&talk[0], ACK, C_NUMBER + 1, talk[0].cookie + 1, 0);
		assert_int_equal(state_of(&talk[0]), SESSION_FREE);
	}
	memset(pair_secret, 0, sizeof(pair_secret));
	pair_secret[0] = usual;
}

/* The flood was at the dead node alone: the survivor's defence is off. */
static void test_the_survivor_has_sent_no_cookie(void **state)
{
	struct flows *f = *state;
	struct talk talk[KINDS];
	syns_answer(f, talk);
	become(f, 2, AUTOMATIC);
	flows_advance(f, 300);
	peers_set_role(f->harness.b, MASTER, true);
	flows_advance(f, 60);
	talk_ack(&talk[0], 0);
	flows_advance(f, 300);
	from_client(&talk[1], ACK, C_NUMBER + 1, talk[1].cookie + 1, 0);
	assert_int_equal(state_of(&talk[1]), SESSION_FREE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, flows_setup, pair_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(the_survivor_opens_them),
	        TEST(another_cookie_opens_nothing),
	        TEST(secrets_change),
	        TEST(the_survivor_has_sent_no_cookie),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
