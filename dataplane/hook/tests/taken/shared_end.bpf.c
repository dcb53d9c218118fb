/* SPDX-License-Identifier: Apache-2.0 */
/* Clang lets the branches share their ends, and so jumps back, though nothing loops. */
#include <sy_hook_program.h>

SY_PACKET_HOOK uint64_t shared_end(struct sy_hook_packet *p)
{
	if (p->payload_len == 0)
		return SY_KEEP;
	if (p->head[8] == 'G' || p->head[8] == 'g')
		return 0;
	if (p->head[8] == 'K' || p->head[8] == 'k')
		return 6;
	return SY_KEEP;
}
