/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large transfers last: by bytes received on the connection.
 *     param 0  bytes of high priority; 0: 65536
 *     param 1  priority after that; 0: 6
 *     param 2  priority before
 */
#include <sy_hook_program.h>

SY_SEGMENT_HOOK uint64_t bytes(struct sy_hook_segment *s)
{
	uint64_t max = sy_param[0] ? sy_param[0] : 65536;
	if (s->offset < max)
		return sy_param[2];
	return sy_param[1] ? sy_param[1] : 6;
}
