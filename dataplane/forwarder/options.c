// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "options_host.h"

#define SESSIONS_MAX (UINT64_C(1) << 31)
#define IDS_MAX      (1u << 24)

void options_help(void)
{
	printf("steelyard-forwarder: layer-4 load balancer on DPDK and AF_XDP\n"
	       "\n"
	       "usage: steelyard-forwarder --port NAME[,KEY=VALUE…] [OPTION…]\n"
	       "\n"
	       "Ports and threads\n"
	       "  --port NAME[,KEY=VALUE…]   a port; repeatable. Keys:\n"
	       "       backend=xsk|ethdev    xsk (default): NAME is a kernel interface, AF_XDP\n"
	       "       mode=auto|native|generic   xsk: XDP mode (auto)\n"
	       "       dev=DEVARGS           ethdev: device or vdev, commas as semicolons\n"
	       "       ring=N                packets that a receive queue holds, a power of 2 "
	       "(2048;\n"
	       "                             ethdev 1024)\n"
	       "       mac=MAC, mtu=N, queues=N   ethdev\n"
	       "  --workers N                forwarding threads (1)\n"
	       "  --cores LIST               their cores, such as 0,2-3 (last of the process)\n"
	       "  --route PREFIX,port=NAME[,via=ADDR]      for ports without a kernel interface\n"
	       "  --neighbour ADDR,port=NAME,mac=MAC       likewise\n"
	       "\n"
	       "Memory\n"
	       "  --sessions N[k|M]          initial capacity of the session tables (an eighth of\n"
	       "                             the free memory, 65536 to 16M)\n"
	       "  --max-sessions N[k|M]      capacity they may grow to (half of the free memory)\n"
	       "  --slot-key FILE            32 hexadecimal digits, secret: spreads clients over\n"
	       "                             slots (random at the first start, then kept)\n"
	       "  --max-services N           capacity of the configuration (32768)\n"
	       "  --max-servers N            likewise (65536)\n"
	       "  --memory MB                DPDK's memory (256), at least 64\n"
	       "  --mbufs N                  packet buffers (depends on ports and workers)\n"
	       "  --no-huge                  run without huge pages: slower\n"
	       "\n"
	       "Limits with `engine: atomic`\n"
	       "  --event-device NAME        the event device through which their packets go:\n"
	       "                             event_dsw (default) or event_sw, in software, or\n"
	       "                             event_dlb2; opened at the start if this option is\n"
	       "                             given, else with the first such limit\n"
	       "  --event-model MODEL        its queue: atomic (default), ordered, unordered, "
	       "direct\n"
	       "\n"
	       "Control\n"
	       "  --socket PATH              control socket (/run/steelyard/forwarder.sock)\n"
	       "  --socket-group NAME        besides root, its members may connect to the socket\n"
	       "                             (steelyard, if this host has such a group)\n"
	       "  --state DIR                directory of the saved configuration "
	       "(/var/lib/steelyard)\n"
	       "  --instance NAME            name of this forwarder on this machine (main)\n"
	       "  --seccomp on|trap|off      system call filters; trap ends the process by a call\n"
	       "                             that is not allowed: for tests (on)\n"
	       "  --log error|warn|info|debug   log level (info)\n"
	       "\n"
	       "  --release                  remove the addresses and XDP programs of a stopped\n"
	       "                             forwarder, keep its sessions, and exit\n"
	       "  --cleanup                  remove all that forwarders left in this network\n"
	       "                             namespace, also sessions, and exit\n"
	       "  --version, --help\n"
	       "\n"
	       "`steelyard upgrade` replaces a running forwarder, see steelyard(1).\n");
}

/* ---- values ---------------------------------------------------------------------------------- */

static int read_number(const char *option, const char *text, uint64_t min, uint64_t max,
                       uint64_t *out, struct sy_error *err)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);
	if (end != text && *end == 'k')
		n *= 1000, end++;
	else if (end != text && *end == 'M')
		n *= 1000000, end++;
	if (end == text || *end || text[0] == '-' || n < min || n > max)
		return sy_fail(err, EINVAL, "%s %s: must be a number from %lu to %lu", option, text,
		               (unsigned long)min, (unsigned long)max);
	*out = n;
	return 0;
}

static int read_u32(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out,
                    struct sy_error *err)
{
	uint64_t n;
	int rc = read_number(option, text, min, max, &n, err);
	if (rc == 0)
		*out = (uint32_t)n;
	return rc;
}

