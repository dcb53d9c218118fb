// SPDX-License-Identifier: Apache-2.0
#include "load_options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sy_port_option.h>

#define CONNECTIONS_MAX 4000000.0
#define SERVED          65536u /* default connections of a server */

void load_options_help(void)
{
	printf("steelyard-load: loads a server by many TCP connections, on a TCP stack of its own\n"
	       "\n"
	       "usage: steelyard-load --port NAME[,…] --source ADDRESS[,…] --to ADDRESS:PORT "
	       "[OPTION…]\n"
	       "       steelyard-load --port NAME[,…] --serve ADDRESS:PORT [OPTION…]\n"
	       "\n"
	       "Connections\n"
	       "  --to ADDRESS:PORT          the server; IPv6 as [ADDRESS]:PORT\n"
	       "  --source LIST              own addresses, used in turn: A, A-B or A/LENGTH, "
	       "with\n"
	       "                             commas; no address of the host\n"
	       "  --connections N            open at a time (1; a server accepts 65536)\n"
	       "  --active N                 number of connections that send requests; the rest "
	       "stay\n"
	       "                             idle (all)\n"
	       "  --each N                   requests after which a connection is closed and "
	       "another\n"
	       "                             opened; 1: one request per connection (0: never)\n"
	       "  --depth N                  requests in flight per connection, 1 to 64 (1)\n"
	       "  --connecting N             connections that are opened at a time (256)\n"
	       "  --reset                    end connections by a reset, not by FIN\n"
	       "\n"
	       "Requests\n"
	       "  --protocol raw|echo|http|redis   raw (default): docs/load.md has the header; "
	       "echo:\n"
	       "                             bytes that come back; http: HTTP/1.1; redis: GET\n"
	       "  --class NAME[,KEY=VALUE…]  a class of requests with a histogram of its own;\n"
	       "                             repeatable. Keys:\n"
	       "       share=N               its weight among the classes (1)\n"
	       "       length=D              bytes of a request; http: of its body (64; none)\n"
	       "       answer=D, service=D, type=N   raw: bytes of the answer (64), the server's\n"
	       "                             busy time (0), a mark\n"
	       "       unsent=T              with --rate: a request that is only simulated; the\n"
	       "                             client is busy for T\n"
	       "       path=/…, method=M     http (/, GET or with a length POST)\n"
	       "       key=K                 redis: the key to get (key)\n"
	       "  D: N, const:N, uniform:A:B, exp:MEAN, bimodal:A:B:SHARE_OF_B,\n"
	       "     pareto:MIN:SHAPE[:MAX], file:PATH with lines VALUE [WEIGHT]\n"
	       "  --host NAME, --header TEXT http: of each request; --header is repeatable\n"
	       "\n"
	       "Amount and time\n"
	       "  --rate N                   an open loop: N requests per second, whether or not\n"
	       "                             answers arrive; latency counts from when each was "
	       "due.\n"
	       "                             Without it, a connection sends its next request when "
	       "it\n"
	       "                             has the answer\n"
	       "  --arrivals poisson|even    of the open loop (poisson)\n"
	       "  --burst D                  requests that are due at the same time (1)\n"
	       "  --turn N                   requests sent between two polls for answers, 1 to 64\n"
	       "                             (64): fewer are more exact, and slower\n"
	       "  --think D                  closed loop: pause before the next request (0)\n"
	       "  --duration TIME            how long to measure (10s)\n"
	       "  --requests N               measure N requests instead\n"
	       "  --warmup TIME              warm-up before measuring (1s; 0 with --requests)\n"
	       "  --timeout TIME             max wait for an answer, and for a connection (10s)\n"
	       "  --seed N                   random seed (1)\n"
	       "  --at TIME                  send no request before this time of CLOCK_MONOTONIC, "
	       "so\n"
	       "                             that several generators begin together\n"
	       "  --stamp                    raw: a request's number is its send time, in ns of\n"
	       "                             CLOCK_MONOTONIC\n"
	       "\n"
	       "Server\n"
	       "  --serve ADDRESS:PORT       answer the raw protocol at this address; repeatable\n"
	       "  --echo                     send back the received bytes instead\n"
	       "\n"
	       "Output\n"
	       "  --json FILE                results as JSON too; \"-\": only JSON, on stdout\n"
	       "  --quiet                    no progress on stderr\n"
	       "  --log error|warn|info      level of the runtime's messages (warn)\n"
	       "\n"
	       "Ports and memory, as steelyard-forwarder(8)\n"
	       "  --port NAME[,KEY=VALUE…]   an interface, by AF_XDP; or "
	       "backend=ethdev,dev=DEVARGS\n"
	       "  --route PREFIX,port=NAME[,via=ADDR], --neighbour ADDR,port=NAME,mac=MAC\n"
	       "  --workers N, --cores LIST  threads, each with a stack (1); their cores\n"
	       "  --capacity N               max connections of the stacks, including those in\n"
	       "                             TIME-WAIT (depends on --connections)\n"
	       "  --time-wait TIME           TIME-WAIT duration of this stack (client 1ms, server\n"
	       "                             60s)\n"
	       "  --ports A-B                local ports of a client (1024-65535)\n"
	       "  --congestion cubic|newreno congestion control (cubic)\n"
	       "  --memory MB, --mbufs N, --no-huge, --instance NAME\n"
	       "  --version, --help\n");
}

