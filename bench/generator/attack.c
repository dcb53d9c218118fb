// SPDX-License-Identifier: Apache-2.0
/* steelyard-attack: floods one end of a virtual cable, as fast as its core can, by the live frames
 * of BPF_PROG_TEST_RUN (Linux 5.18). The other end receives the packets in its own receive queue,
 * among those of legitimate clients. With --stack, this kernel's own stack receives them instead,
 * on this core, each batch before the next one is made: the result is the cost of the stack. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <arpa/inet.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <sy_base.h>

#include "attack_packet.h"

#include "attack.skel.h"

#define BATCH     64
#define AT_ONCE   65536             /* packets of a test run at full speed */
#define PAUSE_NS  UINT64_C(1000000) /* between those of a paced flood */
#define ANYBODY_4 "64.0.0.0/3"
#define ANYBODY_6 "2400::/8"

struct arguments {
	const char *interface, *kinds, *to, *from, *mac, *tuple;
	unsigned port_min, port_max, rate, seconds, packets, scan;
	const char *sequence;
	bool stack;
};

/* SIGTERM and SIGINT are blocked: one that interrupted a test run would hide how much was sent. */
static bool is_ended(void)
{
	sigset_t pending;
	sigpending(&pending);
	return sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT);
}

static int fail(const char *text)
{
	fprintf(stderr, "steelyard-attack: %s: %s\n", text, strerror(errno));
	return 1;
}

static void usage(FILE *out)
{
	fprintf(out, "usage: steelyard-attack --interface NAME --mac MAC --kind KIND[,KIND...] "
	             "--to ADDRESS[,...]\n"
	             "                        [options]\n"
	             "\n"
	             "Sends packets into a veth interface of this network namespace; its other "
	             "end, which\n"
	             "has a native XDP program, receives them. Prints how many were sent once it "
	             "is done or\n"
	             "gets SIGTERM. Use it in network namespaces of your own only.\n"
	             "\n"
	             "  --mac MAC         of the other end\n"
	             "  --kind KIND       syn, syn-ack, ack, data, rst, fin, udp, icmp (echo "
	             "requests), fragment\n"
	             "                    (later ones without a first), first-fragment\n"
	             "  --to ADDRESS      destinations of one family\n"
	             "  --port N[-N]      destination ports (80)\n"
	             "  --from PREFIX     source addresses (" ANYBODY_4 " or " ANYBODY_6 ")\n"
	             "  --tuple ADDR,PORT one known client instead\n"
	             "  --seq N,N         sequence and acknowledgement number (random)\n"
	             "  --scan STEP       sequence numbers one after the other, so far apart\n"
	             "  --rate N          packets/s (as fast as it goes)\n"
	             "  --seconds N       how long (until SIGTERM)\n"
	             "  --packets N       how many\n"
	             "  --stack           have this kernel believe that the interface itself "
	             "received them\n");
}

static unsigned number(const char *text, char **rest)
{
	unsigned long n = strtoul(text, rest, 10);
	if (*rest == text || !isdigit((unsigned char)*text) || n > UINT32_MAX) {
		usage(stderr);
		exit(2);
	}
	return (unsigned)n;
}

static unsigned whole_number(const char *text)
{
	char *rest;
	unsigned n = number(text, &rest);
	if (*rest != '\0') {
		usage(stderr);
		exit(2);
	}
	return n;
}

/* The targets, all of one family. */
static bool targets_fill(struct attack_bpf *s, const char *text)
{
	char copy[1024], *rest = NULL;
	bool ipv6 = false, first = true;

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		struct attack_address a;
		unsigned n = s->rodata->target_count;
		if (n == ATTACK_TARGETS || !attack_address_parse(&a, word, &ipv6) ||
		    (!first && ipv6 != s->rodata->ipv6))
			return false;
		memcpy((void *)&s->rodata->targets[n], &a, sizeof(a));
		s->rodata->target_count = n + 1;
		s->rodata->ipv6 = ipv6;
		first = false;
	}
	return !first;
}

