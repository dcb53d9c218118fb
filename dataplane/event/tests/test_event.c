// SPDX-License-Identifier: Apache-2.0
/* What each model promises, with real threads: the test's own thread produces at port 0, others
 * consume at ports 1 and 2. Nothing waits for time. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#include <rte_cycles.h>
#include <rte_lcore.h>

#include "event_eal.h"
#include "sy_event.h"

#define EVENTS    20000u
#define FLOWS     64u
#define CONSUMERS 2u
#define DROPPED   7u /* ordered: each seventh is dropped */

/* The device under test; cmocka's initial state. */
static const char dsw[] = "event_dsw", sw[] = "event_sw";

struct stage {
	struct sy_event *event;
	enum sy_event_model model;
	bool stop;
	uint64_t consumed;                 /* events, by all */
	uint64_t broken;                   /* broken promises */
	uint64_t moved[CONSUMERS];         /* flows that moved here from the other consumer */
	uint8_t seen[EVENTS];              /* how often */
	unsigned holder[FLOWS];            /* consumer + 1; 0: none */
	uint32_t next[FLOWS], last[FLOWS]; /* of a flow: its next number, its last consumer + 1 */
	struct consumer {
		pthread_t id;
		struct stage *s;
		unsigned number;
		uint64_t spin; /* cycles of work for each event */
	} consumer[CONSUMERS];
};

#define ADD(counter, n) __atomic_add_fetch(&(counter), n, __ATOMIC_RELAXED)
#define READ(counter)   __atomic_load_n(&(counter), __ATOMIC_ACQUIRE)

static uint64_t word_of(uint32_t number, uint32_t flow)
{
	return (uint64_t)number << 32 | flow;
}

static struct stage *stage_open(const char *device, enum sy_event_model model, unsigned capacity)
{
	struct sy_event_options o = {.device = device,
	                             .model = model,
	                             /* Each port is used: event_dsw moves flows only if so. */
	                             .ports = model == SY_EVENT_ORDERED ? 4 : 3,
	                             .consumers = model == SY_EVENT_DIRECT ? 2 : 6,
	                             .exit = 3,
	                             .capacity = capacity};
	struct sy_error err = {0};
	struct stage *s = calloc(1, sizeof(*s));
	assert_non_null(s);
	s->model = model;
	if (sy_event_open(&o, &s->event, &err))
		fail_msg("%s", err.text);
	return s;
}

static void word_lost(uint64_t word, void *ctx)
{
	ADD(*(uint64_t *)ctx, 1);
}

/* Ends it; returns how many events were still in it. */
static uint64_t stage_close(struct stage *s)
{
	uint64_t lost = 0;
	sy_event_close(s->event, word_lost, &lost);
	free(s);
	return lost;
}

/* Notes an event that this consumer has now. */
static void event_check(struct consumer *c, const struct rte_event *e)
{
	struct stage *s = c->s;
	uint32_t number = (uint32_t)(e->u64 >> 32), flow = (uint32_t)e->u64;
	if (s->model == SY_EVENT_UNORDERED || s->model == SY_EVENT_ORDERED) {
		ADD(s->seen[number], 1);
		return;
	}
	unsigned before = __atomic_exchange_n(&s->holder[flow], c->number + 1, __ATOMIC_ACQ_REL);
	if (before != 0 && before != c->number + 1)
		ADD(s->broken, 1);
	/* Without atomics: the holder is alone. */
	if (s->next[flow] != number)
		ADD(s->broken, 1);
	s->next[flow] = number + 1;
	if (s->last[flow] != 0 && s->last[flow] != c->number + 1)
		ADD(s->moved[c->number], 1);
	s->last[flow] = c->number + 1;
}

static void work(uint64_t cycles)
{
	uint64_t until = rte_rdtsc() + cycles;
	while (rte_rdtsc() < until)
		continue;
}

