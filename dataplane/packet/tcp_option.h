// SPDX-License-Identifier: Apache-2.0
#ifndef TCP_OPTION_H
#define TCP_OPTION_H

#include <sy_packet.h>

/* Kinds of TCP options. */
enum {
	OPTION_END = 0,
	OPTION_NOP = 1,
	OPTION_MSS = 2,
	OPTION_WINDOW_SCALE = 3,
	OPTION_SACK_PERMITTED = 4,
	OPTION_SACK = 5,
	OPTION_TIMESTAMPS = 8,
};

/* Advances *at, an offset into the TCP header, by *len and then to the next option with a length,
 * which it writes to *len. False: there is none, or it is malformed. Start with *at at the end of
 * the fixed header and *len 0. */
static inline bool option_next(const struct sy_tcp *tcp, unsigned *at, unsigned *len)
{
	const uint8_t *header = (const uint8_t *)tcp;
	unsigned end = tcp->offset >> 4 << 2;

	for (*at += *len; *at + 1 < end && header[*at] != OPTION_END; ++*at) {
		if (header[*at] == OPTION_NOP)
			continue;
		*len = header[*at + 1];
		return *len >= 2 && *len <= end - *at;
	}
	return false;
}

#endif
