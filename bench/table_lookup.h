// SPDX-License-Identifier: Apache-2.0
/* The time to find a packet's session, by how full the table is. Packets of random sessions,
 * alternating clients and servers, are looked up in bursts like in the forwarder's look-up stage:
 * hashes, buckets, records, then the match. The look-up baseline runs in alternation. */
#ifndef BENCH_LOOKUP_H
#define BENCH_LOOKUP_H

#include "network.h"

struct lookup;
/* This many runs of this many packets. A run is short, so most runs are undisturbed. Each has
 * its own packets; together they should touch more cache lines than the caches hold. NULL: no
 * memory. */
struct lookup *lookup_open(const struct network *n, uint64_t packets, unsigned runs, uint64_t seed);
void lookup_close(struct lookup *l);

/* Allocates the baseline's memory. before: makes its runs now and frees the memory, because it does
 * not fit beside the table. Returns false without memory. */
bool lookup_baseline(struct lookup *l, uint64_t bytes, uint64_t huge, bool before);

/* Makes the runs and reports them as look-ups at this fill (percent). Returns false if the table's
 * contents are wrong. params: as in struct measure; the fill is added. */
bool lookup_measure(struct lookup *l, const char *params, unsigned fill);

#endif
