/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

SY_PACKET_HOOK uint64_t pointer(struct sy_hook_packet *p)
{
	return *(volatile uint64_t *)(0x1000 + sy_u64(0));
}
