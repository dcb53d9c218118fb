// SPDX-License-Identifier: Apache-2.0
/*
 * What hooks cost a stack: requests of 64 bytes on 64 connections, each answered by 64, both stacks
 * on one core. Rounds of all ways of use take turns; the median of each is compared with that of
 * the first, in cycles of the TSC for a request and its answer (two packets to the server and its
 * acknowledgements). With a number as argument: so many rounds without hooks, for counting
 * instructions.
 */
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "pair.h"

#define ROUNDS 2000u
#define LEN    64

static uint8_t packet_nothing(struct sy_hook_packet *p, const uint8_t *payload)
{
	return SY_KEEP;
}

static uint8_t packet_label(struct sy_hook_packet *p, const uint8_t *payload)
{
	return p->payload_len ? payload[0] : SY_KEEP;
}

static uint8_t segment_nothing(struct sy_hook_segment *s, const uint8_t *payload)
{
	return SY_KEEP;
}

/* All connections ask and are answered. */
static void round_run(void)
{
	uint8_t bytes[LEN] = {0};
	struct sy_stack_event e[PAIR_MOST];
	unsigned count;

	for (unsigned i = 0; i < PAIR_MOST; i++) {
		bytes[0] = i % SY_PRIORITIES;
		sy_stack_send(pair.client, pair.from[i], bytes, LEN, 0, pair.now);
	}
	pair_bring(pair.client, pair.server);
	while (sy_stack_take(pair.server, PAIR_BURST, pair.now) > 0)
		;
	while ((count = sy_stack_events(pair.server, e, PAIR_MOST)) > 0)
		for (unsigned i = 0; i < count; i++) {
			int64_t len =
			        sy_stack_receive_bytes(pair.server, e[i].id, bytes, LEN, pair.now);
			if (len > 0)
				sy_stack_send(pair.server, e[i].id, bytes, (size_t)len, 0,
				              pair.now);
		}
	pair_bring(pair.server, pair.client);
	for (unsigned i = 0; i < PAIR_MOST; i++)
		sy_stack_receive_bytes(pair.client, pair.from[i], bytes, LEN, pair.now);
	while (sy_stack_events(pair.client, e, PAIR_MOST) > 0)
		;
	pair_bring(pair.client, pair.server);
	pair.now += PAIR_MS / 10;
	sy_stack_advance(pair.client, pair.now);
	sy_stack_advance(pair.server, pair.now);
}

enum { UNUSED, PACKET_C, LABEL_C, LABEL_BPF, SEGMENT_C, BOTH_C, WAYS };
static const char *const way_name[WAYS] = {
        "no hook",        "packet hook, C, says nothing",  "packet hook, C, label",
        "the same, eBPF", "segment hook, C, says nothing", "packet and segment hook",
};

static unsigned hook_of[WAYS], segment_hook;

static void way_set(unsigned way)
{
	bool segments = way == SEGMENT_C || way == BOTH_C;

	sy_stack_packet_hook(pair.server, way == BOTH_C ? hook_of[PACKET_C] : hook_of[way]);
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, segments ? segment_hook : SY_HOOK_NONE);
}

static void hooks_load(void)
{
	int bpf = sy_hooks_load(sy_stack_hooks(pair.server), "bpf",
	                        &(struct sy_hook_source){.file = LABEL_FILE}, NULL);

	assert_true(bpf > 0);
	hook_of[PACKET_C] = pair_packet_hook("nothing", packet_nothing);
	hook_of[LABEL_C] = pair_packet_hook("label", packet_label);
	hook_of[LABEL_BPF] = (unsigned)bpf;
	segment_hook = pair_segment_hook("segments", segment_nothing);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static void compare(void)
{
	static uint64_t took[WAYS][ROUNDS];
	double first = 0;

	hooks_load();
	for (unsigned r = 0; r < ROUNDS; r++)
		for (unsigned way = 0; way < WAYS; way++) {
			way_set(way);
			round_run(); /* warm */
			uint64_t began = rte_rdtsc();
			round_run();
			took[way][r] = rte_rdtsc() - began;
		}
	printf("cycles of a request; TSC %.2f GHz\n", (double)rte_get_tsc_hz() / 1e9);
	for (unsigned way = 0; way < WAYS; way++) {
		qsort(took[way], ROUNDS, sizeof(took[way][0]), by_value);
		double median = (double)took[way][ROUNDS / 2] / PAIR_MOST;
		first = way ? first : median;
		printf("%-32s %7.0f  %+5.0f\n", way_name[way], median, median - first);
	}
}

int main(int argc, char **argv)
{
	pair_open(NULL);
	pair_connect(PAIR_MOST);
	if (argc > 1)
		for (long left = strtol(argv[1], NULL, 10); left > 0; left--)
			round_run();
	else
		compare();
	pair_close();
	return 0;
}
