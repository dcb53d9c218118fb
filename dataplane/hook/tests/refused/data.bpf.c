/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

uint64_t seen;

SY_PACKET_HOOK uint64_t data(struct sy_hook_packet *p)
{
	return ++seen & 7;
}
