// SPDX-License-Identifier: Apache-2.0
/* The candidate from the lookup is not always the packet's session: clients whose packets have the
 * tag of another session's entry. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

/* A client whose packet matches this entry's tag in the bucket that it looks at first. */
static struct sy_tuple stranger_of(const struct flows *f, const struct flow *flow, uint64_t hash)
{
	const struct sy_balance *b = f->harness.b;
	uint8_t slot = sy_slot_of(&flow->client.src, flow->client.sport);
	const struct session_table *t = inspect_table(b, slot);
	struct sy_tuple s = flow->client;
	for (uint32_t n = 2;; n++) {
		s.src.w[3] = htonl(ntohl(flow->client.src.w[3]) + n);
		for (unsigned k = 0; k < SY_SLOT_PORTS; k++) {
			s.sport = sy_slot_port(slot, &s.src, k);
			uint64_t own = sy_hash_tuple(inspect_key(b), &s);
			if (session_tag(own) == session_tag(hash) &&
			    session_bucket_of(t->index, own) == session_bucket_of(t->index, hash))
				return s;
		}
	}
}

/* The client gets a session of its own, whichever direction of the other session the tag matched,
 * and the other session's packets are still right. */
static void check_stranger(struct flows *f, unsigned service, enum session_direction side)
{
	struct flow flow;
	struct frame in, out;
	flow_open(f, &flow, service, (uint16_t)(30000 + side));
	const struct sy_tuple *held = side == SESSION_CLIENT ? &flow.client : &flow.server;
	struct sy_tuple s = stranger_of(f, &flow, sy_hash_tuple(inspect_key(f->harness.b), held));
	assert_null(flows_find(f, &s));
	flows_frame(f, &in, &s, SY_TCP_SYN, 1, 0);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	assert_non_null(flows_find(f, &s));
	assert_ptr_not_equal(flows_find(f, &s), flow_session(f, &flow));
	flow_check(f, &flow);
	flows_frame(f, &in, &s, SY_TCP_ACK, 2, 50);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
}

static void test_stranger_with_a_tag(void **state)
{
	for (unsigned service = 0; service < FLOW_SERVICES; service++)
		for (unsigned side = 0; side < 2; side++)
			check_stranger(*state, service, (enum session_direction)side);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_stranger_with_a_tag, flows_setup,
	                                        flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
