// SPDX-License-Identifier: Apache-2.0
/*
 * Frames of the control socket: a 32-bit big-endian length, then that many bytes. The reader knows
 * no socket: it says how many bytes it wants next and where, and never wants bytes beyond the
 * frame.
 */
#ifndef FRAME_H
#define FRAME_H

#include <stddef.h>
#include <stdint.h>

struct frame_reader {
	uint8_t head[4];
	size_t head_len;
	uint8_t *body;
	size_t capacity, len, have; /* of body */
};

enum frame_state { FRAME_MORE, FRAME_WHOLE, FRAME_TOO_LARGE, FRAME_NO_MEMORY };

/* Returns how many bytes to read next at most, never 0, and where to put them. */
size_t frame_want(struct frame_reader *r, uint8_t **where);
/* n ≤ frame_want() bytes were put there. Memory grows with the bytes received, not with the
 * announced length. */
enum frame_state frame_add(struct frame_reader *r, size_t n, size_t max);
/* The frame has been handled: start the next one. */
void frame_next(struct frame_reader *r);
/* Something of a frame has been read, but not all of it. */
int frame_is_cut(const struct frame_reader *r);
void frame_free(struct frame_reader *r);

#endif