/* ---- values ---------------------------------------------------------------------------------- */

int count_option(const char *what, const char *text, double min, double max, uint64_t *out,
                 struct sy_error *err)
{
	double value;
	int rc = number_read(what, text, UNIT_COUNT, min, max, &value, err);

	if (rc == 0 && value != floor(value))
		rc = sy_fail(err, EINVAL, "%s %.40s: must be a whole number", what, text);
	if (rc == 0)
		*out = (uint64_t)value;
	return rc;
}

static int count32_read(const char *what, const char *text, double min, double max, uint32_t *out,
                        struct sy_error *err)
{
	uint64_t value = 0;
	int rc = count_option(what, text, min, max, &value, err);

	if (rc == 0)
		*out = (uint32_t)value;
	return rc;
}

static int time_read(const char *what, const char *text, uint64_t *out, struct sy_error *err)
{
	double value;
	int rc = number_read(what, text, UNIT_TIME, 0, 1e15, &value, err);

	if (rc == 0)
		*out = (uint64_t)value;
	return rc;
}

static int header_read(struct mix *m, const char *text, struct sy_error *err)
{
	size_t used = strlen(m->fields);

	if (!strchr(text, ':') || strpbrk(text, "\r\n"))
		return sy_fail(err, EINVAL, "--header \"%.60s\": must be NAME: VALUE", text);
	if (used + strlen(text) + 3 > sizeof(m->fields))
		return sy_fail(err, EINVAL, "--header: all together are too long");
	snprintf(m->fields + used, sizeof(m->fields) - used, "%s\r\n", text);
	return 0;
}

static int ports_read(struct load_options *o, const char *text, struct sy_error *err)
{
	unsigned first, last;
	char rest;

	if (sscanf(text, "%u-%u%c", &first, &last, &rest) != 2 || first < 1 || last > 65535 ||
	    first > last)
		return sy_fail(err, EINVAL, "--ports %.40s: must be FIRST-LAST, such as 1024-65535",
		               text);
	o->stack.port_first = (uint16_t)first;
	o->stack.port_last = (uint16_t)last;
	return 0;
}

/* Parses one of a NULL-terminated list of words; sets its index. */
static int word_read(const char *what, const char *text, const char *const *words,
                     struct sy_error *err)
{
	char all[100] = "";

	for (int i = 0; words[i]; i++) {
		if (!strcmp(words[i], text))
			return i;
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "",
		         words[i]);
	}
	return sy_fail(err, EINVAL, "%s %.40s: must be one of %s", what, text, all);
}

/* ---- the whole command line ------------------------------------------------------------------ */