static int read_text(const char *option, const char *text, char *out, size_t size,
                     struct sy_error *err)
{
	if (strlen(text) >= size)
		return sy_fail(err, EINVAL, "%s %.40s…: longer than %zu bytes", option, text,
		               size - 1);
	memcpy(out, text, strlen(text) + 1);
	return 0;
}

static int read_mac(const char *text, uint8_t mac[6], struct sy_error *err)
{
	unsigned b[6];
	char rest;
	if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%c", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
	           &rest) != 6)
		return sy_fail(err, EINVAL, "mac=%s: must be like 02:00:00:00:00:01", text);
	for (unsigned i = 0; i < 6; i++)
		mac[i] = (uint8_t)b[i];
	return 0;
}

static int read_address(const char *text, struct sy_addr *out, struct sy_error *err)
{
	if (sy_addr_parse(text, out) < 0)
		return sy_fail(err, EINVAL, "%s is not an IPv4 or IPv6 address", text);
	return 0;
}

/* ---- NAME,KEY=VALUE,… ------------------------------------------------------------------------ */

typedef int (*key_reader)(void *out, const char *key, const char *value, struct sy_error *err);

/* Cuts `text` in place; *first is the part before the first comma. */
static int read_keys(const char *option, char *text, char **first, key_reader read, void *out,
                     struct sy_error *err)
{
	char *save;
	*first = strtok_r(text, ",", &save);
	if (!*first)
		return sy_fail(err, EINVAL, "%s: the value is missing", option);
	for (char *key; (key = strtok_r(NULL, ",", &save));) {
		char *value = strchr(key, '=');
		if (!value)
			return sy_fail(err, EINVAL, "%s %s: \"%s\" must have the form KEY=VALUE",
			               option, *first, key);
		*value++ = '\0';
		if (read(out, key, value, err) < 0)
			return sy_fail_in(err, "%s %s", option, *first);
	}
	return 0;
}

static int port_key(void *out, const char *key, const char *value, struct sy_error *err)
{
	struct sy_port_options *p = out;
	uint32_t n = 0;
	int rc;
	if (!strcmp(key, "backend") && !strcmp(value, "xsk")) {
		p->backend = SY_PORT_XSK;
	} else if (!strcmp(key, "backend") && !strcmp(value, "ethdev")) {
		p->backend = SY_PORT_ETHDEV;
	} else if (!strcmp(key, "mode") && !strcmp(value, "auto")) {
		p->mode = SY_DIRECTOR_AUTO;
	} else if (!strcmp(key, "mode") && !strcmp(value, "native")) {
		p->mode = SY_DIRECTOR_NATIVE;
	} else if (!strcmp(key, "mode") && !strcmp(value, "generic")) {
		p->mode = SY_DIRECTOR_GENERIC;
	} else if (!strcmp(key, "dev")) {
		rc = read_text("dev", value, p->devargs, sizeof(p->devargs), err);
		for (char *c = p->devargs; *c; c++)
			*c = *c == ';' ? ',' : *c;
		return rc;
	} else if (!strcmp(key, "mac")) {
		return read_mac(value, p->mac, err);
	} else if (!strcmp(key, "mtu")) {
		rc = read_u32("mtu", value, 68, 9600, &n, err);
		p->mtu = (uint16_t)n;
		return rc;
	} else if (!strcmp(key, "queues")) {
		return read_u32("queues", value, 1, SY_MAX_QUEUES, &p->queues, err);
	} else if (!strcmp(key, "ring")) {
		rc = read_u32("ring", value, SY_RING_MIN, SY_RING_MAX, &p->ring, err);
		return rc || !(p->ring & (p->ring - 1))
		               ? rc
		               : sy_fail(err, EINVAL, "ring=%s is not a power of 2, such as 4096",
		                         value);
	} else {
		return sy_fail(err, EINVAL, "%s=%s is unknown; see --help", key, value);
	}
	return 0;
}

static int read_port(struct options *o, char *text, struct sy_error *err)
{
	char *name;
	if (o->runtime.ports == SY_MAX_PORTS)
		return sy_fail(err, EINVAL, "--port: at most %d ports are possible", SY_MAX_PORTS);
	struct sy_port_options *p = &o->runtime.port[o->runtime.ports++];
	int rc = read_keys("--port", text, &name, port_key, p, err);
	return rc < 0 ? rc : read_text("--port", name, p->name, sizeof(p->name), err);
}

