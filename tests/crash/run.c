// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MBUFS        2047
#define MEMORY_MB    8 /* for routes: small, to keep a start short */
#define MAX_SERVICES 64
#define MAX_SERVERS  512
#define LAST_STEPS   50 /* of a run that is not killed */

static struct run run;

_Noreturn void run_fail(const char *fmt, ...)
{
	va_list args;
	run.h->failed = true;
	va_start(args, fmt);
	fprintf(stderr, "crash: FAILED: %s: ", run.label);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	fflush(NULL);
	_exit(EXIT_FAILURE);
}

/* The linker redirects all calls here: the clock advances only with the chronicle, across runs. */
uint64_t __wrap_sy_clock_ns(void);
uint64_t __wrap_sy_clock_ns(void)
{
	return run.h ? run.h->now_ns : 1;
}

static uint64_t real_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- the network ----------------------------------------------------------------------------- */

static void run_open(struct run *l, uint64_t sessions)
{
	struct sy_static_route route[] = {
	        harness_route(HARNESS_WAN, "198.18.0.0", 16, "192.0.2.1"),
	        harness_route(HARNESS_WAN, "2001:db8:c::", 48, "fe80::1"),
	        harness_route(HARNESS_LAN, "10.0.0.0", 16, NULL),
	        harness_route(HARNESS_LAN, "2001:db8:2::", 64, NULL),
	};
	struct sy_static_neigh neigh[18] = {
	        harness_neighbour(HARNESS_WAN, harness_addr("192.0.2.1"), 1),
	        harness_neighbour(HARNESS_WAN, harness_addr("fe80::1"), 1)};
	for (unsigned n = 0; n < 8; n++) {
		neigh[2 + 2 * n] =
		        harness_neighbour(HARNESS_LAN, plain_server(0, n), (uint8_t)(1 + n));
		neigh[3 + 2 * n] =
		        harness_neighbour(HARNESS_LAN, plain_server(2, n), (uint8_t)(1 + n));
	}
	const struct harness_options o = {
	        .workers = 1 + rng_below(&l->rng, 2),
	        .sessions = sessions,
	        .sessions_limit = l->scenario->sessions_limit,
	        .mbufs = MBUFS,
	        .memory_mb = MEMORY_MB,
	        .max_services = MAX_SERVICES,
	        .max_servers = MAX_SERVERS,
	        .store_directory = l->directory,
	        .state_directory = l->directory,
	        .adopters = 1 + rng_below(&l->rng, 2),
	        .start_ns = l->h->now_ns,
	        .route = route,
	        .routes = SY_ARRAY_LEN(route),
	        .neigh = neigh,
	        .neighs = SY_ARRAY_LEN(neigh),
	};
	struct sy_error err;
	MUST(harness_open(&l->harness, &o, &err) == 0, "it does not start: %s", err.text);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void configuration_lose(const struct run *l)
{
	static const char *const names[] = {"config", "journal"};
	char path[200];
	for (unsigned i = 0; i < SY_ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", l->directory, names[i]);
		unlink(path);
	}
}

static void run_begin(struct run *l)
{
	char path[200];
	bool other = l->scenario->sessions_other && rng_percent(&l->rng, 30);
	snprintf(path, sizeof(path), "%s/harness", l->directory);
	l->found = anatomy_count(path);
	if (l->spoil == SPOIL_CONFIG)
		configuration_lose(l);
	run_open(l, other ? l->scenario->sessions_other : l->scenario->sessions);
	l->h->phase = PHASE_CHECK;
	if (l->h->config[l->h->accepted].revision || l->h->committing)
		settings_validate(l);
	if (l->spoil && !anatomy_spoil(l))
		_exit(RUN_NOTHING_THERE);
	validate(l);
	if (!l->h->config[l->h->accepted].revision)
		settings_begin(l);
	else
		workload_resume(l);
}

_Noreturn void run_start(struct chronicle *h, const struct scenario *scenario,
                         const char *directory, const char *label, uint64_t seed, enum spoil spoil,
                         bool last)
{
	uint64_t started_ns = real_ns();
	run = (struct run){.h = h, .scenario = scenario, .directory = directory, .spoil = spoil};
	snprintf(run.label, sizeof(run.label), "%s", label);
	run.rng.state = seed;
	run.last = last;
	run.slow = rng_percent(&run.rng, 50);
	h->phase = PHASE_START;
	h->turns = 0;
	run_begin(&run);
	h->ready_ns = real_ns() - started_ns;
	h->phase = PHASE_WORKLOAD;
	for (unsigned n = 0; !last || n < LAST_STEPS; n++) {
		workload_step(&run);
		if (!scenario->still && rng_percent(&run.rng, 10))
			settings_change(&run);
	}
	_exit(EXIT_SUCCESS);
}
