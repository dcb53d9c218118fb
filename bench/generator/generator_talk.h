// SPDX-License-Identifier: Apache-2.0
/* Complete TCP connections (bench/connections.h) over a link, as many as the far end handles. */
#ifndef GENERATOR_TALK_H
#define GENERATOR_TALK_H

#include <connections.h>

#include "generator_link.h"

#define TALK_WINDOW_MAX 2048

struct talk_options {
	unsigned family, window; /* window: connections at once */
	double warm, seconds;
};

struct talk_result {
	uint64_t begun, completed;
	uint64_t lost; /* begun and never completed: one of their packets was lost */
	uint64_t strange, resets;
	double rate; /* completed per second, during the measurement */
	double full; /* share of send calls that found the link full */
};

/* first: the number of the first connection; set to that of the next one, so none is repeated. */
int talk_run(struct link *l, uint64_t *first, const struct talk_options *o, struct talk_result *r,
             struct sy_error *err);

#endif
