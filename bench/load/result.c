// SPDX-License-Identifier: Apache-2.0
#include "result.h"

#include <stdlib.h>

static const double shares[] = {0.5, 0.9, 0.99, 0.999, 0.9999};
static const char *const share_names[] = {"p50", "p90", "p99", "p99.9", "p99.99"};

struct result *result_new(void)
{
	struct result *r = calloc(1, sizeof(*r));

	if (r && !(r->class = calloc(CLASSES_MAX, sizeof(*r->class)))) {
		free(r);
		return NULL;
	}
	return r;
}

void result_free(struct result *r)
{
	if (r)
		free(r->class);
	free(r);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* For structs of counters only. */
static void counters_add(void *sum, const void *more, size_t size)
{
	for (size_t i = 0; i < size / sizeof(uint64_t); i++)
		((uint64_t *)sum)[i] += ((const uint64_t *)more)[i];
}

void result_add_client(struct result *r, const struct client *c, unsigned classes)
{
	uint64_t measured = client_measured_ns(c);

	counters_add(&r->counts, client_counts(c), sizeof(r->counts));
	r->measured_ns = measured > r->measured_ns ? measured : r->measured_ns;
	for (unsigned i = 0; i < classes; i++) {
		histogram_merge(&r->class[i].latency, &client_class(c, i)->latency);
		histogram_merge(&r->class[i].service, &client_class(c, i)->service);
	}
}

void result_add_server(struct result *r, const struct server *v)
{
	counters_add(&r->server, server_counts(v), sizeof(r->server));
}

void result_add_stack(struct result *r, const struct sy_stack *s)
{
	struct sy_stack_usage usage;

	sy_stack_usage(s, &usage);
	counters_add(&r->stack, sy_stack_counters(s), sizeof(r->stack));
	r->stack_bytes += usage.fixed;
}

void result_add_worker(struct result *r, const struct sy_worker *w)
{
	for (unsigned i = 0; i < SY_DROP_COUNT; i++)
		r->drop[i] += SY_READ(w->counters.drop[i]);
}

static double seconds_of(const struct result *r)
{
	return r->measured_ns ? (double)r->measured_ns / 1e9 : 1;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void time_text(FILE *out, uint64_t ns)
{
	if (ns < 1000000)
		fprintf(out, " %7.1f us", (double)ns / 1e3);
	else if (ns < 1000000000)
		fprintf(out, " %7.2f ms", (double)ns / 1e6);
	else
		fprintf(out, " %7.2f  s", (double)ns / 1e9);
}

static void histogram_text(FILE *out, const char *class, const char *what,
                           const struct histogram *h)
{
	fprintf(out, "  %-12.12s %-9s", class, what);
	for (size_t i = 0; i < SY_ARRAY_LEN(shares); i++)
		time_text(out, histogram_at(h, shares[i]));
	time_text(out, h->largest);
	fputc('\n', out);
}

static void drops_text(const struct result *r, FILE *out)
{
	for (unsigned i = 1; i < SY_DROP_COUNT; i++)
		if (r->drop[i])
			fprintf(out, "  %lu packets dropped: %s\n", r->drop[i], sy_drop_name(i));
}

static void client_text(const struct result *r, const struct load_options *o, FILE *out)
{
	const struct client_counts *n = &r->counts;
	double s = seconds_of(r);

	fprintf(out, "%lu answers in %.2f s: %.0f a second, %.1f Mbit/s in, %.1f Mbit/s out\n",
	        n->in_window, s, (double)n->in_window / s, (double)n->bytes_in * 8 / s / 1e6,
	        (double)n->bytes_out * 8 / s / 1e6);
	fprintf(out,
	        "  connections: %u held, %lu opened, %lu attempts failed, %lu reopened, %lu lost\n",
	        r->connected, n->opened, n->open_failed, n->reopened, n->lost);
	fprintf(out, "  %-12s %-9s", "class", "since");
	for (size_t i = 0; i < SY_ARRAY_LEN(shares); i++)
		fprintf(out, " %10s", share_names[i]);
	fprintf(out, " %10s\n", "max");
	for (unsigned i = 0; i < o->mix.classes; i++) {
		histogram_text(out, o->mix.class[i].name, o->rate > 0 ? "due" : "asked",
		               &r->class[i].latency);
		if (o->rate > 0)
			histogram_text(out, "", "sent", &r->class[i].service);
	}
#define X(name, help)                                                                              \
	if (n->name)                                                                               \
		fprintf(out, "  %s: %lu\n", help, n->name);
	CLIENT_ERRORS(X)
#undef X
}

void result_text(const struct result *r, const struct load_options *o, FILE *out)
{
	if (o->action == LOAD_RUN) {
		client_text(r, o, out);
	} else {
#define X(name, help) fprintf(out, "  %s: %lu\n", help, r->server.name);
		SERVER_COUNTS(X)
#undef X
	}
	drops_text(r, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void histogram_json(FILE *out, const char *name, const struct histogram *h)
{
	fprintf(out, ", \"%s\": {\"mean\": %.3f", name, histogram_mean(h) / 1e3);
	for (size_t i = 0; i < SY_ARRAY_LEN(shares); i++)
		fprintf(out, ", \"%s\": %.3f", share_names[i],
		        (double)histogram_at(h, shares[i]) / 1e3);
	fprintf(out, ", \"max\": %.3f}", (double)h->largest / 1e3);
}

/* class_read() permits no quotes in names. */
static void class_json(FILE *out, const char *name)
{
	fprintf(out, "{\"name\": \"");
	for (; *name; name++)
		fprintf(out, *name == '"' || *name == '\\' ? "\\%c" : "%c", *name);
	fputc('"', out);
}

static void client_json(const struct result *r, const struct load_options *o, FILE *out)
{
	static const char *const protocols[] = {"raw", "echo", "http", "redis"};
	const struct client_counts *n = &r->counts;
	double s = seconds_of(r);

	fprintf(out,
	        " \"protocol\": \"%s\", \"loop\": \"%s\", \"offered\": %.3f, \"seconds\": %.6f,\n"
	        " \"rate\": %.3f, \"sent\": %lu, \"answered\": %lu, \"in_window\": %lu,\n"
	        " \"bytes_in\": %lu, \"bytes_out\": %lu,\n"
	        " \"connections\": {\"held\": %u, \"opened\": %lu, \"failed\": %lu, "
	        "\"reopened\": %lu, \"lost\": %lu},\n \"errors\": {",
	        protocols[o->mix.protocol], o->rate > 0 ? "open" : "closed", o->rate, s,
	        (double)n->in_window / s, n->sent, n->answered, n->in_window, n->bytes_in,
	        n->bytes_out, r->connected, n->opened, n->open_failed, n->reopened, n->lost);
	const char *comma = "";
#define X(name, help)                                                                              \
	fprintf(out, "%s\"" #name "\": %lu", comma, n->name);                                      \
	comma = ", ";
	CLIENT_ERRORS(X)
#undef X
	fprintf(out, "},\n \"classes\": [");
	for (unsigned i = 0; i < o->mix.classes; i++) {
		fprintf(out, i ? ",\n  " : "\n  ");
		class_json(out, o->mix.class[i].name);
		fprintf(out, ", \"answers\": %lu", r->class[i].latency.count);
		histogram_json(out, "latency_us", &r->class[i].latency);
		histogram_json(out, "since_sent_us", &r->class[i].service);
		fputc('}', out);
	}
	fprintf(out, "],\n");
}

void result_json(const struct result *r, const struct load_options *o, FILE *out)
{
	const char *comma = "";

	fprintf(out, "{\n");
	if (o->action == LOAD_RUN) {
		client_json(r, o, out);
	} else {
		fprintf(out, " \"server\": {");
#define X(name, help)                                                                              \
	fprintf(out, "%s\"" #name "\": %lu", comma, r->server.name);                               \
	comma = ", ";
		SERVER_COUNTS(X)
#undef X
		fprintf(out, "},\n");
	}
	fprintf(out, " \"stack\": {\"bytes\": %zu", r->stack_bytes);
#define X(name, help) fprintf(out, ", \"" #name "\": %lu", r->stack.name);
	SY_STACK_COUNTERS(X)
#undef X
	fprintf(out, "},\n \"drops\": {");
	comma = "";
	for (unsigned i = 1; i < SY_DROP_COUNT; i++)
		if (r->drop[i]) {
			fprintf(out, "%s\"%s\": %lu", comma, sy_drop_name(i), r->drop[i]);
			comma = ", ";
		}
	fprintf(out, "}\n}\n");
}
