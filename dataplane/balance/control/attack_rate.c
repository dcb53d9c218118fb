// SPDX-License-Identifier: Apache-2.0
#include "attacks.h"

#define TIMES         8.0F    /* the usual rate */
#define FLOOR         1000.0F /* packets/s below which no rate is an attack */
#define BEGIN_SAMPLES 2u
#define END_SAMPLES   30u
#define FIRST_SAMPLES 10u /* samples whose average is the first usual rate */
#define USUAL_SAMPLES 300.0F

/* Returns the packets since the last sample. */
static uint64_t rate_advance(struct attack_rate *r, uint64_t count)
{
	uint64_t more = count >= r->last ? count - r->last : 0;
	r->last = count;
	return more;
}

static void usual_follow(struct attack_rate *r, float rate)
{
	float samples = r->samples < FIRST_SAMPLES ? (float)(r->samples + 1) : USUAL_SAMPLES;
	r->usual += (rate - r->usual) / samples;
	if (r->samples < FIRST_SAMPLES)
		r->samples++;
}

enum attack_change attack_rate_update(struct attack_rate *r, uint64_t count, uint64_t elapsed_ns,
                                      uint64_t *rate)
{
	*rate = rate_advance(r, count) * 1000000000 / (elapsed_ns ? elapsed_ns : 1);
	float now = (float)*rate, limit = TIMES * r->usual > FLOOR ? TIMES * r->usual : FLOOR;

	if (r->under_way) {
		r->seconds = now < limit / 2 ? (uint8_t)(r->seconds + 1) : 0;
		if (r->seconds < END_SAMPLES)
			return ATTACK_GOES_ON;
		r->under_way = false;
		r->seconds = 0;
		return ATTACK_ENDS;
	}
	if (r->samples < FIRST_SAMPLES || now <= limit) {
		r->seconds = 0;
		usual_follow(r, now);
		return ATTACK_NONE;
	}
	if (++r->seconds < BEGIN_SAMPLES)
		return ATTACK_NONE;
	r->under_way = true;
	r->seconds = 0;
	return ATTACK_BEGINS;
}
