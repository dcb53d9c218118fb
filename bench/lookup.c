// SPDX-License-Identifier: Apache-2.0
#include "lookup.h"

#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "measure.h"

#define BURST 64 /* as many as a worker takes at once */
#define AHEAD 12 /* packets between the looks at one, as in the worker's look-up stage */

struct packet {
	struct sy_tuple tuple;
	uint32_t record; /* that it belongs to */
	uint8_t slot, from;
};

struct lookup {
	const struct network *network;
	uint64_t random, count;
	struct packet *packets;
	unsigned runs;
	struct yardstick *yardstick; /* NULL: it was run before */
	double *beside;              /* what it took, by run */
	double *first;               /* look-ups over it, at the first fill that was measured */
	unsigned first_fill;         /* 0: none was */
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
	                     .packets = calloc(packets, sizeof(*l->packets)),
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
	yardstick_close(l->yardstick);
	free(l->packets);
	free(l->beside);
	free(l->first);
	free(l);
}

static double run_yardstick(struct lookup *l)
{
	return yardstick_run(l->yardstick, (unsigned)(l->count / BURST), BURST);
}

bool lookup_yardstick(struct lookup *l, uint64_t bytes, uint64_t huge, bool before)
{
	l->yardstick = yardstick_open(bytes, huge);
	if (!l->yardstick)
		return false;
	run_yardstick(l); /* warms up */
	if (!before)
		return true;
	for (unsigned i = 0; i < l->runs; i++)
		l->beside[i] = run_yardstick(l);
	yardstick_close(l->yardstick);
	l->yardstick = NULL;
	return true;
}

/* Nothing was ever removed, so the live records of a slot are its first ones. */
static void packets_choose(struct lookup *l)
{
	for (uint64_t i = 0; i < l->count; i++) {
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

/* How many of a burst were not found as they should have been. */
static unsigned burst_find(const struct network *n, const struct packet *packet)
{
	const struct session_table *t[BURST];
	uint64_t hash[BURST];
	uint32_t guess[BURST];
	unsigned lost = 0;

	for (unsigned i = 0; i < BURST; i++) {
		__builtin_prefetch(&packet[i + BURST]); /* as those of headers are, on receiving */
		t[i] = session_store_table(n->store, packet[i].slot);
		hash[i] = sy_hash_tuple(&n->key, &packet[i].tuple);
		session_prefetch_bucket(t[i], hash[i]);
	}
	for (unsigned i = 0; i < BURST + 2 * AHEAD; i++) {
		unsigned other = i - AHEAD, last = i - 2 * AHEAD;
		if (i < BURST)
			guess[i] = session_guess(t[i], hash[i]);
		if (other < BURST && SY_UNLIKELY(guess[other] == SESSION_NONE))
			guess[other] = session_guess_other(t[other], hash[other]);
		if (last >= BURST)
			continue;
		enum session_direction from = SESSION_CLIENT;
		uint32_t record = network_find(n, t[last], guess[last], hash[last],
		                               &packet[last].tuple, &from);
		lost += record != packet[last].record || from != packet[last].from;
	}
	return lost;
}

/* Nanoseconds a packet; *lost counts those whose session was not found. */
static double run_lookups(const struct lookup *l, uint64_t *lost)
{
	uint64_t start = rte_rdtsc();

	for (uint64_t i = 0; i < l->count; i += BURST)
		*lost += burst_find(l->network, &l->packets[i]);
	return measure_ns(rte_rdtsc() - start) / (double)l->count;
}

/* Against the yardstick, and against the same look-ups in a table that was emptier: both by what
 * the yardstick took beside them, as they lie far apart in time. */
static void run_tell(const struct lookup *l, const char *params, unsigned fill, unsigned run,
                     double ns)
{
	char all[256], name[32];

	snprintf(all, sizeof(all), "%s, \"fill\": \"%u %%\"", params, fill);
	const struct measure lookup = {"density", all, "look-up", "ns/packet"};
	const struct measure growth = {"density", all, "look-up by fill", "yardsticks"};

	measure_tell(&lookup, ns, "two random cache lines", l->beside[run]);
	if (fill == l->first_fill)
		return;
	snprintf(name, sizeof(name), "at %u %%", l->first_fill);
	measure_tell(&growth, ns / l->beside[run], name, l->first[run]);
}

bool lookup_measure(struct lookup *l, const char *params, unsigned fill)
{
	uint64_t lost = 0;

	packets_choose(l);
	if (!l->first_fill)
		l->first_fill = fill;
	run_lookups(l, &lost); /* warms up */
	for (unsigned i = 0; i < l->runs; i++) {
		double ns = run_lookups(l, &lost);
		if (l->yardstick)
			l->beside[i] = run_yardstick(l);
		if (fill == l->first_fill)
			l->first[i] = ns / l->beside[i];
		run_tell(l, params, fill, i, ns);
	}
	return lost == 0;
}
