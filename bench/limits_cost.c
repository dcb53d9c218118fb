// SPDX-License-Identifier: Apache-2.0
/* What an event costs, by device and model, and what a limit costs more. Each thread sends a burst
 * and receives one, in turn; what it receives may be from the others. */
#include "limits_event.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#define PLENTY (UINT64_C(1) << 40) /* bytes: all pass; refusing is cheaper */

struct cost_thread {
	pthread_t id;
	struct cost *x;
	unsigned number;
	uint32_t *bucket; /* [packets] */
	uint64_t now, passed;
	uint64_t done; /* packets that left the device here */
	double ns;
} __attribute__((aligned(SY_CACHE_LINE)));

struct cost {
	const struct event_arguments *a;
	enum sy_event_model model;
	bool limited;
	struct sy_event *event;
	struct sy_limit_rate rate;
	struct sy_limit *limit; /* [buckets] */
	unsigned sending;       /* threads that have more to send */
	pthread_barrier_t start;
	struct cost_thread thread[THREADS_MAX];
};

static bool consumes(const struct cost *x, unsigned thread)
{
	return x->model != SY_EVENT_DIRECT || thread == 0;
}

static unsigned burst_send(struct cost_thread *t, unsigned from)
{
	struct sy_event_port *p = sy_event_port(t->x->event, t->number);
	struct rte_event e[SY_EVENT_BURST];
	unsigned n = t->x->a->packets - from;
	n = n < SY_EVENT_BURST ? n : SY_EVENT_BURST;
	for (unsigned i = 0; i < n; i++)
		sy_event_make(p, &e[i], sy_event_flow(t->bucket[from + i]), t->bucket[from + i]);
	return sy_event_send(p, e, n);
}

static void burst_limit(struct cost_thread *t, const struct rte_event *e, unsigned n)
{
	struct cost *x = t->x;
	uint64_t volume = sy_limit_volume(&x->rate, t->now += SY_EVENT_BURST * 100);
	for (unsigned i = 0; i < n; i++)
		__builtin_prefetch(&x->limit[e[i].u64], 1);
	for (unsigned i = 0; i < n; i++)
		t->passed += sy_limit_charge(&x->limit[e[i].u64], SY_LIMIT_ATOMIC, &x->rate, NULL,
		                             volume, 64 + e[i].u64 % 64);
}

static void burst_receive(struct cost_thread *t)
{
	struct cost *x = t->x;
	struct sy_event_port *p = sy_event_port(x->event, t->number);
	struct rte_event e[SY_EVENT_BURST];
	unsigned n = sy_event_receive(p, e, SY_EVENT_BURST);
	if (x->limited)
		burst_limit(t, e, n);
	if (x->model != SY_EVENT_ORDERED) {
		t->done += n;
		return;
	}
	for (unsigned i = 0; i < n; i++)
		sy_event_pass(&e[i]);
	for (unsigned i = 0; i < n;)
		i += sy_event_finish(p, e + i, n - i);
	if (t->number == 0)
		t->done += sy_event_receive(sy_event_port(x->event, x->a->consumers), e,
		                            SY_EVENT_BURST);
}

static bool all_done(const struct cost *x)
{
	return __atomic_load_n(&x->sending, __ATOMIC_ACQUIRE) == 0 &&
	       sy_event_in_flight(x->event) == 0;
}

static void *cost_main(void *arg)
{
	struct cost_thread *t = arg;
	struct cost *x = t->x;
	unsigned sent = 0;
	thread_settle(t->number);
	pthread_barrier_wait(&x->start);
	uint64_t start = rte_rdtsc();
	while (sent < x->a->packets || !all_done(x)) {
		if (sent < x->a->packets) {
			sent += burst_send(t, sent);
			if (sent == x->a->packets)
				__atomic_sub_fetch(&x->sending, 1, __ATOMIC_ACQ_REL);
		} else {
			sy_event_maintain(sy_event_port(x->event, t->number));
		}
		if (consumes(x, t->number))
			burst_receive(t);
	}
	t->ns = measure_ns(rte_rdtsc() - start) / x->a->packets;
	rte_thread_unregister();
	return NULL;
}

