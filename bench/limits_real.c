// SPDX-License-Identifier: Apache-2.0
/* The paper's experiment in real time: 14 Gbit/s of packets, 2.3 million a second, made in this
 * process when they are due. With a device each consumer is a thread that makes its share of the
 * packets, too, as workers of the forwarder do; a single consumer has a thread of its own, and
 * another one makes all packets. Without a device each thread limits the packets that it makes. */
#include "limits_event.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WARM_UP_S  2
#define READ_NS    UINT64_C(1000000) /* 0.05 % of a sample */
#define READ_TRIES 100u
#define LAG_NS     (SECOND / 10) /* what a thread was late by more is not made up for */

struct real_thread {
	pthread_t id;
	struct real *x;
	unsigned number;
	double share; /* of all packets, which it makes */
	bool consumes;
	struct user_source source;
	uint64_t due_ns, late_ns;
	double due_rest;
	uint64_t *local, *passed, *lost; /* [USERS] bytes; light-lock; by this thread */
	uint64_t refused;                /* bytes of users within their limit, by the device */
} __attribute__((aligned(SY_CACHE_LINE)));

struct real {
	const struct event_arguments *a;
	enum sy_limit_engine engine;
	struct sy_event *event; /* NULL: no device */
	struct sy_limit_rate rate;
	struct sy_limit *limit; /* [USERS] */
	struct real_thread thread[THREADS_MAX + 1];
	unsigned threads;
	bool stop;
};

#define ADD(counter, n) __atomic_store_n(&(counter), (counter) + (n), __ATOMIC_RELAXED)

static void packets_limit(struct real_thread *t, const struct user_packet *p, unsigned count,
                          uint64_t now)
{
	struct real *x = t->x;
	uint64_t volume = sy_limit_volume(&x->rate, now);
	for (unsigned i = 0; i < count; i++)
		__builtin_prefetch(&x->limit[p[i].user], 1);
	for (unsigned i = 0; i < count; i++) {
		bool passes = sy_limit_charge(&x->limit[p[i].user], x->engine, &x->rate,
		                              &t->local[p[i].user], volume, p[i].length);
		ADD(*(passes ? &t->passed[p[i].user] : &t->lost[p[i].user]), p[i].length);
	}
}

/* The packets that are due, at most a burst. */
static unsigned packets_make(struct real_thread *t, struct user_packet *p, uint64_t now)
{
	unsigned n = 0;
	uint64_t chance;
	if (now - t->due_ns > LAG_NS && now > t->due_ns) {
		ADD(t->late_ns, now - t->due_ns - LAG_NS);
		t->due_ns = now - LAG_NS;
	}
	while (n < SY_EVENT_BURST && t->due_ns <= now) {
		p[n] = user_packet(&t->source, &chance);
		t->due_rest += p[n].length * 8e9 / (ALL_BITS * t->share);
		t->due_ns += (uint64_t)t->due_rest;
		t->due_rest -= floor(t->due_rest);
		n++;
	}
	return n;
}

static void packets_send(struct real_thread *t, const struct user_packet *p, unsigned count)
{
	struct sy_event_port *port = sy_event_port(t->x->event, t->number);
	struct rte_event e[SY_EVENT_BURST];
	for (unsigned i = 0; i < count; i++)
		sy_event_make(port, &e[i], p[i].user, (uint64_t)p[i].user << 16 | p[i].length);
	for (unsigned i = sy_event_send(port, e, count); i < count; i++)
		ADD(t->refused, p[i].user < WITHIN ? p[i].length : 0);
}

static unsigned packets_receive(struct real_thread *t)
{
	struct rte_event e[SY_EVENT_BURST];
	struct user_packet p[SY_EVENT_BURST];
	unsigned n = sy_event_receive(sy_event_port(t->x->event, t->number), e, SY_EVENT_BURST);
	for (unsigned i = 0; i < n; i++)
		p[i] = (struct user_packet){(uint16_t)(e[i].u64 >> 16), (uint16_t)e[i].u64};
	if (n > 0)
		packets_limit(t, p, n, sy_clock_ns());
	return n;
}

static void *real_main(void *arg)
{
	struct real_thread *t = arg;
	thread_settle(t->number);
	t->due_ns = sy_clock_ns();
	while (!__atomic_load_n(&t->x->stop, __ATOMIC_ACQUIRE)) {
		struct user_packet p[SY_EVENT_BURST];
		uint64_t now = sy_clock_ns();
		unsigned made = t->share > 0 ? packets_make(t, p, now) : 0, got = 0;
		if (made > 0 && t->x->event)
			packets_send(t, p, made);
		else if (made > 0)
			packets_limit(t, p, made, now);
		if (t->consumes)
			got = packets_receive(t);
		if (made + got == 0 && t->x->event)
			sy_event_maintain(sy_event_port(t->x->event, t->number));
	}
	rte_thread_unregister();
	return NULL;
}