static void *consumer_main(void *arg)
{
	struct consumer *c = arg;
	struct stage *s = c->s;
	struct sy_event_port *p = sy_event_port(s->event, c->number + 1);
	if (rte_thread_register())
		abort();
	while (!READ(s->stop)) {
		struct rte_event e[SY_EVENT_BURST];
		unsigned n = sy_event_receive(p, e, SY_EVENT_BURST), done = 0;
		for (unsigned i = 0; i < n; i++) {
			event_check(c, &e[i]);
			if (c->spin)
				work(c->spin);
			if (s->model == SY_EVENT_ORDERED)
				(e[i].u64 >> 32) % DROPPED ? sy_event_pass(&e[i])
				                           : sy_event_drop(&e[i]);
		}
		while (s->model == SY_EVENT_ORDERED && done < n)
			done += sy_event_finish(p, e + done, n - done);
		for (unsigned i = 0; i < n; i++)
			__atomic_store_n(&s->holder[(uint32_t)e[i].u64], 0, __ATOMIC_RELEASE);
		ADD(s->consumed, n);
		if (n == 0)
			sched_yield();
	}
	sy_event_release(p);
	rte_thread_unregister();
	return NULL;
}

static void consumers_start(struct stage *s, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		s->consumer[i].s = s;
		s->consumer[i].number = i;
		assert_int_equal(
		        pthread_create(&s->consumer[i].id, NULL, consumer_main, &s->consumer[i]),
		        0);
	}
}

static void consumers_stop(struct stage *s, unsigned count)
{
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < count; i++)
		pthread_join(s->consumer[i].id, NULL);
}

/* Sends one event of each flow in turn, beginning with flow's `number`; keeps trying. */
static void round_send(struct stage *s, uint32_t number)
{
	struct sy_event_port *p = sy_event_port(s->event, 0);
	struct rte_event e[FLOWS];
	for (uint32_t f = 0; f < FLOWS; f++)
		sy_event_make(p, &e[f], f, word_of(number, f));
	for (unsigned sent = 0; sent < FLOWS;) {
		sent += sy_event_send(p, e + sent, FLOWS - sent);
		if (sent < FLOWS)
			sched_yield();
	}
}

static void consumed_wait(struct stage *s, uint64_t count)
{
	while (READ(s->consumed) < count) {
		sy_event_maintain(sy_event_port(s->event, 0));
		sched_yield();
	}
}

/* ---- the models ------------------------------------------------------------------------------ */

static void test_direct(void **state)
{
	struct stage *s = stage_open(*state, SY_EVENT_DIRECT, 0);
	consumers_start(s, 1);
	for (uint32_t n = 0; n < EVENTS / FLOWS; n++)
		round_send(s, n);
	consumed_wait(s, EVENTS / FLOWS * FLOWS);
	consumers_stop(s, 1);
	assert_int_equal(s->broken, 0);
	for (unsigned f = 0; f < FLOWS; f++)
		assert_int_equal(s->next[f], EVENTS / FLOWS);
	assert_int_equal(sy_event_in_flight(s->event), 0);
	assert_int_equal(stage_close(s), 0);
}

static void test_unordered(void **state)
{
	struct stage *s = stage_open(*state, SY_EVENT_UNORDERED, 0);
	struct sy_event_port *p = sy_event_port(s->event, 0);
	consumers_start(s, CONSUMERS);
	for (uint32_t n = 0; n < EVENTS; n++) {
		struct rte_event e;
		sy_event_make(p, &e, 0, word_of(n, 0));
		while (sy_event_send(p, &e, 1) == 0)
			sched_yield();
	}
	consumed_wait(s, EVENTS);
	consumers_stop(s, CONSUMERS);
	for (unsigned n = 0; n < EVENTS; n++)
		assert_int_equal(s->seen[n], 1);
	assert_int_equal(stage_close(s), 0);
}

