// SPDX-License-Identifier: Apache-2.0
/* steelyard-generator: generates traffic for a forwarder and measures what comes back. It polls
 * with one core. It reads commands as lines from standard input, so links and learned flows stay
 * open between commands. Between commands it sleeps, so several generators may share the core. */
#include <getopt.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>

#include "cache_line.h"
#include "command.h"

struct arguments {
	const char *name[LINKS_MAX], *devargs[LINKS_MAX];
	unsigned links, core, memory;
};

static void usage(FILE *out)
{
	fprintf(out,
	        "usage: steelyard-generator [--core N] [--memory MB] [--link NAME=DEVARGS]…\n"
	        "       steelyard-generator [--core N] --line-latency CORE\n"
	        "       steelyard-generator --plan\n"
	        "\n"
	        "Sends UDP of known or ever new flows from one core over DPDK devices, receives\n"
	        "what comes back, and prints rates, losses and delays.\n"
	        "\n"
	        "  --core N             the core that it polls with (0)\n"
	        "  --memory MB          of huge pages (128); each link takes 60\n"
	        "  --link NAME=DEVARGS  a device as DPDK names it, such as\n"
	        "                       a=net_memif0,role=client,zero-copy=yes,socket=/run/x.sock\n"
	        "  --line-latency CORE  print how many nanoseconds a cache line takes to that\n"
	        "                       core, and end\n"
	        "  --plan               print the addresses and ports that the traffic has, as\n"
	        "                       JSON, and end\n"
	        "\n");
	command_help(out);
}

static int fail(const char *text)
{
	fprintf(stderr, "steelyard-generator: %s\n", text);
	return 1;
}

/* Memory that zero-copy memif can share: few files, all unnamed. */
static int eal_start(const struct arguments *a)
{
	char core[16], memory[16], prefix[32];
	snprintf(core, sizeof(core), "%u", a->core);
	snprintf(memory, sizeof(memory), "%u", a->memory);
	snprintf(prefix, sizeof(prefix), "sy-generator-%d", getpid());
	char *argv[] = {"steelyard-generator",
	                "-l",
	                core,
	                "-m",
	                memory,
	                "--file-prefix",
	                prefix,
	                "--in-memory",
	                "--single-file-segments",
	                "--no-pci",
	                "--no-telemetry",
	                "--iova-mode=va",
	                "--log-level=warning",
	                NULL};
	if (rte_eal_init(SY_ARRAY_LEN(argv) - 1, argv) < 0)
		return fail(rte_strerror(rte_errno));
	rmdir(rte_eal_get_runtime_dir()); /* empty, because all memory is anonymous; EAL would leave
	                                     the folder */
	return 0;
}

static int links_open(struct generator *g, const struct arguments *a)
{
	struct sy_error err;
	for (unsigned i = 0; i < a->links; i++)
		if (link_pools_open(&g->link[i], a->name[i], &err) != 0)
			return fail(err.text);
	for (unsigned i = 0; i < a->links; i++) {
		if (link_open(&g->link[i], a->devargs[i], &err) != 0)
			return fail(err.text);
		g->links++;
	}
	return 0;
}

static void mac_report(const char *name, const uint8_t m[static 6])
{
	printf(", \"%s\": \"%02x:%02x:%02x:%02x:%02x:%02x\"", name, m[0], m[1], m[2], m[3], m[4],
	       m[5]);
}

static void plan_report(void)
{
	printf("{");
	for (unsigned six = 0; six < 2; six++)
		printf("\"%u\": {\"clients\": \"%s\", \"vip\": \"%s\", \"locals\": \"%s\", "
		       "\"servers\": \"%s\"}, ",
		       six ? 6 : 4, frame_clients[six], frame_vip[six], frame_locals[six],
		       frame_servers[six]);
	printf("\"local_count\": %u, \"server_count\": %u, \"known\": %u, \"fresh\": %u, "
	       "\"connections\": %u, \"server\": %u",
	       FRAME_LOCALS, FRAME_SERVERS, PORT_KNOWN, PORT_FRESH, PORT_CONNECTIONS, PORT_SERVER);
	mac_report("client_mac", frame_mac);
	mac_report("server_mac", frame_server_mac);
	mac_report("forwarder_mac", frame_forwarder_mac);
	printf("}\n");
}

static int core_take(unsigned core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? fail("there is no such core") : 0;
}

static int line_report(unsigned near, unsigned far)
{
	if (core_take(near) != 0)
		return 1;
	double ns = line_latency(far);
	if (ns < 0)
		return fail("the other core does not answer");
	printf("%.1f ns\n", ns);
	return 0;
}

static unsigned number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);
	if (end == text || *end != '\0' || n > 1u << 20) {
		usage(stderr);
		exit(2);
	}
	return (unsigned)n;
}

static void link_note(struct arguments *a, char *text)
{
	char *devargs = strchr(text, '=');
	if (devargs == NULL || a->links == LINKS_MAX) {
		usage(stderr);
		exit(2);
	}
	*devargs++ = '\0';
	a->name[a->links] = text;
	a->devargs[a->links++] = devargs;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
	        {"core", required_argument, NULL, 'c'},
	        {"memory", required_argument, NULL, 'm'},
	        {"link", required_argument, NULL, 'l'},
	        {"line-latency", required_argument, NULL, 'n'},
	        {"plan", no_argument, NULL, 'p'},
	        {"help", no_argument, NULL, 'h'},
	        {NULL, 0, NULL, 0},
	};
	static struct generator g;
	struct arguments a = {.memory = 128};
	int far = -1;
	char line[1024];

	for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
		if (c == 'c')
			a.core = number(optarg);
		else if (c == 'm')
			a.memory = number(optarg);
		else if (c == 'l')
			link_note(&a, optarg);
		else if (c == 'n')
			far = (int)number(optarg);
		else if (c == 'p')
			return plan_report(), 0;
		else {
			usage(c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
	}
	if (optind < argc) {
		usage(stderr);
		return 2;
	}
	if (far >= 0)
		return line_report(a.core, (unsigned)far);
	generator_init(&g);
	int rc = eal_start(&a) || links_open(&g, &a);
	while (rc == 0 && fgets(line, sizeof(line), stdin) != NULL && command_run(&g, line, stdout))
		;
	for (unsigned i = 0; i < g.links; i++)
		link_close(&g.link[i]);
	return rc;
}
