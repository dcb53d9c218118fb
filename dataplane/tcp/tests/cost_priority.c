// SPDX-License-Identifier: Apache-2.0
/*
 * What hooks cost a stack: requests of 64 bytes on 64 connections, each answered by 64, both stacks
 * on one core. Rounds of all ways of use take turns; the median of each is compared with that of
 * the first, in cycles of the TSC for a packet that the server gets. Then the levels alone. With a
 * number as argument: so many rounds without hooks, for counting instructions.
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

/* All connections send a request and get a response. */
static void round_run(void)
{
	uint8_t bytes[LEN] = {0};
	struct sy_stack_event e[PAIR_MAX];
	unsigned count;

	for (unsigned i = 0; i < PAIR_MAX; i++) {
		bytes[0] = i % SY_PRIORITIES;
		sy_stack_send(pair.client, pair.from[i], bytes, LEN, 0, pair.now);
	}
	pair_bring(pair.client, pair.server);
	while (sy_stack_process(pair.server, PAIR_BURST, pair.now) > 0)
		;
	while ((count = sy_stack_events(pair.server, e, PAIR_MAX)) > 0)
		for (unsigned i = 0; i < count; i++) {
			int64_t len =
			        sy_stack_receive_bytes(pair.server, e[i].id, bytes, LEN, pair.now);
			if (len > 0)
				sy_stack_send(pair.server, e[i].id, bytes, (size_t)len, 0,
				              pair.now);
		}
	pair_bring(pair.server, pair.client);
	for (unsigned i = 0; i < PAIR_MAX; i++)
		sy_stack_receive_bytes(pair.client, pair.from[i], bytes, LEN, pair.now);
	while (sy_stack_events(pair.client, e, PAIR_MAX) > 0)
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

static uint64_t calls_of(unsigned hook)
{
	struct sy_hook_info info = {.calls = 0};

	sy_hooks_info(sy_stack_hooks(pair.server), hook, &info);
	return info.calls;
}

static void compare(void)
{
	static uint64_t took[WAYS][ROUNDS];
	uint64_t packets[WAYS] = {0}, calls[WAYS] = {0};
	double first = 0;

	hooks_load();
	for (unsigned r = 0; r < ROUNDS; r++)
		for (unsigned k = 0; k < WAYS; k++) {
			unsigned way = (k + r) % WAYS;
			const struct sy_stack_counters *c = sy_stack_counters(pair.server);
			way_set(way);
			for (unsigned n = 1 + random_below(3); n > 0; n--)
				round_run(); /* warm, and no pattern */
			unsigned hook = way >= SEGMENT_C ? segment_hook : hook_of[way];
			uint64_t asked = calls_of(hook), in = c->packets_in, began = rte_rdtsc();
			round_run();
			took[way][r] = rte_rdtsc() - began;
			packets[way] += c->packets_in - in;
			calls[way] += calls_of(hook) - asked;
		}
	printf("cycles for a packet, TSC %.2f GHz; calls of the hook for a packet\n",
	       (double)rte_get_tsc_hz() / 1e9);
	for (unsigned way = 0; way < WAYS; way++) {
		double each = (double)packets[way] / ROUNDS, median;
		qsort(took[way], ROUNDS, sizeof(took[way][0]), by_value);
		median = (double)took[way][ROUNDS / 2] / each;
		first = way ? first : median;
		printf("%-32s %6.0f  %+5.0f  %5.2f\n", way_name[way], median, median - first,
		       (double)calls[way] / (double)packets[way]);
	}
}

#define WAITING 1024

/* Queueing and dequeueing packets: one per flow; or eight per flow, where the last one raises the
 * others. */
static double levels_cost(struct receive_levels *r, struct rte_mbuf *m, bool rise)
{
	uint64_t min = UINT64_MAX;

	for (unsigned n = 0; n < ROUNDS; n++) {
		uint64_t began = rte_rdtsc(), took;
		for (uint32_t i = 0; i < WAITING; i++)
			receive_level_add(r, m, rise ? i / 8 * 77777 : i * 77777,
			                  rise ? i % 8 == 7 ? 0 : 4 : i % SY_PRIORITIES);
		while (r->count > 0)
			receive_level_take(r);
		took = rte_rdtsc() - began;
		min = took < min ? took : min;
	}
	return (double)min / WAITING;
}

static void levels_compare(void)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(tests_pool());
	struct receive_levels r;

	assert_int_equal(receive_levels_init(&r, WAITING), 0);
	printf("%-32s %6.0f\n", "levels alone", levels_cost(&r, m, false));
	printf("%-32s %6.0f\n", "the same, seven of eight rise", levels_cost(&r, m, true));
	receive_levels_close(&r);
	rte_pktmbuf_free(m);
}

int main(int argc, char **argv)
{
	pair_open(NULL);
	pair_connect(PAIR_MAX);
	for (long left = argc > 1 ? strtol(argv[1], NULL, 10) : 0; left > 0; left--)
		round_run();
	if (argc == 1) {
		compare();
		levels_compare();
	}
	pair_close();
	return 0;
}
