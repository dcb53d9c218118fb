/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

SY_PACKET_HOOK uint64_t ways(struct sy_hook_packet *p)
{
	uint64_t sum = 0;
#pragma unroll
	for (int i = 0; i < 32; i++) {
		if (p->head[i] == 3 * i + 1)
			sum += i;
		__asm__ volatile("" : "+r"(sum));
	}
	return sum & 7;
}
