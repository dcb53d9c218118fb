/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

SY_PACKET_HOOK uint64_t loop(struct sy_hook_packet *p)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < p->payload_len; i++) {
		sum += sy_u8(i);
		__asm__ volatile("" : "+r"(sum));
	}
	return sum;
}
