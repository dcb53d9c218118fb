// SPDX-License-Identifier: Apache-2.0
/* RTT and RTO of a connection: RFC 6298, with several samples per window (RFC 7323 appendix G), and
 * the minimum RTT of recent seconds (RFC 8985 6.2). Integers only. */
#ifndef TCP_RTT_H
#define TCP_RTT_H

#include <stdbool.h>
#include <stdint.h>

/* RFC 6298 2.4 has 1 s; like most stacks, 200 ms, which exceeds the usual delayed ACK. It bounds
 * the variance term, not the sum: SRTT does not include a delay of the next ACK. */
#define RTT_MIN_TIMEOUT_MS     200
#define RTT_MAX_TIMEOUT_MS     120000 /* 2.5: at least 60 s */
#define RTT_INITIAL_TIMEOUT_MS 1000   /* 2.1 */
#define RTT_TIMEOUT_SYN_MS     3000   /* 5.7 */
#define MAX_RTT_US             (RTT_MAX_TIMEOUT_MS * 1000)
#define RTT_MIN_WINDOW_MS      10000 /* window of the minimum RTT */

struct rtt {
	uint64_t smoothed, variation; /* microseconds * 2^20; smoothed 0: no sample yet */
	uint32_t min_us,
	        previous_min_us; /* minimum of this 5 s half, and of the previous one; 0: none */
	uint32_t half_ms;        /* when this half began */
	uint8_t backed_off;      /* doublings of the RTO */
	bool syn_lost;
};
_Static_assert(sizeof(struct rtt) == 32, "half a cache line");

void rtt_init(struct rtt *r);

/* Adds a sample; the caller observes Karn's algorithm. per_window: samples per round trip, each
 * weighted less: FlightSize / (2 * SMSS), rounded up; at least 1. Ends the back-off. */
void rtt_sample(struct rtt *r, uint32_t us, uint32_t per_window, uint64_t now_ms);

/* Adds a sample to the minimum only. */
void rtt_min_sample(struct rtt *r, uint32_t us, uint64_t now_ms);

/* An RTO was spurious: the RTT has grown to `us`. Raises the RTO at once, before the averages
 * follow (RFC 4015 3.3). */
void rtt_late(struct rtt *r, uint32_t us);

/* SYN or SYN-ACK was retransmitted without an RTT sample: RFC 6298 5.7. */
void rtt_syn_lost(struct rtt *r);

/* RTO, in milliseconds. */
uint32_t rtt_timeout_ms(const struct rtt *r);

/* The RTO expired: doubles it (5.5). */
void rtt_back_off(struct rtt *r);

/* New data was acknowledged without a sample: ends the back-off. */
static inline void rtt_restart(struct rtt *r)
{
	r->backed_off = 0;
}

/* Returns SRTT; 0: no sample yet. */
static inline uint32_t rtt_smoothed_us(const struct rtt *r)
{
	return (uint32_t)(r->smoothed >> 20);
}

static inline uint32_t rtt_variation_us(const struct rtt *r)
{
	return (uint32_t)(r->variation >> 20);
}

/* Returns the minimum RTT of the last 5 to 10 s that had samples; 0: none. */
static inline uint32_t rtt_min_us(const struct rtt *r)
{
	return r->previous_min_us && r->previous_min_us < r->min_us ? r->previous_min_us
	                                                            : r->min_us;
}

#endif
