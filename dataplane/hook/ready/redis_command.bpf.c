/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redis commands on many keys or values last (RESP: *N CRLF $N CRLF command).
 *     param 0  their priority; 0: 6
 *     param 1  priority of other commands
 */
#include <sy_hook_program.h>

#define UPPER 0xdfdfdfdfdfdfdfdful /* to upper case */
/* The command's first eight bytes; shifts cut off what follows. */
#define WORD(a, b, c, d, e, f, g, h)                                                               \
	((uint64_t)(a) << 56 | (uint64_t)(b) << 48 | (uint64_t)(c) << 40 | (uint64_t)(d) << 32 |   \
	 (uint64_t)(e) << 24 | (uint64_t)(f) << 16 | (uint64_t)(g) << 8 | (uint64_t)(h))

SY_PACKET_HOOK uint64_t redis_command(struct sy_hook_packet *p)
{
	uint64_t line = sy_find(1, '\n', 8), length = sy_find(line + 1, '\n', 8), word;
	if (p->head[0] != '*' || line == SY_NOWHERE || length == SY_NOWHERE ||
	    sy_u8(line + 1) != '$')
		return SY_KEEP;
	word = sy_u64(length + 1) & UPPER;
	/* CR LF follows the command: 0x0d & 0xdf, 0x0a & 0xdf. */
	switch (word) {
	case WORD('F', 'L', 'U', 'S', 'H', 'A', 'L', 'L'):
	case WORD('S', 'M', 'E', 'M', 'B', 'E', 'R', 'S'):
	case WORD('H', 'G', 'E', 'T', 'A', 'L', 'L', '\r'):
	case WORD('Z', 'U', 'N', 'I', 'O', 'N', 'S', 'T'):
	case WORD('Z', 'I', 'N', 'T', 'E', 'R', 'S', 'T'):
		goto slow;
	}
	switch (word >> 8) {
	case WORD(0, 'H', 'G', 'E', 'T', 'A', 'L', 'L'):
	case WORD(0, 'E', 'V', 'A', 'L', 'S', 'H', 'A'):
	case WORD(0, 'F', 'L', 'U', 'S', 'H', 'D', 'B'):
		goto slow;
	}
	switch (word >> 16) {
	case WORD(0, 0, 'L', 'R', 'A', 'N', 'G', 'E'):
	case WORD(0, 0, 'Z', 'R', 'A', 'N', 'G', 'E'):
	case WORD(0, 0, 'S', 'U', 'N', 'I', 'O', 'N'):
	case WORD(0, 0, 'S', 'I', 'N', 'T', 'E', 'R'):
		goto slow;
	}
	switch (word >> 24) {
	case WORD(0, 0, 0, 'K', 'E', 'Y', 'S', '\r'):
	case WORD(0, 0, 0, 'S', 'C', 'A', 'N', '\r'):
	case WORD(0, 0, 0, 'S', 'O', 'R', 'T', '\r'):
	case WORD(0, 0, 0, 'E', 'V', 'A', 'L', '\r'):
	case WORD(0, 0, 0, 'S', 'D', 'I', 'F', 'F'):
		goto slow;
	}
	return sy_param[1];
slow:
	return sy_param[0] ? sy_param[0] : 6;
}