/* Drains the exit: numbers increase, and none was dropped. */
static void exit_drain(struct stage *s, uint32_t *next, uint64_t *out)
{
	struct rte_event e[SY_EVENT_BURST];
	unsigned n = sy_event_receive(sy_event_port(s->event, 3), e, SY_EVENT_BURST);
	for (unsigned i = 0; i < n; i++) {
		while (*next % DROPPED == 0)
			++*next;
		assert_int_equal(e[i].u64 >> 32, (*next)++);
	}
	*out += n;
	if (n == 0)
		sched_yield();
}

static void test_ordered(void **state)
{
	struct stage *s = stage_open(sw, SY_EVENT_ORDERED, 0);
	struct sy_event_port *p = sy_event_port(s->event, 0);
	uint32_t next = 0;
	uint64_t out = 0, passing = EVENTS - (EVENTS + DROPPED - 1) / DROPPED;
	s->consumer[0].spin = 20000; /* the other one overtakes it */
	consumers_start(s, CONSUMERS);
	for (uint32_t n = 0; n < EVENTS; n++) {
		struct rte_event e;
		sy_event_make(p, &e, 0, word_of(n, 0));
		while (sy_event_send(p, &e, 1) == 0)
			exit_drain(s, &next, &out);
	}
	while (out < passing)
		exit_drain(s, &next, &out);
	consumed_wait(s, EVENTS);
	consumers_stop(s, CONSUMERS);
	for (unsigned n = 0; n < EVENTS; n++)
		assert_int_equal(s->seen[n], 1);
	assert_int_equal(sy_event_in_flight(s->event), 0);
	assert_int_equal(stage_close(s), 0);
}

static void test_atomic(void **state)
{
	struct stage *s = stage_open(*state, SY_EVENT_ATOMIC, 0);
	consumers_start(s, CONSUMERS);
	for (uint32_t n = 0; n < EVENTS / FLOWS; n++)
		round_send(s, n);
	consumed_wait(s, EVENTS / FLOWS * FLOWS);
	consumers_stop(s, CONSUMERS);
	assert_int_equal(s->broken, 0);
	for (unsigned f = 0; f < FLOWS; f++)
		assert_int_equal(s->next[f], EVENTS / FLOWS);
	assert_int_equal(sy_event_in_flight(s->event), 0);
	assert_int_equal(stage_close(s), 0);
}

/* Consumer 0 has 20 µs of work for each event, consumer 1 none. */
static void test_move(void **state)
{
	struct stage *s = stage_open(*state, SY_EVENT_ATOMIC, 0);
	uint32_t n = 0;
	s->consumer[0].spin = rte_get_tsc_hz() / 50000;
	consumers_start(s, CONSUMERS);
	while (READ(s->moved[1]) == 0)
		round_send(s, n++);
	consumed_wait(s, (uint64_t)n * FLOWS);
	consumers_stop(s, CONSUMERS);
	assert_int_equal(s->broken, 0);
	assert_int_equal(stage_close(s), 0);
}

/* ---- full, gone, unknown --------------------------------------------------------------------- */

static void test_full(void **state)
{
	struct stage *s = stage_open(*state, SY_EVENT_ATOMIC, 1024);
	struct sy_event_port *p = sy_event_port(s->event, 0);
	uint64_t sent = 0, refused = 0;
	for (uint32_t n = 0; n < 4096; n++) {
		struct rte_event e;
		sy_event_make(p, &e, n % FLOWS, n);
		unsigned took = sy_event_send(p, &e, 1);
		sent += took;
		refused += 1 - took;
	}
	assert_true(sent > 512 && sent <= 1024);
	assert_int_equal(p->refused, refused);
	assert_int_equal(p->sent, sent);
	assert_int_equal(sy_event_in_flight(s->event), sent);
	/* it accepts events again once a consumer has made space */
	struct rte_event e[SY_EVENT_BURST];
	uint64_t got = 0;
	for (unsigned empty = 0; empty < 100; empty++) {
		unsigned n = sy_event_receive(sy_event_port(s->event, 1), e, SY_EVENT_BURST) +
		             sy_event_receive(sy_event_port(s->event, 2), e, SY_EVENT_BURST);
		sy_event_maintain(p);
		got += n;
		empty = n ? 0 : empty;
	}
	assert_int_equal(got, sent);
	sy_event_make(p, e, 1, 1);
	assert_int_equal(sy_event_send(p, e, 1), 1);
	assert_int_equal(stage_close(s), 1); /* nothing that is queued gets lost unnoticed */
}

