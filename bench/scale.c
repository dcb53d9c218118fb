// SPDX-License-Identifier: Apache-2.0
/* steelyard-scale: the total rate of several workers, as threads on their own cores, when packets
 * arrive at the worker that owns their session (as a device's hashing can arrange), at a random
 * worker (which forwards established sessions through the owner's record), or all at one worker.
 * Beside each run, one worker alone forwards its own packets; linear scaling is that rate times the
 * number of workers. All runs include the cost of injecting: a copy, and a buffer from the pool and
 * back. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_options.h"
#include "measure.h"
#include "thread_pool.h"

enum arrival { OWNER, RANDOM, ONE, ARRIVALS };

static const char *const arrival_name[ARRIVALS] = {"owner", "random", "one"};

struct arguments {
	struct fixture_options fixture;
	unsigned runs, run_ms;
	const char *arrival; /* only this one; NULL: all */
};

struct bench {
	struct arguments options;
	struct fixture fixture;
	struct thread_pool pool;
	/* By worker and enum session_direction, for OWNER and RANDOM. */
	struct injector_stream stream[ONE][SY_MAX_WORKERS][2];
};

/* ---- distribution of packets ----------------------------------------------------------------- */

static unsigned owner_of(const struct bench *b, const uint8_t *frame, uint32_t len,
                         enum session_direction from)
{
	struct sy_view v;
	if (sy_packet_parse(frame, len, &v) != SY_DROP_NONE)
		return 0;
	const struct sy_tuple *t = &v.tuple;
	return sy_slot_worker(b->fixture.harness.rt, from == SESSION_CLIENT
	                                                     ? sy_slot_of(&t->src, t->sport)
	                                                     : sy_slot_of(&t->dst, t->dport));
}

static unsigned receiver_of(const struct bench *b, enum arrival arrival, uint64_t n,
                            enum session_direction from)
{
	const struct injector_stream *all = &b->fixture.stream[from];
	return arrival == OWNER ? owner_of(b, injector_frame(all, n), all->len, from)
	                        : (unsigned)(n % b->options.fixture.workers);
}

/* Spreads a direction's packets, which are in random order, over the workers. */
static bool spread(struct bench *b, enum arrival arrival, enum session_direction from)
{
	const struct injector_stream *all = &b->fixture.stream[from];
	uint64_t count[SY_MAX_WORKERS] = {0};
	for (uint64_t n = 0; n < all->count; n++)
		count[receiver_of(b, arrival, n, from)]++;
	for (unsigned w = 0; w < b->options.fixture.workers; w++) {
		struct injector_stream *to = &b->stream[arrival][w][from];
		if (!count[w] || !injector_stream_open(to, count[w], all->len)) {
			fprintf(stderr, "no packets for worker %u, or no memory for them\n", w);
			return false;
		}
		to->count = 0;
	}
	for (uint64_t n = 0; n < all->count; n++) {
		struct injector_stream *to =
		        &b->stream[arrival][receiver_of(b, arrival, n, from)][from];
		memcpy(injector_frame(to, to->count++), injector_frame(all, n), all->stride);
	}
	return true;
}

static bool spread_all(struct bench *b)
{
	for (unsigned from = 0; from < 2; from++) {
		fixture_shuffle(&b->fixture, (enum session_direction)from);
		for (enum arrival a = OWNER; a < ONE; a++)
			if (!spread(b, a, (enum session_direction)from))
				return false;
	}
	return true;
}

/* ---- running --------------------------------------------------------------------------------- */

static void injector(struct bench *b, unsigned w, const struct injector_stream stream[2])
{
	const struct injector_stream *const both[2] = {&stream[0], &stream[1]};
	const struct injector_stream *const nothing[2] = {NULL, NULL};
	thread_pool_inject(&b->pool, w, stream ? both : nothing);
}

/* Millions of packets per second that all workers forward; arrival ARRIVALS: one worker alone. */
static double rate(struct bench *b, enum arrival arrival, struct pool_work *work)
{
	for (unsigned w = 0; w < b->options.fixture.workers; w++) {
		const struct injector_stream *what = NULL;
		if (arrival < ONE)
			what = b->stream[arrival][w];
		else if (w == 0)
			what = arrival == ONE ? b->fixture.stream : b->stream[OWNER][0];
		injector(b, w, what);
	}
	thread_pool_watch(&b->pool, b->options.run_ms / 10, NULL, NULL,
	                  0); /* until all workers are running */
	*work = thread_pool_watch(&b->pool, b->options.run_ms, NULL, NULL, 0);
	for (unsigned w = 0; w < b->options.fixture.workers; w++)
		injector(b, w, NULL);
	thread_pool_pause(5);
	return (double)work->sent / work->seconds / 1e6;
}

