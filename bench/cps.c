// SPDX-License-Identifier: Apache-2.0
/* steelyard-cps: the worker time of a complete TCP connection, on one core and without a device:
 * handshake, request, answer and four-way close (ten packets, connections.h), session creation and
 * session deletion. The forwarder's own loop, stages and sweeps run on the real clock. After some
 * seconds as many sessions end as are created, and only then the measurement starts. The time of
 * the connections' ends is measured by the TSC around all of their code, and subtracted. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rte_cycles.h>

#include "bench_options.h"
#include "endpoints.h"
#include "measure.h"

#define HUGE_PAGE (UINT64_C(2) << 20)
#define SECOND_NS UINT64_C(1000000000)
#define MEMORY_MB 256
#define SERVERS   16
#define LOCALS    16
#define CHECKED   20000 /* connections whose frames are all checked */
#define SETTLE_MS 10000
#define STICK     20000 /* bursts of the baseline */

struct arguments {
	unsigned family;
	uint64_t concurrent, sessions;
	unsigned time_wait; /* seconds */
	unsigned runs, warm_ms, run_ms;
	const char *store;
};

struct cell {
	struct arguments options;
	struct harness harness;
	struct endpoints endpoints;
	uint64_t worked_ns; /* time of the forwarder and the ends: what its clock shows */
};

/* ---- the clock: stopped while the forwarder is paused ---------------------------------------- */

static uint64_t paused_ns;
uint64_t __real_sy_clock_ns(void);
uint64_t __wrap_sy_clock_ns(void);

uint64_t __wrap_sy_clock_ns(void)
{
	return __real_sy_clock_ns() - paused_ns;
}

static void clock_go(struct cell *c)
{
	struct sy_worker_private *p = c->harness.rt->worker[0].private;
	paused_ns = __real_sy_clock_ns() - c->harness.now_ns;
	struct worker_clock *k = &p->clock;
	k->tsc = k->rate_tsc = rte_rdtsc();
	k->ns = k->rate_ns = c->harness.now_ns;
	k->rate = (SECOND_NS << 32) / rte_get_tsc_hz();
	p->round_cycles = rte_get_tsc_hz() / 1000 * SY_ROUND_MS;
}

static void clock_stop(struct cell *c)
{
	c->harness.now_ns = sy_clock_ns();
}

/* ---- the forwarder --------------------------------------------------------------------------- */

static bool harness_make(struct cell *c)
{
	const struct arguments *a = &c->options;
	bool v4 = a->family == 4;
	struct sy_addr gate[HARNESS_PORTS] = {
	        endpoints_addr(c->options.family, "192.0.2.1", "2001:db8:1::1", 0),
	        endpoints_addr(c->options.family, "10.0.0.254", "fd00::ffff", 0)};
	struct sy_static_route route[HARNESS_PORTS] = {
	        {"net_ring_wan", endpoints_addr(c->options.family, "198.18.0.0", "2001:db8:8::", 0),
	         gate[HARNESS_WAN], v4 ? 15 : 48},
	        {"net_ring_lan", endpoints_addr(c->options.family, "10.0.0.0", "fd00::", 0),
	         gate[HARNESS_LAN], v4 ? 16 : 64}};
	struct sy_static_neigh neigh[HARNESS_PORTS] = {{"net_ring_wan", gate[HARNESS_WAN], {0}},
	                                               {"net_ring_lan", gate[HARNESS_LAN], {0}}};
	for (unsigned i = 0; i < HARNESS_PORTS; i++)
		memcpy(neigh[i].mac, endpoints_mac[i], 6);
	const struct harness_options options = {
	        .sessions = a->sessions,
	        .memory_mb = MEMORY_MB,
	        .huge = a->store != NULL,
	        .store_directory = a->store,
	        .route = route,
	        .routes = HARNESS_PORTS,
	        .neigh = neigh,
	        .neighs = HARNESS_PORTS,
	};
	struct sy_error err;
	if (harness_open(&c->harness, &options, &err) == 0)
		return true;
	fprintf(stderr, "the forwarder cannot be made: %s\n", err.text);
	return false;
}

