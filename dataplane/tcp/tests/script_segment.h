// SPDX-License-Identifier: Apache-2.0
/* Segments of scripts: parsed from words, built, and compared with the stack's. */
#ifndef SCRIPT_SEGMENT_H
#define SCRIPT_SEGMENT_H

#include "../segment.h"
#include "script.h"

/* A segment in words. has: the fields that were named. */
struct script_segment {
	uint8_t flags, tos;
	uint32_t seq, len, ack, window, urgent, mss, scale, time, echo, port, toa;
	uint8_t blocks;
	struct sack_block block[SACK_BLOCKS];
	bool sackok;
	struct {
		bool ack, window, urgent, mss, scale, ts, blocks, tos, sackok, port;
	} has;
};

/* Parses a line; aborts the test on an unknown word. */
void script_segment_read(struct script_segment *seg, char *words);

/* Byte n of a direction. */
static inline uint8_t script_byte(uint32_t n)
{
	return (uint8_t)(n ^ n >> 8 ^ n >> 16);
}

#endif
