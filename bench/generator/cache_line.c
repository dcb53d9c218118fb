// SPDX-License-Identifier: Apache-2.0
#include "cache_line.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include <sy_base.h>

#include "measure.h"

#define GROUP  32 /* round trips timed together, to spread the clock's own cost */
#define GROUPS 128

/* Each side waits for the other's number and writes the next one: the far side writes odd
 * numbers. */
struct line {
	uint64_t value __attribute__((aligned(128)));
	bool stop __attribute__((aligned(128)));
};

static uint64_t value_read(const struct line *l)
{
	return __atomic_load_n(&l->value, __ATOMIC_ACQUIRE);
}

static void *far_side(void *line)
{
	struct line *l = line;
	for (uint64_t next = 1; !__atomic_load_n(&l->stop, __ATOMIC_RELAXED);)
		if (value_read(l) == next - 1) {
			__atomic_store_n(&l->value, next, __ATOMIC_RELEASE);
			next += 2;
		}
	return NULL;
}

/* Waits for the far side's answer to value − 1. */
static bool answer_wait(const struct line *l, uint64_t value, uint64_t deadline)
{
	for (unsigned spins = 0; value_read(l) != value; spins++)
		if (spins % 4096 == 4095 && sy_clock_ns() > deadline)
			return false;
	return true;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static double near_side(struct line *l)
{
	uint64_t took[GROUPS], deadline = sy_clock_ns() + UINT64_C(1000000000), value = 1;
	if (!answer_wait(l, value, deadline))
		return -1;
	for (unsigned g = 0; g < GROUPS; g++) {
		uint64_t start = rte_rdtsc();
		for (unsigned i = 0; i < GROUP; i++) {
			__atomic_store_n(&l->value, ++value, __ATOMIC_RELEASE);
			if (!answer_wait(l, ++value, deadline))
				return -1;
		}
		took[g] = rte_rdtsc() - start;
	}
	qsort(took, GROUPS, sizeof(*took), compare);
	return measure_ns(took[GROUPS / 2]) / (2 * GROUP);
}

double line_latency(unsigned core)
{
	struct line l = {0};
	pthread_attr_t attributes;
	pthread_t far;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	pthread_attr_init(&attributes);
	int code = pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
	if (code == 0)
		code = pthread_create(&far, &attributes, far_side, &l);
	pthread_attr_destroy(&attributes);
	if (code != 0)
		return -1;
	double ns = near_side(&l);
	__atomic_store_n(&l.stop, true, __ATOMIC_RELAXED);
	pthread_join(far, NULL);
	return ns;
}
