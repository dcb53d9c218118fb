// SPDX-License-Identifier: Apache-2.0
/* Access lists with `existing: end`: a change ends the sessions that the list no longer accepts,
 * and only those. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "access_model.h"
#include "flows.h"

#define ALLOW  STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW
#define DROP   STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP
#define COUNT  STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_COUNT
#define KEEP   STEELYARD__FORWARDER__V1__EXISTING_SESSIONS__EXISTING_SESSIONS_KEEP
#define END    STEELYARD__FORWARDER__V1__EXISTING_SESSIONS__EXISTING_SESSIONS_END
#define TICKET 0x1234
#define TCP    0
#define UDP    1

typedef Steelyard__Forwarder__V1__AccessList pb_list;

/* A client's flow with each service, which one prefix has over IPv4. */
static const char *const prefix = "198.18.0.0";

static void open_all(struct flows *f, struct flow flow[FLOW_SERVICES])
{
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		flow_open(f, &flow[s], s, (uint16_t)(1000 + s));
}

/* A list that drops this prefix. */
static void list_put(struct changes *c, int existing, const char *from, uint32_t length)
{
	pb_list *l = put_access_list(c, "edge", ALLOW);
	l->existing = (Steelyard__Forwarder__V1__ExistingSessions)existing;
	add_access_rule(c, l, COUNT, NULL, 0);
	add_access_rule(c, l, DROP, from, length);
}

static const struct model_list *list_of(struct flows *f)
{
	const struct access_version *v = &f->harness.b->ctl->access->now;
	for (unsigned id = 0; id < ACCESS_LISTS; id++)
		if (v->list[id])
			return v->list[id];
	fail_msg("no list");
	return NULL;
}

static uint64_t ended(struct flows *f)
{
	return access_ended(f->harness.b, list_of(f));
}

/* Both ends of a connection get a probe, and its answer a reset; datagrams just find no session. */
static void check_ended(struct flows *f, const struct flow *flow)
{
	struct session *s = flow_session(f, flow);
	if (flow->client.proto == SY_PROTO_UDP) {
		assert_null(s);
		return;
	}
	assert_non_null(s);
	assert_int_equal(s->state, SESSION_DYING);
	for (unsigned from = 0; from < 2; from++) {
		const unsigned port = from == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN;
		struct sy_tcp own = {0};
		assert_true(flows_originated_segment(f, port, &own)); /* the probe */
		while (flows_originated_segment(f, port, &own))
			;
		assert_true(harness_inject(&f->harness, port, flow->in[from].bytes,
		                           flow->in[from].len));
		harness_poll(&f->harness);
		assert_true(flows_originated_segment(f, port, &own));
		assert_true(own.flags & SY_TCP_RST);
	}
}

static void drain(struct flows *f)
{
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		for (struct rte_mbuf *m; (m = harness_collect(&f->harness, port));)
			rte_pktmbuf_free(m);
}

/* The IPv4 flows have ended, once, and the others go on. */
static void check_v4_ended(struct flows *f, const struct flow flow[FLOW_SERVICES])
{
	flows_advance(f, 2);
	assert_int_equal(ended(f), 2);
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		if (s / 2 == 0)
			check_ended(f, &flow[s]);
	drain(f);
	flows_advance(f, 8);
	drain(f);
	assert_null(flow_session(f, &flow[TCP]));
	for (unsigned s = 2; s < FLOW_SERVICES; s++)
		flow_check(f, &flow[s]);
	assert_int_equal(ended(f), 2);
	flow_check_dropped(f, &flow[UDP], SY_DROP_ACL_DROP);
}

static void check_all_go_on(struct flows *f, const struct flow flow[FLOW_SERVICES])
{
	flows_advance(f, 3);
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		flow_check(f, &flow[s]);
	assert_int_equal(ended(f), 0);
}

/* keep, then end; what the list counts are new sessions only. */
static void a_list_ends(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	struct changes c = {0};
	open_all(f, flow);
	list_put(&c, KEEP, prefix, 24);
	put_global_access(&c, "edge");
	flows_commit(f, &c);
	check_all_go_on(f, flow);
	list_put(&c, END, "198.18.9.0", 24); /* of others */
	flows_commit(f, &c);
	check_all_go_on(f, flow);
	list_put(&c, END, prefix, 24);
	flows_commit(f, &c);
	check_v4_ended(f, flow);
	assert_int_equal(access_matches(f->harness.b, list_of(f), 0), 1); /* its last packet's */
}

