// SPDX-License-Identifier: Apache-2.0
/* steelyard-limits: how exact the engines of rate limits are (limits_rate.c), and what they cost.
 * The engines' code is the forwarder's. */
#include "limits_rate.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "bench_options.h"
#include "measure.h"

#define SAMPLES     20u
#define BURST       32u
#define THREADS_MAX 16u
#define PLENTY      (UINT64_C(1) << 40) /* bytes: threads whose times differ pass all the same */

/* atomic needs an event device: limits_event.c. */
static const char *const engine_names[SY_LIMIT_ENGINES] = {
        [SY_LIMIT_OWN] = "own",
        [SY_LIMIT_CAS] = "cas",
        [SY_LIMIT_LOCK] = "lock",
        [SY_LIMIT_LIGHT_LOCK] = "light-lock",
};

void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "steelyard-limits: no memory\n");
		exit(EXIT_FAILURE);
	}
	return p;
}

enum sy_limit_engine engine_of(const char *name)
{
	for (unsigned e = 0; e < SY_LIMIT_ENGINES; e++)
		if (engine_names[e] && strcmp(engine_names[e], name) == 0)
			return (enum sy_limit_engine)e;
	fprintf(stderr, "steelyard-limits: no engine %s\n", name);
	exit(EXIT_FAILURE);
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* Threads charge the same buckets, each packet a random one. */
struct taker {
	pthread_t id;
	const struct limits_arguments *a;
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
			        !t->limited || sy_limit_charge(&t->limit[b], t->engine, t->rate,
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

/* Returns the cores of this process, round robin. */
static unsigned core_of(unsigned thread)
{
	cpu_set_t cpus;
	sched_getaffinity(0, sizeof(cpus), &cpus);
	unsigned left = thread % (unsigned)CPU_COUNT(&cpus), core = 0;
	for (;; core++)
		if (CPU_ISSET(core, &cpus) && left-- == 0)
			return core;
}

static void cost_perform(const struct limits_arguments *a)
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
	struct limits_arguments a = {.experiment = "rate",
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
	        {"engine", "own|cas|lock|light-lock", OPTION_WORD, &a.engine, 0, 0,
	         "own is for one consumer; with more its rate is wrong, and shows that"},
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
	if (strcmp(a.engine, "own") == 0 && a.consumers > 1 && strcmp(a.experiment, "cost") == 0) {
		fprintf(stderr, "steelyard-limits: own is an engine for one thread\n");
		return EXIT_FAILURE;
	}
	if (strcmp(a.experiment, "cost") == 0 && a.consumers <= THREADS_MAX)
		cost_perform(&a);
	else if (strcmp(a.experiment, "rate") == 0)
		rate_perform(&a);
	else {
		fprintf(stderr, "steelyard-limits: %s is no experiment, or has too many threads\n",
		        a.experiment);
		return EXIT_FAILURE;
	}
	return 0;
}
