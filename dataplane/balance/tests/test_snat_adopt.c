// SPDX-License-Identifier: Apache-2.0
/* What a crash may leave of SNAT's pairs of records: torn, orphaned, beside records of other
 * kinds. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"
#include "session_file.h"

static const char *const inside_text[2] = {"10.3.0.1", "2001:db8:d::1"};
static const char *const network_text[2] = {"10.3.0.0", "2001:db8:d::"};
static const char *const remote_text[2] = {"198.18.0.9", "2001:db8:c::9"};
static const char *const pool_text[2] = {"192.0.2.50", "2001:db8:a::50"};

static int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	put_snat(&c, "out4", network_text[0], 24, &pool_text[0], 1);
	put_snat(&c, "out6", network_text[1], 64, &pool_text[1], 1);
	flows_commit(*state, &c);
	return rc;
}

/* A datagram from an inside host, and the answer: as they arrive, and as they leave. */
struct talk {
	struct flow flow;
	struct frame in[2], out[2];
};

static void talk_open(struct flows *f, struct talk *k, unsigned v6, uint16_t port)
{
	struct sy_view v;
	k->flow.client =
	        (struct sy_tuple){harness_addr(inside_text[v6]), harness_addr(remote_text[v6]),
	                          htons(port), htons(53), SY_PROTO_UDP};
	frame_udp(&k->in[0], &f->rng, &k->flow.client, 50);
	assert_true(flows_through(f, HARNESS_LAN, &k->in[0], &k->out[0]));
	assert_int_equal(sy_packet_parse(k->out[0].bytes, k->out[0].len, &v), SY_DROP_NONE);
	const struct sy_tuple back = {v.tuple.dst, v.tuple.src, v.tuple.dport, v.tuple.sport,
	                              SY_PROTO_UDP};
	frame_udp(&k->in[1], &f->rng, &back, 50);
	assert_true(flows_through(f, HARNESS_WAN, &k->in[1], &k->out[1]));
}

/* Checks that both packets are translated as before. */
static void talk_check(struct flows *f, const struct talk *k)
{
	for (unsigned side = 0; side < 2; side++) {
		struct frame out;
		assert_true(flows_through(f, side ? HARNESS_WAN : HARNESS_LAN, &k->in[side], &out));
		assert_int_equal(out.len, k->out[side].len);
		assert_memory_equal(out.bytes, k->out[side].bytes, out.len);
	}
}

/* Checks that the answer finds no session. */
static void talk_check_ended(struct flows *f, const struct talk *k)
{
	struct frame out;
	assert_null(flow_session(f, &k->flow));
	assert_false(flows_through(f, HARNESS_WAN, &k->in[1], &out));
}

static struct session_table *table_of(struct flows *f, const struct flow *flow)
{
	return inspect_table(f->harness.b, sy_slot_of(&flow->client.src, flow->client.sport));
}

static uint32_t record_of(struct flows *f, const struct flow *flow)
{
	return (uint32_t)(flow_session(f, flow) - session_at(table_of(f, flow), 0));
}

enum damage {
	NONE,
	PAIR_CHANGED,     /* contradicts its commit word */
	PAIR_UNCOMMITTED, /* an insertion interrupted here */
	PAIR_GONE,
	PAIR_OF_ANOTHER, /* whole, but of another session */
	SESSION_UNCOMMITTED,
	SESSION_GONE,  /* a removal interrupted here */
	SESSION_MOVED, /* a whole session in the pair record's place */
	DAMAGES
};

/* How many of the pair's records count as torn. */
static const unsigned torn[DAMAGES] = {
        [PAIR_CHANGED] = 1,    [PAIR_UNCOMMITTED] = 1,    [PAIR_GONE] = 1,
        [PAIR_OF_ANOTHER] = 1, [SESSION_UNCOMMITTED] = 1, [SESSION_MOVED] = 2};

static void damage(struct flows *f, const struct talk *k, const struct talk *other, enum damage how)
{
	struct session_table *t = table_of(f, &k->flow), *u = table_of(f, &other->flow);
	uint32_t r = record_of(f, &k->flow), o = record_of(f, &other->flow);
	static const struct session nothing = {.state = SESSION_FREE};
	assert_true(session_is_pair(t, r) && session_is_pair(u, o));
	switch (how) {
	case PAIR_CHANGED:
		t->index->hot[r + 1].client_port ^= 1;
		break;
	case PAIR_UNCOMMITTED:
		t->cold[r + 1].commit = 0;
		break;
	case PAIR_GONE:
		t->cold[r + 1].commit = 0;
		t->index->hot[r + 1] = nothing;
		break;
	case PAIR_OF_ANOTHER:
		t->index->hot[r + 1] = u->index->hot[o + 1];
		t->cold[r + 1] = u->cold[o + 1];
		break;
	case SESSION_UNCOMMITTED:
		t->cold[r].commit = 0;
		break;
	case SESSION_GONE:
		t->cold[r].commit = 0;
		t->index->hot[r] = nothing;
		break;
	case SESSION_MOVED: /* it has no pair record after it */
		t->index->hot[r + 1] = t->index->hot[r];
		t->cold[r + 1] = t->cold[r];
		break;
	default:
		break;
	}
}