static void test_close_full(void **state)
{
	for (enum sy_event_model model = 0; model < SY_EVENT_MODELS; model++) {
		if (model == SY_EVENT_ORDERED && *state == dsw)
			continue;
		struct stage *s = stage_open(*state, model, 1024);
		struct sy_event_port *p = sy_event_port(s->event, 0);
		uint64_t sent = 0;
		for (uint32_t n = 0; n < 600; n++) {
			struct rte_event e;
			sy_event_make(p, &e, n % FLOWS, n);
			sent += sy_event_send(p, &e, 1);
		}
		assert_int_equal(stage_close(s), sent);
	}
}

struct retired {
	struct consumer *consumer;
	uint64_t got;
};

static void retired_receive(const struct rte_event *e, void *ctx)
{
	struct retired *r = ctx;
	event_check(r->consumer, e);
	__atomic_store_n(&r->consumer->s->holder[(uint32_t)e->u64], 0, __ATOMIC_RELEASE);
	r->got++;
}

/* Consumer 1 goes on; the port of consumer 0, which this thread has used, retires under load. */
static void test_retire(void **state)
{
	struct stage *s = stage_open(sw, SY_EVENT_ATOMIC, 0);
	struct retired r = {.consumer = &s->consumer[0]};
	struct sy_error err = {0};
	s->consumer[1] = (struct consumer){.s = s, .number = 1};
	s->consumer[0].s = s;
	for (uint32_t n = 0; n < 8; n++)
		round_send(s, n);
	assert_int_equal(pthread_create(&s->consumer[1].id, NULL, consumer_main, &s->consumer[1]),
	                 0);
	if (sy_event_retire(sy_event_port(s->event, 1), retired_receive, &r, &err))
		fail_msg("%s", err.text);
	for (uint32_t n = 8; n < 100; n++)
		round_send(s, n);
	consumed_wait(s, 100 * FLOWS - r.got);
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	pthread_join(s->consumer[1].id, NULL);
	assert_int_equal(s->consumed + r.got, 100 * FLOWS);
	assert_int_equal(s->broken, 0);
	for (unsigned f = 0; f < FLOWS; f++)
		assert_int_equal(s->next[f], 100);
	assert_int_equal(stage_close(s), 0);
}

/* event_dsw: one thread takes over the other's port. */
static void test_take_over(void **state)
{
	struct stage *s = stage_open(dsw, SY_EVENT_ATOMIC, 0);
	struct sy_error err = {0};
	uint64_t got[CONSUMERS] = {0};
	assert_int_equal(sy_event_retire(sy_event_port(s->event, 1), retired_receive, NULL, &err),
	                 -ENOTSUP);
	assert_non_null(strstr(err.text, "remedy"));
	for (uint32_t n = 0; n < 8; n++)
		round_send(s, n);
	sy_event_maintain(sy_event_port(s->event, 0));
	while (got[0] + got[1] < 8 * FLOWS)
		for (unsigned c = 0; c < CONSUMERS; c++) {
			struct rte_event e[SY_EVENT_BURST];
			got[c] +=
			        sy_event_receive(sy_event_port(s->event, c + 1), e, SY_EVENT_BURST);
		}
	assert_true(got[0] > 0 && got[1] > 0);
	assert_int_equal(stage_close(s), 0);
}

