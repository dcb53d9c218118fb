// SPDX-License-Identifier: Apache-2.0
/* steelyard-limits: how exact the engines of rate limits are, and what they cost.
 *
 * The experiment is that of the exact-rate-limiting paper (shared tester, 20 samples of 2 s), in
 * virtual time. Each packet goes to a random consumer, which handles bursts late
 * and in any order. The engines' code is the forwarder's. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include <sy_limit.h>

#include "limits_users.h"
#include "measure.h"
#include "options.h"

#define SAMPLE_NS     (2 * SECOND)
#define SAMPLES       20u
#define BURST         32u
#define CONSUMERS_MAX 64u
#define THREADS_MAX   16u
#define PLENTY        (UINT64_C(1) << 40) /* bytes: threads whose times differ pass all the same */

/* atomic needs an event device: limits_event.c. */
static const char *const engine_names[SY_LIMIT_ENGINES] = {
        [SY_LIMIT_OWN] = "own",
        [SY_LIMIT_CAS] = "cas",
        [SY_LIMIT_LOCK] = "lock",
        [SY_LIMIT_LIGHT_LOCK] = "light-lock",
};

struct arguments {
	const char *experiment, *engine;
	unsigned consumers, samples, burst, batch, buckets, packets, runs;
	uint64_t seed;
};

static void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "steelyard-limits: no memory\n");
		exit(EXIT_FAILURE);
	}
	return p;
}

static enum sy_limit_engine engine_of(const char *name)
{
	for (unsigned e = 0; e < SY_LIMIT_ENGINES; e++)
		if (engine_names[e] && strcmp(engine_names[e], name) == 0)
			return (enum sy_limit_engine)e;
	fprintf(stderr, "steelyard-limits: no engine %s\n", name);
	exit(EXIT_FAILURE);
}

/* ---- the paper's experiment, in virtual time ------------------------------------------------- */

struct consumer {
	struct user_packet waiting[BURST];
	unsigned count;
	uint64_t *local; /* [USERS] */
};

struct experiment {
	struct arguments a;
	enum sy_limit_engine engine;
	struct user_source source;
	uint64_t now;
	struct sy_limit_rate rate;
	struct sy_limit *limit;  /* [USERS] */
	uint64_t *passed, *lost; /* [USERS] bytes of this sample, and of all */
	struct consumer consumer[CONSUMERS_MAX];
};

static void consumer_run(struct experiment *x, struct consumer *c)
{
	uint64_t volume = sy_limit_volume(&x->rate, x->now);
	for (unsigned i = 0; i < c->count; i++) {
		const struct user_packet *p = &c->waiting[i];
		bool taken = sy_limit_take(&x->limit[p->user], x->engine, &x->rate,
		                           &c->local[p->user], volume, p->length);
		*(taken ? &x->passed[p->user] : &x->lost[p->user]) += p->length;
	}
	c->count = 0;
}

/* Sends packets until a time. A consumer handles its packets when its burst is full, or earlier by
 * chance, so consumers overtake each other. */
static void experiment_run(struct experiment *x, uint64_t until)
{
	double now = (double)x->now;
	while (now < (double)until) {
		uint64_t r;
		struct user_packet p = user_packet(&x->source, &r);
		struct consumer *c = &x->consumer[(r >> 32) % x->a.consumers];
		c->waiting[c->count++] = p;
		now += p.length * 8e9 / ALL_BITS;
		x->now = (uint64_t)now;
		if (c->count == BURST || (r >> 40) % BURST == 0)
			consumer_run(x, c);
	}
}

static void experiment_begin(struct experiment *x, const struct arguments *a)
{
	struct sy_error err = {0};
	*x = (struct experiment){.a = *a,
	                         .engine = engine_of(a->engine),
	                         .source = {.random = a->seed},
	                         .now = SECOND};
	if (sy_limit_rate_init(&x->rate, LIMIT_BITS, 8 * SECOND, a->burst, x->now, &err) < 0) {
		fprintf(stderr, "steelyard-limits: %s\n", err.text);
		exit(EXIT_FAILURE);
	}
	x->limit = must(aligned_alloc(SY_CACHE_LINE, (USERS + 3) * sizeof(*x->limit)));
	x->passed = must(calloc(USERS, sizeof(*x->passed)));
	x->lost = must(calloc(USERS, sizeof(*x->lost)));
	for (unsigned u = 0; u < USERS; u++)
		sy_limit_init(&x->limit[u], &x->rate, a->batch, x->now);
	for (unsigned c = 0; c < a->consumers; c++)
		x->consumer[c].local = must(calloc(USERS, sizeof(uint64_t)));
}

