// SPDX-License-Identifier: Apache-2.0
/* steelyard-limits-event: limits behind event devices. The experiments are in limits_real.c,
 * limits_virtual.c, limits_elephant.c and limits_cost.c. */
#include "limits_event.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_lcore.h>

#include "bench_options.h"
#include "event_eal.h"

static const char *const engine_names[SY_LIMIT_ENGINES] = {
        [SY_LIMIT_OWN] = "own",       [SY_LIMIT_CAS] = "cas",
        [SY_LIMIT_LOCK] = "lock",     [SY_LIMIT_LIGHT_LOCK] = "light-lock",
        [SY_LIMIT_ATOMIC] = "atomic",
};

void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "steelyard-limits-event: no memory, or no thread\n");
		exit(EXIT_FAILURE);
	}
	return p;
}

enum sy_limit_engine engine_named(const char *name)
{
	unsigned e = 0;
	while (e < SY_LIMIT_ENGINES && strcmp(engine_names[e], name) != 0)
		e++;
	if (e == SY_LIMIT_ENGINES) {
		fprintf(stderr, "steelyard-limits-event: no engine %s\n", name);
		exit(EXIT_FAILURE);
	}
	return (enum sy_limit_engine)e;
}

bool engine_is_atomic(const struct event_arguments *a)
{
	return engine_named(a->engine) == SY_LIMIT_ATOMIC;
}

const char *engine_label(const struct event_arguments *a)
{
	static char label[64];
	const char *device = strncmp(a->device, "event_", 6) == 0 ? a->device + 6 : a->device;
	if (!engine_is_atomic(a))
		return a->engine;
	snprintf(label, sizeof(label), "%s, %s", a->engine, device);
	return label;
}

struct sy_event *event_must(const char *device, enum sy_event_model model, unsigned ports,
                            uint64_t consumers, unsigned exit_port, unsigned capacity)
{
	struct sy_event_options o = {.device = device,
	                             .model = model,
	                             .ports = ports,
	                             .consumers = consumers,
	                             .exit = exit_port,
	                             .capacity = capacity};
	struct sy_event *event;
	struct sy_error err = {0};
	if (sy_event_open(&o, &event, &err) == 0)
		return event;
	fprintf(stderr, "steelyard-limits-event: %s\n", err.text);
	exit(EXIT_FAILURE);
}

void event_forget(uint64_t word, void *ctx)
{
}

void thread_settle(unsigned thread)
{
	cpu_set_t cpus, one;
	unsigned core = 0;
	sched_getaffinity(0, sizeof(cpus), &cpus);
	unsigned left = thread % (unsigned)CPU_COUNT(&cpus);
	while (!CPU_ISSET(core, &cpus) || left-- > 0)
		core++;
	CPU_ZERO(&one);
	CPU_SET(core, &one);
	pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
	if (rte_thread_register() < 0)
		must(NULL);
}

void percent_report(const struct event_arguments *a, const char *suffix, const char *metric,
                    double value)
{
	char params[128], name[128];
	const struct measure m = {"limits", params, name, "%", NULL};
	snprintf(name, sizeof(name), "%s%s", metric, suffix);
	snprintf(params, sizeof(params), "\"engine\": \"%s\", \"consumers\": %u", engine_label(a),
	         a->consumers);
	measure_report(&m, value, NULL, 0);
}

double sample_report(const struct event_arguments *a, const char *suffix,
                     const struct user_sample *s)
{
	double want = (double)LIMIT_BITS / 8 * s->seconds, worst = 0;
	for (unsigned u = WITHIN; u < USERS; u++)
		worst = fmax(worst, fabs(100 * ((double)s->passed[u] - want) / want));
	double observed = 100 * ((double)s->passed[USERS - 1] - want) / want;
	percent_report(a, suffix, "error of a sample, observed user", fabs(observed));
	percent_report(a, suffix, "error of a sample, worst of 4097", worst);
	return observed;
}

static bool experiment_perform(const struct event_arguments *a)
{
	static const struct {
		const char *name;
		void (*perform)(const struct event_arguments *a);
	} all[] = {{"real", real_perform},
	           {"virtual", virtual_perform},
	           {"elephant", elephant_perform},
	           {"cost", cost_perform}};
	for (unsigned i = 0; i < SY_ARRAY_LEN(all); i++)
		if (strcmp(all[i].name, a->experiment) == 0) {
			all[i].perform(a);
			return true;
		}
	return false;
}

int main(int argc, char **argv)
{
	struct event_arguments a = {.experiment = "real",
	                            .engine = "atomic",
	                            .device = "event_dsw",
	                            .model = "atomic",
	                            .consumers = 2,
	                            .samples = 20,
	                            .sample_ms = 2000,
	                            .burst = 15000,
	                            .batch = 6000,
	                            .buckets = 20000,
	                            .packets = 1u << 18,
	                            .runs = 21,
	                            .elephant = 90,
	                            .seed = 1};
	const struct option_entry options[] = {
	        {"experiment", "real|virtual|elephant|cost", OPTION_WORD, &a.experiment, 0, 0,
	         NULL},
	        {"engine", "own|cas|lock|light-lock|atomic", OPTION_WORD, &a.engine, 0, 0,
	         "own: one consumer; for elephant: static steering"},
	        {"device", "NAME", OPTION_WORD, &a.device, 0, 0, "event_dsw, event_sw, event_dlb2"},
	        {"model", "direct|unordered|ordered|atomic", OPTION_WORD, &a.model, 0, 0,
	         "for cost; without a limit but for atomic"},
	        {"consumers", "N", OPTION_UNSIGNED, &a.consumers, 1, THREADS_MAX,
	         "threads, for real and cost"},
	        {"samples", "N", OPTION_UNSIGNED, &a.samples, 0, 0, NULL},
	        {"sample-ms", "N", OPTION_UNSIGNED, &a.sample_ms, 0, 0,
	         "for real; virtual ones have 2 s"},
	        {"burst", "BYTES", OPTION_UNSIGNED, &a.burst, LONGEST, 1e9, "that a bucket holds"},
	        {"batch", "BYTES", OPTION_UNSIGNED, &a.batch, LONGEST, 1e9,
	         "that a thread takes with a light lock"},
	        {"buckets", "N", OPTION_UNSIGNED, &a.buckets, 0, 0, "for cost"},
	        {"packets", "N", OPTION_UNSIGNED, &a.packets, 64, 1e9, "of a run, for cost"},
	        {"runs", "N", OPTION_UNSIGNED, &a.runs, 0, 0, "for cost"},
	        {"elephant", "PERCENT", OPTION_UNSIGNED, &a.elephant, 1, 1000,
	         "its packets, of what one consumer can handle"},
	        {"peek", NULL, OPTION_FLAG, &a.peek, 0, 0,
	         "for elephant: the producer checks the bucket first"},
	        {"seed", "N", OPTION_COUNT, &a.seed, 0, 0, NULL},
	};
	OPTIONS_TAKE(argc, argv, "Rate limits behind event devices: exactness, elephants, cost.",
	             options);
	if (strcmp(a.engine, "own") == 0 && a.consumers > 1 &&
	    strcmp(a.experiment, "elephant") != 0) {
		fprintf(stderr, "steelyard-limits-event: own is an engine for one consumer\n");
		return EXIT_FAILURE;
	}
	event_eal_start();
	if (experiment_perform(&a))
		return 0;
	fprintf(stderr, "steelyard-limits-event: %s is no experiment\n", a.experiment);
	return EXIT_FAILURE;
}
