/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients on bad links last: they hardly notice additional delay.
 *     param 0  bad: smoothed RTT of at least this many µs; 0: 100000
 *     param 1  bad: more retransmissions per thousand segments of 1000 bytes; 0: 5
 *     param 2  priority of bad links; 0: 6
 *     param 3  priority of good links
 */
#include <sy_hook_program.h>

SY_SEGMENT_HOOK uint64_t link(struct sy_hook_segment *s)
{
	uint64_t slow = sy_param[0] ? sy_param[0] : 100000, much = sy_param[1] ? sy_param[1] : 5;
	if (s->srtt_us >= slow || (s->resent > 1 && s->resent * 1000000ul > much * s->sent))
		return sy_param[2] ? sy_param[2] : 6;
	return sy_param[3];
}
