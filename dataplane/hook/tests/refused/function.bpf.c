/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

static __attribute__((noinline)) uint64_t twice(uint64_t n)
{
	__asm__ volatile("" : "+r"(n));
	return 2 * n;
}

SY_PACKET_HOOK uint64_t function(struct sy_hook_packet *p)
{
	return twice(p->payload_len) & 7;
}
