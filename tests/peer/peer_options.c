// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

static const char usage[] =
        "usage: steelyard-peer --port INTERFACE --address ADDRESS … [OPTION …]\n"
        "\n"
        "Runs one TCP stack behind an interface, and connections on it that carry known bytes.\n"
        "The addresses become the stack's; all others stay with the kernel.\n"
        "\n"
        "  --port INTERFACE     a kernel interface, by AF_XDP\n"
        "  --address ADDRESS    in a network of the interface; may be repeated\n"
        "  --do \"COMMAND\"       may be repeated; the program ends after the last connection\n"
        "  --stdin              takes commands from standard input; its end ends the program\n"
        "  --connections N      at most (4096)\n"
        "  --mtu N              of the link (the interface's)\n"
        "  --congestion NAME    cubic or newreno (cubic)\n"
        "  --ecn                asks for ECN\n"
        "  --no-sack, --no-timestamps, --no-scale\n"
        "                       options that connections are not offered\n"
        "  --send-max, --receive-max, --send-all, --receive-all BYTES\n"
        "                       of one connection's buffers, and of all\n"
        "  --time-wait MS       (60000)\n"
        "  --ports FIRST-LAST   from which connections get theirs\n"
        "  --verbose            log more\n"
        "\n"
        "Commands, answered by a line of JSON each:\n"
        "  listen ADDRESS PORT WORD VALUE …\n"
        "  connect ADDRESS PORT ADDRESS PORT WORD VALUE …\n"
        "                       from the first to the second; port 0: any\n"
        "  resume JOB           connections with \"hold\" read; jobs are numbered from 1\n"
        "  close JOB            its connections are reset, its listener closed\n"
        "  stats                counters, and connections that are open\n"
        "  quit\n"
        "A connection that ends gives a line, too. Without --stdin, the exit status is 1 if one\n"
        "has failed.\n"
        "\n"
        "Words:\n";

enum {
	PORT = 1,
	ADDRESS,
	DO,
	STDIN,
	CONNECTIONS,
	MTU,
	CONGESTION,
	ECN,
	NO_SACK,
	NO_TIMESTAMPS,
	NO_SCALE,
	SEND_MAX,
	RECEIVE_MAX,
	SEND_ALL,
	RECEIVE_ALL,
	TIME_WAIT,
	PORTS,
	VERBOSE,
	HELP
};

static const struct option known[] = {
        {"port", required_argument, NULL, PORT},
        {"address", required_argument, NULL, ADDRESS},
        {"do", required_argument, NULL, DO},
        {"stdin", no_argument, NULL, STDIN},
        {"connections", required_argument, NULL, CONNECTIONS},
        {"mtu", required_argument, NULL, MTU},
        {"congestion", required_argument, NULL, CONGESTION},
        {"ecn", no_argument, NULL, ECN},
        {"no-sack", no_argument, NULL, NO_SACK},
        {"no-timestamps", no_argument, NULL, NO_TIMESTAMPS},
        {"no-scale", no_argument, NULL, NO_SCALE},
        {"send-max", required_argument, NULL, SEND_MAX},
        {"receive-max", required_argument, NULL, RECEIVE_MAX},
        {"send-all", required_argument, NULL, SEND_ALL},
        {"receive-all", required_argument, NULL, RECEIVE_ALL},
        {"time-wait", required_argument, NULL, TIME_WAIT},
        {"ports", required_argument, NULL, PORTS},
        {"verbose", no_argument, NULL, VERBOSE},
        {"help", no_argument, NULL, HELP},
        {0},
};

static bool number_read(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;
	*out = strtoull(text, &end, 10);
	return end != text && *end == '\0' && *text != '-' && *out >= min && *out <= max;
}

static bool number32_read(const char *text, uint32_t max, uint32_t *out)
{
	uint64_t value;
	if (!number_read(text, 1, max, &value))
		return false;
	*out = (uint32_t)value;
	return true;
}

static bool stack_option_read(struct sy_stack_options *s, int c, const char *value)
{
	uint32_t number;

	switch (c) {
	case CONNECTIONS:
		return number32_read(value, 4u << 20, &s->connections);
	case MTU:
		if (!number32_read(value, UINT16_MAX, &number))
			return false;
		s->mtu = (uint16_t)number;
		return true;
	case CONGESTION:
		s->congestion = value;
		return true;
	case ECN:
		return s->ecn = true;
	case NO_SACK:
		return s->no_sack = true;
	case NO_TIMESTAMPS:
		return s->no_timestamps = true;
	case NO_SCALE:
		return s->no_scale = true;
	case SEND_MAX:
		return number32_read(value, UINT32_MAX, &s->send_max);
	case RECEIVE_MAX:
		return number32_read(value, UINT32_MAX, &s->receive_max);
	case SEND_ALL:
		return number_read(value, 1, UINT64_MAX, &s->send_all);
	case RECEIVE_ALL:
		return number_read(value, 1, UINT64_MAX, &s->receive_all);
	case TIME_WAIT:
		return number32_read(value, UINT32_MAX, &s->time_wait_ms);
	case PORTS:
		return sscanf(value, "%hu-%hu", &s->port_first, &s->port_last) == 2;
	default:
		return false;
	}
}

static bool option_read(struct peer_options *o, int c, char *value)
{
	switch (c) {
	case PORT:
		o->port = value;
		return true;
	case ADDRESS:
		return o->addresses < PEER_ADDRESSES &&
		       sy_addr_parse(value, &o->address[o->addresses++]) == 0;
	case DO:
		if (o->jobs == PEER_JOBS)
			return false;
		o->job[o->jobs++] = value;
		return true;
	case STDIN:
		return o->input = true;
	case VERBOSE:
		return o->verbose = true;
	default:
		return stack_option_read(&o->stack, c, value);
	}
}

int peer_options_read(struct peer_options *o, int argc, char **argv)
{
	*o = (struct peer_options){.stack = {.connections = 4096}};
	for (int c, at; (c = getopt_long(argc, argv, "", known, &at)) != -1;) {
		if (c == HELP) {
			fputs(usage, stdout);
			job_help(stdout);
			return 1;
		}
		if (c == '?')
			return -EINVAL; /* getopt_long() has printed the error */
		if (!option_read(o, c, optarg)) {
			fprintf(stderr, "steelyard-peer: --%s %s: not possible; see --help\n",
			        known[at].name, optarg);
			return -EINVAL;
		}
	}
	if (optind < argc || !o->port || !o->addresses || (!o->jobs && !o->input)) {
		fprintf(stderr, "steelyard-peer: name the interface by --port, addresses by "
		                "--address, and what to do by --do or --stdin; see --help\n");
		return -EINVAL;
	}
	return 0;
}
