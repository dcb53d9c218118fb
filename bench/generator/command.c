// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <stdlib.h>
#include <time.h>

#include "cache_line.h"
#include "core_watch.h"
#include "measure.h"
#include "search.h"

#define MILLION 1e6

void command_help(FILE *out)
{
	fprintf(out,
	        "Commands: a line each on standard input, VERB KEY=VALUE…; what a key was set to\n"
	        "stays. Each is answered by a line of JSON.\n"
	        "\n"
	        "  up       waits until the link is up\n"
	        "  learn    creates the sessions of all flows, and records what their servers "
	        "saw;\n"
	        "           each is answered\n"
	        "  invent   the same for reflectors: answers to made-up ports\n"
	        "  trial    sends and receives for a while\n"
	        "  search   the highest rate that loses no more than `loss`, by trials (RFC 2544)\n"
	        "  connections  complete TCP connections of ten packets, both ends, for a while\n"
	        "  line     nanoseconds that a cache line takes from this core to `core`\n"
	        "  quit\n"
	        "\n"
	        "  link=NAME           the link (the first)\n"
	        "  family=4|6          (4)\n"
	        "  frame=BYTES         on a wire, checksum included (64; IPv6 80)\n"
	        "  flows=N             in turn, in another order than that of learning (1000)\n"
	        "  fresh=0|1           1: each packet is of a new flow (0)\n"
	        "  ways=in|out|both    from clients, from servers, or burst by burst (in)\n"
	        "  rate=MPPS|max       packets a second in millions (max: what the link takes)\n"
	        "  seconds=S, warm=S   what is measured, and what runs before it (0.2, 0.02)\n"
	        "  stamped=0|1         delays are measured, to 0.8 %% (0)\n"
	        "  burst=N             packets sent at once, at most (32)\n"
	        "  loss=SHARE          of search: 0 for NDR (0)\n"
	        "  ceiling=MPPS        of search: where it begins\n"
	        "  resolution=SHARE    of search: of the ceiling (0.01)\n"
	        "  tries=N             of search: trials that fail before a rate is too high (2)\n"
	        "  watch=TID           the other side's thread, 0: none (0)\n"
	        "  patience=US         a trial of search in which a core was away for longer does\n"
	        "                      not count, microseconds (100)\n"
	        "  voids=N             of search: how many such trials are repeated (8)\n"
	        "  window=N            of connections: how many at once (512)\n"
	        "  core=N              of line (1)\n"
	        "  timeout=S           of up (10)\n");
}

