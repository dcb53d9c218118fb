// SPDX-License-Identifier: Apache-2.0
/* Round-trip time and retransmission time-out of a connection: RFC 6298, with several samples in a
 * window (RFC 7323, appendix G), and the least round-trip time of the last seconds (RFC 8985, 6.2).
 * Integers only. */
#ifndef TCP_RTT_H
#define TCP_RTT_H

#include <stdbool.h>
#include <stdint.h>

/* RFC 6298, 2.4, says 1 s. As in most stacks it is 200 ms, which exceeds what receivers delay ACKs
 * by; so it bounds the term beside SRTT, not the sum: SRTT says nothing of a delay that the next
 * ACK may have. */
#define RTT_TIMEOUT_LEAST_MS 200
#define RTT_TIMEOUT_MOST_MS  120000 /* 2.5: at least 60 s */
#define RTT_TIMEOUT_FIRST_MS 1000   /* 2.1 */
#define RTT_TIMEOUT_SYN_MS   3000   /* 5.7 */
#define RTT_MOST_US          (RTT_TIMEOUT_MOST_MS * 1000)
#define RTT_LEAST_KEPT_MS    10000 /* how long the least one counts */

struct rtt {
	uint64_t smoothed, variation; /* microseconds * 2^20; smoothed 0: no sample yet */
	uint32_t least_us, before_us; /* of this half of the 10 s, and of the one before; 0: none */
	uint32_t half_ms;             /* when this half began */
	uint8_t backed_off;           /* how often */
	bool syn_lost;
};
_Static_assert(sizeof(struct rtt) == 32, "half a cache line");

void rtt_init(struct rtt *r);

/* A sample, at a time. Who takes it heeds Karn's rule. per_window: how many come in a round trip,
 * of which each one counts as much less: FlightSize / (2 * SMSS), rounded up; at least 1. The
 * back-off ends. */
void rtt_sample(struct rtt *r, uint32_t us, uint32_t per_window, uint64_t now_ms);

/* A sample for the least one only. */
void rtt_least_sample(struct rtt *r, uint32_t us, uint64_t now_ms);

/* The time-out came too early, for a round trip takes as long as this now: the next one would be
 * too early as well, before the averages have followed (RFC 4015, 3.3). */
void rtt_late(struct rtt *r, uint32_t us);

/* The handshake had to send its SYN or SYN-ACK again, and brought no sample: 5.7. */
void rtt_syn_lost(struct rtt *r);

/* RTO, in milliseconds. */
uint32_t rtt_timeout_ms(const struct rtt *r);

/* The time-out passed: the next one is twice as long (5.5). */
void rtt_back_off(struct rtt *r);

/* An ACK of something new, though no sample: the back-off ends. */
static inline void rtt_restart(struct rtt *r)
{
	r->backed_off = 0;
}

/* SRTT; 0: no sample yet. */
static inline uint32_t rtt_smoothed_us(const struct rtt *r)
{
	return (uint32_t)(r->smoothed >> 20);
}

static inline uint32_t rtt_variation_us(const struct rtt *r)
{
	return (uint32_t)(r->variation >> 20);
}

/* The least one of the last 5 to 10 s in which there were samples; 0: none yet. */
static inline uint32_t rtt_least_us(const struct rtt *r)
{
	return r->before_us && r->before_us < r->least_us ? r->before_us : r->least_us;
}

#endif
