// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-fastpath: what a packet of an established session costs a worker, on one core and
 * without a device. The forwarder's own loop and stages run; packets are fed as feed.h says, and
 * what feeding costs alone is measured in between and taken off.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "measure.h"
#include "scene.h"

#define HUGE_PAGE (UINT64_C(2) << 20)
#define MAX_RUNS  1000

enum direction { BOTH, FROM_CLIENT, FROM_SERVER, ALL };

struct arguments {
	struct scene_options scene;
	const char *mode, *family;
	enum direction direction;
	bool zipf;
	unsigned runs;
	uint64_t packets; /* of a run */
};

static const char *const direction_name[] = {"both", "client", "server", "all"};

static void usage(FILE *out)
{
	fprintf(out,
	        "usage: steelyard-fastpath [options]\n"
	        "\n"
	        "Nanoseconds a packet of an established session costs, on one core.\n"
	        "\n"
	        "  --mode fnat|nat|dr|ipip|snat  (fnat)\n"
	        "  --family 4|6|64               of clients and servers; 64: IPv6 clients of IPv4\n"
	        "                                servers (4)\n"
	        "  --protocol udp|tcp            (udp)\n"
	        "  --sessions N                  live ones, each with a client of its own (1000)\n"
	        "  --fill F                      of the session table, 0 to 1 (0.85)\n"
	        "  --direction both|client|server|all  who sends; both: a burst each in turn; "
	        "all:\n"
	        "                                measured one after the other (both)\n"
	        "  --zipf                        once more, with 1/n of the packets for the n-th "
	        "most\n"
	        "                                popular session; before that all get the same\n"
	        "  --servers N                   up to 256 (64)\n"
	        "  --frame N                     bytes of a frame without FCS (60)\n"
	        "  --runs N                      at most 1000 (21)\n"
	        "  --packets N                   of a run (1000000)\n"
	        "  --directory DIR               the session table's file goes there: hugetlbfs "
	        "for\n"
	        "                                huge pages, which everything else uses then, "
	        "too\n");
}

static enum mode mode_of(const char *name)
{
	static const char *const names[] = {"", "fnat", "dr", "nat", "ipip", "snat"};
	for (unsigned i = 1; i < RTE_DIM(names); i++)
		if (strcmp(name, names[i]) == 0)
			return (enum mode)i;
	return (enum mode)0;
}

static bool family_set(struct scene_options *o, const char *name)
{
	o->client_v6 = name[0] == '6';
	o->server_v6 = strcmp(name, "6") == 0;
	return strcmp(name, "4") == 0 || o->server_v6 || strcmp(name, "64") == 0;
}

static bool direction_set(struct arguments *a, const char *name)
{
	for (unsigned i = 0; i < RTE_DIM(direction_name); i++) {
		if (strcmp(name, direction_name[i]) == 0) {
			a->direction = (enum direction)i;
			return true;
		}
	}
	return false;
}

static bool option_take(void *arguments, int c, char *value)
{
	struct arguments *a = arguments;
	char *end = "";
	switch (c) {
	case 'm':
		a->mode = value;
		a->scene.mode = mode_of(value);
		return a->scene.mode != 0;
	case 'f':
		a->family = value;
		return family_set(&a->scene, value);
	case 'p':
		a->scene.tcp = strcmp(value, "tcp") == 0;
		return a->scene.tcp || strcmp(value, "udp") == 0;
	case 'n':
		a->scene.sessions = strtoull(value, &end, 10);
		return !*end && a->scene.sessions && a->scene.sessions <= 1u << 29;
	case 'F':
		a->scene.fill = strtod(value, &end);
		return !*end && a->scene.fill > 0 && a->scene.fill < 1;
	case 'D':
		return direction_set(a, value);
	case 'z':
		a->zipf = true;
		return true;
	case 'S':
		a->scene.servers = (unsigned)strtoul(value, &end, 10);
		return !*end && a->scene.servers && a->scene.servers <= SCENE_SERVERS;
	case 'l':
		a->scene.frame_len = (uint32_t)strtoul(value, &end, 10);
		return !*end && a->scene.frame_len <= 1514;
	case 'r':
		a->runs = (unsigned)strtoul(value, &end, 10);
		return !*end && a->runs && a->runs <= MAX_RUNS;
	case 'P':
		a->packets = strtoull(value, &end, 10);
		return !*end && a->packets >= SY_BURST;
	case 'd':
		a->scene.store = value;
		a->scene.huge = true;
		return true;
	default:
		return false;
	}
}

