/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that have brought much go last (paper 001, scenario 4).
 *     param 0  bytes received; 0: 65536
 *     param 1  priority of what comes after that; 0: 6
 *     param 2  priority of what comes before */
#include <sy_hook_program.h>

SY_SEGMENT_HOOK uint64_t bytes(struct sy_hook_segment *s)
{
	uint64_t most = sy_param[0] ? sy_param[0] : 65536;
	if (s->offset < most)
		return sy_param[2];
	return sy_param[1] ? sy_param[1] : 6;
}
