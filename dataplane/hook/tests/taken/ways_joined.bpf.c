/* SPDX-License-Identifier: Apache-2.0 */
/* The remedy of docs/hooks.md: 32 comparisons without a branch, which refused/ways.bpf.c makes with
 * one each. */
#include <sy_hook_program.h>

/* 1 if both are equal, else 0, for numbers of at most 32 bits. */
#define EQUAL(a, b) ((((uint64_t)(a) ^ (uint64_t)(b)) - 1) >> 63)

SY_PACKET_HOOK uint64_t ways_joined(struct sy_hook_packet *p)
{
	uint64_t sum = 0;
#pragma unroll
	for (int i = 0; i < 32; i++)
		sum += EQUAL(p->head[i], 3 * i + 1);
	return sum & 7;
}
