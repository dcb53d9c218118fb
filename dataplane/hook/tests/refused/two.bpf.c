/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

SY_PACKET_HOOK uint64_t one(struct sy_hook_packet *p)
{
	return 1;
}

SY_PACKET_HOOK uint64_t two(struct sy_hook_packet *p)
{
	return 2;
}
