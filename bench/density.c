// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-density: how many bytes a session costs. FNAT sessions of random clients fill the
 * table until the first insertion fails; then every one is looked up in both directions. What is
 * told as bytes per session is all that was mapped over the sessions live at that moment, beside
 * what a session's own fields take.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "measure.h"
#include "network.h"

/* A record's halves, and a tag and an entry in the index for each direction: no table of this kind
 * can do with less. */
#define FIELDS                                                                                     \
	(sizeof(struct session) + sizeof(struct session_cold) +                                    \
	 2 * (sizeof(uint16_t) + sizeof(uint32_t)))

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

/* ---- the command ----------------------------------------------------------------------------- */

struct arguments {
	struct session_store_options store;
	unsigned family;
	uint64_t seed;
	double limit; /* bytes a session; 0: none */
};

static void usage(FILE *out)
{
	fprintf(out, "usage: steelyard-density [--sessions N] [--family 4|6] [--seed S]\n"
	             "                         [--directory DIR] [--limit BYTES]\n"
	             "\n"
	             "Fills a session table with random FNAT sessions until the first insertion\n"
	             "fails, looks all of them up in both directions, tells what one costs.\n"
	             "\n"
	             "  --sessions N     capacity of the table (4194304)\n"
	             "  --family 4|6     of clients, servers and local addresses (4)\n"
	             "  --seed S         of the random tuples (1)\n"
	             "  --directory DIR  map the table's file there: hugetlbfs for huge pages\n"
	             "  --limit BYTES    fail if a session costs more\n");
}

static struct arguments arguments_parse(int argc, char **argv)
{
	static const struct option options[] = {
	        {"sessions", required_argument, NULL, 'n'},
	        {"family", required_argument, NULL, 'f'},
	        {"seed", required_argument, NULL, 's'},
	        {"directory", required_argument, NULL, 'd'},
	        {"limit", required_argument, NULL, 'l'},
	        {"help", no_argument, NULL, 'h'},
	        {NULL, 0, NULL, 0},
	};
	struct arguments a = {.store = {.sessions = 4 << 20, .name = "steelyard-density"},
	                      .family = 4,
	                      .seed = 1};

	for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
		char *end = "";
		switch (c) {
		case 'n':
			a.store.sessions = strtoull(optarg, &end, 10);
			break;
		case 'f':
			a.family = (unsigned)strtoul(optarg, &end, 10);
			break;
		case 's':
			a.seed = strtoull(optarg, &end, 10);
			break;
		case 'd':
			a.store.directory = optarg;
			break;
		case 'l':
			a.limit = strtod(optarg, &end);
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
		if (*end != '\0' || (a.family != 4 && a.family != 6)) {
			usage(stderr);
			exit(2);
		}
	}
	return a;
}

static void tell(const struct arguments *a, double bytes)
{
	char params[128];
	const struct measure m = {"density", params, "memory", "bytes/session"};

	snprintf(params, sizeof(params), "\"sessions\": %" PRIu64 ", \"family\": \"IPv%u\"",
	         a->store.sessions, a->family);
	measure_tell(&m, bytes, "its fields alone", FIELDS);
}

int main(int argc, char **argv)
{
	struct arguments a = arguments_parse(argc, argv);
	struct network n;
	struct session_store *store;
	struct session_table *t;
	struct sy_error err;
	enum network_outcome outcome;
	uint32_t record;

	sy_slot_init();
	if (!network_init(&n, a.family, a.store.sessions, a.seed)) {
		fprintf(stderr, "steelyard-density: out of memory\n");
		return 1;
	}
	a.store.servers = n.server_count;
	if (session_store_open(&a.store, &store, &err) != 0) {
		fprintf(stderr, "steelyard-density: %s\n", err.text);
		return 1;
	}
	network_use(&n, store);

	uint64_t attempts = 0, live = 0, seen, capacity = 0, start = sy_clock_ns();
	for (; (outcome = network_create(&n, &t, &record)) == NETWORK_INSERTED ||
	       outcome == NETWORK_KNOWN;
	     attempts++)
		live += outcome == NETWORK_INSERTED;
	double fill_ns = (double)(sy_clock_ns() - start) / (double)(attempts + 1);
	start = sy_clock_ns();
	uint64_t lost = sessions_lost(&n, &seen);
	double find_ns = (double)(sy_clock_ns() - start) / (2.0 * (double)live);

	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		capacity += session_capacity(session_store_table(store, (uint8_t)slot));
	double mapped = (double)session_store_mapped(store), bytes = mapped / (double)live;
	fprintf(stderr,
	        "servers            %" PRIu32 ", local addresses %u\n"
	        "sessions           %" PRIu64 " live at the first failure (%s)\n"
	        "capacity           %" PRIu64 " records, %.2f %% in use\n"
	        "mapped             %.0f bytes\n"
	        "create             %.0f ns (look-up, local port, insertion)\n"
	        "find               %.0f ns (in the order of records)\n"
	        "lost               %" PRIu64 "\n",
	        n.server_count, n.local_count, live,
	        outcome == NETWORK_FULL ? "table-full" : "no-local-port", capacity,
	        100.0 * (double)live / (double)capacity, mapped, fill_ns, find_ns, lost);
	tell(&a, bytes);
	session_store_discard(store);
	network_free(&n);
	if (lost != 0 || seen != live || outcome != NETWORK_FULL) {
		fprintf(stderr, "steelyard-density: the table did not hold what was put into it\n");
		return 1;
	}
	if (a.limit > 0 && bytes > a.limit) {
		fprintf(stderr, "steelyard-density: a session costs more than %.2f bytes\n",
		        a.limit);
		return 1;
	}
	return 0;
}
