// SPDX-License-Identifier: Apache-2.0
/* An event device that is full, packets in it when limits, services or the forwarder end, workers
 * that sleep, and workers that run at once. No buffer leaks. */
#include <sched.h>

#include "queued_fixture.h"
#include "service_dropped.h"

/* ---- the device's ends ----------------------------------------------------------------------- */

/* Enqueues packets, of which only worker 0 dequeues some. Returns how many are in the device. */
static unsigned device_fill(struct flows *f, const struct flow *flow, unsigned each,
                            struct output *out)
{
	for (unsigned n = 0; n < each; n++) {
		for (unsigned i = 0; i < FLOWS; i++)
			packet_put(f, &flow[i], n);
		if (n % 4 < 3 && n + 1 < each)
			continue;
		for (unsigned turn = 0; turn < 2; turn++)
			harness_poll_worker(&f->harness, 0);
		output_drain(f, out);
	}
	return (unsigned)in_device(f);
}

/* Flows whose sessions are worker 0's, of two services. */
static void flows_of_first(struct flows *f, struct flow flow[FLOWS])
{
	uint16_t port = 4000;
	for (unsigned i = 0; i < FLOWS; port++) {
		const struct sy_addr client = harness_addr(i % 2 ? "2001:db8:c::1" : "198.18.0.1");
		if (sy_slot_worker(f->harness.rt, sy_slot_of(&client, htons(port))) == 0)
			flow_open(f, &flow[i], i % 2 ? 2 : 0, port), i++;
	}
}

static const char *const of_server[] = {"a", "b", "c", "d"};

/* Limits by server, so that the device has several flows, and some of them at other workers. */
static void limits_by_server(struct flows *f)
{
	for (unsigned s = 0; s < 4; s += 2)
		for (unsigned i = 0; i < FLOW_SERVERS; i++) {
			struct changes c = {0};
			pb_limit *l = put_limit(&c, of_server[s + i], PACKETS, 1, PLENTY);
			l->engine = ATOMIC;
			add_limit_server(&c, l, &f->service[s], &f->server[s][i], 8080);
			flows_commit(f, &c);
		}
}

/* Begins with limits and flows of which some go to other workers than the first: event_dsw chooses
 * at random. */
static void begin_elsewhere(struct flows *f, const struct device *d, unsigned room,
                            struct flow flow[FLOWS], struct output *out)
{
	unsigned others = 0;
	while (others == 0) {
		restart_with(f, d, room);
		limits_by_server(f);
		flows_of_first(f, flow);
		memset(out, 0, sizeof(*out));
		others = device_fill(f, flow, 1, out);
		harness_poll(&f->harness);
		output_drain(f, out);
		assert_int_equal(out->count, FLOWS);
	}
	memset(out, 0, sizeof(*out));
}

/* What `steelyard get status` shows of the device. */
static void check_status(struct flows *f, const char *name, uint64_t refused, bool waits)
{
	Steelyard__Forwarder__V1__StatusRequest status =
	        STEELYARD__FORWARDER__V1__STATUS_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_STATUS;
	q.status = &status;
	pb_response *r = harness_request(&f->harness, &q);
	const Steelyard__Forwarder__V1__EventDevice *d = r->status->event_device;
	assert_non_null(d);
	assert_string_equal(d->name, name);
	assert_string_equal(d->model, "atomic");
	assert_int_equal(d->refused, refused);
	assert_true(d->packets > 0);
	assert_int_equal(d->waiting > 0, waits);
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
}

static void test_full(void **state)
{
	static const struct device devices[] = {{"event_dsw", NULL}, {"event_sw", NULL}};
	static struct output out;
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned d = 0; d < SY_ARRAY_LEN(devices); d++) {
		begin_elsewhere(f, &devices[d], 1024, flow, &out);
		const unsigned before = buffers_free(f);
		assert_true(device_fill(f, flow, MANY, &out) > 0);
		const uint64_t lost = harness_drops(&f->harness, SY_DROP_EVENT_FULL);
		assert_true(lost > 0);
		assert_int_equal(service_dropped(f, 0, SY_DROP_EVENT_FULL) +
		                         service_dropped(f, 2, SY_DROP_EVENT_FULL),
		                 lost);
		check_status(f, devices[d].device, lost, true);
		harness_poll(&f->harness);
		check_status(f, devices[d].device, lost, false);
		output_drain(f, &out);
		assert_int_equal(out.count + lost, MANY * FLOWS);
		assert_int_equal(out.misplaced, 0);
		assert_int_equal(buffers_free(f), before);
		/* it accepts packets again */
		memset(&out, 0, sizeof(out));
		for (unsigned i = 0; i < FLOWS; i++)
			packet_put(f, &flow[i], 0);
		harness_poll(&f->harness);
		output_drain(f, &out);
		assert_int_equal(out.count, FLOWS);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_EVENT_FULL), lost);
	}
}

