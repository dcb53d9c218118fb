// SPDX-License-Identifier: Apache-2.0
/* Large access sets: their look-ups begin before a burst is located, in parts, and lists may change
 * in between. The lists at the time of the check decide. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../base/tests/test_random.h"
#include "../../forwarder/pipeline.h"
#include "access.h"
#include "address_ranges_table.h"
#include "flows.h"

#define ALLOW  STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW
#define DROP   STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP
#define HOSTS  65536u /* of each family */
#define BURSTS 4u     /* of each change */

enum lists { NO_LISTS, NO_SETS, FEW, EVEN, ODD, TABLES };

struct large {
	struct flows *flows;
	struct address_ranges *ranges[TABLES];
	struct access access[TABLES]; /* as published, but with these ranges */
	uint16_t port;
};

static const char *const client_net[2] = {"198.18.0.0", "2001:db8:c::"};

static struct sy_addr client_of(unsigned family, uint16_t host)
{
	struct sy_addr a = harness_addr(client_net[family]);
	a.h[7] = htons(host);
	return a;
}

static bool is_member(enum lists t, uint16_t host)
{
	switch (t) {
	case FEW:
		return host < 100;
	case EVEN:
	case ODD:
		return (host * 40503u >> 4 & 1) == (t == ODD);
	default:
		return false;
	}
}

static void lists_build(struct large *l, enum lists t)
{
	struct sy_prefix *p = calloc(2 * HOSTS, sizeof(*p));
	struct prefix_list list = {p, 0};
	assert_non_null(p);
	for (unsigned family = 0; family < 2; family++)
		for (uint32_t host = 0; host < HOSTS; host++)
			if (is_member(t, (uint16_t)host))
				p[list.count++] = (struct sy_prefix){
				        client_of(family, (uint16_t)host), family == 0 ? 32 : 128};
	assert_int_equal(address_ranges_build(&list, 1, &l->ranges[t]), 0);
	assert_int_equal(l->ranges[t]->large, t != FEW);
	free(p);
}

/* A stage between others: the control thread publishes something else. */
static struct sy_balance *change_in;
static const struct access *change_to;

static void access_change(struct sy_worker *w, struct sy_burst *burst)
{
	(void)w;
	(void)burst;
	change_in->access = change_to;
}

static const struct access *access_of(struct large *l, enum lists t)
{
	return t == NO_LISTS ? NULL : &l->access[t];
}

/* A burst of all services' first packets, while the lists change from one table to another: how
 * many of them are forwarded, and how many dropped. */
static void check_burst(struct large *l, enum lists from, enum lists to)
{
	struct flows *f = l->flows;
	const uint64_t before = harness_drops(&f->harness, SY_DROP_ACL_DROP);
	unsigned good = 0, sent = 0;
	for (unsigned i = 0; i < SY_BURST; i++) {
		struct frame in;
		const unsigned service = (unsigned)(random_next() % FLOW_SERVICES);
		const uint16_t host = (uint16_t)random_next();
		const struct sy_tuple t = {client_of(service / 2, host), f->service[service].vip,
		                           htons(l->port++), f->service[service].vport,
		                           (uint16_t)f->service[service].proto};
		flows_frame(f, &in, &t, SY_TCP_SYN, 1, 0);
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
		good += !is_member(to, host);
	}
	f->harness.b->access = access_of(l, from);
	change_to = access_of(l, to);
	harness_poll(&f->harness);
	for (struct rte_mbuf *m; (m = harness_collect(&f->harness, HARNESS_LAN)); sent++)
		rte_pktmbuf_free(m);
	assert_int_equal(sent, good);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_ACL_DROP) - before, SY_BURST - good);
}

static void test_changes(void **state)
{
	static struct large l;
	struct flows *f = l.flows = *state;
	struct sy_balance *b = f->harness.b;
	struct changes c = {0};
	struct sy_stage stages[16] = {{0}};
	unsigned n = 0;
	l.port = 1024;
	add_access_prefix(&c, put_access_set(&c, "members"), "203.0.113.1", 32);
	add_access_from_set(&c,
	                    add_access_rule(&c, put_access_list(&c, "edge", ALLOW), DROP, NULL, 0),
	                    "members");
	put_global_access(&c, "edge");
	flows_commit(f, &c);
	const struct access *published = b->access;
	for (enum lists t = NO_SETS; t < TABLES; t++) {
		if (t >= FEW)
			lists_build(&l, t);
		l.access[t] = *published;
		l.access[t].ranges = l.ranges[t];
	}
	const struct sy_stage *as_ever = f->harness.rt->options.pipeline;
	change_in = b;
	for (const struct sy_stage *s = as_ever; s->name; s++) {
		stages[n++] = *s;
		if (s->run == sy_fast_stage)
			stages[n++] = (struct sy_stage){"change", access_change};
	}
	f->harness.rt->options.pipeline = stages;
	for (enum lists from = 0; from < TABLES; from++)
		for (enum lists to = 0; to < TABLES; to++)
			for (unsigned k = 0; k < BURSTS; k++)
				check_burst(&l, from, to);
	f->harness.rt->options.pipeline = as_ever;
	b->access = published;
	for (enum lists t = FEW; t < TABLES; t++)
		address_ranges_free(l.ranges[t]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_changes, flows_setup, flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
