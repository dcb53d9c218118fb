/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By eight bytes of the payload.
 *     param 0  their offset
 *     param 1  the value, a number in network order
 *     param 2  mask; 0: all bits
 *     param 3  priority on match
 *     param 4  priority otherwise; 0: 4
 */
#include <sy_hook_program.h>

SY_PACKET_HOOK uint64_t pattern(struct sy_hook_packet *p)
{
	uint64_t mask = sy_param[2] ? sy_param[2] : ~0ul;
	if (p->payload_len == 0)
		return SY_KEEP;
	if (((sy_u64(sy_param[0]) ^ sy_param[1]) & mask) == 0)
		return sy_param[3];
	return sy_param[4] ? sy_param[4] : SY_USUAL;
}
