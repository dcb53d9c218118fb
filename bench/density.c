// SPDX-License-Identifier: Apache-2.0
/* steelyard-density: the bytes that a session costs, and the time to find one. FNAT sessions of
 * random clients fill the table until the first insertion fails; then each one is looked up in both
 * directions. Reported as bytes per session: all mapped memory divided by the live sessions at that
 * moment, beside the size of a session's own fields. The cost of look-ups is measured at 50 % and
 * 90 % (table_lookup.h). */
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/vfs.h>

#include "bench_options.h"
#include "measure.h"
#include "network.h"
#include "table_lookup.h"

/* A record's halves, and a tag and an entry in the index per direction: the minimum for any table
 * of this kind. */
#define FIELDS                                                                                     \
	(sizeof(struct session) + sizeof(struct session_cold) +                                    \
	 2 * (sizeof(uint16_t) + sizeof(uint32_t)))
/* Approximate bytes per session in tables of any size: sizes the baseline's memory when the
 * baseline runs first. */
#define BYTES 62

static const unsigned fills[] = {50, 90}; /* percent of the capacity */

struct arguments {
	struct session_store_options store;
	unsigned family;
	uint64_t seed;
	double limit;     /* bytes per session; 0: none */
	unsigned lookups; /* runs of look-ups at each fill; 0: none */
	uint64_t packets; /* per run */
	bool before;      /* run the baseline before the table exists */
};

static int fail(const char *why)
{
	fprintf(stderr, "steelyard-density: %s\n", why);
	return 1;
}

/* ---- measurements ---------------------------------------------------------------------------- */

/* Until this many sessions live, or, with UINT64_MAX, until the first insertion fails. */
static enum network_outcome sessions_create(struct network *n, uint64_t until, uint64_t *live)
{
	enum network_outcome outcome = NETWORK_INSERTED;
	struct session_table *t;
	uint32_t record;

	while (*live < until) {
		outcome = network_create(n, &t, &record);
		if (outcome != NETWORK_INSERTED && outcome != NETWORK_KNOWN)
			break;
		*live += outcome == NETWORK_INSERTED;
	}
	return outcome;
}

/* Sessions of all slots that a look-up does not find or finds wrong. */
static uint64_t sessions_lost(const struct network *n, uint64_t *seen)
{
	uint64_t lost = 0;

	*seen = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = session_store_table(n->store, (uint8_t)slot);
		uint32_t cursor = 0;
		for (uint32_t record; (record = session_next(t, &cursor)) != SESSION_NONE; ++*seen)
			lost += !network_verify(n, t, record);
	}
	return lost;
}

/* Fills the table, verifies it and reports the bytes per session. l NULL: no look-ups are
 * measured. */
static int measure(const struct arguments *a, struct network *n, struct lookup *l)
{
	const double mapped = (double)session_store_mapped(n->store);
	uint64_t live = 0, seen, capacity = 0;
	char params[128];

	snprintf(params, sizeof(params), "\"sessions\": %" PRIu64 ", \"family\": \"IPv%u\"",
	         a->store.sessions, a->family);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		capacity += session_capacity(session_store_table(n->store, (uint8_t)slot));
	for (unsigned i = 0; l && i < sizeof(fills) / sizeof(*fills); i++) {
		sessions_create(n, capacity / 100 * fills[i], &live);
		if (!lookup_measure(l, params, fills[i]))
			return fail("look-ups found other sessions than there are");
	}

	enum network_outcome outcome = sessions_create(n, UINT64_MAX, &live);
	uint64_t lost = sessions_lost(n, &seen);
	double bytes = mapped / (double)live;
	fprintf(stderr,
	        "IPv%u: %" PRIu64 " of %" PRIu64 " records in use at the first failure (%s), "
	        "%" PRIu64 " lost, %.0f bytes mapped, %.2f a session\n",
	        a->family, live, capacity, outcome == NETWORK_FULL ? "table-full" : "no-local-port",
	        lost, mapped, bytes);
	if (lost != 0 || seen != live || outcome != NETWORK_FULL)
		return fail("the table did not hold what was put into it");
	const struct measure m = {"density", params, "memory", "bytes/session", NULL};
	measure_report(&m, bytes, "its fields alone", FIELDS);
	if (a->limit > 0 && bytes > a->limit)
		return fail("a session costs more than it may");
	return 0;
}

/* ---- the command ----------------------------------------------------------------------------- */

static struct arguments arguments_parse(int argc, char **argv)
{
	struct arguments a = {.store = {.sessions = 4 << 20, .name = "steelyard-density"},
	                      .seed = 1,
	                      .packets = 16384};
	const char *family = "4";
	const struct option_entry options[] = {
	        {"sessions", "N", OPTION_COUNT, &a.store.sessions, 0, 0, "capacity of the table"},
	        {"family", "4|6", OPTION_WORD, &family, 0, 0,
	         "of clients, servers and local addresses"},
	        {"seed", "S", OPTION_COUNT, &a.seed, 0, 0, "of the random tuples"},
	        {"directory", "DIR", OPTION_WORD, &a.store.directory, 0, 0,
	         "map the table's file there: hugetlbfs for huge pages"},
	        {"limit", "BYTES", OPTION_REAL, &a.limit, 0, 0, "fail if a session costs more"},
	        {"look-ups", "N", OPTION_UNSIGNED, &a.lookups, 0, 0,
	         "also measure look-ups at 50 % and 90 %, N runs each; what they touch together "
	         "should outgrow the caches: 128"},
	        {"packets", "N", OPTION_COUNT, &a.packets, 0, 0, "of a run of look-ups"},
	        {"before", NULL, OPTION_FLAG, &a.before, 0, 0,
	         "run the baseline of look-ups before the table is there, not in turn with them: "
	         "half the memory will do"},
	};
	OPTIONS_TAKE(
	        argc, argv,
	        "Fills a session table with random FNAT sessions until the first insertion fails, "
	        "looks all of them up in both directions, and prints the cost of one.",
	        options);
	a.family = *family == '6' ? 6 : 4;
	return a;
}

/* Size of the pages that hold the table's file; 0: ordinary ones. */
static uint64_t page_size(const char *directory)
{
	struct statfs fs;

	return directory && statfs(directory, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC
	               ? (uint64_t)fs.f_bsize
	               : 0;
}

static bool baseline_begin(const struct arguments *a, struct lookup *l, uint64_t bytes)
{
	return !l || lookup_baseline(l, bytes, page_size(a->store.directory), a->before);
}

int main(int argc, char **argv)
{
	struct arguments a = arguments_parse(argc, argv);
	struct session_store *store;
	struct lookup *l = NULL;
	struct network n;
	struct sy_error err;

	sy_slot_init();
	if (!network_init(&n, a.family, a.store.sessions, a.seed))
		return fail("out of memory");
	if (a.lookups && !(l = lookup_open(&n, a.packets, a.lookups, a.seed)))
		return fail("out of memory");
	if (a.before && !baseline_begin(&a, l, a.store.sessions * BYTES))
		return fail("no memory for the baseline");
	a.store.servers = n.server_count;
	if (session_store_open(&a.store, &store, &err) != 0)
		return fail(err.text);
	network_use(&n, store);
	int status = !a.before && !baseline_begin(&a, l, session_store_mapped(store))
	                     ? fail("no memory for the baseline: --before needs half of it")
	                     : measure(&a, &n, l);
	lookup_close(l);
	session_store_discard(store);
	network_free(&n);
	return status;
}
