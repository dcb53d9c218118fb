// SPDX-License-Identifier: Apache-2.0
/* steelyard-schedulers: how evenly each scheduler spreads sessions, how many sessions move when a
 * server leaves, joins or returns, and the cost of building and picking.
 *
 * Picks are compared with a baseline on this machine, the look-up of a random entry in a table of 1
 * MB. Seeds are fixed; only times differ between runs. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "measure.h"
#include "scheduler.h"

#define SERVERS_MAX    16384
#define BASELINE_WORDS (1u << 18) /* words: 1 MB */

struct options {
	unsigned servers, flows;
};

struct bench {
	struct options o;
	struct table_cache *table_cache;
	struct scheduler_state state;
	uint32_t *active;
	uint64_t random;
};

static uint64_t next(struct bench *b)
{
	return measure_random(&b->random);
}

static void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "schedulers: no memory\n");
		exit(EXIT_FAILURE);
	}
	return p;
}

static uint16_t weight_of(unsigned i, bool skewed)
{
	return skewed ? (uint16_t)(1 + i % 10) : 1;
}

enum { NO_SERVER = UINT32_MAX };

/* All servers but `absent`; `down` takes no sessions. */
static struct pool *pool_make(struct bench *b, const struct scheduler_ops *ops, bool skewed,
                              uint32_t absent, uint32_t down)
{
	struct pool *p = must(pool_create(ops, b->o.servers));
	int64_t budget = INT64_MAX;
	for (unsigned i = 0; i < b->o.servers; i++) {
		struct sy_addr a = sy_addr_v4(0);
		a.b[12] = 10;
		a.b[14] = (uint8_t)(i >> 8);
		a.b[15] = (uint8_t)i;
		if (i != absent)
			pool_add(p, i, scheduler_name(&a, 80), weight_of(i, skewed),
			         i == down ? 0 : SHARES, UINT32_MAX);
	}
	if (pool_build(p, b->table_cache, &budget) < 0)
		must(NULL);
	return p;
}

static uint32_t pick(struct bench *b, const struct pool *pool, uint64_t hash)
{
	const struct pick p = {pool, &b->state, b->active, NULL, 0, hash};
	uint32_t i = pool->ops->pick(&p);
	return i == PICK_NONE ? NO_SERVER : pool->candidate[i].server;
}

/* ---- measurements ---------------------------------------------------------------------------- */

/* For sessions that last: relative error of the servers' shares, mean and worst. */
static void measure_shares(struct bench *b, const struct pool *pool, bool skewed, double *mean,
                           double *worst)
{
	double sum = 0;
	memset(b->active, 0, b->o.servers * sizeof(*b->active));
	for (unsigned n = 0; n < b->o.flows; n++)
		b->active[pick(b, pool, next(b))]++;
	*mean = *worst = 0;
	for (unsigned i = 0; i < b->o.servers; i++)
		sum += pool->ops->by_weight ? weight_of(i, skewed) : 1;
	for (unsigned i = 0; i < b->o.servers; i++) {
		double want = b->o.flows * (pool->ops->by_weight ? weight_of(i, skewed) : 1) / sum;
		double off = fabs(b->active[i] - want) / want;
		*mean += off / b->o.servers;
		*worst = fmax(*worst, off);
	}
}

/* Of the clients of other servers than `own`, the share whose next session goes to another server
 * than their last. */
static double measure_moved(struct bench *b, const struct pool *from, const struct pool *to,
                            uint32_t own)
{
	unsigned others = 0, moved = 0;
	for (unsigned n = 0; n < b->o.flows; n++) {
		uint64_t hash = next(b);
		uint32_t before = pick(b, from, hash), after = pick(b, to, hash);
		if (before == own || after == own)
			continue;
		others++;
		moved += before != after;
	}
	return 100.0 * moved / others;
}

static double measure_build_ms(struct bench *b, const struct scheduler_ops *ops, bool skewed)
{
	double best = INFINITY;
	for (unsigned n = 0; n < 5; n++) {
		uint64_t start = sy_clock_ns();
		pool_free(pool_make(b, ops, skewed, NO_SERVER, NO_SERVER), b->table_cache);
		best = fmin(best, (double)(sy_clock_ns() - start) / 1e6);
	}
	return best;
}

