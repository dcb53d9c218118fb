/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP requests by path prefix (RFC 9112 3), and optionally by method. Packets that begin no
 * request keep their priority. param 0  the prefix, a number in network order, zero-padded param 1
 * its length: 1 to 8; 0: any path param 2  priority of these paths param 3  priority of all others;
 * 0: 5 param 4  priority of methods other than GET and HEAD on these paths; 0: as param 2
 */
#include <sy_hook_program.h>

#define GET_       0x47455420ul
#define HEAD_      0x48454144ul
#define POST_      0x504f5354ul
#define PUT_       0x50555420ul
#define DELE       0x44454c45ul
#define PATC       0x50415443ul
#define OPTI       0x4f505449ul
#define METHOD_MAX 8 /* longest method with its space, bytes */

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
	uint64_t method = sy_u32(0), space = sy_find(3, ' ', METHOD_MAX);
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