static int route_key(void *out, const char *key, const char *value, struct sy_error *err)
{
	struct sy_static_route *r = out;
	if (!strcmp(key, "port"))
		return read_text("port", value, r->port, sizeof(r->port), err);
	if (!strcmp(key, "via"))
		return read_address(value, &r->via, err);
	return sy_fail(err, EINVAL, "%s=%s is unknown; use port= or via=", key, value);
}

static int read_route(struct options *o, char *text, struct sy_error *err)
{
	struct sy_runtime_options *rt = &o->runtime;
	struct sy_static_route *grown = realloc(rt->route, (rt->routes + 1) * sizeof(*grown));
	char *prefix;
	uint32_t len;
	if (!grown)
		return sy_fail(err, ENOMEM, "no memory");
	rt->route = grown;
	struct sy_static_route *r = &grown[rt->routes++];
	memset(r, 0, sizeof(*r));
	int rc = read_keys("--route", text, &prefix, route_key, r, err);
	if (rc < 0)
		return rc;
	char *slash = strchr(prefix, '/');
	if (!slash || !r->port[0])
		return sy_fail(err, EINVAL, "--route %s: must be PREFIX/LENGTH,port=NAME", prefix);
	*slash++ = '\0';
	rc = read_address(prefix, &r->prefix, err);
	if (rc == 0)
		rc = read_u32("--route", slash, 0, sy_addr_is_v4(&r->prefix) ? 32 : 128, &len, err);
	if (rc == 0)
		r->prefix_len = (uint8_t)len;
	return rc;
}

static int neigh_key(void *out, const char *key, const char *value, struct sy_error *err)
{
	struct sy_static_neigh *n = out;
	if (!strcmp(key, "port"))
		return read_text("port", value, n->port, sizeof(n->port), err);
	if (!strcmp(key, "mac"))
		return read_mac(value, n->mac, err);
	return sy_fail(err, EINVAL, "%s=%s is unknown; use port= or mac=", key, value);
}

static int read_neighbour(struct options *o, char *text, struct sy_error *err)
{
	struct sy_runtime_options *rt = &o->runtime;
	struct sy_static_neigh *grown = realloc(rt->neigh, (rt->neighs + 1) * sizeof(*grown));
	char *addr;
	if (!grown)
		return sy_fail(err, ENOMEM, "no memory");
	rt->neigh = grown;
	struct sy_static_neigh *n = &grown[rt->neighs++];
	memset(n, 0, sizeof(*n));
	int rc = read_keys("--neighbour", text, &addr, neigh_key, n, err);
	if (rc == 0 && !n->port[0])
		return sy_fail(err, EINVAL, "--neighbour %s: port=NAME is missing", addr);
	return rc < 0 ? rc : read_address(addr, &n->addr, err);
}

/* For readers that cut their text: an upgrade needs the command line unchanged. */
static int read_copy(int (*read)(struct options *o, char *text, struct sy_error *err),
                     struct options *o, const char *text, struct sy_error *err)
{
	char *copy = strdup(text);
	int rc = copy ? read(o, copy, err) : sy_fail(err, ENOMEM, "no memory");
	free(copy);
	return rc;
}

static int read_log(struct options *o, const char *text, struct sy_error *err)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	for (unsigned i = 0; i < SY_ARRAY_LEN(names); i++)
		if (!strcmp(text, names[i])) {
			o->log = (enum sy_log_level)i;
			return 0;
		}
	return sy_fail(err, EINVAL, "--log %s: must be error, warn, info or debug", text);
}

/* A descriptor that a running forwarder passes to its successor. */
static int read_inherit(struct options *o, const char *text, struct sy_error *err)
{
	int domain = 0;
	uint32_t fd = 0;
	int rc = read_u32("--inherit", text, 3, INT16_MAX, &fd, err);
	if (rc < 0)
		return rc;
	o->inherit = (int)fd;
	if (getsockopt(o->inherit, SOL_SOCKET, SO_DOMAIN, &domain, &(socklen_t){sizeof(domain)}) <
	            0 ||
	    domain != AF_UNIX)
		return sy_fail(
		        err, EINVAL,
		        "--inherit %s: only a forwarder that is being upgraded may use this; "
		        "use `steelyard upgrade`",
		        text);
	return 0;
}

/* ---- the whole command line ------------------------------------------------------------------ */

