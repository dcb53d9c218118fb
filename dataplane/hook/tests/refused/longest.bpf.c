/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

SY_PACKET_HOOK uint64_t longest(struct sy_hook_packet *p)
{
	uint64_t sum = p->payload_len;
#pragma unroll
	for (int i = 0; i < 4096; i++)
		__asm__ volatile("%0 += 1" : "+r"(sum));
	return sum & 7;
}