static bool configure(struct cell *c)
{
	struct service_key key = {
	        endpoints_addr(c->options.family, "192.0.2.10", "2001:db8:1::10", 0), htons(80),
	        SY_PROTO_TCP, 0, 0};
	pb_timeouts timeouts = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
	struct changes changes = {0};
	timeouts.time_wait_s = c->options.time_wait;
	put_service(&changes, &key, "bench", STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR,
	            &timeouts);
	for (unsigned i = 0; i < SERVERS; i++) {
		struct sy_addr server = endpoints_addr(c->options.family, "10.0.0.1", "fd00::1", i);
		put_server(&changes, &key, &server, 8080, 1,
		           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP);
	}
	for (unsigned i = 0; i < LOCALS; i++) {
		struct sy_addr local =
		        endpoints_addr(c->options.family, "10.0.1.1", "fd00::1:1", i);
		put_local(&changes, &local);
	}
	if (!harness_commit(&c->harness, &changes)) {
		fprintf(stderr, "the configuration is refused: %s\n", c->harness.error);
		return false;
	}
	const struct connections_options connections = {
	        .client = endpoints_addr(c->options.family, "198.18.0.0", "2001:db8:8::", 0),
	        .vip = key.vip,
	        .port = 80};
	if (endpoints_open(&c->endpoints, &c->harness, connections, c->options.concurrent))
		return true;
	fprintf(stderr, "no memory for so many connections\n");
	return false;
}

/* ---- running --------------------------------------------------------------------------------- */

static uint64_t drops(const struct cell *c)
{
	uint64_t n = 0;
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++)
		n += harness_drops(&c->harness, (enum sy_drop)reason);
	return n;
}

/* Until this many connections are complete, or the time is up. */
static void run_until(struct cell *c, uint64_t completed, uint64_t ms)
{
	clock_go(c);
	uint64_t until = rte_rdtsc() + rte_get_tsc_hz() / 1000 * ms;
	while (c->endpoints.connections.completed < completed && rte_rdtsc() < until)
		harness_poll_worker(&c->harness, 0);
	clock_stop(c);
}

/* Of this thread: time of other programs on its core is not counted. */
static double cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds per connection, without the ends' own time; *endpoints: that time. */
static double run_ns(struct cell *c, double *endpoints)
{
	uint64_t connections = c->endpoints.connections.completed, own = c->endpoints.cycles;
	double start = cpu_ns();
	run_until(c, UINT64_MAX, c->options.run_ms);
	if (c->endpoints.connections.completed == connections) /* others had the core */
		run_until(c, connections + 1, SETTLE_MS);
	double all = cpu_ns() - start;
	connections = c->endpoints.connections.completed - connections;
	*endpoints = measure_ns(c->endpoints.cycles - own) / (double)connections;
	return all / (double)connections - *endpoints;
}

static void report(const struct cell *c, double connection, double endpoints, double stick)
{
	const struct arguments *a = &c->options;
	char params[256];
	snprintf(params, sizeof(params),
	         "\"link\": \"in-process\", \"mode\": \"fnat\", \"family\": \"%u\", "
	         "\"concurrent\": %" PRIu64
	         ", \"packets\": %u, \"time_wait_s\": %u, \"table\": %" PRIu64,
	         a->family, a->concurrent, CONNECTION_PACKETS, a->time_wait, a->sessions);
	struct measure m = {"cps", params, "cost", "ns/connection", NULL};
	measure_report(&m, connection, "two random cache lines a packet", stick);
	m.metric = "rate";
	m.unit = "connections/s";
	measure_report(&m, 1e9 / connection, NULL, 0);
	m.metric = "sessions in the table";
	m.unit = "sessions";
	measure_report(&m, (double)harness_totals(&c->harness).live, NULL, 0);
	fprintf(stderr, "%.0f ns a connection, the ends' own %.0f; %" PRIu64 " sessions live\n",
	        connection, endpoints, harness_totals(&c->harness).live);
}

