// SPDX-License-Identifier: Apache-2.0
/* steelyard-limits: limits.c has the costs, limits_rate.c the paper's experiment. A file may define
 * SY_LIMIT_STEP before it includes this one. */
#ifndef BENCH_LIMITS_RATE_H
#define BENCH_LIMITS_RATE_H

#include <sy_limit.h>

#include "limits_users.h"

#define CONSUMERS_MAX 64u

struct limits_arguments {
	const char *experiment, *engine;
	unsigned consumers, samples, burst, batch, buckets, packets, runs;
	uint64_t seed;
};

/* Ends the program for NULL. */
void *must(void *p);
enum sy_limit_engine engine_of(const char *name);
void rate_perform(const struct limits_arguments *a);

#endif
