// SPDX-License-Identifier: Apache-2.0
/* redis protocol (RESP2) of a client that requests one string. */
#ifndef LOAD_REDIS_H
#define LOAD_REDIS_H

#include <sy_base.h>

#define REDIS_LINE 128 /* parsed bytes of a response's first line */

struct redis_reader {
	uint64_t left; /* bytes of the string, with the end of its line */
	uint16_t have; /* bytes of a line */
	bool wrong;    /* the present or last response is an error or no string */
	char line[REDIS_LINE];
};

/* Consumes bytes up to the end of a response. Returns their number, or -EPROTO. *done: complete. */
int64_t redis_take(struct redis_reader *r, const uint8_t *bytes, size_t len, bool *done);

#endif
