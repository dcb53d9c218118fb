// SPDX-License-Identifier: Apache-2.0
/* Limits whose packets go through an event device, by the forwarder's pipeline: what each model of
 * its queue promises, and exact limits. */
#include "queued_fixture.h"
#include "service_dropped.h"

/* ---- models ---------------------------------------------------------------------------------- */

/* Each model passes all packets, each once; all but unordered keep the order of flows. */
static void check_model(struct flows *f, const struct device *d, struct output *out)
{
	struct flow flow[FLOWS];
	const bool alone = !d->model || strcmp(d->model, "direct") == 0;
	restart_with(f, d, 0);
	limit_put_engine(f, 0, "a", PLENTY, ATOMIC);
	assert_string_equal(limit_show(f, "a").engine, alone ? "atomic" : "cas");
	flows_begin(f, flow, 0);
	const unsigned before = buffers_free(f);
	const uint64_t passed = limit_show(f, "a").passed;
	memset(out, 0, sizeof(*out));
	for (unsigned n = 0; n < EACH; n++)
		for (unsigned i = 0; i < FLOWS; i++)
			packet_put(f, &flow[i], n);
	harness_poll(&f->harness);
	output_drain(f, out);
	assert_int_equal(in_device(f), 0);
	assert_int_equal(out->count, FLOWS * EACH);
	assert_int_equal(out->flows, FLOWS);
	assert_int_equal(limit_show(f, "a").passed - passed, FLOWS * EACH);
	assert_int_equal(buffers_free(f), before);
}

static void test_atomic(void **state)
{
	static const struct device devices[] = {{"event_dsw", NULL}, {"event_sw", NULL}};
	static struct output out;
	for (unsigned i = 0; i < SY_ARRAY_LEN(devices); i++) {
		check_model(*state, &devices[i], &out);
		assert_int_equal(out.misplaced, 0);
	}
}

static void test_direct(void **state)
{
	static const struct device devices[] = {{"event_dsw", "direct"}, {"event_sw", "direct"}};
	static struct output out;
	for (unsigned i = 0; i < SY_ARRAY_LEN(devices); i++) {
		check_model(*state, &devices[i], &out);
		assert_int_equal(out.misplaced, 0);
		assert_int_equal(passed_by(*state, "a", 0), limit_show(*state, "a").passed);
	}
}

/* One flow is handled by several workers at once, and leaves in its order all the same. */
static void one_flow(struct flows *f, const char *model, struct output *out)
{
	const struct device d = {"event_sw", model};
	struct flow flow;
	restart_with(f, &d, 0);
	limit_put_engine(f, 0, "a", PLENTY, ATOMIC);
	flow_open(f, &flow, 0, 4000);
	memset(out, 0, sizeof(*out));
	for (unsigned n = 0; n < EACH * FLOWS; n++)
		packet_put(f, &flow, n);
	harness_poll(&f->harness);
	output_drain(f, out);
	assert_int_equal(out->count, EACH * FLOWS);
	assert_true(workers_used(f, "a") > 1);
}

static void test_ordered(void **state)
{
	static const struct device sw = {"event_sw", "ordered"};
	static struct output out;
	check_model(*state, &sw, &out);
	assert_int_equal(out.misplaced, 0);
	one_flow(*state, "ordered", &out);
	assert_int_equal(out.misplaced, 0);
}

static void test_unordered(void **state)
{
	static const struct device devices[] = {{"event_dsw", "unordered"},
	                                        {"event_sw", "unordered"}};
	static struct output out;
	for (unsigned i = 0; i < SY_ARRAY_LEN(devices); i++)
		check_model(*state, &devices[i], &out);
	one_flow(*state, "unordered", &out);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Both directions, several workers: exactly the burst passes, in each engine that shares it. */
static void test_exact(void **state)
{
	static const struct device devices[] = {{"event_dsw", NULL},        {"event_sw", NULL},
	                                        {"event_sw", "ordered"},    {"event_sw", "direct"},
	                                        {"event_dsw", "unordered"}, {NULL, NULL}};
	enum { BURST_ALL = 100 };
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned d = 0; d < SY_ARRAY_LEN(devices); d++) {
		struct changes c = {0};
		restart_with(f, &devices[d], 0);
		flows_begin(f, flow, 1);
		limit_put_engine(f, 1, "a", BURST_ALL, ATOMIC);
		unsigned through = 0;
		for (unsigned i = 0; i < FLOWS; i++)
			through += flow_send(f, &flow[i], i % 2 ? SESSION_SERVER : SESSION_CLIENT,
			                     EACH);
		assert_int_equal(through, BURST_ALL);
		const struct shown shown = limit_show(f, "a");
		assert_int_equal(shown.passed, BURST_ALL);
		assert_int_equal(shown.above, FLOWS * EACH - BURST_ALL);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_LIMIT_EXCEEDED), shown.above);
		assert_int_equal(service_dropped(f, 1, SY_DROP_LIMIT_EXCEEDED), shown.above);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_EVENT_FULL), 0);
		/* another rate keeps the credit; the next second adds 40 */
		limit_put_engine(f, 1, "a", BURST_ALL, ATOMIC);
		pb_limit *l = put_limit(&c, "a", PACKETS, 40, BURST_ALL);
		l->engine = ATOMIC;
		add_limit_service(&c, l, &f->service[1]);
		flows_commit(f, &c);
		flows_advance(f, 1);
		assert_int_equal(flow_send(f, &flow[0], SESSION_CLIENT, EACH), EACH);
		assert_int_equal(flow_send(f, &flow[1], SESSION_CLIENT, EACH), 40 - EACH);
		delete_limit(&c, "a");
		flows_commit(f, &c);
		assert_int_equal(flow_send(f, &flow[0], SESSION_CLIENT, EACH), EACH);
	}
}