/* One limit that all packets meet: a row of the benchmark of limits. */
static void limited_report(const struct fixture_options *o, const struct pool_work *all,
                           const struct pool_work *one)
{
	const bool queued = o->engine && strcmp(o->engine, "atomic") == 0;
	char params[256];
	snprintf(params, sizeof(params),
	         "\"engine\": \"%s\", \"device\": \"%s\", \"model\": \"%s\", \"threads\": %u",
	         o->engine ? o->engine : "auto",
	         !queued     ? "none"
	         : o->device ? o->device
	                     : "event_dsw",
	         !queued    ? "none"
	         : o->model ? o->model
	                    : "atomic",
	         o->workers);
	struct measure m = {"limits", params, "cost of a limited packet in the pipeline",
	                    "ns/packet", NULL};
	measure_report(&m, all->cpu_ns / (double)all->sent, "one worker's",
	               one->cpu_ns / (double)one->sent);
	m.metric = "delivered by the pipeline";
	m.unit = "%";
	measure_report(&m, 100.0 * (double)all->sent / (double)(all->sent + all->dropped), NULL, 0);
}

static void run(struct bench *b, enum arrival arrival)
{
	const struct fixture_options *o = &b->options.fixture;
	struct pool_work one, work;
	char params[256];
	double alone = rate(b, ARRIVALS, &one);
	double all = rate(b, arrival, &work);
	if (!one.sent || !work.sent) {
		fprintf(stderr,
		        "a run without its cores, in which nothing was sent, is left out\n");
		return;
	}
	if (o->limits) {
		limited_report(o, &work, &one);
		return;
	}
	snprintf(params, sizeof(params),
	         "\"workers\": %u, \"arrival\": \"%s\", \"mode\": \"fnat\", \"family\": \"%s\", "
	         "\"sessions\": %" PRIu64,
	         o->workers, arrival_name[arrival], o->client_v6 ? "6" : "4", o->sessions);
	struct measure m = {"scale", params, "rate", "Mpps", NULL};
	measure_report(&m, all, "one worker", alone);
	m.metric = "cost";
	m.unit = "ns/packet";
	measure_report(&m, work.cpu_ns / (double)work.sent, "one worker",
	               one.cpu_ns / (double)one.sent);
	m.metric = "handed over";
	m.unit = "%";
	measure_report(&m, 100.0 * (double)work.steered / (double)work.sent, NULL, 0);
	m.metric = "delivered";
	m.unit = "%";
	measure_report(&m, 100.0 * (double)work.sent / (double)(work.sent + work.dropped), NULL, 0);
}

/* ---- the command ----------------------------------------------------------------------------- */

static struct arguments arguments_parse(int argc, char **argv)
{
	struct arguments a = {.fixture = fixture_defaults(100000), .runs = 7, .run_ms = 200};
	const char *family = "4";
	a.fixture.workers = 2;
	const struct option_entry options[] = {
	        {"workers", "N", OPTION_UNSIGNED, &a.fixture.workers, 1, SY_MAX_WORKERS, NULL},
	        {"family", "4|6", OPTION_WORD, &family, 0, 0, NULL},
	        {"sessions", "N", OPTION_COUNT, &a.fixture.sessions, 1, FIXTURE_SESSIONS, NULL},
	        {"arrival", "owner|random|one", OPTION_WORD, &a.arrival, 0, 0, "all, if not given"},
	        {"runs", "N", OPTION_UNSIGNED, &a.runs, 0, 0, "of each kind"},
	        {"run", "MS", OPTION_UNSIGNED, &a.run_ms, 0, 0, "length of a run"},
	        {"limits", "N", OPTION_UNSIGNED, &a.fixture.limits, 0, 8,
	         "on the service, that all packets pass"},
	        {"engine", "cas|lock|light-lock|atomic", OPTION_WORD, &a.fixture.engine, 0, 0,
	         "of the limits"},
	        {"event-device", "event_dsw|event_sw", OPTION_WORD, &a.fixture.device, 0, 0,
	         "behind which they are, with atomic"},
	        {"event-model", "atomic|ordered|unordered|direct", OPTION_WORD, &a.fixture.model, 0,
	         0, "of its queue"},
	        FIXTURE_DIRECTORY(a.fixture),
	};
	OPTIONS_TAKE(argc, argv, "What several workers forward together, by where packets arrive.",
	             options);
	a.fixture.client_v6 = a.fixture.server_v6 = *family == '6';
	return a;
}

int main(int argc, char **argv)
{
	static struct bench b;
	b.options = arguments_parse(argc, argv);
	const char *only = b.options.arrival;
	bool ok = fixture_open(&b.fixture, &b.options.fixture) && spread_all(&b) &&
	          thread_pool_open(&b.pool, &b.fixture);
	for (unsigned n = 0; ok && n < b.options.runs; n++)
		for (enum arrival a = OWNER; a < ARRIVALS; a++)
			if (!only || strcmp(only, arrival_name[a]) == 0)
				run(&b, a);
	thread_pool_close(&b.pool);
	for (enum arrival a = OWNER; a < ONE; a++)
		for (unsigned w = 0; w < SY_MAX_WORKERS; w++)
			for (unsigned from = 0; from < 2; from++)
				injector_stream_close(&b.stream[a][w][from]);
	fixture_close(&b.fixture);
	return ok ? 0 : 1;
}
