// SPDX-License-Identifier: Apache-2.0
#include "rtt.h"

#define FRACTION   20
#define HALF_MS    (RTT_MIN_WINDOW_MS / 2)
#define STALE      4       /* back-offs after which SRTT is stale: RFC 6298 5 (end) */
#define PER_WINDOW 1000000 /* more samples would have no weight */

void rtt_init(struct rtt *r)
{
	*r = (struct rtt){0};
}

/* value + (sample - value) / divisor */
static uint64_t moved(uint64_t value, uint64_t sample, uint64_t divisor)
{
	return sample >= value ? value + (sample - value) / divisor
	                       : value - (value - sample) / divisor;
}

void rtt_min_sample(struct rtt *r, uint32_t us, uint64_t now_ms)
{
	us = us ? us : 1;
	uint32_t halves = ((uint32_t)now_ms - r->half_ms) / HALF_MS;
	if (r->min_us == 0) {
		r->half_ms = (uint32_t)now_ms;
	} else if (halves > 0) {
		r->previous_min_us = halves == 1 ? r->min_us : 0;
		r->min_us = us;
		r->half_ms += halves * HALF_MS;
	}
	if (r->min_us == 0 || us < r->min_us)
		r->min_us = us;
}

void rtt_sample(struct rtt *r, uint32_t us, uint32_t per_window, uint64_t now_ms)
{
	us = us == 0 ? 1 : us > MAX_RTT_US ? MAX_RTT_US : us;
	rtt_min_sample(r, us, now_ms);
	uint64_t sample = (uint64_t)us << FRACTION;
	uint64_t count = per_window == 0 ? 1 : per_window > PER_WINDOW ? PER_WINDOW : per_window;

	if (r->smoothed == 0 || r->backed_off >= STALE) { /* 2.2 */
		r->smoothed = sample;
		r->variation = sample / 2;
	} else { /* 2.3: RTTVAR before SRTT */
		uint64_t apart = sample > r->smoothed ? sample - r->smoothed : r->smoothed - sample;
		r->variation = moved(r->variation, apart, 4 * count);
		r->smoothed = moved(r->smoothed, sample, 8 * count);
	}
	r->backed_off = 0;
	r->syn_lost = false;
}

void rtt_late(struct rtt *r, uint32_t us)
{
	uint64_t sample = (uint64_t)us << FRACTION;

	r->smoothed = r->smoothed > sample ? r->smoothed : sample;
	r->variation = r->variation > sample / 2 ? r->variation : sample / 2;
}

void rtt_syn_lost(struct rtt *r)
{
	r->syn_lost = r->smoothed == 0;
	r->backed_off = 0;
}

uint32_t rtt_timeout_ms(const struct rtt *r)
{
	uint64_t ms = r->syn_lost ? RTT_TIMEOUT_SYN_MS : RTT_INITIAL_TIMEOUT_MS;
	if (r->smoothed) {
		const uint64_t min = (uint64_t)RTT_MIN_TIMEOUT_MS * 1000 << FRACTION;
		uint64_t beside = 4 * r->variation;
		uint64_t us = (r->smoothed + (beside > min ? beside : min)) >> FRACTION;
		ms = (us + 999) / 1000;
	}
	ms <<= r->backed_off;
	return ms < RTT_MAX_TIMEOUT_MS ? (uint32_t)ms : RTT_MAX_TIMEOUT_MS;
}

void rtt_back_off(struct rtt *r)
{
	if (rtt_timeout_ms(r) < RTT_MAX_TIMEOUT_MS)
		r->backed_off++;
}
