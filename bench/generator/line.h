// SPDX-License-Identifier: Apache-2.0
/* How long a cache line takes from one core to another. */
#ifndef GENERATOR_LINE_H
#define GENERATOR_LINE_H

/* Nanoseconds one way between this thread's core and `core`: half the median time in which a line
 * goes there and back. Below 0: there is no such core, or it did not answer within a second. */
double line_latency(unsigned core);

#endif