/* A burst that arrives at once exceeds the bucket's credit at first sight: the consumer refuses the
 * rest. */
static void test_refused_behind(void **state)
{
	static const struct device dsw = {"event_dsw", NULL};
	static struct output out;
	struct flows *f = *state;
	struct flow flow;
	restart_with(f, &dsw, 0);
	flow_open(f, &flow, 0, 4000);
	limit_put_engine(f, 0, "a", 30, ATOMIC);
	const unsigned before = buffers_free(f);
	memset(&out, 0, sizeof(out));
	for (unsigned n = 0; n < 60; n++) /* one burst */
		packet_put(f, &flow, n);
	harness_poll(&f->harness);
	output_drain(f, &out);
	assert_int_equal(out.count, 30);
	assert_int_equal(out.last[0], 29);
	assert_int_equal(limit_show(f, "a").above, 30);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_LIMIT_EXCEEDED), 30);
	assert_int_equal(service_dropped(f, 0, SY_DROP_LIMIT_EXCEEDED), 30);
	assert_int_equal(buffers_free(f), before);
}

static void expect_engine(struct flows *f, const char *name, const char *engine, const char *why)
{
	pb_response *r = limits_list(f, name, 0, 0, 0);
	assert_null(r->error);
	const pb_stats *s = r->list_limits->limits[0];
	assert_string_equal(s->engine, engine);
	if (!strstr(s->why, why))
		fail_msg("%s: \"%s\" does not say \"%s\"", name, s->why, why);
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
}

/* A limit whose packets all have a wider one shares its flow; otherwise workers share a bucket. */
static void test_nested(void **state)
{
	static const struct device dsw = {"event_dsw", NULL};
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow[3];
	pb_limit *l;
	restart_with(f, &dsw, 0);
	limit_put_engine(f, 1, "inner", PLENTY, ATOMIC);
	expect_engine(f, "inner", "atomic", "one worker at a time");
	l = put_limit(&c, "wide", PACKETS, 1, PLENTY);
	l->engine = ATOMIC;
	add_limit_service(&c, l, &f->service[0]);
	add_limit_service(&c, l, &f->service[1]);
	flows_commit(f, &c);
	expect_engine(f, "inner", "atomic", "one worker at a time");
	expect_engine(f, "wide", "atomic", "one worker at a time");
	l = put_limit(&c, "across", PACKETS, 1, 50);
	l->engine = ATOMIC;
	add_limit_server(&c, l, &f->service[1], &f->server[1][0], 5353);
	add_limit_service(&c, l, &f->service[3]);
	flows_commit(f, &c);
	expect_engine(f, "wide", "atomic", "one worker at a time");
	expect_engine(f, "across", "cas", "not all of them lie");
	for (unsigned i = 0; i < 3; i++)
		flow_open(f, &flow[i], i == 2 ? 3 : 1, (uint16_t)(4000 + i));
	/* Two limits or three: all packets pass or none does. */
	const uint64_t inner = limit_show(f, "inner").passed, wide = limit_show(f, "wide").passed;
	uint64_t across = limit_show(f, "across").passed;
	unsigned through = 0;
	for (unsigned i = 0; i < 2; i++)
		through += flow_send(f, &flow[i], SESSION_CLIENT, 60);
	assert_int_equal(limit_show(f, "across").passed, 50);
	assert_int_equal(through, 60 + 50 - across);
	assert_int_equal(limit_show(f, "inner").passed - inner, through);
	assert_int_equal(limit_show(f, "wide").passed - wide, through);
	delete_limit(&c, "wide");
	delete_limit(&c, "inner");
	flows_commit(f, &c);
	expect_engine(f, "across", "atomic", "one worker at a time");
	assert_int_equal(limit_show(f, "across").passed, 50);
}