#define OPTIONS(X)                                                                                 \
	X(PORT, "port", 1)                                                                         \
	X(ROUTE, "route", 1)                                                                       \
	X(NEIGHBOUR, "neighbour", 1)                                                               \
	X(WORKERS, "workers", 1)                                                                   \
	X(CORES, "cores", 1)                                                                       \
	X(MEMORY, "memory", 1)                                                                     \
	X(MBUFS, "mbufs", 1)                                                                       \
	X(NO_HUGE, "no-huge", 0)                                                                   \
	X(INSTANCE, "instance", 1)                                                                 \
	X(CAPACITY, "capacity", 1)                                                                 \
	X(TIME_WAIT, "time-wait", 1)                                                               \
	X(PORTS, "ports", 1)                                                                       \
	X(CONGESTION, "congestion", 1)                                                             \
	X(TO, "to", 1)                                                                             \
	X(SOURCE, "source", 1)                                                                     \
	X(CONNECTIONS, "connections", 1)                                                           \
	X(ACTIVE, "active", 1)                                                                     \
	X(EACH, "each", 1)                                                                         \
	X(DEPTH, "depth", 1)                                                                       \
	X(CONNECTING, "connecting", 1)                                                             \
	X(RESET, "reset", 0)                                                                       \
	X(PROTOCOL, "protocol", 1)                                                                 \
	X(CLASS, "class", 1)                                                                       \
	X(HOST, "host", 1)                                                                         \
	X(HEADER, "header", 1)                                                                     \
	X(RATE, "rate", 1)                                                                         \
	X(ARRIVALS, "arrivals", 1)                                                                 \
	X(BURST, "burst", 1)                                                                       \
	X(THINK, "think", 1)                                                                       \
	X(DURATION, "duration", 1)                                                                 \
	X(REQUESTS, "requests", 1)                                                                 \
	X(WARMUP, "warmup", 1)                                                                     \
	X(TIMEOUT, "timeout", 1)                                                                   \
	X(SEED, "seed", 1)                                                                         \
	X(TURN, "turn", 1)                                                                         \
	X(AT, "at", 1)                                                                             \
	X(STAMP, "stamp", 0)                                                                       \
	X(SERVE, "serve", 1)                                                                       \
	X(ECHO, "echo", 0)                                                                         \
	X(JSON, "json", 1)                                                                         \
	X(QUIET, "quiet", 0)                                                                       \
	X(LOG, "log", 1)                                                                           \
	X(VERSION, "version", 0)                                                                   \
	X(HELP, "help", 0)

enum option_id {
	OPT_BEFORE = 255,
#define X(id, name, value) OPT_##id,
	OPTIONS(X)
#undef X
};

static const struct option long_options[] = {
#define X(id, name, value) {name, value, NULL, OPT_##id},
        OPTIONS(X)
#undef X
                {NULL, 0, NULL, 0}};

/* Parses options of runtime and stack. Returns 1 for another option. */
static int read_stack_option(struct load_options *o, int id, const char *text, struct sy_error *err)
{
	static const char *const congestions[] = {"cubic", "newreno", NULL};
	uint64_t ns = 0;
	int rc;

	switch (id) {
	case OPT_PORT:
		return sy_port_option(&o->runtime, text, err);
	case OPT_ROUTE:
		return sy_route_option(&o->runtime, text, err);
	case OPT_NEIGHBOUR:
		return sy_neighbour_option(&o->runtime, text, err);
	case OPT_WORKERS:
		return sy_u32_option("--workers", text, 1, SY_MAX_WORKERS, &o->runtime.workers,
		                     err);
	case OPT_CORES:
		return sy_text_option("--cores", text, o->runtime.cores, sizeof(o->runtime.cores),
		                      err);
	case OPT_MEMORY:
		return sy_u32_option("--memory", text, 64, 1u << 20, &o->runtime.memory_mb, err);
	case OPT_MBUFS:
		return sy_u32_option("--mbufs", text, 1024, 1u << 24, &o->runtime.mbufs, err);
	case OPT_NO_HUGE:
		o->runtime.huge = false;
		return 0;
	case OPT_INSTANCE:
		return sy_text_option("--instance", text, o->runtime.instance,
		                      sizeof(o->runtime.instance), err);
	case OPT_CAPACITY:
		return count32_read("--capacity", text, 1, CONNECTIONS_MAX, &o->stack.connections,
		                    err);
	case OPT_TIME_WAIT:
		rc = time_read("--time-wait", text, &ns, err);
		o->stack.time_wait_ms = ns < 1000000 ? 1 : (uint32_t)(ns / 1000000);
		return rc;
	case OPT_PORTS:
		return ports_read(o, text, err);
	case OPT_CONGESTION:
		rc = word_read("--congestion", text, congestions, err);
		o->stack.congestion = rc >= 0 ? congestions[rc] : NULL;
		return rc < 0 ? rc : 0;
	default:
		return 1;
	}
}

/* Parses options of requests. Returns 1 for another option. */
static int read_request_option(struct load_options *o, int id, const char *text,
                               struct sy_error *err)
{
	static const char *const protocols[] = {"raw", "echo", "http", "redis", NULL};
	static const char *const arrivals[] = {"poisson", "even", NULL};
	int rc;

