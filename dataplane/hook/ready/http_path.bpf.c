/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP requests by the beginning of their path (RFC 9112 3); of these, other methods than GET and
 * HEAD may have a priority of their own. Packets that begin no request keep theirs.
 *     param 0  the path's first bytes, as a number in network order, filled up with zeros
 *     param 1  how many bytes these are: 1 to 8; 0: each path
 *     param 2  priority of these paths
 *     param 3  priority of all others; 0: 5
 *     param 4  priority of other methods on these paths; 0: as param 2 */
#include <sy_hook_program.h>

#define GET_  0x47455420ul
#define HEAD_ 0x48454144ul
#define POST_ 0x504f5354ul
#define PUT_  0x50555420ul
#define DELE  0x44454c45ul
#define PATC  0x50415443ul
#define OPTI  0x4f505449ul
#define MOST  8 /* bytes of a method and its space */

static inline __attribute__((always_inline)) int is_method(uint64_t word)
{
	switch (word) {
	case GET_:
	case HEAD_:
	case POST_:
	case PUT_:
	case DELE:
	case PATC:
	case OPTI:
		return 1;
	default:
		return 0;
	}
}

SY_PACKET_HOOK uint64_t http_path(struct sy_hook_packet *p)
{
	uint64_t method = sy_u32(0), space = sy_find(3, ' ', MOST);
	uint64_t count = sy_param[1] < 8 ? sy_param[1] : 8;
	if (!is_method(method) || space == SY_NOWHERE)
		return SY_KEEP;
	/* A shift by 64 is not defined. */
	if (count && (sy_u64(space + 1) ^ sy_param[0]) >> (64 - 8 * count))
		return sy_param[3] ? sy_param[3] : 5;
	if (method != GET_ && method != HEAD_ && sy_param[4])
		return sy_param[4];
	return sy_param[2];
}