/* Packets that do not use the device, and the reason shown. */
static void test_not_queued(void **state)
{
	static const struct device dsw = {"event_dsw", NULL};
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	pb_limit *l;
	restart_with(f, &dsw, 0);
	(l = put_limit(&c, "begun", SESSIONS, 1, 3))->engine = ATOMIC;
	(l = put_limit(&c, "marked", PACKETS, 1, 3))->engine = ATOMIC;
	l->action = MARK;
	l->dscp = 8;
	(l = put_limit(&c, "clients", PACKETS, 1, 100))->engine = ATOMIC;
	set_limit_clients(&c, l, 16);
	flows_commit(f, &c);
	assert_null(f->harness.b->stage);
	expect_engine(f, "begun", "cas", "a session begins");
	expect_engine(f, "marked", "cas", "is marked before");
	expect_engine(f, "clients", "cas", "other engines are not possible");
	/* Together with one that does, each counts what it counted. */
	limit_put_engine(f, 0, "queued", 20, ATOMIC);
	assert_non_null(f->harness.b->stage);
	flow_open(f, &flow, 0, 4000);
	assert_int_equal(limit_show(f, "begun").passed, 1);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 50), 16);
	assert_int_equal(limit_show(f, "queued").passed, 20);
	assert_int_equal(limit_show(f, "clients").passed, 20);
	assert_int_equal(limit_show(f, "marked").passed, 3);
	assert_int_equal(limit_show(f, "marked").above, 17);
}

/* A worker that forwards another's session has read that its packets do not use the device, and
 * then finds a chain that does: the owner gets the packet. */
static void test_begins_to_queue(void **state)
{
	enum { OWNER = 1 };
	static const struct device dsw = {"event_dsw", NULL};
	static struct output out;
	const struct sy_addr client = harness_addr("198.18.0.1");
	struct flows *f = *state;
	struct flow flow;
	uint16_t port = 4000;
	restart_with(f, &dsw, 0);
	while (sy_slot_worker(f->harness.rt, sy_slot_of(&client, htons(port))) != OWNER)
		port++;
	flow_open(f, &flow, 0, port);
	limit_put_engine(f, 0, "a", PLENTY, ATOMIC);
	struct endpoint *e = &f->harness.b->endpoint[flow.server_id];
	const struct sy_worker_counters *c = &f->harness.rt->worker[0].counters;
	const uint64_t here = c->remote, over = c->steered_out;
	const uint64_t passed = limit_show(f, "a").passed;
	const uint8_t limited = e->limited;
	assert_true(limited & LIMITED_QUEUED(SESSION_CLIENT));
	e->limited &= (uint8_t)~LIMITED_QUEUED(SESSION_CLIENT);
	memset(&out, 0, sizeof(out));
	packet_put(f, &flow, 0);
	harness_poll(&f->harness);
	output_drain(f, &out);
	assert_int_equal(out.count, 1);
	assert_int_equal(c->remote, here);
	assert_int_equal(c->steered_out, over + 1);
	assert_int_equal(limit_show(f, "a").passed, passed + 1);
	for (unsigned w = 0; w < WORKERS; w++)
		assert_int_equal(f->harness.b->worker[w].burst.queued, 0);
	e->limited = limited;
}

/* All packets to a shaped port leave by the worker that owns its tree, each once, in order. */
static void test_shaped(void **state)
{
	static const struct device devices[] = {{"event_dsw", NULL}, {"event_sw", NULL}};
	static struct output out;
	struct flows *f = *state;
	for (unsigned d = 0; d < SY_ARRAY_LEN(devices); d++) {
		struct changes c = {0};
		struct flow flow[FLOWS];
		restart_with(f, &devices[d], 0);
		limit_put_engine(f, 0, "a", PLENTY, ATOMIC);
		flows_begin(f, flow, 0);
		const unsigned before = buffers_free(f);
		add_shaping_class(&c,
		                  put_shaping(&c, harness_port_name[HARNESS_LAN],
		                              UINT64_C(100000000000), 10000000),
		                  "rest", 0);
		flows_commit(f, &c);
		const unsigned owner = f->harness.rt->port[HARNESS_LAN]->shaper;
		assert_in_range(owner, 1, WORKERS);
		uint64_t sent[WORKERS];
		for (unsigned w = 0; w < WORKERS; w++)
			sent[w] = f->harness.rt->worker[w].counters.tx_packets;
		memset(&out, 0, sizeof(out));
		for (unsigned n = 0; n < EACH; n++)
			for (unsigned i = 0; i < FLOWS; i++)
				packet_put(f, &flow[i], n);
		harness_poll(&f->harness);
		output_drain(f, &out);
		assert_int_equal(in_device(f), 0);
		assert_int_equal(out.count, FLOWS * EACH);
		assert_int_equal(out.misplaced, 0);
		for (unsigned w = 0; w < WORKERS; w++)
			assert_int_equal(f->harness.rt->worker[w].counters.tx_packets - sent[w],
			                 w + 1 == owner ? FLOWS * EACH : 0);
		delete_shaping(&c, harness_port_name[HARNESS_LAN]);
		flows_commit(f, &c);
		harness_poll(&f->harness);
		assert_int_equal(buffers_free(f), before);
	}
}