/* Only whole pairs are left. */
static void check_tables(struct flows *f, uint64_t live)
{
	uint64_t sessions = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = inspect_table(f->harness.b, slot);
		uint32_t used = 0, free = 0;
		for (uint32_t r = 0; r < t->top; r++) {
			bool pair_record = t->index->hot[r].state == SESSION_PAIR_RECORD;
			if (pair_record)
				assert_true(r % 2 == 1 && session_is_pair(t, r - 1) &&
				            t->index->hot[r - 1].state != SESSION_FREE &&
				            t->index->hot[r].delta ==
				                    session_check(&t->index->hot[r - 1]));
			used += t->index->hot[r].state != SESSION_FREE;
			sessions += t->index->hot[r].state != SESSION_FREE && !pair_record;
		}
		for (uint32_t r = t->free_head; r != SESSION_NONE; r = t->cold[r].free_next)
			free++;
		assert_int_equal(used + free, t->top);
	}
	assert_int_equal(sessions, live);
	assert_int_equal(harness_totals(&f->harness).live, live);
}

/* In place and into larger tables, with one worker and with two. */
static void test_damaged_pairs(void **state)
{
	struct flows *f = *state;
	for (unsigned cycle = 0; cycle < 4; cycle++) {
		struct talk k[2][2 * DAMAGES];
		uint64_t ends = 0;
		for (unsigned n = 0; n < 2 * 2 * DAMAGES; n++)
			talk_open(f, &k[n % 2][n / 2], n % 2, (uint16_t)(3000 + 100 * cycle + n));
		for (unsigned n = 0; n < DAMAGES; n++)
			for (unsigned v6 = 0; v6 < 2; v6++) {
				damage(f, &k[v6][n], &k[v6][DAMAGES + n], (enum damage)n);
				ends += torn[n];
			}
		f->options.sessions *= 1 + cycle / 2;
		flows_reopen(f, 1 + cycle % 2, 0, true);
		assert_int_equal(flows_result(f, SESSION_TORN), ends);
		assert_int_equal(flows_result(f, SESSION_KEPT), 2 * (DAMAGES + 1));
		check_tables(f, 2 * (DAMAGES + 1));
		for (unsigned n = 0; n < 2 * 2 * DAMAGES; n++) {
			const struct talk *one = &k[n % 2][n / 2];
			if (n / 2 == NONE || n / 2 >= DAMAGES)
				talk_check(f, one);
			else
				talk_check_ended(f, one);
		}
		flows_advance(f, 1000);
		check_tables(f, 0);
	}
}

/* An FNAT session in the first record of a former pair, followed by the pair record: that one
 * belonged to another session. */
static void test_a_session_before_an_orphan(void **state)
{
	struct flows *f = *state;
	for (unsigned cycle = 0; cycle < 2; cycle++) {
		struct talk k;
		struct flow flow = {.client = {.src = harness_addr("198.18.0.1")}};
		uint16_t port = 1000;
		talk_open(f, &k, 0, (uint16_t)(3000 + cycle));
		struct session_table *t = table_of(f, &k.flow);
		do
			flow.client.sport = htons(++port);
		while (table_of(f, &flow) != t);
		flow_open(f, &flow, 0, port);
		assert_ptr_equal(table_of(f, &flow), t);
		uint32_t r = record_of(f, &k.flow), single = record_of(f, &flow);
		t->index->hot[r] = t->index->hot[single];
		t->cold[r] = t->cold[single];
		t->cold[single].commit = 0;
		t->index->hot[single] = (struct session){.state = SESSION_FREE};
		f->options.sessions *= 1 + cycle;
		flows_reopen(f, 1 + cycle, 0, true);
		assert_int_equal(flows_result(f, SESSION_KEPT), 1);
		assert_int_equal(flows_result(f, SESSION_TORN), 0);
		check_tables(f, 1);
		flow_check(f, &flow);
		talk_check_ended(f, &k);
		flows_advance(f, 1000);
		check_tables(f, 0);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {TEST(damaged_pairs), TEST(a_session_before_an_orphan)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