static struct arguments arguments_parse(int argc, char **argv)
{
	static const struct option options[] = {
	        {"mode", required_argument, NULL, 'm'},
	        {"family", required_argument, NULL, 'f'},
	        {"protocol", required_argument, NULL, 'p'},
	        {"sessions", required_argument, NULL, 'n'},
	        {"fill", required_argument, NULL, 'F'},
	        {"direction", required_argument, NULL, 'D'},
	        {"zipf", no_argument, NULL, 'z'},
	        {"servers", required_argument, NULL, 'S'},
	        {"frame", required_argument, NULL, 'l'},
	        {"runs", required_argument, NULL, 'r'},
	        {"packets", required_argument, NULL, 'P'},
	        {"directory", required_argument, NULL, 'd'},
	        {"help", no_argument, NULL, 'h'},
	        {NULL, 0, NULL, 0},
	};
	struct arguments a = {.scene = scene_defaults(1000),
	                      .mode = "fnat",
	                      .family = "4",
	                      .runs = 21,
	                      .packets = 1000000};
	measure_options(argc, argv, options, usage, option_take, &a);
	return a;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* What is measured with one scene. */
struct cell {
	struct scene *scene;
	enum direction direction;
	bool zipf;
	uint64_t packets;
};

/* Gives a run's packets to the ports; returns how many. */
static uint64_t packets_give(const struct cell *c)
{
	struct scene *s = c->scene;
	uint64_t given = 0, n = c->packets;
	const bool side[2] = {c->direction != FROM_SERVER, c->direction != FROM_CLIENT};
	if (c->direction == BOTH)
		n /= 2;
	for (unsigned from = 0; from < 2; from++) {
		if (!side[from])
			continue;
		feed_give(&s->feed, s->port[from], 0, &s->stream[from], n);
		given += n;
	}
	return given;
}

static double run_ns(const struct cell *c, bool empty)
{
	uint64_t packets = packets_give(c), start = rte_rdtsc();
	if (empty)
		feed_run_empty(&c->scene->feed);
	else
		while (rig_turn_worker(&c->scene->rig, 0))
			;
	return measure_ns(rte_rdtsc() - start) / (double)packets;
}

struct result {
	double all, feeding, stick;
};

/* The usual cost of feeding, lest a run gains by what disturbed the one before it. */
static double usual_feeding(const struct result *result, unsigned runs)
{
	double feeding[MAX_RUNS];
	for (unsigned i = 0; i < runs; i++)
		feeding[i] = result[i].feeding;
	return measure_median(feeding, runs);
}

static bool cell_measure(const struct cell *c, const struct arguments *a, struct yardstick *y)
{
	static struct result result[MAX_RUNS];
	char params[256];
	uint64_t drops = scene_drops(c->scene);
	snprintf(
	        params, sizeof(params),
	        "\"mode\": \"%s\", \"family\": \"%s\", \"protocol\": \"%s\", \"sessions\": %" PRIu64
	        ", \"flows\": \"%s\", \"direction\": \"%s\"",
	        a->mode, a->family, a->scene.tcp ? "tcp" : "udp", a->scene.sessions,
	        c->zipf ? "zipf" : "uniform", direction_name[c->direction]);
	const struct measure m = {"fastpath", params, "cost", "ns/packet"};

	run_ns(c, false); /* caches and page tables know it now */
	for (unsigned i = 0; i < a->runs; i++) {
		result[i].feeding = run_ns(c, true);
		result[i].all = run_ns(c, false);
		result[i].stick = yardstick_run(y, (unsigned)(c->packets / SY_BURST), SY_BURST);
	}
	double feeding = usual_feeding(result, a->runs);
	for (unsigned i = 0; i < a->runs; i++)
		measure_tell(&m, result[i].all - feeding, "two random lines", result[i].stick);
	if (scene_drops(c->scene) == drops)
		return true;
	fprintf(stderr, "packets were dropped while it was measured\n");
	return false;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool directions_measure(struct scene *s, const struct arguments *a, struct yardstick *y,
                               bool zipf)
{
	struct cell c = {s, a->direction, zipf, a->packets};
	if (scene_is_one_way(s))
		c.direction = FROM_CLIENT;
	if (c.direction != ALL)
		return cell_measure(&c, a, y);
	for (c.direction = BOTH; c.direction < ALL; c.direction++)
		if (!cell_measure(&c, a, y))
			return false;
	return true;
}

static bool scene_order(struct scene *s, bool zipf)
{
	for (unsigned from = 0; from < 2; from++) {
		struct feed_stream *stream = &s->stream[from];
		if (!stream->frames)
			continue;
		if (!zipf)
			scene_shuffle(s, (enum session_direction)from);
		else if (!scene_draw_zipf(s, (enum session_direction)from, stream->count))
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	static struct scene scene;
	struct arguments a = arguments_parse(argc, argv);
	struct yardstick *y = NULL;
	bool ok = scene_open(&scene, &a.scene) && scene_check(&scene, a.scene.sessions);
	if (ok) {
		y = yardstick_open(session_store_mapped(scene.rig.b->store),
		                   a.scene.store ? HUGE_PAGE : 0);
		if (!y)
			fprintf(stderr, "no memory for the yardstick\n");
		ok = y != NULL;
	}
	ok = ok && scene_order(&scene, false) && directions_measure(&scene, &a, y, false);
	if (ok && a.zipf)
		ok = scene_order(&scene, true) && directions_measure(&scene, &a, y, true);
	yardstick_close(y);
	scene_close(&scene);
	return ok ? 0 : 1;
}
