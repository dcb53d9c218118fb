/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By the header of a request that spans packets: all its packets get the priority in its header. A
 * request is its length in four bytes, in network order, which excludes these four; then a byte
 * with the priority. A segment with several requests gets the priority of the first one that begins
 * in it, or of the one it continues. Segments out of order keep their priority. own[0…7]   stream
 * offset of the next request own[8]     priority of the current request
 */
#include <sy_hook_program.h>

#define HEADER       5
#define REQUESTS_MAX 4 /* per segment; further ones are not parsed */

SY_SEGMENT_HOOK uint64_t requests(struct sy_hook_segment *s)
{
	uint64_t *next = (uint64_t *)s->own, at = *next - s->offset, answer = SY_KEEP;
	uint64_t len = s->packet.payload_len;
	if (s->offset > *next) /* the request began in data that has not arrived */
		return SY_KEEP;
	if (at > 0)
		answer = s->own[8];
#pragma unroll
	for (int n = 0; n < REQUESTS_MAX; n++) {
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
