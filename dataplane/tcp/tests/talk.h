// SPDX-License-Identifier: Apache-2.0
/*
 * Two stacks communicate through a network, in virtual time, by a schedule derived from a seed:
 * losses, delays, duplicates, reordering, window sizes, what both sides write, when they read, who
 * closes first. Checks each byte, and that both sides finish. Half of the seeds have TSO, with
 * separate losses of pieces; another half has LRO in several buffers.
 */
#ifndef TALK_H
#define TALK_H

#include <stdbool.h>
#include <stdint.h>

struct talk_result {
	uint64_t ns;      /* virtual time that it took */
	uint64_t packets; /* both ways */
	uint64_t bytes;
	uint64_t retransmitted, timeouts, undone, raised;
	uint64_t given_up;    /* 1: it timed out */
	uint64_t cut, joined; /* TSO segments; LRO packets */
};

/* Returns NULL, or an error text. */
const char *talk(uint64_t seed, bool explain, struct talk_result *result);

#endif
