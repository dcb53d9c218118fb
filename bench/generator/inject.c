// SPDX-License-Identifier: Apache-2.0
/* steelyard-inject: puts the generator's frames into this kernel as if an interface had received
 * them, by the live frames of BPF_PROG_TEST_RUN (Linux 5.18). A packet costs its core some ten
 * nanoseconds before it reaches the stack, so the result is the cost of the stack. A packet socket
 * takes longer to send a packet than the kernel takes to forward it. */
#include <getopt.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>

#include "frames.h"
#include "inject.skel.h"

#define BATCH 64

struct arguments {
	const char *interface;
	unsigned flows, packets;
	bool in_turn;
};

static int fail(const char *text)
{
	fprintf(stderr, "steelyard-inject: %s: %s\n", text, strerror(errno));
	return 1;
}

static void usage(FILE *out)
{
	fprintf(out,
	        "usage: steelyard-inject --interface NAME [--flows N] [--packets N] [--in-turn]\n"
	        "\n"
	        "Has the kernel believe that an interface received UDP packets to the VIP of\n"
	        "`steelyard-generator --plan`, as fast as its stack takes them, on this core.\n"
	        "Prints how long that took. For the time being the interface has an XDP program.\n"
	        "\n"
	        "  --interface NAME  of this network namespace; one with native XDP, such as veth\n"
	        "  --flows N         that packets are of, at random (1)\n"
	        "  --packets N       (100000)\n"
	        "  --in-turn         each flow after the other instead\n");
}

/* A UDP checksum of zero, which no receiver verifies. */
static void program_fill(struct inject_bpf *s, const struct arguments *a,
                         const struct frame_template *t)
{
	struct frame_fields f = frame_of_client(t, 0);
	uint8_t frame[FRAME_MAX];

	memcpy(frame, t->bytes, t->length);
	f.src = 0;
	frame_write(t, frame, &f);
	memset(frame + 24, 0, 2);
	memset(frame + t->udp + 6, 0, 2);
	memcpy((void *)s->rodata->frame, frame, sizeof(s->rodata->frame));
	s->rodata->base_src = t->base_src;
	s->rodata->ip_sum = t->ip_sum + frame_words(f.dst);
	s->rodata->flows = a->flows;
	s->rodata->port_bits = (unsigned)__builtin_ctz(CLIENT_PORTS);
	s->rodata->port_min = CLIENT_PORT_MIN;
	s->rodata->in_turn = a->in_turn;
}

static int frames_run(int program, unsigned ifindex, const struct arguments *a,
                      const struct frame_template *t)
{
	struct xdp_md context = {.data_end = t->length, .ingress_ifindex = ifindex};
	LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = t->bytes, .data_size_in = t->length,
	            .ctx_in = &context, .ctx_size_in = sizeof(context), .repeat = (int)a->packets,
	            .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = BATCH);
	uint64_t start = sy_clock_ns();

	if (bpf_prog_test_run_opts(program, &run) != 0)
		return fail("the kernel takes no live frames");
	printf("{\"packets\": %u, \"seconds\": %.6f}\n", a->packets,
	       (double)(sy_clock_ns() - start) / 1e9);
	return 0;
}

/* With an XDP program, the interface's receive queues are as the test run needs them. */
static int inject(const struct arguments *a)
{
	struct frame_template t;
	unsigned ifindex = if_nametoindex(a->interface);
	struct inject_bpf *s = inject_bpf__open();

	if (ifindex == 0 || s == NULL || frame_template_make(&t, 4, FRAME_IN, 64, false) != 0)
		return fail(a->interface);
	program_fill(s, a, &t);
	if (inject_bpf__load(s) != 0)
		return fail("loading the XDP program");
	int program = bpf_program__fd(s->progs.inject);
	if (bpf_xdp_attach((int)ifindex, program, XDP_FLAGS_DRV_MODE, NULL) != 0)
		return fail("attaching the XDP program");
	int rc = frames_run(program, ifindex, a, &t);
	bpf_xdp_detach((int)ifindex, XDP_FLAGS_DRV_MODE, NULL);
	inject_bpf__destroy(s);
	return rc;
}

static unsigned number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);
	if (end == text || *end != '\0' || n == 0 || n > INT32_MAX) {
		usage(stderr);
		exit(2);
	}
	return (unsigned)n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
	        {"interface", required_argument, NULL, 'i'},
	        {"flows", required_argument, NULL, 'f'},
	        {"packets", required_argument, NULL, 'p'},
	        {"in-turn", no_argument, NULL, 't'},
	        {"help", no_argument, NULL, 'h'},
	        {NULL, 0, NULL, 0},
	};
	struct arguments a = {.flows = 1, .packets = 100000};

	for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
		if (c == 'i')
			a.interface = optarg;
		else if (c == 'f')
			a.flows = number(optarg);
		else if (c == 'p')
			a.packets = number(optarg);
		else if (c == 't')
			a.in_turn = true;
		else {
			usage(c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
	}
	if (a.interface == NULL) {
		usage(stderr);
		return 2;
	}
	return inject(&a);
}
