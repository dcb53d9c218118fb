// SPDX-License-Identifier: Apache-2.0
#ifndef MUST_H
#define MUST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline void must(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "test harness: %s\n", what);
	abort();
}

#endif