/* While all workers poll equally often, none refuses any packet, though event_sw schedules the one
 * flow to each in turn and they offer as much as they can. */
static void test_turns(void **state)
{
	static const struct device devices[] = {{"event_dsw", NULL}, {"event_sw", NULL}};
	enum { TURNS = 500, PACKETS_EACH = 32 };
	struct flows *f = *state;
	for (unsigned d = 0; d < SY_ARRAY_LEN(devices); d++) {
		struct rte_mbuf *m;
		struct flow flow;
		unsigned out = 0;
		restart_with(f, &devices[d], 0);
		limit_put_engine(f, 0, "a", PLENTY, ATOMIC);
		flow_open(f, &flow, 0, 4000);
		for (unsigned n = 0; n < TURNS * PACKETS_EACH; n++) {
			packet_put(f, &flow, n);
			for (unsigned w = 0; n % PACKETS_EACH == 0 && w < WORKERS; w++)
				harness_poll_worker(&f->harness, w);
			for (; (m = harness_collect(&f->harness, HARNESS_LAN)); out++)
				rte_pktmbuf_free(m);
		}
		harness_poll(&f->harness);
		for (; (m = harness_collect(&f->harness, HARNESS_LAN)); out++)
			rte_pktmbuf_free(m);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_EVENT_FULL), 0);
		assert_int_equal(out, TURNS * PACKETS_EACH);
	}
}

/* Status says if a worker shares its CPU, as packets in the device wait for it. */
static void test_shared_cpu(void **state)
{
	static const struct device sw = {"event_sw", NULL};
	static const char text[] = "1 of 3 workers share a CPU with others";
	struct flows *f = *state;
	restart_with(f, &sw, 0);
	bool *shared = &f->harness.rt->worker[1].private->cpu_wait.shared;
	*shared = true;
	assert_int_equal(harness_warnings(&f->harness, text), 0);
	limit_put_engine(f, 0, "a", PLENTY, ATOMIC);
	assert_true(harness_warnings(&f->harness, text));
	*shared = false;
	assert_int_equal(harness_warnings(&f->harness, text), 0);
}

static void test_no_device(void **state)
{
	static const struct device none = {"event_dlb2", NULL}, odd = {"event_dsw", "ordered"},
	                           dsw = {"event_dsw", NULL};
	struct flows *f = *state;
	struct changes c = {0};
	restart_with(f, &none, 0);
	put_limit(&c, "a", PACKETS, 1, 10)->engine = ATOMIC;
	assert_false(harness_commit(&f->harness, &c));
	assert_non_null(strstr(f->harness.error,
	                       "limit a: engine atomic: EAL has found no DLB; remedy: event_dsw or "
	                       "event_sw"));
	restart_with(f, &odd, 0);
	put_limit(&c, "a", PACKETS, 1, 10)->engine = ATOMIC;
	assert_false(harness_commit(&f->harness, &c));
	assert_non_null(strstr(f->harness.error, "event_dsw has no ordered queues"));
	/* A start must not fail: the limit does without. */
	restart_with(f, &dsw, 0);
	limit_put_engine(f, 1, "a", 10, ATOMIC);
	expect_engine(f, "a", "atomic", "one worker");
	restart_with(f, &none, 0);
	expect_engine(f, "a", "cas", "could not be opened");
	struct flow flow;
	flow_open(f, &flow, 1, 4000);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 20), 10 - 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, limits_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_atomic),    TEST(test_direct),     TEST(test_ordered),
	        TEST(test_unordered), TEST(test_exact),      TEST(test_refused_behind),
	        TEST(test_nested),    TEST(test_not_queued), TEST(test_begins_to_queue),
	        TEST(test_shaped),    TEST(test_turns),      TEST(test_shared_cpu),
	        TEST(test_no_device),
	};
	flows_memory_mb = 512; /* many packet buffers */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