static double measure_pick_ns(struct bench *b, const struct pool *pool)
{
	double best = INFINITY;
	unsigned picks = b->o.flows / 10;
	volatile uint32_t sink = 0;
	for (unsigned n = 0; n < 5; n++) {
		uint64_t start = sy_clock_ns();
		for (unsigned i = 0; i < picks; i++)
			sink = pick(b, pool, next(b));
		best = fmin(best, (double)(sy_clock_ns() - start) / picks);
	}
	(void)sink;
	return best;
}

static double baseline_ns(struct bench *b)
{
	uint32_t *table = must(calloc(BASELINE_WORDS, sizeof(*table)));
	double best = INFINITY;
	volatile uint32_t sink = 0;
	for (unsigned n = 0; n < 5; n++) {
		uint64_t start = sy_clock_ns();
		for (unsigned i = 0; i < b->o.flows; i++)
			sink = table[hash_below(next(b), BASELINE_WORDS)];
		best = fmin(best, (double)(sy_clock_ns() - start) / b->o.flows);
	}
	(void)sink;
	free(table);
	return best;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_row(struct bench *b, const struct scheduler_ops *ops, bool skewed, double yard)
{
	uint32_t own = b->o.servers / 3;
	struct pool *all = pool_make(b, ops, skewed, NO_SERVER, NO_SERVER);
	double mean, worst, ns;
	unsigned tables;
	uint64_t bytes;
	measure_shares(b, all, skewed, &mean, &worst);
	table_cache_measure(b->table_cache, &tables, &bytes);
	ns = measure_pick_ns(b, all);
	printf("%-8s %-7s %7.2f %7.2f", ops->name, skewed ? "1 to 10" : "equal", 100 * mean,
	       100 * worst);
	if (ops->by_hash) {
		struct pool *without = pool_make(b, ops, skewed, own, NO_SERVER);
		struct pool *down = pool_make(b, ops, skewed, NO_SERVER, own);
		printf(" %8.3f %8.3f %8.3f %8.3f", measure_moved(b, all, without, own),
		       measure_moved(b, without, all, own), measure_moved(b, all, down, own),
		       measure_moved(b, down, all, own));
		pool_free(without, b->table_cache);
		pool_free(down, b->table_cache);
	} else {
		printf(" %8s %8s %8s %8s", "-", "-", "-", "-");
	}
	pool_free(all, b->table_cache);
	printf(" %9.3f %8.0f %8.1f %6.1f\n", measure_build_ms(b, ops, skewed), (double)bytes / 1024,
	       ns, ns / yard);
}

static bool options_read(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {{"servers", required_argument, NULL, 's'},
	                                      {"flows", required_argument, NULL, 'f'},
	                                      {0}};
	*o = (struct options){100, 1000000};
	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		char *end = NULL;
		unsigned long n = c == '?' ? 0 : strtoul(optarg, &end, 10);
		if (c == 's')
			o->servers = (unsigned)n;
		else if (c == 'f')
			o->flows = (unsigned)n;
		if (!end || *end || n < 2 || n > UINT32_MAX || o->servers > SERVERS_MAX) {
			fprintf(stderr,
			        "usage: steelyard-schedulers [--servers 2–%u] [--flows N]\n",
			        SERVERS_MAX);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	struct bench b = {.random = 1};
	if (!options_read(argc, argv, &b.o))
		return EXIT_FAILURE;
	b.table_cache = must(table_cache_create());
	b.active = must(calloc(b.o.servers, sizeof(*b.active)));
	b.state.current = must(calloc(b.o.servers, sizeof(*b.state.current)));
	b.state.position = must(calloc(b.o.servers, sizeof(*b.state.position)));
	b.state.cursor = must(calloc(1, sizeof(*b.state.cursor)));
	double yard = baseline_ns(&b);
	printf("%u servers, %u sessions; baseline: a random word of 1 MB, %.1f ns\n\n", b.o.servers,
	       b.o.flows, yard);
	printf("                 off its share, %%  other servers' clients that move, %%\n");
	printf("         weights    mean   worst  removed    added     down       up  build ms   "
	       "table kB  pick ns yards\n");
	for (uint32_t n = 1; n <= SCHEDULERS; n++)
		for (unsigned skewed = 0; skewed < 2; skewed++)
			print_row(&b, scheduler_find(n), skewed, yard);
	free(b.active);
	free(b.state.current);
	free(b.state.position);
	free(b.state.cursor);
	table_cache_destroy(b.table_cache);
	return EXIT_SUCCESS;
}
