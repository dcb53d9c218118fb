// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-overhead: what else a forwarder does costs the packet path how much? A worker forwards
 * packets of established sessions, as a thread, and its CPU time a packet is measured with each of
 * these and without, in turn:
 *
 *     sweep          the worker's rounds, which walk all sessions; none is over
 *     transaction    a transaction a second, by the interaction thread
 *     health         a hundred servers a second fail or come back
 *     statistics     all that a scrape of the metrics asks for, once a second
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "crowd.h"
#include "measure.h"
#include "options.h"

#define UP   STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define DOWN STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN

struct arguments {
	struct scene_options scene;
	unsigned runs, run_ms;
};

struct bench {
	struct arguments options;
	struct scene scene;
	struct crowd crowd;
	struct service_key service;
	struct sy_addr server;
	uint16_t port; /* host order */
	unsigned turn;
	bool failed;
};

/* ---- what else is done ----------------------------------------------------------------------- */

static void put(struct bench *b, uint32_t weight, int state)
{
	struct changes c = {0};
	put_server(&c, &b->service, &b->server, b->port, weight, state);
	if (!rig_commit(&b->scene.rig, &c)) {
		fprintf(stderr, "a change was refused: %s\n", b->scene.rig.error);
		b->failed = true;
	}
	rig_attend(&b->scene.rig);
}

static void transaction(void *ctx)
{
	struct bench *b = ctx;
	put(b, 1 + b->turn++ % 2, UP);
}

static void health(void *ctx)
{
	struct bench *b = ctx;
	put(b, 1, b->turn++ % 2 ? UP : DOWN);
}

static void ask(struct bench *b, int body, void *request)
{
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = (Steelyard__Forwarder__V1__Request__BodyCase)body;
	q.status = request; /* a union of pointers */
	pb_response *response = rig_request(&b->scene.rig, &q);
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

static const struct task {
	const char *name;
	bool rounds;
	void (*run)(void *ctx);
	unsigned period_ms;
} tasks[] = {
        {"sweep", true, NULL, 0},
        {"transaction", false, transaction, 1000},
        {"health", false, health, 10},
        {"statistics", false, statistics, 1000},
};

/* ---- measuring ------------------------------------------------------------------------------- */

/* Nanoseconds of the worker's time a packet. */
static double cost(struct bench *b, const struct task *task)
{
	bool rounds = task && task->rounds;
	__atomic_store_n(&b->scene.rig.rt->worker[0].private->round_cycles,
	                 rounds ? rte_get_tsc_hz() / 1000 * SY_ROUND_MS : UINT64_MAX,
	                 __ATOMIC_RELAXED);
	struct crowd_work work = crowd_watch(&b->crowd, b->options.run_ms, task ? task->run : NULL,
	                                     b, task ? task->period_ms : 0);
	return work.cpu_ns / (double)work.sent;
}

static bool measure(struct bench *b)
{
	const struct feed_stream *const both[2] = {&b->scene.stream[0], &b->scene.stream[1]};
	uint64_t drops = scene_drops(&b->scene);
	crowd_feed(&b->crowd, 0, both);
	cost(b, NULL); /* caches and page tables know it now */
	for (unsigned run = 0; run < b->options.runs; run++) {
		for (unsigned i = 0; i < SY_ARRAY_LEN(tasks); i++) {
			char params[128];
			snprintf(params, sizeof(params), "\"with\": \"%s\", \"sessions\": %" PRIu64,
			         tasks[i].name, b->options.scene.sessions);
			const struct measure m = {"overhead", params, "cost", "ns/packet"};
			/* Before and behind: what drifts meanwhile drifts in both. */
			double before = cost(b, NULL), with = cost(b, &tasks[i]);
			measure_tell(&m, with, "without", (before + cost(b, NULL)) / 2);
		}
	}
	drops = scene_drops(&b->scene) - drops;
	if (drops)
		fprintf(stderr, "%" PRIu64 " packets were dropped\n", drops);
	return drops == 0 && !b->failed;
}

/* The service and one of its servers, as a packet of each side names them. */
static bool look(struct bench *b)
{
	struct sy_view client, server;
	const struct feed_stream *s = b->scene.stream;
	if (sy_packet_parse(feed_frame(&s[0], 0), s[0].len, &client) != SY_DROP_NONE ||
	    sy_packet_parse(feed_frame(&s[1], 0), s[1].len, &server) != SY_DROP_NONE)
		return false;
	b->service = (struct service_key){client.tuple.dst, client.tuple.dport,
	                                  (uint16_t)client.tuple.proto, 0, 0};
	b->server = server.tuple.src;
	b->port = rte_be_to_cpu_16(server.tuple.sport);
	return true;
}

/* ---- the command ----------------------------------------------------------------------------- */

static struct arguments arguments_parse(int argc, char **argv)
{
	struct arguments a = {.scene = scene_defaults(10000000), .runs = 7, .run_ms = 1000};
	const struct option_entry options[] = {
	        {"sessions", "N", OPTION_COUNT, &a.scene.sessions, 1, SCENE_SESSIONS, NULL},
	        {"runs", "N", OPTION_UNSIGNED, &a.runs, 0, 0, NULL},
	        {"run", "MS", OPTION_UNSIGNED, &a.run_ms, 0, 0,
	         "length of a run, of which each task takes three"},
	        SCENE_DIRECTORY(a.scene),
	};
	OPTIONS_TAKE(argc, argv,
	             "What sweeps, changes of configuration and statistics cost packets.", options);
	a.scene.tcp = true; /* lives on when its server fails */
	return a;
}

int main(int argc, char **argv)
{
	static struct bench b;
	b.options = arguments_parse(argc, argv);
	bool ok = scene_open(&b.scene, &b.options.scene) && look(&b);
	if (ok) {
		scene_shuffle(&b.scene, SESSION_CLIENT);
		scene_shuffle(&b.scene, SESSION_SERVER);
	}
	ok = ok && crowd_open(&b.crowd, &b.scene) && measure(&b);
	crowd_close(&b.crowd);
	scene_close(&b.scene);
	return ok ? 0 : 1;
}
