// SPDX-License-Identifier: Apache-2.0
/* steelyard-fastpath: the worker time of a packet of an established session, on one core and
 * without a device. The forwarder's own loop and stages run; injector.h supplies the packets. The
 * injector's own time is measured between runs and subtracted. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "bench_options.h"
#include "fixture.h"
#include "measure.h"

#define HUGE_PAGE (UINT64_C(2) << 20)
#define MAX_RUNS  1000
#define DRAWN     (1u << 22) /* most packets drawn by popularity: more than all runs take */

enum direction { BOTH, FROM_CLIENT, FROM_SERVER, ALL };

struct arguments {
	struct fixture_options fixture;
	const char *mode, *family;
	enum direction direction;
	bool zipf;
	unsigned runs;
	uint64_t packets; /* per run */
};

/* By enum value. */
static const char *const direction_name[] = {"both", "client", "server", "all"};
static const char *const mode_name[] = {"", "fnat", "dr", "nat", "ipip", "snat"};

/* The index of a name that is in the list. */
static unsigned name_index(const char *const *names, const char *name)
{
	unsigned n = 0;
	while (strcmp(names[n], name) != 0)
		n++;
	return n;
}

static struct arguments arguments_parse(int argc, char **argv)
{
	struct arguments a = {.fixture = fixture_defaults(1000),
	                      .mode = "fnat",
	                      .family = "4",
	                      .runs = 21,
	                      .packets = 1000000};
	const char *protocol = "udp", *direction = "both";
	const struct option_entry options[] = {
	        {"mode", "fnat|nat|dr|ipip|snat", OPTION_WORD, &a.mode, 0, 0, NULL},
	        {"family", "4|6|64", OPTION_WORD, &a.family, 0, 0,
	         "of clients and servers; 64: IPv6 clients of IPv4 servers"},
	        {"protocol", "udp|tcp", OPTION_WORD, &protocol, 0, 0, NULL},
	        {"sessions", "N", OPTION_COUNT, &a.fixture.sessions, 1, FIXTURE_SESSIONS,
	         "live ones, each with a client of its own"},
	        {"fill", "F", OPTION_REAL, &a.fixture.fill, 0.01, 0.99, "of the session table"},
	        {"direction", "both|client|server|all", OPTION_WORD, &direction, 0, 0,
	         "the sender; both: alternating bursts; all: measured separately"},
	        {"zipf", NULL, OPTION_FLAG, &a.zipf, 0, 0,
	         "once more, with 1/n of the packets for the n-th most popular session; before "
	         "that all get the same"},
	        {"servers", "N", OPTION_UNSIGNED, &a.fixture.servers, 1, FIXTURE_SERVERS, NULL},
	        {"limits", "N", OPTION_UNSIGNED, &a.fixture.limits, 0, 8,
	         "on the service, that all packets pass"},
	        {"clients", "N", OPTION_UNSIGNED, &a.fixture.clients, 1, 1048576,
	         "the first limit has so many buckets of clients"},
	        {"shaped", NULL, OPTION_FLAG, &a.fixture.shaped, 0, 0,
	         "both ports, by rates that delay nothing"},
	        {"frame", "N", OPTION_UNSIGNED, &a.fixture.frame_len, 1, 1514,
	         "bytes of a frame without FCS"},
	        {"runs", "N", OPTION_UNSIGNED, &a.runs, 1, MAX_RUNS, NULL},
	        {"packets", "N", OPTION_COUNT, &a.packets, SY_BURST, UINT32_MAX, "of a run"},
	        FIXTURE_DIRECTORY(a.fixture),
	};
	OPTIONS_TAKE(argc, argv,
	             "Nanoseconds a packet of an established session costs, on one core.", options);
	a.fixture.mode = (enum mode)name_index(mode_name, a.mode);
	a.fixture.client_v6 = *a.family == '6';
	a.fixture.server_v6 = strcmp(a.family, "6") == 0;
	a.fixture.tcp = strcmp(protocol, "tcp") == 0;
	a.direction = (enum direction)name_index(direction_name, direction);
	return a;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* The measurements with one fixture. */
struct cell {
	struct fixture *fixture;
	enum direction direction;
	bool zipf;
	uint64_t packets;
};

/* Gives a run's packets to the ports; returns their number. */
static uint64_t packets_give(const struct cell *c)
{
	struct fixture *s = c->fixture;
	uint64_t given = 0, n = c->packets;
	const bool side[2] = {c->direction != FROM_SERVER, c->direction != FROM_CLIENT};
	if (c->direction == BOTH)
		n /= 2;
	for (unsigned from = 0; from < 2; from++) {
		if (!side[from])
			continue;
		injector_give(&s->injector, s->port[from], 0, &s->stream[from], n);
		given += n;
	}
	return given;
}

/* Longer than a shaped port takes to be filled to its burst again. */
#define REFILL_NS UINT64_C(100000000)

static double run_ns(const struct cell *c, bool empty)
{
	/* The harness' clock stands still while a run is measured. */
	if (c->fixture->options.shaped)
		harness_advance(&c->fixture->harness, REFILL_NS);
	uint64_t packets = packets_give(c), start = rte_rdtsc();
	if (empty)
		injector_run_empty(&c->fixture->injector);
	else
		while (harness_poll_worker(&c->fixture->harness, 0))
			;
	return measure_ns(rte_rdtsc() - start) / (double)packets;
}

struct result {
	double all, injection, stick;
};

/* The median injector time: a disturbed one would make the next run look faster. */
static double usual_injection(const struct result *result, unsigned runs)
{
	double injection[MAX_RUNS];
	for (unsigned i = 0; i < runs; i++)
		injection[i] = result[i].injection;
	return measure_median(injection, runs);
}

static bool cell_measure(const struct cell *c, const struct arguments *a, struct baseline *y)
{
	static struct result result[MAX_RUNS];
	char params[256];
	uint64_t drops = fixture_drops(c->fixture);
	snprintf(
	        params, sizeof(params),
	        "\"mode\": \"%s\", \"family\": \"%s\", \"protocol\": \"%s\", \"sessions\": %" PRIu64
	        ", \"flows\": \"%s\", \"direction\": \"%s\"",
	        a->mode, a->family, a->fixture.tcp ? "tcp" : "udp", a->fixture.sessions,
	        c->zipf ? "zipf" : "uniform", direction_name[c->direction]);
	const struct measure m = {"fastpath", params, "cost", "ns/packet", NULL};

	run_ns(c, false); /* warms up caches and page tables */
	for (unsigned i = 0; i < a->runs; i++) {
		result[i].injection = run_ns(c, true);
		result[i].all = run_ns(c, false);
		result[i].stick = baseline_run(y, (unsigned)(c->packets / SY_BURST), SY_BURST);
	}
	double injection = usual_injection(result, a->runs);
	for (unsigned i = 0; i < a->runs; i++)
		measure_report(&m, result[i].all - injection, "two random cache lines",
		               result[i].stick);
	if (fixture_drops(c->fixture) == drops)
		return true;
	fprintf(stderr, "packets were dropped while it was measured\n");
	return false;
}

/* ---- all directions -------------------------------------------------------------------------- */

static bool directions_measure(struct fixture *s, const struct arguments *a, struct baseline *y,
                               bool zipf)
{
	struct cell c = {s, a->direction, zipf, a->packets};
	if (fixture_is_one_way(s))
		c.direction = FROM_CLIENT;
	if (c.direction != ALL)
		return cell_measure(&c, a, y);
	for (c.direction = BOTH; c.direction < ALL; c.direction++)
		if (!cell_measure(&c, a, y))
			return false;
	return true;
}

static bool fixture_order(struct fixture *s, bool zipf)
{
	for (unsigned from = 0; from < 2; from++) {
		struct injector_stream *stream = &s->stream[from];
		if (!stream->frames)
			continue;
		if (!zipf)
			fixture_shuffle(s, (enum session_direction)from);
		else if (!fixture_draw_zipf(s, (enum session_direction)from,
		                            stream->count < DRAWN ? stream->count : DRAWN))
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	static struct fixture fixture;
	struct arguments a = arguments_parse(argc, argv);
	struct baseline *y = NULL;
	bool ok = fixture_open(&fixture, &a.fixture) &&
	          fixture_check(&fixture, fixture.stream[SESSION_CLIENT].count);
	if (ok) {
		y = baseline_open(session_store_mapped(inspect_store(fixture.harness.b)),
		                  a.fixture.store ? HUGE_PAGE : 0);
		if (!y)
			fprintf(stderr, "no memory for the baseline\n");
		ok = y != NULL;
	}
	ok = ok && fixture_order(&fixture, false) && directions_measure(&fixture, &a, y, false);
	if (ok && a.zipf)
		ok = fixture_order(&fixture, true) && directions_measure(&fixture, &a, y, true);
	baseline_close(y);
	fixture_close(&fixture);
	return ok ? 0 : 1;
}
