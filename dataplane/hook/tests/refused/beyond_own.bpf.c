/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

SY_SEGMENT_HOOK uint64_t beyond_own(struct sy_hook_segment *s)
{
	s->own[sy_u8(0) & 127] = 1;
	return 0;
}