static void real_begin(struct real *x, const struct event_arguments *a)
{
	bool device = engine_is_atomic(a), apart = device && a->consumers == 1;
	*x = (struct real){
	        .a = a, .engine = engine_named(a->engine), .threads = a->consumers + apart};
	if (sy_limit_rate_init(&x->rate, LIMIT_BITS, 8 * SECOND, a->burst, sy_clock_ns(), NULL) < 0)
		must(NULL);
	if (device)
		x->event = event_must(a->device, SY_EVENT_ATOMIC, x->threads,
		                      apart ? 2 : (UINT64_C(1) << x->threads) - 1, 0, 0);
	x->limit = must(aligned_alloc(SY_CACHE_LINE, (USERS + 3) * sizeof(*x->limit)));
	for (unsigned u = 0; u < USERS; u++)
		sy_limit_init(&x->limit[u], &x->rate, a->batch, x->rate.from_ns);
	for (unsigned i = 0; i < x->threads; i++) {
		struct real_thread *t = &x->thread[i];
		*t = (struct real_thread){.x = x,
		                          .number = i,
		                          .share = apart ? i == 0 : 1.0 / x->threads,
		                          .consumes = device && (!apart || i == 1),
		                          .source = {.random = a->seed + i}};
		t->local = must(calloc(USERS, sizeof(uint64_t)));
		t->passed = must(calloc(USERS, sizeof(uint64_t)));
		t->lost = must(calloc(USERS, sizeof(uint64_t)));
		if (pthread_create(&t->id, NULL, real_main, t) != 0)
			must(NULL);
	}
}

static void real_end(struct real *x)
{
	__atomic_store_n(&x->stop, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < x->threads; i++) {
		pthread_join(x->thread[i].id, NULL);
		free(x->thread[i].local);
		free(x->thread[i].passed);
		free(x->thread[i].lost);
	}
	if (x->event)
		sy_event_close(x->event, event_forget, NULL);
	free(x->limit);
}

/* All that has passed until now, by user; returns when. Reads again if it was interrupted: what is
 * read late is counted in this sample, and its time in the next one. */
static uint64_t passed_read(const struct real *x, uint64_t *passed)
{
	uint64_t from, to;
	unsigned tries = 0;
	do {
		from = sy_clock_ns();
		memset(passed, 0, USERS * sizeof(*passed));
		for (unsigned i = 0; i < x->threads; i++)
			for (unsigned u = 0; u < USERS; u++)
				passed[u] +=
				        __atomic_load_n(&x->thread[i].passed[u], __ATOMIC_RELAXED);
		to = sy_clock_ns();
	} while (to - from > READ_NS && ++tries < READ_TRIES);
	return from + (to - from) / 2;
}

static void sleep_ms(unsigned ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) != 0)
		continue;
}

/* Users within their limit: what limits took from them, and what a full device did. */
static void losses_report(const struct real *x)
{
	double passed = 0, lost = 0, refused = 0, late = 0;
	for (unsigned i = 0; i < x->threads; i++) {
		const struct real_thread *t = &x->thread[i];
		for (unsigned u = 0; u < WITHIN; u++) {
			passed += (double)__atomic_load_n(&t->passed[u], __ATOMIC_RELAXED);
			lost += (double)__atomic_load_n(&t->lost[u], __ATOMIC_RELAXED);
		}
		refused += (double)__atomic_load_n(&t->refused, __ATOMIC_RELAXED);
		late += (double)__atomic_load_n(&t->late_ns, __ATOMIC_RELAXED);
	}
	double sent = passed + lost + refused;
	percent_report(x->a, " in real time", "lost by users within the limit", 100 * lost / sent);
	percent_report(x->a, " in real time", "refused by a full device", 100 * refused / sent);
	percent_report(x->a, " in real time", "time when packets were late",
	               100 * late / (double)x->threads / (double)(sy_clock_ns() - x->rate.from_ns));
}

void real_perform(const struct event_arguments *a)
{
	static struct real x;
	uint64_t *before = must(calloc(USERS, sizeof(uint64_t)));
	uint64_t *after = must(calloc(USERS, sizeof(uint64_t)));
	double mean = 0;

	real_begin(&x, a);
	sleep_ms(WARM_UP_S * 1000);
	uint64_t from = passed_read(&x, before);
	for (unsigned s = 0; s < a->samples; s++) {
		sleep_ms(a->sample_ms);
		uint64_t to = passed_read(&x, after);
		for (unsigned u = 0; u < USERS; u++) {
			uint64_t all = after[u];
			after[u] -= before[u];
			before[u] = all;
		}
		struct user_sample sample = {after, (double)(to - from) / (double)SECOND};
		mean += sample_report(a, " in real time", &sample) / a->samples;
		from = to;
	}
	percent_report(a, " in real time", "error of the mean, observed user", fabs(mean));
	losses_report(&x);
	real_end(&x);
	free(before);
	free(after);
}
