// SPDX-License-Identifier: Apache-2.0
/* The time to move a cache line from one core to another. */
#ifndef GENERATOR_LINE_H
#define GENERATOR_LINE_H

/* One-way nanoseconds between this thread's core and `core`: half the median time of a round trip.
 * Below 0: there is no such core, or it did not answer within a second. */
double line_latency(unsigned core);

#endif