static void open_fails(struct sy_event_options o, int code, const char *text)
{
	struct sy_event *event;
	struct sy_error err = {0};
	assert_int_equal(sy_event_open(&o, &event, &err), -code);
	assert_non_null(strstr(err.text, text));
}

static void test_refused(void **state)
{
	struct sy_event_options o = {.device = "event_dsw", .ports = 4, .consumers = 6, .exit = 3};
	struct sy_event_options bad = o;
	bad.model = SY_EVENT_DIRECT;
	open_fails(bad, EINVAL, "one consumer");
	bad.model = SY_EVENT_ORDERED;
	open_fails(bad, ENOTSUP, "remedy: event_sw");
	bad.exit = 1;
	open_fails(bad, EINVAL, "exit");
	bad = o;
	bad.model = SY_EVENT_ATOMIC;
	bad.consumers = 16;
	open_fails(bad, EINVAL, "among its 4 ports");
	bad.ports = 65;
	open_fails(bad, EINVAL, "65 ports");
	bad = o;
	bad.model = SY_EVENT_ATOMIC;
	bad.device = "event_nonsense";
	open_fails(bad, ENODEV, "remedy: event_dsw");
	bad.device = "eth0";
	open_fails(bad, ENODEV, "\"eth0\"");
	bad.device = "event_dlb2";
	open_fails(bad, ENODEV, "vfio-pci");
}

int32_t __real_rte_service_run_iter_on_app_lcore(uint32_t id, uint32_t serialize);
int32_t __wrap_rte_service_run_iter_on_app_lcore(uint32_t id, uint32_t serialize);

static bool broken;

int32_t __wrap_rte_service_run_iter_on_app_lcore(uint32_t id, uint32_t serialize)
{
	return broken ? -ENOEXEC : __real_rte_service_run_iter_on_app_lcore(id, serialize);
}

/* A device whose scheduling does not run is refused, instead of accepting events for ever. */
static void test_no_service(void **state)
{
	struct sy_event_options o = {
	        .device = sw, .model = SY_EVENT_ATOMIC, .ports = 2, .consumers = 3};
	struct sy_event *event;
	struct sy_error err;
	broken = true;
	open_fails(o, ENOEXEC, "does not run in its ports' threads");
	broken = false;
	assert_int_equal(sy_event_open(&o, &event, &err), 0);
	assert_true(sy_event_is_scheduled(event));
	sy_event_close(event, NULL, NULL);
}

/* Nothing is left of a device that was closed: DPDK has places for 64 services. */
static void test_again(void **state)
{
	for (unsigned i = 0; i < 100; i++)
		stage_close(stage_open(*state, SY_EVENT_ATOMIC, 0));
}

static void test_flow(void **state)
{
	assert_int_equal(sy_event_flow(0xfffff), 0xfffff);
	for (uint32_t key = 1 << 20; key < (1 << 20) + 1000; key++)
		assert_true(sy_event_flow(key) < 1 << SY_EVENT_FLOW_BITS);
	assert_int_not_equal(sy_event_flow(1 << 20), sy_event_flow((1 << 20) + 1));
}

int main(void)
{
#define ON(device, test) cmocka_unit_test_prestate(test, (void *)(uintptr_t)(device))
	const struct CMUnitTest tests[] = {
	        ON(dsw, test_direct),
	        ON(sw, test_direct),
	        ON(dsw, test_unordered),
	        ON(sw, test_unordered),
	        cmocka_unit_test(test_ordered),
	        ON(dsw, test_atomic),
	        ON(sw, test_atomic),
	        ON(dsw, test_move),
	        ON(sw, test_move),
	        ON(dsw, test_full),
	        ON(sw, test_full),
	        ON(dsw, test_close_full),
	        ON(sw, test_close_full),
	        cmocka_unit_test(test_retire),
	        cmocka_unit_test(test_take_over),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_no_service),
	        ON(dsw, test_again),
	        ON(sw, test_again),
	        cmocka_unit_test(test_flow),
	};
	event_eal_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
