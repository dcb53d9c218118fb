// SPDX-License-Identifier: Apache-2.0
/* An attacker who knows the tuple of a connection and sees what the balancer answers to it, and so
 * halves the window in which he looks for its number. No answer may tell him in which half it is:
 * challenges (RFC 5961) are the same for every number. */
#include "defence_fixture.h"

#define KINDS 6
#define BITS  32

/* What leaves the balancer for one forged segment: the segment that goes on, and answers. */
struct seen {
	unsigned back, on; /* frames to the client, and to the server */
};

static struct seen forge(struct talk *k, uint8_t flags, uint32_t seq)
{
	struct seen seen = {0};
	struct got g;
	from_client(k, flags, seq, k->cookie + 1, 0);
	while (collect(k, HARNESS_WAN, &g))
		seen.back++;
	while (collect(k, HARNESS_LAN, &g))
		seen.on++;
	return seen;
}

/* The client, who knows of nothing, talks on: this takes back what a forged segment has begun. */
static void go_on(struct talk *k)
{
	check_data(k, 0);
	const enum session_state state = state_of(k);
	assert_true(state == SESSION_ESTABLISHED || state == SESSION_FIN_WAIT);
}

static void halve(struct talk *k, uint8_t flags)
{
	uint32_t low = 0;
	for (unsigned bit = BITS - 1; bit > 0; bit--) {
		const uint32_t half = UINT32_C(1) << bit, middle = low + half / 2;
		const struct seen one = forge(k, flags, middle);
		go_on(k);
		const struct seen other = forge(k, flags, middle + half);
		go_on(k);
		/* Neither half tells him anything, though the number is in one of them. */
		assert_int_equal(one.back, other.back);
		assert_int_equal(one.on, other.on);
		low += one.back >= other.back ? 0 : half;
	}
	/* Nor would the exact number, or the numbers beside it. */
	const struct seen exact = forge(k, flags, C_NUMBER + 1);
	go_on(k);
	for (int32_t off = -2; off <= 2; off++) {
		const struct seen near = forge(k, flags, C_NUMBER + 1 + (uint32_t)off);
		go_on(k);
		assert_int_equal(near.back, exact.back);
		assert_int_equal(near.on, exact.on);
	}
}

static void test_halving(void **state)
{
	static const uint8_t flags[] = {RST, RST | ACK, SYN, ACK};
	struct flows *f = *state;
	for (unsigned i = 0; i < KINDS; i++) {
		for (unsigned n = 0; n < SY_ARRAY_LEN(flags); n++) {
			struct talk k;
			talk_open(f, &k, &kinds[i], (uint16_t)(3000 + 10 * i + n));
			halve(&k, flags[n]);
			assert_int_equal(state_of(&k), SESSION_ESTABLISHED);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_halving, setup, flows_teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
