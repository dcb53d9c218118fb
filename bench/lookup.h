// SPDX-License-Identifier: Apache-2.0
/*
 * What it takes to find a packet's session, by how full the table is. Packets of random sessions
 * are looked up in bursts, of clients and of servers in turn, as the forwarder's look-up stage
 * does: hashes, buckets, records, then the match. Beside it, in turn, the baseline of look-ups.
 */
#ifndef BENCH_LOOKUP_H
#define BENCH_LOOKUP_H

#include "network.h"

struct lookup;
/* So many runs of so many packets; a run is short, so that most are undisturbed. Each has packets
 * of its own, and the lines that all of them touch should outgrow the caches. NULL: no memory. */
struct lookup *lookup_open(const struct network *n, uint64_t packets, unsigned runs, uint64_t seed);
void lookup_close(struct lookup *l);

/* The baseline's memory. before: its runs are made now, and the memory is let go, as there is not
 * enough for it beside the table. Returns false without memory. */
bool lookup_baseline(struct lookup *l, uint64_t bytes, uint64_t huge, bool before);

/* The runs, told as look-ups at this fill (percent). Returns false if the table does not hold what
 * it should. params: as in struct measure; the fill is added to them. */
bool lookup_measure(struct lookup *l, const char *params, unsigned fill);

#endif
