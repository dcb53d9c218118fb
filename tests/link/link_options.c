// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link_options.h"
#include "params.h"

static const char usage[] =
        "usage: steelyard-link --a INTERFACE --b INTERFACE [OPTION …]\n"
        "\n"
        "Carries Ethernet frames between two interfaces as a bad link would: late, at a limited\n"
        "rate, with losses. Both interfaces must be in this network namespace, be up, have no\n"
        "address, and be in no bridge.\n"
        "\n"
        "  --a, --b INTERFACE   the two ends\n"
        "  --set \"WAY NAME VALUE …\"\n"
        "                       parameters of the way ab, ba, or both; may be repeated\n"
        "  --seed N             decides what chance does (1)\n"
        "  --socket PATH        take commands on this Unix socket\n"
        "  --stdin              take commands from standard input; its end ends the program\n"
        "  --packets N          room for packets on their way, both ways together (131072)\n"
        "  --ring N             frames that wait for this program to run, each way (16384)\n"
        "  --spin US            how long it waits busily for the next packet (20)\n"
        "  --realtime           run before other programs (SCHED_FIFO)\n"
        "  --predict N          no link: print what would come of N packets each way\n"
        "\n"
        "Commands, a line each:\n"
        "  set WAY NAME VALUE … change parameters\n"
        "  stats                parameters, counts, and how late packets left: JSON\n"
        "  clear                begin to count anew\n"
        "  seed N               begin all draws anew\n"
        "  hurry                what is on its way arrives now\n"
        "  quit\n"
        "\n"
        "Parameters:\n";

static bool number_read(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;
	*out = strtoull(text, &end, 10);
	return end != text && *end == '\0' && *text != '-' && *out >= min && *out <= max;
}

static const struct option known[] = {
        {"a", required_argument, NULL, 'a'},
        {"b", required_argument, NULL, 'b'},
        {"set", required_argument, NULL, 'e'},
        {"seed", required_argument, NULL, 's'},
        {"socket", required_argument, NULL, 'u'},
        {"stdin", no_argument, NULL, 'i'},
        {"packets", required_argument, NULL, 'p'},
        {"ring", required_argument, NULL, 'r'},
        {"spin", required_argument, NULL, 'w'},
        {"realtime", no_argument, NULL, 't'},
        {"predict", required_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {0},
};

static bool option_read(struct options *o, int c, char *value)
{
	switch (c) {
	case 'a':
	case 'b':
		o->interface[c - 'a'] = value;
		return true;
	case 'e':
		if (o->sets == OPTIONS_SETS)
			return false;
		o->set[o->sets++] = value;
		return true;
	case 's':
		return number_read(value, 0, UINT64_MAX / 4, &o->seed);
	case 'u':
		o->socket = value;
		return true;
	case 'i':
		o->input = true;
		return true;
	case 'p':
		return number_read(value, 1, 1 << 24, &o->packets);
	case 'r':
		return number_read(value, 64, 1 << 20, &o->ring);
	case 'w':
		if (!number_read(value, 0, 1000, &o->spin))
			return false;
		o->spin *= 1000;
		return true;
	case 't':
		o->realtime = true;
		return true;
	case 'n':
		return number_read(value, 1, 1ull << 32, &o->predict);
	default:
		return false;
	}
}

int options_read(struct options *o, int argc, char **argv)
{
	*o = (struct options){.packets = 131072, .ring = 16384, .spin = 20000, .seed = 1};
	for (int c, at; (c = getopt_long(argc, argv, "", known, &at)) != -1;) {
		if (c == 'h') {
			fputs(usage, stdout);
			params_help(stdout);
			return 1;
		}
		if (c == '?')
			return -EINVAL; /* getopt_long() has printed the error */
		if (!option_read(o, c, optarg)) {
			fprintf(stderr, "steelyard-link: --%s %s: not possible; see --help\n",
			        known[at].name, optarg);
			return -EINVAL;
		}
	}
	if (optind < argc || (!o->predict && !(o->interface[0] && o->interface[1]))) {
		fprintf(stderr, "steelyard-link: name the two interfaces by --a and --b; "
		                "see --help\n");
		return -EINVAL;
	}
	return 0;
}