/* Completes the connections in progress and waits until all their sessions are deleted. */
static bool finish(struct cell *c)
{
	struct endpoints *e = &c->endpoints;
	e->concurrent = 0;
	run_until(c, e->connections.begun, SETTLE_MS);
	harness_advance(&c->harness, (c->options.time_wait + 3) * SECOND_NS);
	struct sy_balance_totals t = harness_totals(&c->harness);
	uint64_t lost = drops(c);
	if (e->connections.completed == e->connections.begun && t.live == 0 &&
	    t.created == e->connections.begun && t.ended == t.created && !e->connections.strange &&
	    !e->wrong && !lost)
		return true;
	fprintf(stderr,
	        "%" PRIu64 " of %" PRIu64 " connections were completed; %" PRIu64
	        " sessions began, %" PRIu64 " ended; %" PRIu64 " packets were dropped, %" PRIu64
	        " out of place, %" PRIu64 " wrong\n",
	        e->connections.completed, e->connections.begun, t.created, t.ended, lost,
	        e->connections.strange, e->wrong);
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++)
		if (harness_drops(&c->harness, (enum sy_drop)reason))
			fprintf(stderr, "  dropped: %s %" PRIu64 "\n",
			        sy_drop_name((enum sy_drop)reason),
			        harness_drops(&c->harness, (enum sy_drop)reason));
	return false;
}

static bool measure(struct cell *c)
{
	const struct arguments *a = &c->options;
	struct baseline *y = baseline_open(session_store_mapped(inspect_store(c->harness.b)),
	                                   a->store ? HUGE_PAGE : 0);
	if (!y) {
		fprintf(stderr, "no memory for the baseline\n");
		return false;
	}
	c->endpoints.check = true;
	run_until(c, CHECKED, 60000);
	c->endpoints.check = false;
	run_until(c, UINT64_MAX, a->warm_ms);
	uint64_t live = 0;
	for (unsigned run = 0; run < a->runs; run++) {
		double endpoints, connection = run_ns(c, &endpoints);
		report(c, connection, endpoints,
		       CONNECTION_PACKETS * baseline_run(y, STICK, SY_BURST));
		live = harness_totals(&c->harness).live;
	}
	baseline_close(y);
	if (live > a->sessions / 10 * 9) {
		fprintf(stderr, "the table is filling up: sessions begin faster than they end\n");
		return false;
	}
	return finish(c);
}

/* ---- the command ----------------------------------------------------------------------------- */

static struct arguments arguments_parse(int argc, char **argv)
{
	struct arguments a = {.concurrent = 1000,
	                      .sessions = 8 << 20,
	                      .time_wait = 1,
	                      .runs = 7,
	                      .warm_ms = 5000,
	                      .run_ms = 1000};
	const char *family = "4";
	const struct option_entry options[] = {
	        {"family", "4|6", OPTION_WORD, &family, 0, 0, NULL},
	        {"concurrent", "N", OPTION_COUNT, &a.concurrent, 1, UINT32_MAX,
	         "connections under way at a time"},
	        {"sessions", "N", OPTION_COUNT, &a.sessions, 0, 0, "that the table holds"},
	        {"time-wait", "S", OPTION_UNSIGNED, &a.time_wait, 1, 60,
	         "seconds that a closed session stays"},
	        {"warm", "MS", OPTION_UNSIGNED, &a.warm_ms, 0, 0,
	         "before the first run: until as many end as begin"},
	        {"runs", "N", OPTION_UNSIGNED, &a.runs, 0, 0, NULL},
	        {"run", "MS", OPTION_UNSIGNED, &a.run_ms, 0, 0, "length of a run"},
	        {"directory", "DIR", OPTION_WORD, &a.store, 0, 0, OPTIONS_DIRECTORY},
	};
	OPTIONS_TAKE(
	        argc, argv,
	        "Nanoseconds a complete TCP connection costs, from SYN to the session's deletion.",
	        options);
	a.family = *family == '6' ? 6 : 4;
	return a;
}

int main(int argc, char **argv)
{
	static struct cell cell;
	cell.options = arguments_parse(argc, argv);
	bool ok = harness_make(&cell) && configure(&cell) && measure(&cell);
	if (cell.harness.rt) {
		endpoints_close(&cell.endpoints);
		harness_discard(&cell.harness);
	}
	return ok ? 0 : 1;
}
