// SPDX-License-Identifier: Apache-2.0
/* steelyard-overhead: how much the forwarder's other tasks cost the packet path. A worker, as a
 * thread on its own core, forwards packets of established sessions, in short slots with each of
 * these tasks and without it:
 *
 *     sweep          the worker's walk over all sessions, none of which has expired
 *     transaction    a server is added, and removed
 *     health         a server fails, and comes back
 *     statistics     all requests of a metrics scrape
 *     list           a thousand sessions are listed
 *     search         the most sessions that a request may scan, for a client that has none
 *     expiry         like sweep, but many sessions expire; they began outside of the slots
 *
 * The result is the worker thread's CPU time per packet. The control thread's work on its own core
 * counts only by what it costs the worker: cache lines and calls to answer. A pair is two slots
 * with the task and two without, ordered so that drift affects both equally; each pair prints one
 * line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_options.h"
#include "measure.h"
#include "thread_pool.h"

#define UP   STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define DOWN STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN

/* Times per slot that the control thread does its own work, with a task or without. */
#define TICKS 2
/* Timeout of the expiry task's sessions. */
#define BRIEF_MS 2000
/* This many pairs have such sessions, each from other clients. */
#define GENERATIONS 256

struct arguments {
	struct fixture_options fixture;
	unsigned runs, slot_ms, due;
};

struct task;

struct bench {
	struct arguments options;
	struct fixture fixture;
	struct thread_pool pool;
	struct injector_stream brief; /* packets of its clients */
	unsigned generation;
	const struct task *doing; /* NULL: no task */
	unsigned tick;            /* within the slot */
	unsigned turn;            /* of the task: forth and back */
	uint64_t random;
	bool failed;
};

/* ---- the tasks ------------------------------------------------------------------------------- */

static void commit(struct bench *b, struct changes *c)
{
	if (harness_commit(&b->fixture.harness, c))
		return;
	fprintf(stderr, "a change was refused: %s\n", b->fixture.harness.error);
	b->failed = true;
}

static void transaction(void *ctx)
{
	struct bench *b = ctx;
	struct changes c = {0};
	const struct service_key *service = &b->fixture.service;
	struct sy_addr server = fixture_server(&b->fixture, b->options.fixture.servers);
	if (b->turn++ % 2)
		delete_server(&c, service, &server, FIXTURE_PORT);
	else
		put_server(&c, service, &server, FIXTURE_PORT, 1, UP);
	commit(b, &c);
}

static void health(void *ctx)
{
	struct bench *b = ctx;
	struct changes c = {0};
	struct sy_addr server = fixture_server(&b->fixture, 0);
	put_server(&c, &b->fixture.service, &server, FIXTURE_PORT, 1, b->turn++ % 2 ? UP : DOWN);
	commit(b, &c);
}

static void ask(struct bench *b, int body, void *request)
{
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = (Steelyard__Forwarder__V1__Request__BodyCase)body;
	q.status = request; /* a union of pointers */
	pb_response *response = harness_request(&b->fixture.harness, &q);
	b->failed |= response->error != NULL;
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
}

static void statistics(void *ctx)
{
	struct bench *b = ctx;
	Steelyard__Forwarder__V1__StatusRequest status =
	        STEELYARD__FORWARDER__V1__STATUS_REQUEST__INIT;
	Steelyard__Forwarder__V1__ListServicesRequest services =
	        STEELYARD__FORWARDER__V1__LIST_SERVICES_REQUEST__INIT;
	Steelyard__Forwarder__V1__ListDropsRequest drops =
	        STEELYARD__FORWARDER__V1__LIST_DROPS_REQUEST__INIT;
	Steelyard__Forwarder__V1__ListPortsRequest ports =
	        STEELYARD__FORWARDER__V1__LIST_PORTS_REQUEST__INIT;
	Steelyard__Forwarder__V1__ListWorkersRequest workers =
	        STEELYARD__FORWARDER__V1__LIST_WORKERS_REQUEST__INIT;
	ask(b, STEELYARD__FORWARDER__V1__REQUEST__BODY_STATUS, &status);
	ask(b, STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SERVICES, &services);
	ask(b, STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_DROPS, &drops);
	ask(b, STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_PORTS, &ports);
	ask(b, STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_WORKERS, &workers);
}

