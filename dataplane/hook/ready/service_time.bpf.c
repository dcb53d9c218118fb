/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long requests last: the application measures the service time of each type and stores it in the
 * private area. own[4 * type …]  expected service time of this type in µs, 32 bits; types 0 to 15
 *     param 0          offset of the type, one byte, in a request
 *     param 1          long: this many µs or more; 0: 100
 *     param 2          priority of long ones; 0: 6
 *     param 3          priority of others
 *
 */
#include <sy_hook_program.h>

SY_SEGMENT_HOOK uint64_t service_time(struct sy_hook_segment *s)
{
	const uint32_t *expected = (const uint32_t *)s->own;
	uint64_t max = sy_param[1] ? sy_param[1] : 100;
	if (s->packet.payload_len <= sy_param[0])
		return SY_KEEP;
	if (expected[sy_u8(sy_param[0]) & 15] < max)
		return sy_param[3];
	return sy_param[2] ? sy_param[2] : 6;
}