	switch (id) {
	case OPT_PROTOCOL:
		rc = word_read("--protocol", text, protocols, err);
		o->mix.protocol = rc >= 0 ? (enum protocol)rc : PROTOCOL_RAW;
		return rc < 0 ? rc : 0;
	case OPT_CLASS:
		return class_read(&o->mix, text, err);
	case OPT_HOST:
		return sy_text_option("--host", text, o->mix.host, sizeof(o->mix.host), err);
	case OPT_HEADER:
		return header_read(&o->mix, text, err);
	case OPT_RATE:
		return number_read("--rate", text, UNIT_COUNT, 0.001, 1e9, &o->rate, err);
	case OPT_ARRIVALS:
		rc = word_read("--arrivals", text, arrivals, err);
		o->poisson = rc == 0;
		return rc < 0 ? rc : 0;
	case OPT_BURST:
		o->has_burst = true;
		return distribution_read(&o->burst, "--burst", text, UNIT_COUNT, err);
	case OPT_THINK:
		o->has_think = true;
		return distribution_read(&o->think, "--think", text, UNIT_TIME, err);
	case OPT_DURATION:
		return time_read("--duration", text, &o->duration_ns, err);
	case OPT_REQUESTS:
		return count_option("--requests", text, 1, 1e15, &o->requests, err);
	case OPT_WARMUP:
		o->has_warm = true;
		return time_read("--warmup", text, &o->warm_ns, err);
	case OPT_TIMEOUT:
		return time_read("--timeout", text, &o->timeout_ns, err);
	case OPT_SEED:
		return count_option("--seed", text, 0, 9e15, &o->seed, err);
	default:
		return 1;
	}
}

static int read_option(struct load_options *o, int id, const char *text, struct sy_error *err)
{
	static const char *const levels[] = {"error", "warn", "info", NULL};
	int rc;

	switch (id) {
	case OPT_TO:
		return endpoint_option("--to", text, &o->target, err);
	case OPT_SOURCE:
		return sources_option(o, text, err);
	case OPT_CONNECTIONS:
		return count32_read("--connections", text, 1, CONNECTIONS_MAX, &o->connections,
		                    err);
	case OPT_ACTIVE:
		o->has_active = true;
		return count32_read("--active", text, 0, CONNECTIONS_MAX, &o->active, err);
	case OPT_EACH:
		return count32_read("--each", text, 0, 4e9, &o->each, err);
	case OPT_DEPTH:
		return count32_read("--depth", text, 1, 64, &o->depth, err);
	case OPT_CONNECTING:
		return count32_read("--connecting", text, 1, 1e6, &o->connecting, err);
	case OPT_RESET:
		o->reset = true;
		return 0;
	case OPT_TURN:
		return count32_read("--turn", text, 1, 64, &o->turn, err);
	case OPT_AT:
		return time_read("--at", text, &o->at_ns, err);
	case OPT_STAMP:
		o->mix.stamp = true;
		return 0;
	case OPT_SERVE:
		if (o->serves == LOCALS_MAX)
			return sy_fail(err, EINVAL, "--serve: at most %u are possible", LOCALS_MAX);
		return endpoint_option("--serve", text, &o->serve[o->serves++], err);
	case OPT_ECHO:
		o->echo = true;
		return 0;
	case OPT_JSON:
		o->json = text;
		return 0;
	case OPT_QUIET:
		o->quiet = true;
		return 0;
	case OPT_LOG:
		rc = word_read("--log", text, levels, err);
		if (rc >= 0)
			sy_log_set_level((enum sy_log_level)rc);
		return rc < 0 ? rc : 0;
	case OPT_VERSION:
		o->action = LOAD_VERSION;
		return 0;
	case OPT_HELP:
		o->action = LOAD_HELP;
		return 0;
	default:
		rc = read_stack_option(o, id, text, err);
		return rc == 1 ? read_request_option(o, id, text, err) : rc;
	}
}