static bool source_fill(struct attack_bpf *s, const struct arguments *a)
{
	char text[64], *slash, *comma;
	struct attack_address from, mask;
	bool ipv6;
	const char *given = a->tuple ? a->tuple : a->from;

	if (given == NULL)
		given = s->rodata->ipv6 ? ANYBODY_6 : ANYBODY_4;
	snprintf(text, sizeof(text), "%s", given);
	if ((comma = strchr(text, ',')) != NULL) {
		*comma = '\0';
		s->rodata->client_port = whole_number(comma + 1);
	}
	slash = strchr(text, '/');
	if (slash != NULL)
		*slash = '\0';
	if (!attack_address_parse(&from, text, &ipv6) || ipv6 != s->rodata->ipv6)
		return false;
	attack_mask(&mask, slash ? whole_number(slash + 1) : 128);
	if (!ipv6 && slash == NULL)
		mask.word[0] = 0;
	memcpy((void *)&s->rodata->from, &from, sizeof(from));
	memcpy((void *)&s->rodata->from_mask, &mask, sizeof(mask));
	return true;
}

static bool templates_fill(struct attack_bpf *s, const struct arguments *a)
{
	unsigned char m[6];
	char copy[256], *rest = NULL;

	if (a->mac == NULL || sscanf(a->mac, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &m[0], &m[1], &m[2],
	                             &m[3], &m[4], &m[5]) != 6)
		return false;
	snprintf(copy, sizeof(copy), "%s", a->kinds);
	for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		struct attack_template t;
		unsigned n = s->rodata->kinds;
		if (n == ATTACK_KINDS || !attack_template_make(&t, word, s->rodata->ipv6, m))
			return false;
		memcpy((void *)&s->rodata->templates[n], &t, sizeof(t));
		s->rodata->kinds = n + 1;
	}
	return s->rodata->kinds > 0;
}

static void numbers_fill(struct attack_bpf *s, const struct arguments *a)
{
	char *rest;

	s->rodata->port_min = a->port_min;
	s->rodata->ports = a->port_max - a->port_min + 1;
	s->rodata->scan = a->scan;
	if (a->sequence == NULL)
		return;
	s->rodata->sequence_given = true;
	s->rodata->sequence = htonl(number(a->sequence, &rest));
	if (*rest == ',')
		s->rodata->acknowledged = htonl(whole_number(rest + 1));
}

static void sleep_until(uint64_t ns)
{
	struct timespec at = {.tv_sec = (time_t)(ns / 1000000000),
	                      .tv_nsec = (long)(ns % 1000000000)};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* How many packets are due now, and sleeps while it is none. A test run costs some microseconds by
 * itself, and milliseconds on a busy machine, so a paced flood sends at once what has become due
 * since the last one; at most a second's share. */
static unsigned packets_due(const struct arguments *a, uint64_t start, uint64_t sent)
{
	uint64_t due = AT_ONCE, left = a->packets ? a->packets - sent : AT_ONCE;
	if (a->rate) {
		sleep_until(sy_clock_ns() + PAUSE_NS);
		due = (uint64_t)((double)(sy_clock_ns() - start) * a->rate / 1e9) - sent;
		due = due < a->rate ? due : a->rate;
	}
	return (unsigned)(due < left ? due : left);
}

/* Of this thread, which the stack works for too with --stack; in seconds. */
static double cpu_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int flood(int program, const struct arguments *a, unsigned ifindex)
{
	static uint8_t frame[4 * ATTACK_WORDS];
	struct xdp_md context = {.data_end = sizeof(frame),
	                         .ingress_ifindex = a->stack ? ifindex : 0};
	uint64_t start = sy_clock_ns(), stop = start + a->seconds * UINT64_C(1000000000), sent = 0;
	double cpu = cpu_time();

	while (!is_ended() && (a->seconds == 0 || sy_clock_ns() < stop) &&
	       (a->packets == 0 || sent < a->packets)) {
		unsigned due = packets_due(a, start, sent);
		if (due == 0)
			continue;
		LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = sizeof(frame),
		            .ctx_in = &context, .ctx_size_in = sizeof(context), .repeat = (int)due,
		            .flags = BPF_F_TEST_XDP_LIVE_FRAMES,
		            .batch_size = due < BATCH ? due : BATCH);
		if (bpf_prog_test_run_opts(program, &run) != 0)
			return fail("the kernel takes no live frames");
		sent += due;
	}
	printf("{\"sent\": %lu, \"seconds\": %.3f, \"cpu\": %.6f}\n", (unsigned long)sent,
	       (double)(sy_clock_ns() - start) / 1e9, cpu_time() - cpu);
	return 0;
}

