// SPDX-License-Identifier: Apache-2.0
/* Repeatable random draws. A draw depends only on the seed, its purpose and the packet's number:
 * changing one parameter changes no draw of another. */
#ifndef LINK_CHANCE_H
#define LINK_CHANCE_H

#include <stdbool.h>
#include <stdint.h>

enum chance_purpose {
	CHANCE_STATE, /* of the Gilbert-Elliott model: from good to bad, and back */
	CHANCE_LOSS,
	CHANCE_JITTER, /* four in a row */
	CHANCE_REORDER = CHANCE_JITTER + 4,
	CHANCE_DUPLICATE,
	CHANCE_CORRUPT,
	CHANCE_BIT,
	CHANCE_QUEUE, /* early drops and marks */
};

uint64_t chance_draw(uint64_t seed, unsigned purpose, uint64_t number);

/* Whether a draw is among a share of all. */
bool chance_hits(double share, uint64_t draw);

/* A number below the bound. */
uint64_t chance_below(uint64_t bound, uint64_t draw);

/* Between 0 and 1: uniform; or normal around 0.5 with a sixth as standard deviation, cut at the
 * ends. It uses the numbers from `purpose` on. */
double chance_uniform(uint64_t seed, unsigned purpose, uint64_t number);
double chance_normal(uint64_t seed, unsigned purpose, uint64_t number);

#endif
