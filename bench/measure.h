// SPDX-License-Identifier: Apache-2.0
/*
 * What benchmarks have in common: how a measured value is told, and against what. A benchmark
 * prints a line of JSON a run; `python -m bench` gathers them, takes medians, draws.
 *
 * A cell is what is measured under one set of parameters. Its runs and those of its baseline
 * alternate, so that what the machine does meanwhile happens to both.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct measure {
	const char *bench;  /* "fastpath" */
	const char *params; /* members of a JSON object: "\"mode\": \"fnat\", \"sessions\": 1000" */
	const char *metric; /* "cost" */
	const char *unit;   /* "ns/packet" */
	/* What was seen beside, "\"busy\": 0.99"; NULL: nothing. */
	const char *evidence;
};

/* A run's value, and what the baseline took beside it; baseline NULL: there is none. */
void measure_report(const struct measure *m, double value, const char *baseline,
                    double baseline_value);

/* Nanoseconds of CPU work, by the TSC: cheap enough to be read around a burst. */
double measure_ns(uint64_t cycles);

/*
 * The baseline of look-ups: what the machine takes to update random cache lines, in bursts. For
 * each packet of a burst two lines of the memory are fetched (prefetched for the whole burst first)
 * and then written: what a forwarder that did nothing but find its session would have to do.
 */
struct baseline;
/* Memory of so many bytes on pages of `huge` bytes (0: as the kernel gives them to session tables);
 * NULL: there is none. */
struct baseline *baseline_open(uint64_t bytes, uint64_t huge);
/* Nanoseconds a packet, over so many bursts of `burst` packets. */
double baseline_run(struct baseline *y, unsigned bursts, unsigned burst);
void baseline_close(struct baseline *y);

/* The middle one; sorts them. */
double measure_median(double *value, size_t count);

/* splitmix64: the next number of a state. */
static inline uint64_t measure_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

#endif
