// SPDX-License-Identifier: Apache-2.0
/* Parts of steelyard-limits-event: what a limit behind an event device does, and costs. */
#ifndef BENCH_LIMITS_EVENT_H
#define BENCH_LIMITS_EVENT_H

#include <rte_lcore.h>

#include <sy_event.h>
#include <sy_limit.h>

#include "limits_users.h"

struct event_arguments {
	const char *experiment, *engine, *device, *model;
	bool peek;
	unsigned consumers, samples, sample_ms, burst, batch, buckets, packets, runs, elephant;
	uint64_t seed;
};

#define THREADS_MAX 16u

/* Whether the engine's name is "atomic", which needs the device. */
bool engine_is_atomic(const struct event_arguments *a);
/* The engine of a name; exits if there is none. */
enum sy_limit_engine engine_named(const char *name);
/* "atomic, dsw" with event_dsw; other engines by their name alone. */
const char *engine_label(const struct event_arguments *a);
/* Opens the device; exits with its complaint. */
struct sy_event *event_must(const char *device, enum sy_event_model model, unsigned ports,
                            uint64_t consumers, unsigned exit, unsigned capacity);
/* Of a device that is closed with events in it, which are only numbers. */
void event_forget(uint64_t word, void *ctx);
void *must(void *p);
/* Pins the calling thread to one of the process's cores, and registers it with EAL. */
void thread_settle(unsigned thread);

/* What users got in one sample. */
struct user_sample {
	const uint64_t *passed; /* [USERS] bytes */
	double seconds;
};
/* Reports a sample's errors; suffix: " in real time", or none. Returns the observed user's. */
double sample_report(const struct event_arguments *a, const char *suffix,
                     const struct user_sample *s);
/* Reports a percentage of this engine. */
void percent_report(const struct event_arguments *a, const char *suffix, const char *metric,
                    double value);

void real_perform(const struct event_arguments *a);     /* limits_real.c */
void virtual_perform(const struct event_arguments *a);  /* limits_virtual.c */
void elephant_perform(const struct event_arguments *a); /* limits_elephant.c */
void cost_perform(const struct event_arguments *a);     /* limits_cost.c */

#endif
