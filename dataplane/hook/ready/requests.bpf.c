/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests over several packets: each packet gets the priority that its request's header has
 * (paper 001, scenario 5). A request is its length in four bytes, in network order, which counts
 * the bytes behind them; then a byte: its priority. A segment with several requests gets the first
 * one's that begins in it, or that of the request that it goes on with. The connection is followed
 * in order; what arrives out of order keeps its priority.
 *     own[0…7]   offset at which the next request begins
 *     own[8]     priority of the one before it
 */
#include <sy_hook_program.h>

#define HEADER 5
#define MOST   4 /* requests that may begin in a segment; what is behind them is not followed */

SY_SEGMENT_HOOK uint64_t requests(struct sy_hook_segment *s)
{
	uint64_t *next = (uint64_t *)s->own, at = *next - s->offset, answer = SY_KEEP;
	uint64_t len = s->packet.payload_len;
	if (s->offset > *next) /* a request began in what has not arrived */
		return SY_KEEP;
	if (at > 0)
		answer = s->own[8];
#pragma unroll
	for (int n = 0; n < MOST; n++) {
		if (at + HEADER <= len) {
			uint64_t label = sy_u8(at + 4);
			s->own[8] = label < SY_PRIORITIES ? label : SY_PRIORITIES - 1;
			if (answer == SY_KEEP)
				answer = s->own[8];
			at += 4 + sy_u32(at);
		}
	}
	*next = s->offset + at;
	return answer;
}