/* Limits and a service are deleted while their packets are in the device: they pass. */
static void test_deleted(void **state)
{
	static const struct device devices[] = {{"event_dsw", NULL}, {"event_sw", NULL}};
	static struct output out;
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned d = 0; d < SY_ARRAY_LEN(devices); d++) {
		struct changes c = {0};
		begin_elsewhere(f, &devices[d], 0, flow, &out);
		const unsigned before = buffers_free(f);
		assert_true(device_fill(f, flow, EACH, &out) > 0);
		for (unsigned i = 0; i < SY_ARRAY_LEN(of_server); i++)
			delete_limit(&c, of_server[i]);
		if (d == 1)
			delete_service(&c, &f->service[2]);
		flows_commit(f, &c);
		harness_attend(&f->harness);
		harness_poll(&f->harness);
		output_drain(f, &out);
		assert_int_equal(out.count, EACH * FLOWS);
		assert_int_equal(in_device(f), 0);
		assert_int_equal(buffers_free(f), before);
	}
}

/* The forwarder ends: what is in the device leaves before the ports are released. */
static void test_stopped(void **state)
{
	static const struct device devices[] = {
	        {"event_dsw", NULL}, {"event_sw", NULL}, {"event_sw", "ordered"}};
	static struct output out;
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned d = 0; d < SY_ARRAY_LEN(devices); d++) {
		begin_elsewhere(f, &devices[d], 0, flow, &out);
		assert_true(device_fill(f, flow, EACH, &out) > 0);
		sy_runtime_quiesce(f->harness.rt);
		output_drain(f, &out);
		assert_int_equal(out.count, EACH * FLOWS);
		assert_int_equal(out.misplaced, 0);
		struct changes c = {0};
		for (unsigned i = 0; i < SY_ARRAY_LEN(of_server); i++)
			delete_limit(&c, of_server[i]);
		flows_commit(f, &c);
	}
}

/* ---- workers that sleep, and run at once ----------------------------------------------------- */

static void test_wake(void **state)
{
	static const struct device dsw = {"event_dsw", NULL};
	static struct output out;
	struct flows *f = *state;
	struct flow flow[FLOWS];
	begin_elsewhere(f, &dsw, 0, flow, &out);
	for (unsigned w = 0; w < WORKERS; w++) {
		assert_true(sy_balance_is_idle(&f->harness.rt->worker[w]));
		__atomic_store_n(&f->harness.rt->worker[w].private->asleep, w > 0,
		                 __ATOMIC_RELAXED);
	}
	for (unsigned i = 0; i < FLOWS; i++)
		packet_put(f, &flow[i], 0);
	harness_poll_worker(&f->harness, 0);
	assert_true(in_device(f) > 0);
	for (unsigned w = 0; w < WORKERS; w++) {
		assert_false(f->harness.rt->worker[w].private->asleep);
		assert_false(sy_balance_is_idle(&f->harness.rt->worker[w]));
	}
	memset(&out, 0, sizeof(out));
	harness_poll(&f->harness);
	output_drain(f, &out);
	assert_int_equal(out.count, FLOWS);
	assert_true(sy_balance_is_idle(&f->harness.rt->worker[1]));
}

/* Real workers. Each packet passes once and in order, or is dropped by name; the limit is exact. */
static void test_threads(void **state)
{
	static const struct device devices[] = {{"event_dsw", NULL}, {"event_sw", NULL}};
	enum { ALL = FLOWS * MANY, BURST_ALL = ALL / 2 };
	static struct output out;
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned d = 0; d < SY_ARRAY_LEN(devices); d++) {
		struct sy_error err;
		struct changes c = {0};
		restart_with(f, &devices[d], 0);
		flows_begin(f, flow, 0);
		limit_put_engine(f, 0, "a", BURST_ALL, ATOMIC);
		memset(&out, 0, sizeof(out));
		for (unsigned w = 0; w < WORKERS; w++) /* the clock stands still */
			f->harness.rt->worker[w].private->clock.rate_ns = f->harness.now_ns;
		assert_int_equal(sy_runtime_start(f->harness.rt, &err), 0);
		for (unsigned n = 0; n < MANY; n++) {
			for (unsigned i = 0; i < FLOWS; i++)
				packet_put(f, &flow[i], n);
			while (rte_ring_count(f->harness.rx[HARNESS_WAN]) > 2 * SY_BURST)
				sched_yield();
			output_drain(f, &out);
		}
		uint64_t lost = 0;
		while (out.count + lost < ALL) {
			lost = 0;
			for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++)
				lost += harness_drops(&f->harness, (enum sy_drop)reason);
			output_drain(f, &out);
			sched_yield();
		}
		sy_runtime_quiesce(f->harness.rt);
		output_drain(f, &out);
		lost = harness_drops(&f->harness, SY_DROP_LIMIT_EXCEEDED);
		const uint64_t full = harness_drops(&f->harness, SY_DROP_EVENT_FULL) +
		                      harness_drops(&f->harness, SY_DROP_STEERING_FULL);
		assert_int_equal(out.count + lost + full, ALL);
		assert_int_equal(out.misplaced, 0);
		assert_int_equal(in_device(f), 0);
		assert_int_equal(limit_show(f, "a").passed, out.count);
		assert_int_equal(limit_show(f, "a").above, lost);
		assert_true(full > 0 || out.count == BURST_ALL);
		delete_limit(&c, "a");
		flows_commit(f, &c);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, limits_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_full), TEST(test_deleted), TEST(test_stopped),
	        TEST(test_wake), TEST(test_threads),
	};
	flows_memory_mb = 512; /* many packet buffers */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
