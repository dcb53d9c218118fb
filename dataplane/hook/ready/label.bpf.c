/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By a label that the client writes into its request, as LNS does: one byte, 0 is highest.
 *     param 0  offset of the byte
 */
#include <sy_hook_program.h>

SY_PACKET_HOOK uint64_t label(struct sy_hook_packet *p)
{
	uint64_t priority = sy_u8(sy_param[0]);
	if (p->payload_len <= sy_param[0])
		return SY_KEEP;
	return priority < SY_PRIORITIES ? priority : SY_PRIORITIES - 1;
}
