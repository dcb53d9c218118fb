// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-gaps: how much of a core the machine takes from a program that only reads the clock:
 * interrupts, other programs, other virtual machines. A server on such a core stalls equally, so a
 * 99th percentile is meaningless if the share is about a hundredth.
 */
#include <stdio.h>
#include <stdlib.h>

#include <sy_base.h>

#include "bench_options.h"
#include "measure.h"

int main(int argc, char **argv)
{
	const char *core = "some";
	unsigned ms = 250, min_ns = 10000;
	const struct option_entry entry[] = {
	        {"core", "NAME", OPTION_WORD, &core, 0, 0, "what the row calls the core"},
	        {"ms", "N", OPTION_UNSIGNED, &ms, 1, 60000, "how long the clock is read"},
	        {"least", "NS", OPTION_UNSIGNED, &min_ns, 1000, 1000000000,
	         "shorter pauses between two readings do not count"},
	};
	uint64_t begin, last, taken = 0, longest = 0, count = 0;
	char params[80], evidence[80];

	OPTIONS_TAKE(argc, argv, "How much of a core the machine takes from a program on it.",
	             entry);
	begin = last = sy_clock_ns();
	while (last - begin < ms * UINT64_C(1000000)) {
		uint64_t now = sy_clock_ns(), gap = now - last;
		last = now;
		if (gap < min_ns)
			continue;
		taken += gap;
		count++;
		longest = gap > longest ? gap : longest;
	}
	snprintf(params, sizeof(params), "\"core\": \"%s\"", core);
	snprintf(evidence, sizeof(evidence), "\"pauses\": %llu, \"longest_us\": %.1f",
	         (unsigned long long)count, (double)longest / 1e3);
	measure_report(&(struct measure){.bench = "stack",
	                                 .params = params,
	                                 .metric = "taken by the machine",
	                                 .unit = "%",
	                                 .evidence = evidence},
	               100.0 * (double)taken / (double)(last - begin), NULL, 0);
	return 0;
}
