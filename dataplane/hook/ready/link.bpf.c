/* SPDX-License-Identifier: Apache-2.0 */
/* Clients behind bad links go last: they hardly notice a little more delay (paper 001,
 * scenario 3).
 *     param 0  smoothed RTT in µs from which on a link is bad; 0: 100000
 *     param 1  segments sent again, in a thousand of 1000 bytes each; 0: 5
 *     param 2  priority of bad links; 0: 6
 *     param 3  priority of good ones */
#include <sy_hook_program.h>

SY_SEGMENT_HOOK uint64_t link(struct sy_hook_segment *s)
{
	uint64_t slow = sy_param[0] ? sy_param[0] : 100000, much = sy_param[1] ? sy_param[1] : 5;
	if (s->srtt_us >= slow || (s->resent > 1 && s->resent * 1000000ul > much * s->sent))
		return sy_param[2] ? sy_param[2] : 6;
	return sy_param[3];
}
