// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <sy_port_option.h>

#include "options_host.h"
#include "options_peers.h"

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
	       "  --memory MB                DPDK's memory, for packet buffers and routes (256,\n"
	       "                             minimum 64)\n"
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
	       "Packets to VIPs\n"
	       "  --unknown-ports drop|reset|icmp   to ports without a service: no answer (drop),\n"
	       "                             a reset (UDP: as icmp), or ICMP port unreachable\n"
	       "\n"
	       "Sessions that outlive this node (docs/high-availability.md)\n"
	       "  --node N                   this node's number, 1 to 31\n"
	       "  --sync ADDRESS[:PORT]      own address and UDP port for session synchronisation\n"
	       "                             (port 8849)\n"
	       "  --peer N=ADDRESS[:PORT]    a peer's number and address; repeatable\n"
	       "  --sync-secret FILE         lines of a number, 1 to 255, and a secret: encrypts\n"
	       "                             with the first one, accepts also the second one\n"
	       "  --sync-mode pair|ecmp      who serves: the master of a pair (pair), or all "
	       "nodes,\n"
	       "                             behind routers that spread flows over them (ecmp)\n"
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
	       "  --probe on|off             ask the network whether another host has a new VIP "
	       "or\n"
	       "                             local address, before it is claimed (on)\n"
	       "  --sweep SECONDS            how often all kernel state that the forwarder relies "
	       "on\n"
	       "                             is verified, besides at each event (30)\n"
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
	int rc = sy_u32_option("--inherit", text, 3, INT16_MAX, &fd, err);
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
	OPT_UNKNOWN_PORTS,
	OPT_NODE,
	OPT_SYNC,
	OPT_PEER,
	OPT_SYNC_SECRET,
	OPT_SYNC_MODE,
	OPT_SOCKET,
	OPT_SOCKET_GROUP,
	OPT_STATE,
	OPT_INSTANCE,
	OPT_LOG,
	OPT_SECCOMP,
	OPT_SWEEP,
	OPT_PROBE,
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
        {"unknown-ports", required_argument, NULL, OPT_UNKNOWN_PORTS},
        {"node", required_argument, NULL, OPT_NODE},
        {"sync", required_argument, NULL, OPT_SYNC},
        {"peer", required_argument, NULL, OPT_PEER},
        {"sync-secret", required_argument, NULL, OPT_SYNC_SECRET},
        {"sync-mode", required_argument, NULL, OPT_SYNC_MODE},
        {"socket", required_argument, NULL, OPT_SOCKET},
        {"socket-group", required_argument, NULL, OPT_SOCKET_GROUP},
        {"state", required_argument, NULL, OPT_STATE},
        {"instance", required_argument, NULL, OPT_INSTANCE},
        {"log", required_argument, NULL, OPT_LOG},
        {"seccomp", required_argument, NULL, OPT_SECCOMP},
        {"probe", required_argument, NULL, OPT_PROBE},
        {"sweep", required_argument, NULL, OPT_SWEEP},
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
		return sy_port_option(&o->runtime, text, err);
	case OPT_WORKERS:
		return sy_u32_option("--workers", text, 1, SY_MAX_WORKERS, &o->runtime.workers,
		                     err);
	case OPT_CORES:
		return sy_text_option("--cores", text, o->runtime.cores, sizeof(o->runtime.cores),
		                      err);
	case OPT_ROUTE:
		return sy_route_option(&o->runtime, text, err);
	case OPT_NEIGHBOUR:
		return sy_neighbour_option(&o->runtime, text, err);
	case OPT_SESSIONS:
		return sy_number_option("--sessions", text, SY_SLOTS, SESSIONS_MAX,
		                        &o->balance.sessions, err);
	case OPT_MAX_SESSIONS:
		return sy_number_option("--max-sessions", text, SY_SLOTS, SESSIONS_MAX,
		                        &o->balance.sessions_limit, err);
	case OPT_SLOT_KEY:
		o->balance.slot_key = &o->slot_key;
		return sy_slot_key_read(text, &o->slot_key, err);
	case OPT_MAX_SERVICES:
		return sy_u32_option("--max-services", text, 8, IDS_MAX, &o->balance.max_services,
		                     err);
	case OPT_MAX_SERVERS:
		return sy_u32_option("--max-servers", text, 8, IDS_MAX, &o->balance.max_servers,
		                     err);
	case OPT_MEMORY:
		return sy_u32_option("--memory", text, 64, 1u << 20, &o->runtime.memory_mb, err);
	case OPT_MBUFS:
		return sy_u32_option("--mbufs", text, 1024, 1u << 24, &o->runtime.mbufs, err);
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
	case OPT_UNKNOWN_PORTS:
		return options_read_unavailable(text, &o->balance.unknown_ports, err);
	case OPT_NODE:
		return options_read_node(text, &o->balance.peers, err);
	case OPT_SYNC:
		return options_read_sync(text, &o->balance.peers, err);
	case OPT_PEER:
		return options_read_peer(text, &o->balance.peers, err);
	case OPT_SYNC_MODE:
		return options_read_sync_mode(text, &o->balance.peers, err);
	case OPT_SYNC_SECRET:
		return options_read_secret(text, &o->balance.peers, err);
	case OPT_SOCKET:
		return sy_text_option("--socket", text, o->socket, sizeof(o->socket), err);
	case OPT_SOCKET_GROUP:
		return options_read_group(text, &o->balance.access, err);
	case OPT_STATE:
		return sy_text_option("--state", text, o->state, sizeof(o->state), err);
	case OPT_INSTANCE:
		if (strchr(text, '/') || !*text)
			return sy_fail(err, EINVAL,
			               "--instance \"%s\": must be a name without slashes", text);
		return sy_text_option("--instance", text, o->instance, sizeof(o->instance), err);
	case OPT_LOG:
		return read_log(o, text, err);
	case OPT_SECCOMP:
		return options_read_confine(text, &o->confine, err);
	case OPT_PROBE:
		o->runtime.probe = !strcmp(text, "on");
		if (!o->runtime.probe && strcmp(text, "off") != 0)
			return sy_fail(err, EINVAL, "--probe %s: must be on or off", text);
		return 0;
	case OPT_SWEEP:
		return sy_u32_option("--sweep", text, 1, 86400, &o->runtime.sweep_s, err);
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
	        .runtime = {.workers = 1, .huge = true, .memory_mb = 256, .probe = true},
	        .balance = {.max_services = 1u << 15,
	                    .max_servers = 1u << 16,
	                    .access = {SY_NO_ID, SY_NO_ID}},
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
	if (options_check_peers(o, err) < 0)
		return -EINVAL;
	o->runtime.spare = SY_BALANCE_FRAGMENTS(o->runtime.workers);
	if (o->balance.event_at_start)
		o->runtime.spare += SY_BALANCE_EVENTS(o->runtime.workers);
	o->balance.state_directory = o->state;
	/* for DPDK, and for a successor during an upgrade */
	o->balance.memory_reserved = UINT64_C(2) * o->runtime.memory_mb << 20;
	/* EAL's files and the session tables share a name, distinct from other programs'. */
	snprintf(o->store_name, sizeof(o->store_name), "steelyard-%s", o->instance);
	memcpy(o->runtime.instance, o->store_name, sizeof(o->runtime.instance));
	o->balance.store_name = o->store_name;
	o->balance.inherit = o->runtime.inherit = o->inherit >= 0;
	options_find_store(o);
	return 0;
}

/* truncated to fit into a message */
void options_identity(const struct options *o, char *out, size_t cap)
{
	snprintf(out, cap, "--instance %s\n--state %s\n--socket %s\nsession tables in %.48s",
	         o->instance, o->state, o->socket, o->store_directory);
}

int options_check_identity(const struct options *o, const char *identity, struct sy_error *err)
{
	char own[512];
	options_identity(o, own, sizeof(own));
	/* a predecessor of an older build may omit lines: skip them */
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
	sy_port_options_free(&o->runtime);
}