static void sessions_ask(struct bench *b, const struct sy_addr *client)
{
	Steelyard__Forwarder__V1__ListSessionsRequest sessions =
	        STEELYARD__FORWARDER__V1__LIST_SESSIONS_REQUEST__INIT;
	uint8_t bytes[16];
	if (client)
		sessions.client = (ProtobufCBinaryData){sy_addr_to_bytes(client, bytes), bytes};
	ask(b, STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SESSIONS, &sessions);
}

static void list(void *ctx)
{
	sessions_ask(ctx, NULL);
}

static void search(void *ctx)
{
	struct bench *b = ctx;
	sessions_ask(b, &b->fixture.service.vip);
}

/* The last one leaves expired sessions. */
static const struct task {
	const char *name;
	bool sweeps, expires; /* sessions are created meanwhile for it to end */
	void (*run)(void *ctx);
	unsigned times; /* runs per slot */
} tasks[] = {
        {"sweep", true, false, NULL, 0},     {"transaction", false, false, transaction, 2},
        {"health", false, false, health, 2}, {"statistics", false, false, statistics, 1},
        {"list", false, false, list, 1},     {"search", false, false, search, 1},
        {"expiry", true, true, NULL, 0},
};

/* ---- measuring ------------------------------------------------------------------------------- */

/* Whether workers sweep. Writer: the control thread. */
static bool sweeping = true;

static void round_run(struct sy_worker *w)
{
	if (SY_READ(sweeping))
		sy_balance_round(w);
	else /* no missed sweeps to catch up afterwards */
		balance_worker_of(w)->swept_ns = w->now_ns;
}

/* The control thread's work at its time; ctx is the bench. */
static void tick(void *ctx)
{
	struct bench *b = ctx;
	if (b->doing && b->tick++ < b->doing->times)
		b->doing->run(b);
	harness_attend(&b->fixture.harness);
}

/* A slot with the task or without it. */
static struct pool_work slot_run(struct bench *b, const struct task *task, bool with)
{
	b->doing = with ? task : NULL;
	b->tick = 0;
	__atomic_store_n(&sweeping, with || !task->sweeps, __ATOMIC_RELAXED);
	struct pool_work work = thread_pool_watch(&b->pool, b->options.slot_ms, tick, b, TICKS);
	__atomic_store_n(&sweeping, true, __ATOMIC_RELAXED);
	return work;
}

static uint64_t ended(const struct bench *b)
{
	return harness_totals(&b->fixture.harness).ended;
}

/* Creates as many sessions as two slots end; after some seconds clients repeat. */
static void brief_begin(struct bench *b)
{
	struct injector_stream some = b->brief;
	some.count /= GENERATIONS;
	some.frames = injector_frame(&b->brief, some.count * (b->generation++ % GENERATIONS));
	thread_pool_inject_once(&b->pool, 0, b->fixture.port[SESSION_CLIENT], &some);
}

static uint64_t passes(const struct bench *b)
{
	return __atomic_load_n(&inspect_worker(b->fixture.harness.b, 0)->passes, __ATOMIC_ACQUIRE);
}

/* Warms caches and page tables for the task, until as many sessions end as are created: by then the
 * sweep has passed every slot since the first ones expired. */
static void warm_up(struct bench *b, const struct task *task)
{
	uint64_t until = sy_clock_ns() + BRIEF_MS * UINT64_C(1000000), passed = UINT64_MAX;
	do {
		if (task->expires)
			brief_begin(b);
		slot_run(b, task, true);
		slot_run(b, task, true);
		if (passed == UINT64_MAX && sy_clock_ns() > until)
			passed = passes(b);
	} while (task->expires && (passed == UINT64_MAX || passes(b) < passed + 2));
}

/* A pair's slots of one kind. */
struct half {
	double seconds, cpu_ns, sent;
	uint64_t ended;
};

static void half_add(struct half *h, struct bench *b, const struct task *task, bool with)
{
	uint64_t before = ended(b);
	struct pool_work work = slot_run(b, task, with);
	h->seconds += work.seconds;
	h->cpu_ns += work.cpu_ns;
	h->sent += (double)work.sent;
	h->ended += ended(b) - before;
}