enum option_id {
	OPT_PORT = 256,
	OPT_WORKERS,
	OPT_CORES,
	OPT_ROUTE,
	OPT_NEIGHBOUR,
	OPT_SESSIONS,
	OPT_MAX_SESSIONS,
	OPT_SLOT_KEY,
	OPT_MAX_SERVICES,
	OPT_MAX_SERVERS,
	OPT_MEMORY,
	OPT_MBUFS,
	OPT_NO_HUGE,
	OPT_EVENT_DEVICE,
	OPT_EVENT_MODEL,
	OPT_SOCKET,
	OPT_SOCKET_GROUP,
	OPT_STATE,
	OPT_INSTANCE,
	OPT_LOG,
	OPT_SECCOMP,
	OPT_RELEASE,
	OPT_CLEANUP,
	OPT_INHERIT,
	OPT_VERSION,
	OPT_HELP,
};

static const struct option long_options[] = {
        {"port", required_argument, NULL, OPT_PORT},
        {"workers", required_argument, NULL, OPT_WORKERS},
        {"cores", required_argument, NULL, OPT_CORES},
        {"route", required_argument, NULL, OPT_ROUTE},
        {"neighbour", required_argument, NULL, OPT_NEIGHBOUR},
        {"sessions", required_argument, NULL, OPT_SESSIONS},
        {"max-sessions", required_argument, NULL, OPT_MAX_SESSIONS},
        {"slot-key", required_argument, NULL, OPT_SLOT_KEY},
        {"max-services", required_argument, NULL, OPT_MAX_SERVICES},
        {"max-servers", required_argument, NULL, OPT_MAX_SERVERS},
        {"memory", required_argument, NULL, OPT_MEMORY},
        {"mbufs", required_argument, NULL, OPT_MBUFS},
        {"no-huge", no_argument, NULL, OPT_NO_HUGE},
        {"event-device", required_argument, NULL, OPT_EVENT_DEVICE},
        {"event-model", required_argument, NULL, OPT_EVENT_MODEL},
        {"socket", required_argument, NULL, OPT_SOCKET},
        {"socket-group", required_argument, NULL, OPT_SOCKET_GROUP},
        {"state", required_argument, NULL, OPT_STATE},
        {"instance", required_argument, NULL, OPT_INSTANCE},
        {"log", required_argument, NULL, OPT_LOG},
        {"seccomp", required_argument, NULL, OPT_SECCOMP},
        {"release", no_argument, NULL, OPT_RELEASE},
        {"cleanup", no_argument, NULL, OPT_CLEANUP},
        {"inherit", required_argument, NULL, OPT_INHERIT},
        {"version", no_argument, NULL, OPT_VERSION},
        {"help", no_argument, NULL, OPT_HELP},
        {NULL, 0, NULL, 0},
};

static int read_option(struct options *o, int id, const char *text, struct sy_error *err)
{
	switch (id) {
	case OPT_PORT:
		return read_copy(read_port, o, text, err);
	case OPT_WORKERS:
		return read_u32("--workers", text, 1, SY_MAX_WORKERS, &o->runtime.workers, err);
	case OPT_CORES:
		return read_text("--cores", text, o->runtime.cores, sizeof(o->runtime.cores), err);
	case OPT_ROUTE:
		return read_copy(read_route, o, text, err);
	case OPT_NEIGHBOUR:
		return read_copy(read_neighbour, o, text, err);
	case OPT_SESSIONS:
		return read_number("--sessions", text, SY_SLOTS, SESSIONS_MAX, &o->balance.sessions,
		                   err);
	case OPT_MAX_SESSIONS:
		return read_number("--max-sessions", text, SY_SLOTS, SESSIONS_MAX,
		                   &o->balance.sessions_limit, err);
	case OPT_SLOT_KEY:
		o->balance.slot_key = &o->slot_key;
		return sy_slot_key_read(text, &o->slot_key, err);
	case OPT_MAX_SERVICES:
		return read_u32("--max-services", text, 8, IDS_MAX, &o->balance.max_services, err);
	case OPT_MAX_SERVERS:
		return read_u32("--max-servers", text, 8, IDS_MAX, &o->balance.max_servers, err);
	case OPT_MEMORY:
		return read_u32("--memory", text, 64, 1u << 20, &o->runtime.memory_mb, err);
	case OPT_MBUFS:
		return read_u32("--mbufs", text, 1024, 1u << 24, &o->runtime.mbufs, err);
	case OPT_NO_HUGE:
		o->runtime.huge = false;
		return 0;
	case OPT_EVENT_DEVICE:
		o->balance.event_device = text;
		o->balance.event_at_start = true;
		o->runtime.pci = strncmp(text, "event_", 6) != 0 || !strcmp(text, "event_dlb2");
		return 0;
	case OPT_EVENT_MODEL:
		return options_read_event_model(text, &o->balance.event_model, err);
	case OPT_SOCKET:
		return read_text("--socket", text, o->socket, sizeof(o->socket), err);
	case OPT_SOCKET_GROUP:
		return options_read_group(text, &o->balance.access, err);
	case OPT_STATE:
		return read_text("--state", text, o->state, sizeof(o->state), err);
	case OPT_INSTANCE:
		if (strchr(text, '/') || !*text)
			return sy_fail(err, EINVAL,
			               "--instance \"%s\": must be a name without slashes", text);
		return read_text("--instance", text, o->instance, sizeof(o->instance), err);
	case OPT_LOG:
		return read_log(o, text, err);
	case OPT_SECCOMP:
		return options_read_confine(text, &o->confine, err);
	case OPT_RELEASE:
		o->action = ACTION_RELEASE;
		return 0;
	case OPT_CLEANUP:
		o->action = ACTION_CLEANUP;
		return 0;
	case OPT_INHERIT:
		return read_inherit(o, text, err);
	case OPT_VERSION:
		o->action = ACTION_VERSION;
		return 0;
	default:
		o->action = ACTION_HELP;
		return 0;
	}
}