/* Checks combinations of options. */
static int client_check(struct load_options *o, struct sy_error *err)
{
	uint32_t workers = o->runtime.workers;

	if (!o->target.port)
		return sy_fail(err, EINVAL, "--to is missing: which server shall be asked?");
	if (!o->sources)
		return sy_fail(err, EINVAL,
		               "--source is missing: from which addresses? They must be "
		               "free on the port's network, as 10.0.0.100-10.0.0.110");
	for (unsigned i = 0; i < o->sources; i++)
		if (sy_addr_is_v4(&o->source[i]) != sy_addr_is_v4(&o->target.addr))
			return sy_fail(err, EINVAL, "--source and --to must be of one family");
	if (!o->connections)
		o->connections = workers;
	if (o->connections < workers)
		return sy_fail(err, EINVAL, "--connections %u: each of the %u workers needs one",
		               o->connections, workers);
	o->active = o->has_active && o->active < o->connections ? o->active : o->connections;
	if (o->active > 0 && o->active < workers)
		return sy_fail(err, EINVAL, "--active %u: each of the %u workers needs one, or 0",
		               o->active, workers);
	if (o->active == 0 && (o->requests || o->rate > 0))
		return sy_fail(err, EINVAL, "--active 0: no connection would send what %s requests",
		               o->requests ? "--requests" : "--rate");
	if (o->has_think && o->rate > 0)
		return sy_fail(err, EINVAL, "--think is of a closed loop, --rate of an open one");
	for (unsigned i = 0; i < o->mix.classes; i++)
		if (o->mix.class[i].unsent_ns && o->rate <= 0)
			return sy_fail(err, EINVAL,
			               "--class %s: unsent is of an open loop: give a --rate",
			               o->mix.class[i].name);
	if (o->mix.stamp && o->mix.protocol != PROTOCOL_RAW)
		return sy_fail(err, EINVAL, "--stamp is of --protocol raw");
	if (o->has_burst && o->rate <= 0)
		return sy_fail(err, EINVAL, "--burst is of an open loop: give a --rate");
	if (o->requests && o->requests < workers)
		return sy_fail(err, EINVAL, "--requests: at least one for each worker");
	if (!o->requests && !o->duration_ns)
		o->duration_ns = UINT64_C(10000000000);
	if (!o->has_warm && !o->requests)
		o->warm_ns = UINT64_C(1000000000);
	if (!o->timeout_ns)
		return sy_fail(err, EINVAL, "--timeout 0: nothing could be in time");
	if (!o->mix.host[0]) {
		char addr[SY_ADDR_TEXT];
		bool v4 = sy_addr_is_v4(&o->target.addr);
		snprintf(o->mix.host, sizeof(o->mix.host), v4 ? "%s:%u" : "[%s]:%u",
		         sy_addr_format(&o->target.addr, addr), ntohs(o->target.port));
	}
	o->mix.close = o->each == 1;
	if (!o->stack.time_wait_ms)
		o->stack.time_wait_ms = 1;
	return mix_complete(&o->mix, err);
}

static int options_check(struct load_options *o, struct sy_error *err)
{
	double capacity;
	int rc = 0;

	if (o->runtime.ports == 0)
		return sy_fail(err, EINVAL, "--port is missing: name an interface");
	if (o->action == LOAD_RUN)
		rc = client_check(o, err);
	else if (o->target.port || o->sources)
		rc = sy_fail(err, EINVAL, "--serve: a server has neither --to nor --source");
	if (rc)
		return rc;
	if (!o->connections)
		o->connections = SERVED;
	for (unsigned i = 0; i < o->runtime.ports; i++) {
		o->runtime.kernel |= o->runtime.port[i].backend == SY_PORT_XSK;
		if (o->runtime.port[i].mtu)
			o->stack.mtu = o->runtime.port[i].mtu;
	}
	/* Per worker: slots, and thus connections, are not spread evenly. */
	capacity = (o->runtime.workers > 1 ? 1.25 : 1) * o->connections / o->runtime.workers + 4096;
	if (!o->stack.connections)
		o->stack.connections =
		        capacity < CONNECTIONS_MAX ? (uint32_t)capacity : (uint32_t)CONNECTIONS_MAX;
	return 0;
}

int load_options_read(int argc, char **argv, struct load_options *o, struct sy_error *err)
{
	*o = (struct load_options){
	        .runtime = {.workers = 1, .huge = true, .memory_mb = 256},
	        .stack = {.port_first = 1024, .port_last = 65535},
	        .connecting = 256,
	        .depth = 1,
	        .poisson = true,
	        .timeout_ns = UINT64_C(10000000000),
	        .seed = 1,
	};
	snprintf(o->runtime.instance, sizeof(o->runtime.instance), "load-%ld", (long)getpid());
	sy_log_set_level(SY_LOG_WARN);
	opterr = 0;
	for (int id; (id = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
		if (id == '?')
			return sy_fail(err, EINVAL,
			               "%s: unknown option or missing value; see --help",
			               argv[optind - 1]);
		int rc = read_option(o, id, optarg, err);
		if (rc < 0)
			return rc;
	}
	if (optind < argc)
		return sy_fail(err, EINVAL, "%s: not an option; see --help", argv[optind]);
	if (o->action != LOAD_RUN)
		return 0;
	if (o->serves)
		o->action = LOAD_SERVE;
	else if (o->echo)
		return sy_fail(err, EINVAL, "--echo is of a server: give --serve ADDRESS:PORT");
	return options_check(o, err);
}

void load_options_free(struct load_options *o)
{
	sy_port_options_free(&o->runtime);
	distribution_free(&o->burst);
	distribution_free(&o->think);
	mix_free(&o->mix);
}