/* Nanoseconds per packet of the slowest thread. */
static double cost_run(struct cost *x, bool limited)
{
	unsigned threads = x->a->consumers;
	uint64_t done = 0;
	double ns = 0;
	x->limited = limited;
	x->sending = threads;
	x->event = event_must(x->a->device, x->model, threads + (x->model == SY_EVENT_ORDERED),
	                      x->model == SY_EVENT_DIRECT ? 1 : (UINT64_C(1) << threads) - 1,
	                      threads, 0);
	pthread_barrier_init(&x->start, NULL, threads);
	for (unsigned i = 0; i < threads; i++) {
		x->thread[i].done = 0;
		if (pthread_create(&x->thread[i].id, NULL, cost_main, &x->thread[i]) != 0)
			must(NULL);
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(x->thread[i].id, NULL);
		ns = fmax(ns, x->thread[i].ns);
		done += x->thread[i].done;
	}
	pthread_barrier_destroy(&x->start);
	sy_event_close(x->event, event_forget, NULL);
	if (done != (uint64_t)threads * x->a->packets) {
		fprintf(stderr, "steelyard-limits-event: packets were lost\n");
		exit(EXIT_FAILURE);
	}
	return ns;
}

static enum sy_event_model model_named(const char *name)
{
	unsigned m = 0;
	while (m < SY_EVENT_MODELS && strcmp(sy_event_model_name[m], name) != 0)
		m++;
	if (m == SY_EVENT_MODELS) {
		fprintf(stderr, "steelyard-limits-event: no model %s\n", name);
		exit(EXIT_FAILURE);
	}
	return (enum sy_event_model)m;
}

static void cost_begin(struct cost *x, const struct event_arguments *a)
{
	uint64_t random = a->seed;
	*x = (struct cost){.a = a, .model = model_named(a->model)};
	if (sy_limit_rate_init(&x->rate, 400 * SECOND, 8 * SECOND, PLENTY, SECOND, NULL) < 0)
		must(NULL);
	x->limit = must(aligned_alloc(SY_CACHE_LINE, (a->buckets + 3) / 4 * 4 * sizeof(*x->limit)));
	for (unsigned b = 0; b < a->buckets; b++)
		sy_limit_init(&x->limit[b], &x->rate, 0, SECOND);
	for (unsigned i = 0; i < a->consumers; i++) {
		struct cost_thread *t = &x->thread[i];
		*t = (struct cost_thread){.x = x, .number = i, .now = SECOND};
		t->bucket = must(calloc(a->packets, sizeof(uint32_t)));
		for (unsigned k = 0; k < a->packets; k++)
			t->bucket[k] = (uint32_t)(measure_random(&random) % a->buckets);
	}
}

void cost_perform(const struct event_arguments *a)
{
	static struct cost x;
	char params[160];
	bool limit = strcmp(a->model, "atomic") == 0;
	const struct measure bare = {"limits", params, "cost of an event", "ns/packet", NULL};
	const struct measure limited = {"limits", params, "cost", "ns/packet", NULL};
	uint64_t passed = 0;

	cost_begin(&x, a);
	cost_run(&x, limit); /* warms up */
	for (unsigned run = 0; run < a->runs; run++) {
		double none = cost_run(&x, false);
		snprintf(params, sizeof(params),
		         "\"device\": \"%s\", \"model\": \"%s\", \"threads\": %u", a->device,
		         a->model, a->consumers);
		measure_report(&bare, none, NULL, 0);
		if (!limit)
			continue;
		snprintf(params, sizeof(params),
		         "\"engine\": \"%s\", \"threads\": %u, \"buckets\": %u", engine_label(a),
		         a->consumers, a->buckets);
		measure_report(&limited, cost_run(&x, true), "the device alone", none);
	}
	for (unsigned i = 0; i < a->consumers; i++) {
		passed += x.thread[i].passed;
		free(x.thread[i].bucket);
	}
	if (limit && passed != (uint64_t)(a->runs + 1) * a->consumers * a->packets) {
		fprintf(stderr, "steelyard-limits-event: packets were refused\n");
		exit(EXIT_FAILURE);
	}
	free(x.limit);
}