static int attack(const struct arguments *a)
{
	struct attack_bpf *s = attack_bpf__open();
	unsigned ifindex = if_nametoindex(a->interface);

	if (s == NULL || ifindex == 0)
		return fail(a->interface);
	s->rodata->out = a->stack ? 0 : ifindex;
	if (!targets_fill(s, a->to) || !source_fill(s, a) || !templates_fill(s, a)) {
		usage(stderr);
		return 2;
	}
	numbers_fill(s, a);
	if (attack_bpf__load(s) != 0)
		return fail("loading the XDP program");
	int program = bpf_program__fd(s->progs.attack);
	/* With an XDP program, the interface's receive queues are as the test run needs them. */
	if (a->stack && bpf_xdp_attach((int)ifindex, program, XDP_FLAGS_DRV_MODE, NULL) != 0)
		return fail("attaching the XDP program");
	int rc = flood(program, a, ifindex);
	if (a->stack)
		bpf_xdp_detach((int)ifindex, XDP_FLAGS_DRV_MODE, NULL);
	attack_bpf__destroy(s);
	return rc;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
	        {"interface", required_argument, NULL, 'i'},
	        {"kind", required_argument, NULL, 'k'},
	        {"to", required_argument, NULL, 't'},
	        {"port", required_argument, NULL, 'p'},
	        {"from", required_argument, NULL, 'f'},
	        {"mac", required_argument, NULL, 'm'},
	        {"tuple", required_argument, NULL, 'T'},
	        {"seq", required_argument, NULL, 's'},
	        {"rate", required_argument, NULL, 'r'},
	        {"seconds", required_argument, NULL, 'S'},
	        {"packets", required_argument, NULL, 'P'},
	        {"scan", required_argument, NULL, 'n'},
	        {"stack", no_argument, NULL, 'K'},
	        {"help", no_argument, NULL, 'h'},
	        {NULL, 0, NULL, 0},
	};
	struct arguments a = {.port_min = 80, .port_max = 80};
	char *rest;

	for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
		switch (c) {
		case 'i':
			a.interface = optarg;
			break;
		case 'k':
			a.kinds = optarg;
			break;
		case 't':
			a.to = optarg;
			break;
		case 'p':
			a.port_min = a.port_max = number(optarg, &rest);
			if (*rest == '-')
				a.port_max = whole_number(rest + 1);
			break;
		case 'f':
			a.from = optarg;
			break;
		case 'm':
			a.mac = optarg;
			break;
		case 'T':
			a.tuple = optarg;
			break;
		case 's':
			a.sequence = optarg;
			break;
		case 'r':
			a.rate = whole_number(optarg);
			break;
		case 'S':
			a.seconds = whole_number(optarg);
			break;
		case 'P':
			a.packets = whole_number(optarg);
			break;
		case 'n':
			a.scan = whole_number(optarg);
			break;
		case 'K':
			a.stack = true;
			break;
		default:
			usage(c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
	}
	if (!a.interface || !a.kinds || !a.to || !a.mac || optind < argc ||
	    a.port_max < a.port_min || a.port_max > UINT16_MAX) {
		usage(stderr);
		return 2;
	}
	sigset_t ends;
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	return attack(&a);
}
