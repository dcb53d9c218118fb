/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long packets last: bulk senders fill them.
 *     param 0  long: this many payload bytes or more; 0: 1024
 *     param 1  priority of long ones; 0: 6
 *     param 2  priority of others
 */
#include <sy_hook_program.h>

SY_PACKET_HOOK uint64_t length(struct sy_hook_packet *p)
{
	uint64_t max = sy_param[0] ? sy_param[0] : 1024;
	if (p->payload_len == 0)
		return SY_KEEP;
	if (p->payload_len < max)
		return sy_param[2];
	return sy_param[1] ? sy_param[1] : 6;
}
