/* SPDX-License-Identifier: Apache-2.0 */
/* Packets whose payload has certain bytes at a certain place (paper 001, scenario 2).
 *     param 0  offset of eight bytes
 *     param 1  what they are, as a number in network order
 *     param 2  the bits that count; 0: all
 *     param 3  priority if they are that
 *     param 4  priority if not; 0: 4 */
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