static void experiment_end(struct experiment *x)
{
	for (unsigned c = 0; c < x->a.consumers; c++)
		free(x->consumer[c].local);
	free(x->limit);
	free(x->passed);
	free(x->lost);
}

static void report(const struct experiment *x, const char *metric, double value)
{
	char params[128];
	const struct measure m = {"limits", params, metric, "%", NULL};
	snprintf(params, sizeof(params), "\"engine\": \"%s\", \"consumers\": %u", x->a.engine,
	         x->a.consumers);
	measure_report(&m, value, NULL, 0);
}

/* Deviation of a user's rate in this sample from its limit, in percent. */
static double error_of(const struct experiment *x, unsigned user)
{
	double want = (double)LIMIT_BITS / 8 * (double)SAMPLE_NS / (double)SECOND;
	return 100 * ((double)x->passed[user] - want) / want;
}

static void experiment_perform(const struct arguments *a)
{
	struct experiment x;
	double mean = 0, lost = 0, sent = 0;

	experiment_begin(&x, a);
	experiment_run(&x,
	               x.now + 5 * SECOND); /* full buckets empty, batches lie where they will */
	memset(x.lost, 0, USERS * sizeof(*x.lost));
	for (unsigned s = 0; s < a->samples; s++) {
		double worst = 0;
		memset(x.passed, 0, USERS * sizeof(*x.passed));
		experiment_run(&x, x.now + SAMPLE_NS);
		for (unsigned u = WITHIN; u < USERS; u++)
			worst = fmax(worst, fabs(error_of(&x, u)));
		for (unsigned u = 0; u < WITHIN; u++)
			sent += (double)x.passed[u];
		report(&x, "error of a sample, observed user", fabs(error_of(&x, USERS - 1)));
		report(&x, "error of a sample, worst of 4097", worst);
		mean += error_of(&x, USERS - 1) / a->samples;
	}
	for (unsigned u = 0; u < WITHIN; u++)
		lost += (double)x.lost[u];
	report(&x, "error of the mean, observed user", fabs(mean));
	report(&x, "lost by users within the limit", 100 * lost / (sent + lost));
	experiment_end(&x);
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* Threads take from the same buckets, each packet from a random one. */
struct taker {
	pthread_t id;
	const struct arguments *a;
	enum sy_limit_engine engine;
	bool limited;
	unsigned core;
	const struct sy_limit_rate *rate;
	struct sy_limit *limit;
	uint64_t *local;
	uint32_t *bucket; /* [packets] */
	pthread_barrier_t *start;
	uint64_t now, passed;
	double ns;
};

static void *taker_main(void *arg)
{
	struct taker *t = arg;
	cpu_set_t cpus;
	CPU_ZERO(&cpus);
	CPU_SET(t->core, &cpus);
	pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	pthread_barrier_wait(t->start);
	uint64_t start = rte_rdtsc();
	for (unsigned i = 0; i < t->a->packets; i += BURST) {
		/* All pass: refusing is cheaper, as nothing is written. */
		uint64_t volume = sy_limit_volume(t->rate, t->now += BURST * 100);
		for (unsigned k = i; k < i + BURST; k++)
			__builtin_prefetch(&t->limit[t->bucket[k]], 1);
		for (unsigned k = i; k < i + BURST; k++) {
			uint32_t b = t->bucket[k];
			t->passed +=
			        !t->limited || sy_limit_take(&t->limit[b], t->engine, t->rate,
			                                     &t->local[b], volume, 64 + b % 64);
		}
	}
	t->ns = measure_ns(rte_rdtsc() - start) / t->a->packets;
	return NULL;
}

/* Nanoseconds per packet of the slowest thread. */
static double takers_run(struct taker *taker, unsigned threads, bool limited)
{
	pthread_barrier_t start;
	double ns = 0;
	pthread_barrier_init(&start, NULL, threads);
	for (unsigned i = 0; i < threads; i++) {
		taker[i].limited = limited;
		taker[i].start = &start;
		if (pthread_create(&taker[i].id, NULL, taker_main, &taker[i]) != 0)
			must(NULL);
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(taker[i].id, NULL);
		ns = fmax(ns, taker[i].ns);
	}
	pthread_barrier_destroy(&start);
	return ns;
}

/* The cores that this process may use, in turn. */
static unsigned core_of(unsigned thread)
{
	cpu_set_t cpus;
	sched_getaffinity(0, sizeof(cpus), &cpus);
	unsigned left = thread % (unsigned)CPU_COUNT(&cpus), core = 0;
	for (;; core++)
		if (CPU_ISSET(core, &cpus) && left-- == 0)
			return core;
}

static void cost_perform(const struct arguments *a)
{
	struct taker taker[THREADS_MAX] = {0};
	struct sy_limit_rate rate;
	char params[128];
	uint64_t random = a->seed;
	const struct measure m = {"limits", params, "cost", "ns/packet", NULL};

	snprintf(params, sizeof(params), "\"engine\": \"%s\", \"threads\": %u, \"buckets\": %u",
	         a->engine, a->consumers, a->buckets);
	if (sy_limit_rate_init(&rate, 400 * SECOND, 8 * SECOND, PLENTY, SECOND, NULL) < 0)
		must(NULL);
	struct sy_limit *limit =
	        must(aligned_alloc(SY_CACHE_LINE, (a->buckets + 3) / 4 * 4 * sizeof(*limit)));
	for (unsigned b = 0; b < a->buckets; b++)
		sy_limit_init(&limit[b], &rate, a->batch, SECOND);
	for (unsigned i = 0; i < a->consumers; i++) {
		taker[i] = (struct taker){.a = a,
		                          .now = SECOND,
		                          .engine = engine_of(a->engine),
		                          .rate = &rate,
		                          .core = core_of(i),
		                          .limit = limit};
		taker[i].local = must(calloc(a->buckets, sizeof(uint64_t)));
		taker[i].bucket = must(calloc(a->packets + BURST, sizeof(uint32_t)));
		for (unsigned k = 0; k < a->packets; k++)
			taker[i].bucket[k] = (uint32_t)(measure_random(&random) % a->buckets);
	}
	takers_run(taker, a->consumers, true); /* warms up */
	for (unsigned run = 0; run < a->runs; run++) {
		double none = takers_run(taker, a->consumers, false);
		measure_report(&m, takers_run(taker, a->consumers, true), "no limit", none);
	}
	for (unsigned i = 0; i < a->consumers; i++) {
		if (taker[i].passed != (2 * a->runs + 1) * (uint64_t)a->packets) {
			fprintf(stderr, "steelyard-limits: packets were refused\n");
			exit(EXIT_FAILURE);
		}
		free(taker[i].local);
		free(taker[i].bucket);
	}
	free(limit);
}

int main(int argc, char **argv)
{
	struct arguments a = {.experiment = "rate",
	                      .engine = "cas",
	                      .consumers = 1,
	                      .samples = SAMPLES,
	                      .burst = 15000,
	                      .batch = 6000,
	                      .buckets = 1,
	                      .packets = 1u << 16,
	                      .runs = 21,
	                      .seed = 1};
	const struct option_entry options[] = {
	        {"experiment", "rate|cost", OPTION_WORD, &a.experiment, 0, 0, NULL},
	        {"engine", "own|cas|lock|light-lock", OPTION_WORD, &a.engine, 0, 0, NULL},
	        {"consumers", "N", OPTION_UNSIGNED, &a.consumers, 1, CONSUMERS_MAX,
	         "of packets; threads, for cost"},
	        {"samples", "N", OPTION_UNSIGNED, &a.samples, 0, 0, "of 2 s of virtual time"},
	        {"burst", "BYTES", OPTION_UNSIGNED, &a.burst, LONGEST, 1e9, "that a bucket holds"},
	        {"batch", "BYTES", OPTION_UNSIGNED, &a.batch, LONGEST, 1e9,
	         "that a thread takes with a light lock"},
	        {"buckets", "N", OPTION_UNSIGNED, &a.buckets, 0, 0, "for cost"},
	        {"packets", "N", OPTION_UNSIGNED, &a.packets, BURST, 1e9,
	         "of a run, for cost; whole bursts of 32"},
	        {"runs", "N", OPTION_UNSIGNED, &a.runs, 0, 0, "for cost"},
	        {"seed", "N", OPTION_COUNT, &a.seed, 0, 0, NULL},
	};
	OPTIONS_TAKE(
	        argc, argv,
	        "The exactness of rate limits in virtual time, and their cost on this machine.",
	        options);
	a.packets -= a.packets % BURST;
	if (strcmp(a.engine, "own") == 0 && a.consumers > 1) {
		fprintf(stderr, "steelyard-limits: own is an engine for one consumer\n");
		return EXIT_FAILURE;
	}
	if (strcmp(a.experiment, "cost") == 0 && a.consumers <= THREADS_MAX)
		cost_perform(&a);
	else if (strcmp(a.experiment, "rate") == 0)
		experiment_perform(&a);
	else {
		fprintf(stderr, "steelyard-limits: %s is no experiment, or has too many threads\n",
		        a.experiment);
		return EXIT_FAILURE;
	}
	return 0;
}
