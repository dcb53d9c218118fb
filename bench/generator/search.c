// SPDX-License-Identifier: Apache-2.0
#include "search.h"

/* 1: the rate passes, 0: it does not, -1: the search is given up. */
static int rate_passes(const struct search *s, double rate, search_trial trial, void *ctx)
{
	for (unsigned i = 0; i < s->tries; i++) {
		double lost = trial(ctx, rate);
		if (lost < 0)
			return -1;
		if (lost <= s->loss)
			return 1;
	}
	return 0;
}

double search_rate(const struct search *s, search_trial trial, void *ctx)
{
	double low = 0, high = s->ceiling, rate = high;
	while (high - low > s->resolution * s->ceiling) {
		int passes = rate_passes(s, rate, trial, ctx);
		if (passes < 0)
			return -1;
		if (passes)
			low = rate;
		else
			high = rate;
		rate = (low + high) / 2;
	}
	return low;
}
