// SPDX-License-Identifier: Apache-2.0
#include <sy_base.h>
#include <time.h>

uint64_t sy_clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
