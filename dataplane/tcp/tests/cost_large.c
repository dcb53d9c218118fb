// SPDX-License-Identifier: Apache-2.0
/*
 * What large segments save: 32 full segments of a stream at a time, both stacks on one core. Ways
 * take turns; the median of each is told in cycles of the TSC for a segment on the wire.
 *
 *     sent       sy_stack_transmit() alone: single segments, or large ones that a port cuts
 *     received   sy_stack_receive(), the application's read, and the acknowledgements: single
 *                packets, what a port has joined, and what this program joins first
 */
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "duo.h"

#define ROUNDS   4000u
#define SEGMENTS 32u

enum way { WAY_SINGLE, WAY_JOINED, WAY_JOINS, WAYS };

static uint64_t cost[2][WAYS][ROUNDS]; /* sent, received */

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

static double median(uint64_t *of)
{
	qsort(of, ROUNDS, sizeof(*of), compare);
	return (double)of[ROUNDS / 2] / SEGMENTS;
}

/* Of these, what a single read of this size gets. */
static void read_all(void)
{
	static uint8_t bytes[1 << 16];

	while (sy_stack_receive_bytes(duo.b, duo.to, bytes, sizeof(bytes), duo.now) > 0)
		;
}

static void ack(void)
{
	struct rte_mbuf *m[DUO_MAX];
	unsigned count = sy_stack_transmit(duo.b, m, DUO_MAX, duo.now);

	sy_stack_receive(duo.a, m, count, duo.now);
}

static uint64_t arrive(struct rte_mbuf **m, unsigned count, enum way way)
{
	if (way == WAY_JOINED)
		count = large_join(m, count);
	uint64_t begin = rte_rdtsc_precise();
	if (way == WAY_JOINS)
		count = large_join(m, count);
	sy_stack_receive(duo.b, m, count, duo.now);
	read_all();
	struct rte_mbuf *out[DUO_MAX];
	count = sy_stack_transmit(duo.b, out, DUO_MAX, duo.now);
	uint64_t end = rte_rdtsc_precise();
	sy_stack_receive(duo.a, out, count, duo.now);
	return end - begin;
}

/* A round of one way; large: the sender's port cuts. */
static void round_run(unsigned n, enum way way, bool large)
{
	static uint8_t bytes[SEGMENTS * 1448];
	struct rte_mbuf *m[DUO_MAX], *piece[DUO_MAX];
	unsigned count = 0, pieces = 0, got;

	duo.a->options.tso.ipv4 = large;
	duo_pass(1);
	sy_stack_send(duo.a, duo.from, bytes, sizeof(bytes), 0, duo.now);
	uint64_t begin = rte_rdtsc_precise();
	while ((got = sy_stack_transmit(duo.a, m + count, DUO_MAX - count, duo.now)) > 0)
		count += got;
	cost[0][large ? WAY_JOINED : WAY_SINGLE][n] = rte_rdtsc_precise() - begin;
	for (unsigned i = 0; i < count; i++)
		pieces += large_cut(m[i], piece + pieces);
	for (unsigned i = 0; i < pieces; i++)
		piece[i]->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	if (pieces != SEGMENTS)
		abort();
	cost[1][way][n] = arrive(piece, pieces, way);
	while (duo_sender()->snd_una != duo_sender()->snd_nxt) {
		duo_pass(50);
		ack();
	}
}

int main(void)
{
	static const char *const name[WAYS] = {"single", "joined by the port", "joined here"};
	struct sy_stack_options a = {
	        .tso = {.ipv4 = true}, .offload_checksum = true, .trust_checksum = true};
	struct sy_stack_options b = {.offload_checksum = true, .trust_checksum = true};

	duo_begin(a, b, true);
	for (unsigned n = 0; n < ROUNDS; n++) {
		duo_sender()->congestion.window = 1000000;
		for (unsigned way = 0; way < WAYS; way++)
			round_run(n, (enum way)way, way > 0);
	}
	printf("sent:     single %.0f, large %.0f\n", median(cost[0][WAY_SINGLE]),
	       median(cost[0][WAY_JOINED]));
	printf("received:");
	for (unsigned way = 0; way < WAYS; way++)
		printf(" %s %.0f%s", name[way], median(cost[1][way]), way + 1 < WAYS ? "," : "\n");
	duo_end();
	return 0;
}
