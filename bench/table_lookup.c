// SPDX-License-Identifier: Apache-2.0
#include "table_lookup.h"

#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "measure.h"

#define BURST 64 /* as many as a worker takes at once */

struct packet {
	struct sy_tuple tuple;
	uint32_t record; /* of the packet's session */
	uint8_t slot, from;
};

struct lookup {
	const struct network *network;
	uint64_t random, count; /* packets per run */
	struct packet *packets; /* of all runs */
	unsigned runs;
	struct baseline *baseline; /* NULL: the baseline was run before */
	double *beside;            /* the baseline's results, by run */
	double *first;             /* relative look-up times at the first fill measured */
	unsigned first_fill;       /* 0: none yet */
};

struct lookup *lookup_open(const struct network *n, uint64_t packets, unsigned runs, uint64_t seed)
{
	struct lookup *l = malloc(sizeof(*l));

	if (!l)
		return NULL;
	packets = (packets + BURST - 1) / BURST * BURST;
	*l = (struct lookup){.network = n,
	                     .random = seed,
	                     .count = packets,
	                     .packets = calloc(packets * runs, sizeof(*l->packets)),
	                     .runs = runs,
	                     .beside = calloc(runs, sizeof(*l->beside)),
	                     .first = calloc(runs, sizeof(*l->first))};
	if (l->packets && l->beside && l->first)
		return l;
	lookup_close(l);
	return NULL;
}

void lookup_close(struct lookup *l)
{
	if (!l)
		return;
	baseline_close(l->baseline);
	free(l->packets);
	free(l->beside);
	free(l->first);
	free(l);
}

static double run_baseline(struct lookup *l)
{
	return baseline_run(l->baseline, (unsigned)(l->count / BURST), BURST);
}

bool lookup_baseline(struct lookup *l, uint64_t bytes, uint64_t huge, bool before)
{
	l->baseline = baseline_open(bytes, huge);
	if (!l->baseline)
		return false;
	run_baseline(l); /* warms up */
	if (!before)
		return true;
	for (unsigned i = 0; i < l->runs; i++)
		l->beside[i] = run_baseline(l);
	baseline_close(l->baseline);
	l->baseline = NULL;
	return true;
}

/* No session was ever removed, so a slot's live records are its first ones. */
static void packets_choose(struct lookup *l)
{
	for (uint64_t i = 0; i < l->count * l->runs; i++) {
		struct packet *p = &l->packets[i];
		uint64_t r = measure_random(&l->random);
		p->slot = (uint8_t)r;
		p->from = i / BURST % 2 ? SESSION_SERVER : SESSION_CLIENT;
		const struct session_table *t = session_store_table(l->network->store, p->slot);
		p->record = (uint32_t)((r >> 32) * session_count(t) >> 32);
		const struct session *hot = session_at(t, p->record);
		p->tuple = p->from == SESSION_CLIENT ? network_client_tuple(l->network, hot)
		                                     : network_server_tuple(l->network, hot);
	}
}

/* Looks a burst up in three loops, like the look-up stage. Returns how many sessions were not found
 * or found wrong. */
static unsigned burst_find(const struct network *n, const struct packet *packet)
{
	const struct session_table *table[BURST];
	uint64_t hash[BURST];
	uint32_t guess[BURST];
	unsigned lost = 0;

	for (unsigned i = 0; i < BURST; i++) {
		__builtin_prefetch(&packet[i + BURST]); /* as headers are prefetched on receive */
		table[i] = session_store_table(n->store, packet[i].slot);
		hash[i] = sy_hash_tuple(&n->key, &packet[i].tuple);
		session_prefetch_bucket(table[i]->index, hash[i]);
	}
	for (unsigned i = 0; i < BURST; i++)
		guess[i] = session_guess(table[i]->index, hash[i]);
	for (unsigned i = 0; i < BURST; i++)
		if (guess[i] == SESSION_NONE)
			guess[i] = session_guess_other(table[i]->index, hash[i]);
	for (unsigned i = 0; i < BURST; i++) {
		enum session_direction from = SESSION_CLIENT;
		uint32_t record =
		        network_find(n, table[i], guess[i], hash[i], &packet[i].tuple, &from);
		lost += record != packet[i].record || from != packet[i].from;
	}
	return lost;
}

/* Nanoseconds per packet; *lost counts packets whose session was not found. */
static double run_lookups(const struct lookup *l, unsigned run, uint64_t *lost)
{
	const struct packet *packets = l->packets + run * l->count;
	uint64_t start = rte_rdtsc();

	for (uint64_t i = 0; i < l->count; i += BURST)
		*lost += burst_find(l->network, packets + i);
	return measure_ns(rte_rdtsc() - start) / (double)l->count;
}

/* Compared with the baseline, and with the same look-ups in an emptier table. Both use the
 * baseline's results beside them, because the two measurements are far apart in time. */
static void run_report(const struct lookup *l, const char *params, unsigned fill, unsigned run,
                       double ns)
{
	char all[256], name[32];

	snprintf(all, sizeof(all), "%s, \"fill\": \"%u %%\"", params, fill);
	const struct measure lookup = {"density", all, "look-up", "ns/packet", NULL};
	const struct measure growth = {"density", all, "look-up by fill", "baselines", NULL};

	measure_report(&lookup, ns, "two random cache lines", l->beside[run]);
	if (fill == l->first_fill)
		return;
	snprintf(name, sizeof(name), "at %u %%", l->first_fill);
	measure_report(&growth, ns / l->beside[run], name, l->first[run]);
}

bool lookup_measure(struct lookup *l, const char *params, unsigned fill)
{
	uint64_t lost = 0;

	packets_choose(l);
	if (!l->first_fill)
		l->first_fill = fill;
	run_lookups(l, l->runs - 1, &lost); /* warms up */
	for (unsigned i = 0; i < l->runs; i++) {
		double ns = run_lookups(l, i, &lost);
		if (l->baseline)
			l->beside[i] = run_baseline(l);
		if (fill == l->first_fill)
			l->first[i] = ns / l->beside[i];
		run_report(l, params, fill, i, ns);
	}
	return lost == 0;
}
