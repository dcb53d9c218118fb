// SPDX-License-Identifier: Apache-2.0
/* steelyard-load: clients, or a server, on stacks behind the runtime's ports. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <sy_stack_port.h>

#include "load_client.h"
#include "load_options.h"
#include "load_server.h"
#include "result.h"

#define SYNC_TIMEOUT_MS 30000
#define TICK_MS         10
#define PROGRESS_NS     UINT64_C(1000000000)
#define AWAKE_NS        (2 * UINT64_C(1000000) * SY_ROUND_MS)

/* State of a worker. Other threads read the fields marked relaxed. */
struct place {
	struct client *client;
	struct server *server;
	uint64_t next_ns; /* next deadline */
} __attribute__((aligned(SY_CACHE_LINE)));

struct app {
	struct load_options o;
	struct sy_runtime *rt;
	struct sy_stack_port *port;
	struct place place[SY_MAX_WORKERS];
	bool up; /* writer: the control thread. readers: relaxed. All ports have a link. */
	bool going;
	uint32_t max_connected;
	uint64_t begun_ns, progress_ns, answered;
	struct sy_error *err;
	int rc;
};

static struct app app;
static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	signals++;
}

/* ---- the workers' side ----------------------------------------------------------------------- */

static void serve(struct sy_stack *s, unsigned worker, uint64_t now, void *ctx)
{
	struct place *p = &app.place[worker];

	if (p->client && SY_READ(app.up))
		p->next_ns = client_poll(p->client, s, now);
	else if (p->server)
		p->next_ns = server_poll(p->server, s, now) ? now : UINT64_MAX;
}

/* Runs due work between bursts, too, and keeps the worker awake for near deadlines. */
static bool poll_between(struct sy_worker *w)
{
	const struct place *p = &app.place[w->id];

	if (!sy_stack_poll(w) && p->next_ns <= w->now_ns)
		sy_stack_round(w);
	return p->next_ns < w->now_ns + AWAKE_NS;
}

static uint64_t wake_ns(const struct sy_worker *w)
{
	uint64_t own = app.place[w->id].next_ns, stack = sy_stack_wake_ns(w);
	return own < stack ? own : stack;
}

static uint64_t busy(uint64_t ns)
{
	uint64_t start = sy_clock_ns(), now;

	while ((now = sy_clock_ns()) - start < ns)
		__builtin_ia32_pause();
	return now - start;
}

/* ---- the control thread ---------------------------------------------------------------------- */

static void clients_go(unsigned workers, uint32_t connected)
{
	app.going = true;
	if (connected == 0) {
		int code = 0;
		for (unsigned i = 0; i < workers && !code; i++)
			code = client_connect_error(app.place[i].client);
		app.rc = sy_fail(app.err, code ? code : EIO,
		                 "no connection to the server could be opened: %s",
		                 code ? strerror(code) : "no answer");
		sy_runtime_stop(app.rt);
		return;
	}
	for (unsigned i = 0; i < workers; i++)
		client_go(app.place[i].client);
}

/* A memif peer may connect late. */
static void links_wait(uint64_t now)
{
	struct sy_port_info info;

	if (SY_READ(app.up))
		return;
	for (unsigned i = 0; i < sy_port_count(app.rt); i++) {
		sy_port_get_info(app.rt, i, &info);
		if (info.up)
			continue;
		if (now > app.begun_ns + app.o.timeout_ns) {
			app.rc = sy_fail(app.err, ENETDOWN, "port %s has no link%s%s", info.name,
			                 info.problem[0] ? ": " : "", info.problem);
			sy_runtime_stop(app.rt);
		}
		return;
	}
	__atomic_store_n(&app.up, true, __ATOMIC_RELAXED);
}

static void progress(unsigned workers, uint32_t connected, uint64_t now)
{
	uint64_t answered = 0, failed = 0;

	if (app.o.quiet || now - app.progress_ns < PROGRESS_NS)
		return;
	for (unsigned i = 0; i < workers; i++) {
		const struct client_counts *n = client_counts(app.place[i].client);
		answered += SY_READ(n->answered);
#define X(name, help) failed += SY_READ(n->name);
		CLIENT_ERRORS(X)
#undef X
		failed += SY_READ(n->open_failed);
	}
	if (app.progress_ns)
		fprintf(stderr, "%u connected, %.0f answers a second, %lu failures\n", connected,
		        (double)(answered - app.answered) * 1e9 / (double)(now - app.progress_ns),
		        failed);
	app.answered = answered;
	app.progress_ns = now;
}

