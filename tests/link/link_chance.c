// SPDX-License-Identifier: Apache-2.0
#include "link_chance.h"

/* A bijection in which each bit of the input moves half of the output: multiply and shift, twice.
 * The constants are those of the finaliser that Stafford found ("Mix13"). */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

uint64_t chance_draw(uint64_t seed, unsigned purpose, uint64_t number)
{
	uint64_t stream = mix(seed + 0x9e3779b97f4a7c15 * (purpose + 1));
	return mix(stream ^ mix(number + 0x9e3779b97f4a7c15));
}

bool chance_hits(double share, uint64_t draw)
{
	return (double)(draw >> 11) * 0x1p-53 < share;
}

uint64_t chance_below(uint64_t bound, uint64_t draw)
{
	return (uint64_t)((unsigned __int128)bound * draw >> 64);
}

double chance_uniform(uint64_t seed, unsigned purpose, uint64_t number)
{
	return (double)(chance_draw(seed, purpose, number) >> 11) * 0x1p-53;
}

/* The sum of twelve uniform numbers has a variance of 1. No function of libm: its last bit differs
 * from one version to another. */
double chance_normal(uint64_t seed, unsigned purpose, uint64_t number)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < 3; i++) {
		uint64_t draw = chance_draw(seed, purpose + i, number);
		for (unsigned part = 0; part < 4; part++)
			sum += draw >> 16 * part & 0xffff;
	}
	double deviation = ((double)sum + 6) * 0x1p-16 - 6; /* 6: half a step for each */
	double at = 0.5 + deviation / 6;
	return at < 0 ? 0 : at > 1 ? 1 : at;
}
