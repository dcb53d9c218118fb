// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-density: how many bytes a session costs, and what it takes to find one. FNAT sessions
 * of random clients fill the table until the first insertion fails; then every one is looked up in
 * both directions. What is told as bytes per session is all that was mapped over the sessions live
 * at that moment, beside what a session's own fields take. On the way there, at 50 % and 90 %, the
 * cost of look-ups is measured (lookup.h).
 */
#include <getopt.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/vfs.h>

#include "lookup.h"
#include "measure.h"
#include "network.h"

/* A record's halves, and a tag and an entry in the index for each direction: no table of this kind
 * can do with less. */
#define FIELDS                                                                                     \
	(sizeof(struct session) + sizeof(struct session_cold) +                                    \
	 2 * (sizeof(uint16_t) + sizeof(uint32_t)))
/* Of a session in tables of any size, roughly: the yardstick's memory, where it comes first. */
#define BYTES 62

static const unsigned fills[] = {50, 90}; /* percent of the capacity */

struct arguments {
	struct session_store_options store;
	unsigned family;
	uint64_t seed;
	double limit;     /* bytes a session; 0: none */
	unsigned lookups; /* runs of look-ups at each fill; 0: none */
	uint64_t packets; /* of such a run */
	bool before;      /* its yardstick's runs come before the table */
};

static int fail(const char *why)
{
	fprintf(stderr, "steelyard-density: %s\n", why);
	return 1;
}

/* ---- what is measured ------------------------------------------------------------------------ */

/* Until so many sessions live; or, with UINT64_MAX, until the first insertion fails. */
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

/* The sessions of all slots that cannot be found as they should. */
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

/* Fills the table, verifies it and tells what a session costs. l NULL: no look-ups are measured. */
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
	const struct measure m = {"density", params, "memory", "bytes/session"};
	measure_tell(&m, bytes, "its fields alone", FIELDS);
	if (a->limit > 0 && bytes > a->limit)
		return fail("a session costs more than it may");
	return 0;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void usage(FILE *out)
{
	fprintf(out,
	        "usage: steelyard-density [options]\n"
	        "\n"
	        "Fills a session table with random FNAT sessions until the first insertion\n"
	        "fails, looks all of them up in both directions, tells what one costs.\n"
	        "\n"
	        "  --sessions N     capacity of the table (4194304)\n"
	        "  --family 4|6     of clients, servers and local addresses (4)\n"
	        "  --seed S         of the random tuples (1)\n"
	        "  --directory DIR  map the table's file there: hugetlbfs for huge pages\n"
	        "  --limit BYTES    fail if a session costs more\n"
	        "  --look-ups N     also measure look-ups at 50 %% and 90 %%, N runs each (0); "
	        "what\n"
	        "                   they touch together should outgrow the caches: 128\n"
	        "  --packets N      of a run of look-ups (16384)\n"
	        "  --before         run the yardstick of look-ups before the table is there, not\n"
	        "                   in turn with them: half the memory will do\n");
}

static bool option_take(struct arguments *a, int c)
{
	char *end = "";

	switch (c) {
	case 'n':
		a->store.sessions = strtoull(optarg, &end, 10);
		break;
	case 'f':
		a->family = (unsigned)strtoul(optarg, &end, 10);
		break;
	case 's':
		a->seed = strtoull(optarg, &end, 10);
		break;
	case 'd':
		a->store.directory = optarg;
		break;
	case 'l':
		a->limit = strtod(optarg, &end);
		break;
	case 'u':
		a->lookups = (unsigned)strtoul(optarg, &end, 10);
		break;
	case 'p':
		a->packets = strtoull(optarg, &end, 10);
		break;
	case 'b':
		a->before = true;
		break;
	case 'h':
		usage(stdout);
		exit(0);
	default:
		return false;
	}
	return *end == '\0' && (a->family == 4 || a->family == 6);
}

static struct arguments arguments_parse(int argc, char **argv)
{
	static const struct option options[] = {
	        {"sessions", required_argument, NULL, 'n'},
	        {"family", required_argument, NULL, 'f'},
	        {"seed", required_argument, NULL, 's'},
	        {"directory", required_argument, NULL, 'd'},
	        {"limit", required_argument, NULL, 'l'},
	        {"look-ups", required_argument, NULL, 'u'},
	        {"packets", required_argument, NULL, 'p'},
	        {"before", no_argument, NULL, 'b'},
	        {"help", no_argument, NULL, 'h'},
	        {NULL, 0, NULL, 0},
	};
	struct arguments a = {.store = {.sessions = 4 << 20, .name = "steelyard-density"},
	                      .family = 4,
	                      .seed = 1,
	                      .packets = 16384};

	for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;)
		if (!option_take(&a, c)) {
			usage(stderr);
			exit(2);
		}
	return a;
}

/* Of the pages that the table's file lies on; 0: ordinary ones. */
static uint64_t page_size(const char *directory)
{
	struct statfs fs;

	return directory && statfs(directory, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC
	               ? (uint64_t)fs.f_bsize
	               : 0;
}

static bool yardstick_begin(const struct arguments *a, struct lookup *l, uint64_t bytes)
{
	return !l || lookup_yardstick(l, bytes, page_size(a->store.directory), a->before);
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
	if (a.before && !yardstick_begin(&a, l, a.store.sessions * BYTES))
		return fail("no memory for the yardstick");
	a.store.servers = n.server_count;
	if (session_store_open(&a.store, &store, &err) != 0)
		return fail(err.text);
	network_use(&n, store);
	int status = !a.before && !yardstick_begin(&a, l, session_store_mapped(store))
	                     ? fail("no memory for the yardstick: --before needs half of it")
	                     : measure(&a, &n, l);
	lookup_close(l);
	session_store_discard(store);
	network_free(&n);
	return status;
}
