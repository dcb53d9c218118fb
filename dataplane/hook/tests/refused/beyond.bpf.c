/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

SY_PACKET_HOOK uint64_t beyond(struct sy_hook_packet *p)
{
	return p->head[p->payload_len];
}
