// SPDX-License-Identifier: Apache-2.0
/*
 * Two stacks talk through a network, in virtual time, by a schedule that follows from a seed: what
 * is lost, late, doubled or out of order, how large the windows are, what both sides write, when
 * they read and who closes first. Each byte is checked, and that both come to an end. Of two seeds,
 * one has ports that cut large segments (TSO), whose pieces get lost alone; of two others, one has
 * ports that join what comes (LRO), in several buffers.
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
	uint64_t given_up;    /* 1: it ended by that */
	uint64_t cut, joined; /* segments that ports cut; packets that they joined */
};

/* NULL, or what went wrong. */
const char *talk(uint64_t seed, bool explain, struct talk_result *result);

#endif
