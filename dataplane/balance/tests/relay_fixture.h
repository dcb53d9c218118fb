// SPDX-License-Identifier: Apache-2.0
/* For tests of an ECMP group: the harness is node 2; the mirror is node 1. */
#ifndef RELAY_FIXTURE_H
#define RELAY_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "away.h"
#include "pair_fixture.h"

#define SELF  2
#define OTHER 1

static inline uint8_t owner_of(const struct flows *f, const struct flow *flow)
{
	const struct sy_balance *b = f->harness.b;
	const struct session *s = flow_session((struct flows *)f, flow);
	const uint8_t slot = sy_slot_of(&flow->client.src, flow->client.sport);
	return *session_mark_at(b, slot, (uint32_t)(s - session_at(b->table[slot], 0))) &
	       SYNC_OWNER;
}

/* Only own sessions count for limits and schedulers; there are `live` in all. */
static inline void check_counts(struct flows *f, uint64_t own, uint64_t live)
{
	uint64_t sum = 0;
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		sum += flows_active(f, s, NULL);
	assert_int_equal(sum, own);
	assert_int_equal(harness_totals(&f->harness).live, live);
}

/* The mirror has FLOWS sessions, and the harness keeps them. */
static inline void keep_sessions(struct flows *f, struct mirror *m, struct flow flow[FLOWS],
                                 unsigned workers)
{
	pair_move(f, m, flow, workers, workers);
	for (unsigned i = 0; i < FLOWS; i++) {
		struct session *s = flow_session(f, &flow[i]);
		assert_non_null(s);
		assert_int_equal(s->state, SESSION_AWAY);
		assert_int_equal(owner_of(f, &flow[i]), OTHER);
		flow[i].server_id = s->server;
	}
	check_counts(f, 0, FLOWS);
}

/* The harness gets this packet and relays it, unchanged. */
static inline void check_relayed(struct flows *f, struct mirror *m, const struct frame *in,
                                 enum session_direction from)
{
	struct frame out;
	const unsigned before = m->relays;
	assert_false(
	        flows_through(f, from == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN, in, &out));
	mirror_run(m, 1);
	assert_int_equal(m->relays, before + 1);
	assert_int_equal(m->packet_len, in->len - SY_ETH_LEN);
	assert_memory_equal(m->packet, in->bytes + SY_ETH_LEN, m->packet_len);
	assert_int_equal(m->relay.ingress, SELF);
	assert_int_equal(m->relay.visited, 1u << SELF);
	assert_false(m->relay.is_back);
}

#endif
