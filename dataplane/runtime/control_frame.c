// SPDX-License-Identifier: Apache-2.0
#include "control_frame.h"

#include <stdlib.h>

#define PIECE 16384 /* initial capacity of a body, doubled as needed */

size_t frame_want(struct frame_reader *r, uint8_t **where)
{
	if (r->head_len < sizeof(r->head)) {
		*where = r->head + r->head_len;
		return sizeof(r->head) - r->head_len;
	}
	*where = r->body + r->have;
	return (r->len < r->capacity ? r->len : r->capacity) - r->have;
}

static enum frame_state body_grow(struct frame_reader *r)
{
	size_t capacity = r->capacity ? 2 * r->capacity : PIECE;
	uint8_t *body = realloc(r->body, capacity);
	if (!body)
		return FRAME_NO_MEMORY;
	r->body = body;
	r->capacity = capacity;
	return FRAME_MORE;
}

enum frame_state frame_add(struct frame_reader *r, size_t n, size_t max)
{
	if (r->head_len < sizeof(r->head)) {
		r->head_len += n;
		if (r->head_len < sizeof(r->head))
			return FRAME_MORE;
		r->len = (size_t)r->head[0] << 24 | (size_t)r->head[1] << 16 |
		         (size_t)r->head[2] << 8 | r->head[3];
		if (r->len > max)
			return FRAME_TOO_LARGE;
	} else {
		r->have += n;
	}
	if (r->have == r->len)
		return FRAME_WHOLE;
	return r->have == r->capacity ? body_grow(r) : FRAME_MORE;
}

void frame_next(struct frame_reader *r)
{
	if (r->capacity > PIECE) { /* large frames are rare: free the memory */
		free(r->body);
		r->body = NULL;
		r->capacity = 0;
	}
	r->head_len = r->len = r->have = 0;
}

int frame_is_cut(const struct frame_reader *r)
{
	return r->head_len > 0;
}

void frame_free(struct frame_reader *r)
{
	free(r->body);
}