void generator_init(struct generator *g)
{
	*g = (struct generator){.traffic = {.family = 4,
	                                    .size = 64,
	                                    .flows = 1000,
	                                    .in = true,
	                                    .warm = 0.02,
	                                    .seconds = 0.2,
	                                    .burst = 32},
	                        .chosen = &g->link[0],
	                        .resolution = 0.01,
	                        .timeout = 10,
	                        .patience = 100,
	                        .tries = 2,
	                        .voids = 8,
	                        .core = 1,
	                        .window = 512};
	g->flows[0].random = 1;
	g->flows[1].random = 2;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool number_read(const char *text, double *out)
{
	char *end;
	*out = strtod(text, &end);
	return end != text && *end == '\0' && *out >= 0;
}

static bool ways_read(struct traffic *t, const char *text)
{
	bool both = strcmp(text, "both") == 0;
	t->in = both || strcmp(text, "in") == 0;
	t->out = both || strcmp(text, "out") == 0;
	return t->in || t->out;
}

static bool link_read(struct generator *g, const char *text)
{
	for (unsigned i = 0; i < g->links; i++)
		if (strcmp(g->link[i].name, text) == 0) {
			g->chosen = &g->link[i];
			return true;
		}
	return false;
}

static bool key_read(struct generator *g, const char *key, const char *value)
{
	struct traffic *t = &g->traffic;
	double n = 0;

	if (strcmp(key, "link") == 0)
		return link_read(g, value);
	if (strcmp(key, "ways") == 0)
		return ways_read(t, value);
	if (strcmp(key, "rate") == 0 && strcmp(value, "max") == 0) {
		t->rate = 0;
		return true;
	}
	if (!number_read(value, &n))
		return false;
	struct {
		const char *key;
		unsigned *whole;
		double *real;
		bool *flag;
	} known[] = {
	        {"family", &t->family, NULL, NULL},     {"frame", &t->size, NULL, NULL},
	        {"flows", &t->flows, NULL, NULL},       {"burst", &t->burst, NULL, NULL},
	        {"tries", &g->tries, NULL, NULL},       {"window", &g->window, NULL, NULL},
	        {"watch", &t->watch, NULL, NULL},       {"voids", &g->voids, NULL, NULL},
	        {"patience", NULL, &g->patience, NULL}, {"core", &g->core, NULL, NULL},
	        {"rate", NULL, &t->rate, NULL},         {"seconds", NULL, &t->seconds, NULL},
	        {"warm", NULL, &t->warm, NULL},         {"loss", NULL, &g->loss, NULL},
	        {"ceiling", NULL, &g->ceiling, NULL},   {"resolution", NULL, &g->resolution, NULL},
	        {"timeout", NULL, &g->timeout, NULL},   {"fresh", NULL, NULL, &t->fresh},
	        {"stamped", NULL, NULL, &t->stamped},
	};
	for (unsigned i = 0; i < SY_ARRAY_LEN(known); i++) {
		if (strcmp(key, known[i].key) != 0)
			continue;
		if (known[i].whole)
			*known[i].whole = (unsigned)n;
		else if (known[i].real)
			*known[i].real = n * (known[i].real == &t->rate ? MILLION : 1);
		else
			*known[i].flag = n != 0;
		return true;
	}
	return false;
}

/* ---- verbs ----------------------------------------------------------------------------------- */

static struct flows *flows_of(struct generator *g)
{
	return &g->flows[g->traffic.family == 6];
}

static int run_up(struct generator *g, FILE *out, struct sy_error *err)
{
	const struct timespec pause = {.tv_nsec = 20000000};
	for (double waited = 0; !link_is_up(g->chosen); waited += 0.02) {
		if (waited > g->timeout)
			return sy_fail(err, ETIMEDOUT, "link %s: no process has the other end",
			               g->chosen->name);
		nanosleep(&pause, NULL);
	}
	fprintf(out, "{\"up\": \"%s\"}\n", g->chosen->name);
	return 0;
}

static int run_learn(struct generator *g, FILE *out, struct sy_error *err)
{
	uint64_t start = sy_clock_ns();
	int rc = flows_learn(g->chosen, flows_of(g), &g->traffic, err);
	if (rc == 0)
		fprintf(out, "{\"flows\": %u, \"seconds\": %.4f}\n", g->traffic.flows,
		        (double)(sy_clock_ns() - start) / 1e9);
	return rc;
}

static int run_invent(struct generator *g, FILE *out, struct sy_error *err)
{
	int rc = flows_invent(flows_of(g), g->traffic.flows, err);
	if (rc == 0)
		fprintf(out, "{\"flows\": %u}\n", g->traffic.flows);
	return rc;
}

static int run_trial(struct generator *g, FILE *out, struct sy_error *err)
{
	static struct trial_result r;
	int rc = trial_run(g->chosen, flows_of(g), &g->traffic, &r, err);
	if (rc != 0)
		return rc;
	fprintf(out,
	        "{\"mpps\": %.6f, \"offered_mpps\": %.6f, \"offered\": %lu, \"received\": %lu, "
	        "\"refused\": %lu, \"forgiven\": %lu, \"alien\": %lu, \"lost\": %.8f, "
	        "\"full\": %.4f, \"burst\": %.2f, \"held_us\": %.1f, \"waited_us\": %.1f",
	        r.received_pps / MILLION, r.offered_pps / MILLION, r.offered, r.received, r.refused,
	        r.forgiven, r.alien, r.lost, r.full, r.burst, (double)r.held_ns / 1e3,
	        (double)r.waited_ns / 1e3);
	if (g->traffic.stamped)
		fprintf(out,
		        ", \"delays\": %lu, \"p50_ns\": %lu, \"p99_ns\": %lu, \"p999_ns\": %lu, "
		        "\"max_ns\": %lu",
		        r.delay.count, histogram_at(&r.delay, 0.5), histogram_at(&r.delay, 0.99),
		        histogram_at(&r.delay, 0.999), r.delay.largest);
	fprintf(out, "}\n");
	return 0;
}

struct searching {
	struct generator *generator;
	struct sy_error *err;
	unsigned trials, voids;
	int rc;
};

/* The core was interrupted: packets lost then are not the forwarder's loss. */
static bool trial_is_void(const struct searching *s, const struct trial_result *r)
{
	double patience_ns = s->generator->patience * 1e3;
	return (double)r->held_ns > patience_ns || (double)r->waited_ns > patience_ns;
}

static double search_try(void *ctx, double rate)
{
	static struct trial_result r;
	struct searching *s = ctx;
	struct traffic t = s->generator->traffic;

	t.rate = rate * MILLION;
	do {
		s->trials++;
		s->rc = trial_run(s->generator->chosen, flows_of(s->generator), &t, &r, s->err);
	} while (s->rc == 0 && r.lost > s->generator->loss && trial_is_void(s, &r) &&
	         s->voids++ < s->generator->voids);
	return s->rc != 0 ? -1 : r.lost;
}

static int run_search(struct generator *g, FILE *out, struct sy_error *err)
{
	struct searching s = {.generator = g, .err = err};
	const struct search search = {.ceiling = g->ceiling,
	                              .loss = g->loss,
	                              .resolution = g->resolution,
	                              .tries = g->tries};
	if (g->ceiling <= 0 || g->resolution <= 0 || g->tries == 0)
		return sy_fail(err, EINVAL, "search: ceiling, resolution and tries are above 0");
	double rate = search_rate(&search, search_try, &s);
	if (rate >= 0)
		fprintf(out, "{\"mpps\": %.6f, \"trials\": %u, \"void\": %u}\n", rate, s.trials,
		        s.voids);
	return s.rc;
}

static int run_connections(struct generator *g, FILE *out, struct sy_error *err)
{
	const struct traffic *t = &g->traffic;
	const struct talk_options o = {
	        .family = t->family, .window = g->window, .warm = t->warm, .seconds = t->seconds};
	uint64_t waited = watch_waited(t->watch);
	struct talk_result r;
	int rc = talk_run(g->chosen, &g->next_connection, &o, &r, err);
	if (rc == 0)
		fprintf(out,
		        "{\"connections\": %.1f, \"begun\": %lu, \"completed\": %lu, \"lost\": "
		        "%lu, "
		        "\"strange\": %lu, \"resets\": %lu, \"full\": %.4f, "
		        "\"waited_us\": %.1f}\n",
		        r.rate, r.begun, r.completed, r.lost, r.strange, r.resets, r.full,
		        (double)(watch_waited(t->watch) - waited) / 1e3);
	return rc;
}

static int run_line(struct generator *g, FILE *out, struct sy_error *err)
{
	double ns = line_latency(g->core);
	if (ns < 0)
		return sy_fail(err, ENODEV, "core %u does not answer", g->core);
	fprintf(out, "{\"line_ns\": %.1f}\n", ns);
	return 0;
}

static const struct {
	const char *verb;
	int (*run)(struct generator *g, FILE *out, struct sy_error *err);
	bool links; /* the command uses a link */
} verbs[] = {
        {"up", run_up, true},          {"learn", run_learn, true},
        {"invent", run_invent, false}, {"trial", run_trial, true},
        {"search", run_search, true},  {"connections", run_connections, true},
        {"line", run_line, false},
};

static int verb_run(struct generator *g, const char *verb, FILE *out, struct sy_error *err)
{
	for (unsigned i = 0; i < SY_ARRAY_LEN(verbs); i++) {
		if (strcmp(verbs[i].verb, verb) != 0)
			continue;
		if (verbs[i].links && g->links == 0)
			return sy_fail(err, EINVAL, "%s: there is no link; give --link", verb);
		return verbs[i].run(g, out, err);
	}
	return sy_fail(err, EINVAL, "%s is no command; see --help", verb);
}

bool command_run(struct generator *g, char *line, FILE *out)
{
	struct sy_error err = {0};
	char *save, *verb = strtok_r(line, " \n", &save);
	int rc = 0;

	if (verb == NULL)
		return true;
	if (strcmp(verb, "quit") == 0)
		return false;
	for (char *key; rc == 0 && (key = strtok_r(NULL, " \n", &save)) != NULL;) {
		char *value = strchr(key, '=');
		if (value == NULL)
			rc = sy_fail(&err, EINVAL, "%s: must have the form KEY=VALUE", key);
		else if (*value++ = '\0', !key_read(g, key, value))
			rc = sy_fail(&err, EINVAL, "%s=%s: no such key or value", key, value);
	}
	if (rc == 0)
		rc = verb_run(g, verb, out, &err);
	if (rc != 0)
		fprintf(out, "{\"error\": \"%s\"}\n", err.text);
	fflush(out);
	return true;
}
