// SPDX-License-Identifier: Apache-2.0
/*
 * Frames of the control socket: a 32-bit big-endian length, then that many bytes. The reader does
 * no I/O: it says how many bytes to read next and where, and never more than the frame has.
 */
#ifndef CONTROL_FRAME_H
#define CONTROL_FRAME_H

#include <stddef.h>
#include <stdint.h>

struct frame_reader {
	uint8_t head[4];
	size_t head_len;
	uint8_t *body;
	size_t capacity, len, have; /* of the body */
};

enum frame_state { FRAME_MORE, FRAME_WHOLE, FRAME_TOO_LARGE, FRAME_NO_MEMORY };

/* Returns the max number of bytes to read next, never 0, and where to store them. */
size_t frame_want(struct frame_reader *r, uint8_t **where);
/* Accepts n ≤ frame_want() bytes that were stored. Memory grows with the bytes received, not with
 * the announced length. */
enum frame_state frame_add(struct frame_reader *r, size_t n, size_t max);
/* Starts the next frame after one was processed. */
void frame_next(struct frame_reader *r);
/* Is a frame incomplete? */
int frame_is_cut(const struct frame_reader *r);
void frame_free(struct frame_reader *r);

#endif