/* The lists are evaluated for a new connection under the tuple of a kept session. */
static void a_new_connection_is_asked(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	struct frame in, out;
	struct changes c = {0};
	flow_begin(f, &flow, TCP, 1000);
	list_put(&c, KEEP, prefix, 24);
	put_global_access(&c, "edge");
	flows_commit(f, &c);
	flows_frame(f, &in, &flow.client, SY_TCP_RST | SY_TCP_ACK, 101, 0);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	assert_int_equal(flow_session(f, &flow)->state, SESSION_RESET);
	flows_frame(f, &in, &flow.client, SY_TCP_SYN, 1000, 0);
	assert_false(flows_through(f, HARNESS_WAN, &in, &out));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_ACL_DROP), 1);
	/* A reset may have been no end: the server may still answer. */
	list_put(&c, END, prefix, 24);
	flows_commit(f, &c);
	flows_advance(f, 2);
	assert_int_equal(ended(f), 1);
}

/* The list stays as it is, and a set that it names changes. */
static void a_set_ends(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	struct changes c = {0};
	open_all(f, flow);
	add_access_prefix(&c, put_access_set(&c, "blocked"), "198.18.9.0", 24);
	pb_list *l = put_access_list(&c, "edge", ALLOW);
	l->existing = END;
	add_access_from_set(&c, add_access_rule(&c, l, DROP, NULL, 0), "blocked");
	put_global_access(&c, "edge");
	flows_commit(f, &c);
	check_all_go_on(f, flow);
	add_access_prefix(&c, put_access_set(&c, "blocked"), prefix, 24);
	flows_commit(f, &c);
	check_v4_ended(f, flow);
}

/* Only the sessions of services that have the list. */
static void a_service_gets_it(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	struct changes c = {0};
	open_all(f, flow);
	list_put(&c, END, prefix, 24);
	flows_commit(f, &c);
	check_all_go_on(f, flow);
	put_service(&c, &f->service[UDP], "service", FLOW_RR, NULL)->access_list = "edge";
	flows_commit(f, &c);
	flows_advance(f, 2);
	check_ended(f, &flow[UDP]);
	assert_int_equal(ended(f), 1);
	flow_check(f, &flow[TCP]);
	put_service(&c, &f->service[TCP], "service", FLOW_RR, NULL)->access_list = "edge";
	flows_commit(f, &c);
	check_v4_ended(f, flow);
}

/* The list was changed while no forwarder ran; an upgrade with the same list ends nothing. */
static void a_start_asks_too(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	struct changes c = {0};
	open_all(f, flow);
	list_put(&c, END, "198.18.9.0", 24);
	put_global_access(&c, "edge");
	flows_commit(f, &c);
	flows_reopen(f, 2, TICKET, false);
	check_all_go_on(f, flow);
	harness_stop(&f->harness, 0);
	list_put(&c, END, prefix, 24);
	flows_change_saved(f, &c);
	f->options.ticket = 0;
	flows_open(f);
	check_v4_ended(f, flow);
}

/* A set that has lost its data is empty: a list of allowed clients would end all sessions. */
static void not_without_its_sets(void **state)
{
	static struct access_version v;
	static struct model_set set;
	struct access_list l = {.sets = 1u << 3, .ends = true};
	(void)state;
	v.set[3] = &set;
	assert_true(access_list_may_end(&v, &l));
	set.missing = true;
	assert_false(access_list_may_end(&v, &l));
	l.sets = 1u << 4; /* another one */
	assert_true(access_list_may_end(&v, &l));
	l.ends = false;
	assert_false(access_list_may_end(&v, &l));
}

static void existing_is_keep_or_end(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	list_put(&c, 3, prefix, 24);
	flows_check_refused(f, &c, "existing is keep or end");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, flows_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_list_ends),
	        TEST(a_set_ends),
	        TEST(a_new_connection_is_asked),
	        TEST(a_service_gets_it),
	        TEST(a_start_asks_too),
	        TEST(existing_is_keep_or_end),
	        cmocka_unit_test(not_without_its_sets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
