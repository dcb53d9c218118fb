// SPDX-License-Identifier: Apache-2.0
/* steelyard-hook-cost: nanoseconds to run a packet hook as the stack does: filling the context,
 * copying the first payload bytes, counting. The packets are in the cache, as after reception by a
 * driver. */
#include <stdio.h>
#include <stdlib.h>

#include <sy_hook.h>

#include "bench_options.h"
#include "measure.h"

#define PACKETS 64u
#define STRIDE  256u
#define LABEL   6u

static uint8_t payload[PACKETS][STRIDE];

/* label.bpf.c in C. */
static uint8_t label_in_c(struct sy_hook_packet *p, const uint8_t *bytes)
{
	uint8_t priority;

	if (p->payload_len <= LABEL)
		return SY_KEEP;
	priority = bytes[LABEL];
	return priority < SY_PRIORITIES ? priority : SY_PRIORITIES - 1;
}

/* Returns nanoseconds per packet; the sum of results prevents optimization. */
static double round_run(struct sy_hooks *hs, unsigned hook, unsigned rounds, uint64_t *sum)
{
	uint64_t begin = sy_clock_ns();

	for (unsigned round = 0; round < rounds; round++)
		for (unsigned n = 0; n < PACKETS; n++) {
			struct sy_hook_packet view = {.frame_len = STRIDE + 54,
			                              .payload_len = STRIDE,
			                              .sport = (uint16_t)(1024 + n),
			                              .dport = 80,
			                              .version = 4,
			                              .proto = 6,
			                              .flags = 16,
			                              .priority = SY_USUAL};
			__asm__ volatile("" : : "r"(&view) : "memory");
			*sum += hook ? sy_hook_run_packet(hs, hook, &view, payload[n]) : SY_KEEP;
		}
	return (double)(sy_clock_ns() - begin) / rounds / PACKETS;
}

static unsigned hook_load(struct sy_hooks *hs, const char *name, const struct sy_hook_source *from)
{
	struct sy_error err = {0};
	int rc = sy_hooks_load(hs, name, from, &err);

	if (rc < 0) {
		fprintf(stderr, "steelyard-hook-cost: %s\n", err.text);
		exit(1);
	}
	sy_hooks_param(hs, (unsigned)rc, 0, LABEL);
	return (unsigned)rc;
}

int main(int argc, char **argv)
{
	unsigned runs = 60, rounds = 100, hook[2];
	const char *object = READY "/label.bpf.o";
	const struct option_entry entry[] = {
	        {"runs", "N", OPTION_UNSIGNED, &runs, 1, 1000, "of each"},
	        {"rounds", "N", OPTION_UNSIGNED, &rounds, 1, 1e7, "of 64 packets in a run"},
	        {"object", "FILE", OPTION_WORD, &object, 0, 0, "a packet hook"},
	};
	struct sy_hooks *hs = sy_hooks_create();
	struct sy_hook_info info;
	uint64_t sum = 0;

	OPTIONS_TAKE(argc, argv, "What asking a hook of a packet takes.", entry);
	for (unsigned n = 0; n < PACKETS; n++)
		payload[n][LABEL] = (uint8_t)(n % SY_PRIORITIES);
	hook[0] = hook_load(hs, "c", &(struct sy_hook_source){.packet = label_in_c});
	hook[1] = hook_load(hs, "program", &(struct sy_hook_source){.file = object});
	sy_hooks_info(hs, hook[1], &info);
	for (unsigned run = 0; run < runs; run++)
		for (unsigned i = 0; i < 2; i++) {
			double without = round_run(hs, 0, rounds, &sum);
			double with = round_run(hs, hook[i], rounds, &sum);
			measure_report(
			        &(struct measure){
			                .bench = "priority",
			                .params = i == 0 ? "\"hook\": \"C\""
			                          : info.compiled
			                                  ? "\"hook\": \"eBPF, machine code\""
			                                  : "\"hook\": \"eBPF, interpreted\"",
			                .metric = "asking a packet hook",
			                .unit = "ns"},
			        with > without ? with - without : 0, NULL, 0);
		}
	sy_hooks_destroy(hs);
	return sum ? 0 : 1;
}
