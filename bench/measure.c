// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_cycles.h>

#include <sy_base.h>

#define BURST_MAX 256

void measure_report(const struct measure *m, double value, const char *baseline,
                    double baseline_value)
{
	if (!isfinite(value) || (baseline && !isfinite(baseline_value))) {
		fprintf(stderr, "%s, {%s}: \"%s\" is no number: a run counted nothing\n", m->bench,
		        m->params, m->metric);
		exit(EXIT_FAILURE);
	}
	printf("{\"bench\": \"%s\", \"params\": {%s}, \"metric\": \"%s\", \"unit\": \"%s\", "
	       "\"value\": %.6g",
	       m->bench, m->params, m->metric, m->unit, value);
	if (baseline)
		printf(", \"baseline\": {\"name\": \"%s\", \"value\": %.6g}", baseline,
		       baseline_value);
	if (m->evidence)
		printf(", \"evidence\": {%s}", m->evidence);
	printf("}\n");
	fflush(stdout);
}

/* rte_get_tsc_hz() is rounded; this measures the rate once against the clock. */
static double tsc_rate(void)
{
	static double rate;
	if (rate == 0) {
		uint64_t ns = sy_clock_ns(), tsc = rte_rdtsc(), now;
		while ((now = sy_clock_ns()) - ns < 20000000)
			;
		rate = (double)(now - ns) / (double)(rte_rdtsc() - tsc);
	}
	return rate;
}

double measure_ns(uint64_t cycles)
{
	return (double)cycles * tsc_rate();
}

static int double_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double measure_median(double *value, size_t count)
{
	qsort(value, count, sizeof(*value), double_compare);
	return value[count / 2];
}

/* ---- the baseline ---------------------------------------------------------------------------- */

struct baseline {
	uint64_t *memory;
	uint64_t bytes, lines, random;
};

struct baseline *baseline_open(uint64_t bytes, uint64_t huge)
{
	struct baseline *y = calloc(1, sizeof(*y));
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	if (!y)
		return NULL;
	if (huge) {
		flags |= MAP_HUGETLB | (int)((unsigned)__builtin_ctzll(huge) << MAP_HUGE_SHIFT);
		bytes = (bytes + huge - 1) / huge * huge;
	}
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (memory == MAP_FAILED) {
		free(y);
		return NULL;
	}
	/* ordinary pages with the advice that session tables use, which asks for larger ones */
	if (!huge)
		(void)madvise(memory, bytes, MADV_HUGEPAGE);
	(void)madvise(memory, bytes, MADV_POPULATE_WRITE);
	*y = (struct baseline){memory, bytes, bytes / SY_CACHE_LINE, 1};
	return y;
}

double baseline_run(struct baseline *y, unsigned bursts, unsigned burst)
{
	uint64_t *line[2 * BURST_MAX], start = rte_rdtsc();
	if (burst > BURST_MAX)
		burst = BURST_MAX;
	for (unsigned k = 0; k < bursts; k++) {
		for (unsigned i = 0; i < 2 * burst; i++) {
			uint64_t n = (measure_random(&y->random) >> 32) * y->lines >> 32;
			line[i] = y->memory + n * (SY_CACHE_LINE / sizeof(uint64_t));
			__builtin_prefetch(line[i], 1);
		}
		for (unsigned i = 0; i < 2 * burst; i++)
			++*line[i];
	}
	return measure_ns(rte_rdtsc() - start) / ((double)bursts * burst);
}

void baseline_close(struct baseline *y)
{
	if (!y)
		return;
	munmap(y->memory, y->bytes);
	free(y);
}