static void pair_report(const struct bench *b, const struct task *task, const struct half half[2])
{
	const struct half *with = &half[true], *without = &half[false];
	char rate[32] = "always", params[128], evidence[128];
	if (task->expires)
		snprintf(rate, sizeof(rate), "%u sessions/s", b->options.due);
	else if (!task->sweeps)
		snprintf(rate, sizeof(rate), "%u/s", task->times * 1000 / b->options.slot_ms);
	snprintf(params, sizeof(params),
	         "\"with\": \"%s\", \"rate\": \"%s\", \"sessions\": %" PRIu64, task->name, rate,
	         b->options.fixture.sessions);
	snprintf(evidence, sizeof(evidence), "\"core\": %.3f, \"ended_a_second\": %.0f",
	         with->cpu_ns / with->seconds / 1e9, (double)with->ended / with->seconds);
	const struct measure m = {"overhead", params, "cost", "ns/packet", evidence};
	measure_report(&m, with->cpu_ns / with->sent, "without", without->cpu_ns / without->sent);
}

/* Two slots with the task and two without. */
static void pair_measure(struct bench *b, const struct task *task)
{
	struct half half[2] = {{0}};
	bool with = measure_random(&b->random) & 1;
	if (task->expires)
		brief_begin(b);
	for (unsigned slot = 0; slot < 4; slot++) {
		with ^= slot != 2; /* ABBA or BAAB */
		half_add(&half[with], b, task, with);
	}
	pair_report(b, task, half);
}

static bool measure(struct bench *b)
{
	const struct injector_stream *const both[2] = {&b->fixture.stream[0],
	                                               &b->fixture.stream[1]};
	uint64_t drops = fixture_drops(&b->fixture);
	thread_pool_inject(&b->pool, 0, both);
	for (unsigned i = 0; i < SY_ARRAY_LEN(tasks); i++) {
		warm_up(b, &tasks[i]);
		for (unsigned run = 0; run < b->options.runs; run++)
			pair_measure(b, &tasks[i]);
	}
	drops = fixture_drops(&b->fixture) - drops;
	if (drops)
		fprintf(stderr, "%" PRIu64 " packets were dropped\n", drops);
	return drops == 0 && !b->failed;
}

/* ---- the command ----------------------------------------------------------------------------- */

static struct arguments arguments_parse(int argc, char **argv)
{
	struct arguments a = {
	        .fixture = fixture_defaults(1000000), .runs = 100, .slot_ms = 20, .due = 20000};
	const struct option_entry options[] = {
	        {"sessions", "N", OPTION_COUNT, &a.fixture.sessions, 1, FIXTURE_SESSIONS, NULL},
	        {"runs", "N", OPTION_UNSIGNED, &a.runs, 0, 0,
	         "pairs of each task: two slots with it and two without"},
	        {"slot", "MS", OPTION_UNSIGNED, &a.slot_ms, 1, 1000, "length of a slot"},
	        {"due", "N", OPTION_UNSIGNED, &a.due, 1, 1000000,
	         "sessions a second that end in the expiry task"},
	        FIXTURE_DIRECTORY(a.fixture),
	};
	OPTIONS_TAKE(argc, argv,
	             "What expiry, changes of configuration and statistics cost the packet path.",
	             options);
	a.fixture.tcp = true; /* connections continue when its server fails */
	a.fixture.brief = true;
	return a;
}

int main(int argc, char **argv)
{
	static struct bench b = {.random = 1};
	b.options = arguments_parse(argc, argv);
	bool ok = fixture_open(&b.fixture, &b.options.fixture);
	uint64_t begin = (uint64_t)b.options.due * 2 * b.options.slot_ms / 1000;
	if (ok && !fixture_brief(&b.fixture, &b.brief, (begin ? begin : 1) * GENERATIONS)) {
		fprintf(stderr, "no memory for the packets of brief sessions\n");
		ok = false;
	}
	if (ok) {
		b.fixture.harness.rt->options.round = round_run;
		fixture_shuffle(&b.fixture, SESSION_CLIENT);
		fixture_shuffle(&b.fixture, SESSION_SERVER);
	}
	ok = ok && thread_pool_open(&b.pool, &b.fixture) && measure(&b);
	thread_pool_close(&b.pool);
	injector_stream_close(&b.brief);
	fixture_close(&b.fixture);
	return ok ? 0 : 1;
}
