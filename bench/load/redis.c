// SPDX-License-Identifier: Apache-2.0
#include "redis.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#define LONGEST (512u << 20) /* redis' max. string length */

/* "+OK", "-ERR why", ":12", "$5" and the string in the next line, "$-1": there is none. */
static int line_read(struct redis_reader *r, bool *done)
{
	const char *line = r->line;
	char *end;

	r->wrong = *line == '-' || !strcmp(line, "$-1");
	*done = true;
	if (*line == '+' || *line == ':' || r->wrong)
		return 0;
	if (*line != '$' || !isdigit((unsigned char)line[1]))
		return -EPROTO;
	r->left = strtoul(line + 1, &end, 10);
	if (*end || r->left > LONGEST)
		return -EPROTO;
	r->left += 2;
	*done = false;
	return 0;
}

int64_t redis_take(struct redis_reader *r, const uint8_t *bytes, size_t len, bool *done)
{
	size_t taken = 0;

	*done = false;
	while (taken < len && !*done) {
		if (r->left) {
			size_t part = r->left < len - taken ? (size_t)r->left : len - taken;
			taken += part;
			r->left -= part;
			*done = r->left == 0;
			continue;
		}
		char c = (char)bytes[taken++];
		if (c != '\n') { /* a longer line is truncated */
			if (r->have < REDIS_LINE - 1u)
				r->line[r->have++] = c;
			continue;
		}
		if (r->have == 0 || (r->have < REDIS_LINE - 1u && r->line[r->have - 1] != '\r'))
			return -EPROTO;
		r->line[r->line[r->have - 1] == '\r' ? r->have - 1 : r->have] = '\0';
		r->have = 0;
		if (line_read(r, done))
			return -EPROTO;
	}
	return (int64_t)taken;
}
