/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

extern uint64_t system(uint64_t word);

SY_PACKET_HOOK uint64_t call(struct sy_hook_packet *p)
{
	return system(p->payload_len);
}