static void tick(void *ctx)
{
	unsigned workers = sy_worker_count(app.rt), ready = 0, done = 0;
	uint32_t connected = 0;

	if (signals && (app.o.action == LOAD_SERVE || signals > 1 || !SY_READ(app.up))) {
		sy_runtime_stop(app.rt);
		return;
	}
	if (app.o.action == LOAD_SERVE)
		return;
	links_wait(sy_clock_ns());
	for (unsigned i = 0; i < workers; i++) {
		struct client *c = app.place[i].client;
		ready += client_is_ready(c);
		done += client_phase(c) == CLIENT_DONE;
		connected += client_connected(c);
		if (signals)
			client_stop(c);
	}
	if (connected > app.max_connected)
		app.max_connected = connected;
	progress(workers, connected, sy_clock_ns());
	if (!app.going && ready == workers && sy_clock_ns() >= app.o.at_ns)
		clients_go(workers, connected);
	if (done == workers)
		sy_runtime_stop(app.rt);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

/* A worker's share of a total. */
static uint64_t part(uint64_t total, unsigned worker)
{
	unsigned workers = app.o.runtime.workers;
	return total / workers + (worker < total % workers);
}

static struct client *client_open(unsigned worker)
{
	const struct load_options *o = &app.o;
	uint32_t first = 0;

	for (unsigned i = 0; i < worker; i++)
		first += (uint32_t)part(o->connections, i);
	return client_new(&(struct client_options){
	        .mix = &o->mix,
	        .source = o->source,
	        .sources = o->sources,
	        .target = o->target,
	        .connections = (uint32_t)part(o->connections, worker),
	        .active = (uint32_t)part(o->active, worker),
	        .first = first,
	        .connecting = o->connecting,
	        .depth = o->depth,
	        .each = o->each,
	        .open = o->rate > 0,
	        .rate = o->rate / o->runtime.workers,
	        .poisson = o->poisson,
	        .burst = o->has_burst ? &o->burst : NULL,
	        .think = o->has_think ? &o->think : NULL,
	        .warm_ns = o->warm_ns,
	        .duration_ns = o->requests ? 0 : o->duration_ns,
	        .requests = part(o->requests, worker),
	        .timeout_ns = o->timeout_ns,
	        .reset = o->reset,
	        .turn = o->turn,
	        .seed = o->seed * SY_MAX_WORKERS + worker,
	});
}

static int place_open(unsigned worker, struct sy_error *err)
{
	struct place *p = &app.place[worker];
	const struct load_options *o = &app.o;

	p->next_ns = UINT64_MAX;
	if (o->action == LOAD_RUN) {
		p->client = client_open(worker);
		return p->client ? 0 : sy_fail(err, ENOMEM, "no memory for the connections");
	}
	p->server = server_new(&(struct server_options){
	        .echo = o->echo,
	        .local = o->serve,
	        .locals = o->serves,
	        .connections = o->stack.connections,
	        .busy = busy,
	});
	return p->server ? server_listen(p->server, sy_stack_port_stack(app.port, worker), err)
	                 : sy_fail(err, ENOMEM, "no memory for the connections");
}

static int addresses_take(struct sy_error *err)
{
	const struct load_options *o = &app.o;
	int rc = 0;

	for (unsigned i = 0; i < o->sources && rc == 0; i++)
		rc = sy_address_claim(app.rt, &o->source[i], err);
	for (unsigned i = 0; i < o->serves && rc == 0; i++) {
		bool again = false;
		for (unsigned j = 0; j < i; j++)
			again |= sy_addr_equal(&o->serve[i].addr, &o->serve[j].addr);
		if (!again)
			rc = sy_address_claim(app.rt, &o->serve[i].addr, err);
	}
	if (rc == 0)
		sy_address_settle(app.rt);
	return rc;
}

static int stack_options_complete(struct sy_stack_options *s, struct sy_error *err)
{
	struct sy_hash_key key;
	int rc = sy_hash_key_random(&key);

	if (rc)
		return sy_fail(err, -rc, "no random numbers: %s", strerror(-rc));
	memcpy(s->secret, &key, sizeof(s->secret));
	s->coalesce_acks = true;
	for (unsigned i = 0; i < sy_port_count(app.rt); i++) {
		struct sy_port_info info;
		sy_port_get_info(app.rt, i, &info);
		if (info.problem[0])
			return sy_fail(err, EIO, "port %s: %s", info.name, info.problem);
		if (!s->mtu || info.mtu < s->mtu)
			s->mtu = info.mtu;
	}
	return 0;
}

static int begin(struct sy_error *err)
{
	struct sigaction stop = {.sa_handler = on_signal};
	int rc;

	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	rc = sy_runtime_wait_synced(app.rt, SYNC_TIMEOUT_MS, err);
	if (rc == 0)
		rc = sy_runtime_bind(app.rt, err);
	if (rc == 0)
		rc = stack_options_complete(&app.o.stack, err);
	if (rc == 0)
		rc = sy_stack_port_open(app.port, app.rt, &app.o.stack, err);
	for (unsigned i = 0; rc == 0 && i < sy_worker_count(app.rt); i++)
		rc = place_open(i, err);
	if (rc == 0)
		rc = addresses_take(err);
	if (rc == 0)
		rc = sy_runtime_every(app.rt, TICK_MS, tick, NULL);
	if (rc == 0)
		rc = sy_runtime_start(app.rt, err);
	app.begun_ns = sy_clock_ns();
	if (rc == 0 && app.o.action == LOAD_SERVE && !app.o.quiet)
		fprintf(stderr, "serving with %u workers\n", sy_worker_count(app.rt));
	return rc;
}

static int report(struct sy_error *err)
{
	struct result *r = result_new();
	const struct load_options *o = &app.o;
	int rc = 0;

	if (!r)
		return sy_fail(err, ENOMEM, "no memory for the results");
	r->connected = app.max_connected;
	for (unsigned i = 0; i < sy_worker_count(app.rt); i++) {
		if (app.place[i].client)
			result_add_client(r, app.place[i].client, o->mix.classes);
		if (app.place[i].server)
			result_add_server(r, app.place[i].server);
		result_add_stack(r, sy_stack_port_stack(app.port, i));
		result_add_worker(r, sy_worker_at(app.rt, i));
	}
	if (!o->json || strcmp(o->json, "-"))
		result_text(r, o, stdout);
	if (o->json) {
		FILE *out = strcmp(o->json, "-") ? fopen(o->json, "we") : stdout;
		if (out)
			result_json(r, o, out);
		if (!out || ferror(out) || (out != stdout ? fclose(out) : fflush(out)))
			rc = sy_fail(err, errno, "--json %s: %s", o->json, strerror(errno));
	}
	result_free(r);
	return rc;
}

/* Reports a signal before measuring. */
static int measured_check(struct sy_error *err)
{
	if (app.o.action != LOAD_RUN)
		return 0;
	for (unsigned i = 0; i < sy_worker_count(app.rt); i++)
		if (client_has_measured(app.place[i].client))
			return 0;
	return sy_fail(err, EINTR, "stopped before anything was measured");
}

static void cleaned(void *ctx, const char *text)
{
}

static void end(void)
{
	struct sy_error err;

	sy_stack_port_close(app.port);
	if (app.rt)
		sy_runtime_close(app.rt);
	for (unsigned i = 0; i < SY_MAX_WORKERS; i++) {
		client_free(app.place[i].client);
		server_free(app.place[i].server);
	}
	/* Removes programs and addresses from the kernel, if this process claimed them: a
	 * forwarder's would have prevented the start. */
	if (app.rt && app.o.runtime.kernel)
		sy_kernel_cleanup(cleaned, NULL, &err);
}

static int run(struct sy_error *err)
{
	struct sy_runtime_options *o = &app.o.runtime;
	int rc;

	sy_slot_init();
	app.err = err;
	app.port = sy_stack_port_new(serve, NULL);
	if (!app.port)
		return sy_fail(err, ENOMEM, "no memory");
	o->pipeline = sy_stack_pipeline;
	o->round = sy_stack_round;
	o->poll = poll_between;
	o->wake_ns = wake_ns;
	o->offloads = true;
	o->app = app.port;
	rc = sy_runtime_open(o, &app.rt, err);
	if (rc)
		app.rt = NULL;
	else
		rc = begin(err);
	if (rc == 0)
		rc = sy_runtime_run(app.rt);
	if (app.rt)
		sy_runtime_quiesce(app.rt);
	rc = rc ? rc : app.rc;
	if (rc == 0)
		rc = measured_check(err);
	if (rc == 0)
		rc = report(err);
	end();
	return rc;
}

int main(int argc, char **argv)
{
	struct sy_error err = {0};
	int rc = load_options_read(argc, argv, &app.o, &err);

	if (rc == 0 && app.o.action == LOAD_HELP)
		load_options_help();
	else if (rc == 0 && app.o.action == LOAD_VERSION)
		printf("steelyard-load %s\n", SY_BUILD);
	else if (rc == 0)
		rc = run(&err);
	if (rc < 0)
		fprintf(stderr, "steelyard-load: %s\n", err.text[0] ? err.text : strerror(-rc));
	load_options_free(&app.o);
	return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
