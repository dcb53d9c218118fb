// SPDX-License-Identifier: Apache-2.0
/* steelyard-soak: the forwarder's own pipeline under random and mutated frames, while its
 * configuration changes and time jumps. At the end it checks that no buffer and no session leaked,
 * every packet is accounted for, and every drop reason occurred. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz_traffic.h"

#define MORE_RUNS 8

struct options {
	uint64_t frames, seed;
};

static bool options_read(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {{"frames", required_argument, NULL, 'f'},
	                                      {"seed", required_argument, NULL, 's'},
	                                      {0}};
	*o = (struct options){.frames = 10000000, .seed = 1};
	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		char *end = NULL;
		if (c == 'f')
			o->frames = strtoull(optarg, &end, 10);
		else if (c == 's')
			o->seed = strtoull(optarg, &end, 10);
		if (!end || *end || o->frames == 0) {
			fprintf(stderr, "usage: steelyard-soak [--frames N] [--seed S]\n");
			return false;
		}
	}
	return true;
}

static bool check(bool holds, const char *what)
{
	if (!holds)
		fprintf(stderr, "soak: FAILED: %s\n", what);
	return holds;
}

/* One soak test from an empty runtime to an empty runtime. */
static bool soak_run(struct fuzz_tally *sum, uint64_t frames, uint64_t seed, unsigned workers)
{
	static struct fuzz_traffic w; /* megabytes */
	if (!fuzz_traffic_open(&w, seed, workers))
		return false;
	fuzz_traffic_run(&w, frames);
	fuzz_traffic_settle(&w);
	struct fuzz_tally *t = &w.tally;
	printf("%u worker%s: %lu frames in, %lu originated, %lu out, %lu dropped, %lu suppressed; "
	       "%lu sessions, %lu commits, %lu refused\n",
	       workers, workers > 1 ? "s" : "", t->in, t->originated, t->out, t->dropped,
	       t->suppressed, t->created, t->commits, t->refusals);
	bool ok =
	        check(t->in + t->originated == t->out + t->dropped,
	              "packets in = packets out + dropped") &&
	        check(t->buffers == 0, "no packet buffer is left in use") &&
	        check(t->live == 0, "no session outlives all timeouts") &&
	        check(t->created == t->ended, "every session created has ended") &&
	        check(t->active == 0, "every session's slot is released") &&
	        check(t->miscounted == 0, "clients have as many sessions as are counted") &&
	        check(t->stayed == 0, "no session stays that a list with existing: end refuses") &&
	        check(t->ids == 0, "every id of a deleted object is free again") &&
	        check(t->ugly == 0, "what is sent can be parsed, with right checksums") &&
	        check(workers == 1 || t->handed > 0, "packets reach their slot's worker");
	fuzz_traffic_add(sum, &w.tally);
	fuzz_traffic_close(&w);
	return ok;
}

/* Returns a drop reason that no frame has met, or SY_DROP_NONE. Only a pool full of validated
 * sessions has no port: balance/tests/test_snat.c. Only a node with peers is a backup, or relays:
 * tests/wire/test_pair_failures.py, balance/tests/test_relay.c. */
static enum sy_drop reason_missing(const struct fuzz_tally *sum)
{
	for (unsigned reason = SY_DROP_NONE + 1; reason < SY_DROP_COUNT; reason++)
		if (sum->drop[reason] == 0 && reason != SY_DROP_NO_POOL_PORT &&
		    reason != SY_DROP_BACKUP && reason != SY_DROP_RELAY_RATE)
			return (enum sy_drop)reason;
	return SY_DROP_NONE;
}

int main(int argc, char **argv)
{
	struct options o;
	struct fuzz_tally sum = {0};
	if (!options_read(argc, argv, &o))
		return EXIT_FAILURE;
	bool ok = soak_run(&sum, o.frames - o.frames / 3, o.seed, 1);
	ok = soak_run(&sum, o.frames / 3, o.seed + 1, 2) && ok;
	/* A reason that 100 000 frames meet a few times is sometimes met by none of them. */
	for (unsigned more = 2; ok && more < 2 + MORE_RUNS && reason_missing(&sum); more++)
		ok = soak_run(&sum, o.frames / 3, o.seed + more, 1);
	fuzz_traffic_print(&sum);
	ok = check(2 * sum.reached >= sum.in, "half of the frames reach session code") && ok;
	enum sy_drop missing = reason_missing(&sum);
	if (missing)
		ok = check(false, sy_drop_name(missing));
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
