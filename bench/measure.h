// SPDX-License-Identifier: Apache-2.0
/* Shared by benchmarks: how a measured value is reported, and against which baseline. A benchmark
 * prints one line of JSON per run; `python -m bench` collects the lines, takes medians and draws
 * pictures.
 *
 * A cell is the measurement with one set of parameters. Its runs alternate with those of its
 * baseline, so that disturbances of the machine affect both. */
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
	/* Further observations, "\"busy\": 0.99"; NULL: none. */
	const char *evidence;
};

/* Reports a run's value with its baseline's value; baseline NULL: there is none. */
void measure_report(const struct measure *m, double value, const char *baseline,
                    double baseline_value);

/* Nanoseconds for TSC cycles; reading the TSC is cheap enough to do around each burst. */
double measure_ns(uint64_t cycles);

/* The look-up baseline: the time that the machine needs to update random cache lines in bursts. For
 * each packet of a burst two lines are fetched (prefetched for the whole burst first) and then
 * written: the minimum for a forwarder that only finds its sessions. */
struct baseline;
/* Memory of this many bytes on pages of `huge` bytes (0: the kernel's choice, as for session
 * tables); NULL: no memory. */
struct baseline *baseline_open(uint64_t bytes, uint64_t huge);
/* Nanoseconds per packet, over this many bursts of `burst` packets. */
double baseline_run(struct baseline *y, unsigned bursts, unsigned burst);
void baseline_close(struct baseline *y);

/* The median; sorts the values. */
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