static void options_default(struct options *o)
{
	*o = (struct options){
	        .runtime = {.workers = 1, .huge = true, .memory_mb = 256},
	        .balance = {.max_services = 1u << 15,
	                    .max_servers = 1u << 16,
	                    .access = {SY_NOBODY, SY_NOBODY}},
	        .inherit = -1,
	        .instance = "main",
	        .socket = "/run/steelyard/forwarder.sock",
	        .state = "/var/lib/steelyard",
	        .log = SY_LOG_INFO,
	};
}

int options_read(int argc, char **argv, struct options *o, struct sy_error *err)
{
	options_default(o);
	options_default_group(&o->balance.access);
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
	if (o->action == ACTION_RUN && o->runtime.ports == 0)
		return sy_fail(err, EINVAL, "--port is missing: name an interface");
	if (o->action != ACTION_RUN && o->inherit >= 0)
		return sy_fail(err, EINVAL,
		               "--release, --cleanup, --version and --help cannot be used in an "
		               "upgrade");
	for (unsigned i = 0; i < o->runtime.ports; i++)
		o->runtime.kernel |= o->runtime.port[i].backend == SY_PORT_XSK;
	if (o->balance.sessions_limit && o->balance.sessions_limit < o->balance.sessions)
		return sy_fail(err, EINVAL, "--max-sessions: less than --sessions");
	if (o->balance.event_at_start)
		o->runtime.spare = SY_BALANCE_EVENTS(o->runtime.workers);
	o->balance.state_directory = o->state;
	/* DPDK's memory, and a successor's during an upgrade. */
	o->balance.memory_reserved = UINT64_C(2) * o->runtime.memory_mb << 20;
	/* EAL's files and the session tables share a name, distinct from other programs'. */
	snprintf(o->store_name, sizeof(o->store_name), "steelyard-%s", o->instance);
	memcpy(o->runtime.instance, o->store_name, sizeof(o->runtime.instance));
	o->balance.store_name = o->store_name;
	o->balance.inherit = o->runtime.inherit = o->inherit >= 0;
	options_find_store(o);
	return 0;
}

/* The directory is truncated to make the text fit into a message. */
void options_identity(const struct options *o, char *out, size_t cap)
{
	snprintf(out, cap, "--instance %s\n--state %s\n--socket %s\nsession tables in %.48s",
	         o->instance, o->state, o->socket, o->store_directory);
}

int options_check_identity(const struct options *o, const char *identity, struct sy_error *err)
{
	char own[512];
	options_identity(o, own, sizeof(own));
	/* A predecessor of an older build may omit lines; those are not compared. */
	for (const char *a = own, *b = identity; *b;) {
		size_t la = strcspn(a, "\n"), lb = strcspn(b, "\n");
		if (la != lb || memcmp(a, b, la) != 0)
			return sy_fail(
			        err, EINVAL,
			        "%.*s: an upgrade cannot change %.*s, because sessions and "
			        "configuration would not be found; a restart can, and starts "
			        "without them",
			        (int)la, a, (int)lb, b);
		a += la + (a[la] == '\n');
		b += lb + (b[lb] == '\n');
	}
	return 0;
}

void options_free(struct options *o)
{
	free(o->runtime.route);
	free(o->runtime.neigh);
}
