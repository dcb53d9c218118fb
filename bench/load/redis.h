// SPDX-License-Identifier: Apache-2.0
/* The protocol of redis (RESP2) as a client that asks for one string needs it. */
#ifndef LOAD_REDIS_H
#define LOAD_REDIS_H

#include <sy_base.h>

#define REDIS_LINE 128 /* of an answer's first line, so many bytes are looked at */

struct redis_reader {
	uint64_t left; /* bytes of the string, with the end of its line */
	uint16_t have; /* bytes of a line */
	bool wrong; /* the answer that is read, or was read last, is an error or no string at all */
	char line[REDIS_LINE];
};

/* Takes bytes up to the end of an answer. Returns how many, or -EPROTO. *done: it is complete. */
int64_t redis_take(struct redis_reader *r, const uint8_t *bytes, size_t len, bool *done);

#endif
