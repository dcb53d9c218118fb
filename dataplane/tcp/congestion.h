// SPDX-License-Identifier: Apache-2.0
/*
 * Congestion window: RFC 5681, with NewReno (RFC 6582) and CUBIC (RFC 9438) behind one interface.
 * Integers, in bytes.
 *
 * Common to all: initial window (RFC 6928), slow start by bytes acknowledged (RFC 3465), HyStart++
 * if the algorithm uses it (RFC 9406), no growth of an unused window (RFC 9438 5.8; RFC 7661), its
 * decay while idle (RFC 5681 4.1) or partly used (RFC 2861), and undo. An algorithm defines the
 * growth in congestion avoidance and the reduction after a loss.
 *
 *     segments sent     congestion_sent()
 *     ACK               congestion_acked(), but not in fast recovery: see prr.h
 *     loss or ECE       congestion_reduce(); congestion_recovered() at the end of recovery
 *     RTO               congestion_timed_out()
 *     spurious          congestion_undo()
 */
#ifndef TCP_CONGESTION_H
#define TCP_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#include "rtt.h"

#define CONGESTION_NEVER UINT32_MAX          /* ssthresh before the first loss */
#define CONGESTION_MAX   (UINT32_C(1) << 30) /* the largest window: RFC 7323, 2.3 */

struct congestion;

/* An algorithm. Called by the functions below, not by users. */
struct congestion_ops {
	const char *name;
	bool hystart; /* uses RFC 9406 */
	void (*init)(struct congestion *c);
	/* Bytes were acknowledged in congestion avoidance, while the window was fully used. */
	void (*acked)(struct congestion *c, uint32_t bytes, const struct rtt *r, uint32_t now_ms);
	/* Returns the new ssthresh after congestion. */
	uint32_t (*reduced)(struct congestion *c, uint32_t flight);
	void (*undo)(struct congestion *c);
	/* The window was not fully used for this time. */
	void (*unused)(struct congestion *c, uint32_t ms);
};

extern const struct congestion_ops congestion_newreno, congestion_cubic;

/* State of CUBIC: RFC 9438 4.1. */
struct congestion_cubic {
	uint64_t estimate;      /* W_est, in bytes * 2^16 */
	uint32_t w_max;         /* W_max */
	uint32_t inflection_ms; /* K */
	uint32_t epoch_ms;      /* start of congestion avoidance, shifted by unused time */
	uint32_t prior;         /* cwnd_prior: the window before the reduction */
};

/* State of HyStart++ (RFC 9406 4.2), before the first loss only, when CUBIC's is unused. */
struct congestion_hystart {
	uint32_t min_us, previous_min_us; /* of this round and the previous one; 0: none */
	uint32_t baseline_us;             /* of conservative slow start; 0: not in it */
	uint8_t samples, rounds;
};

struct congestion {
	const struct congestion_ops *ops;
	uint32_t window, ssthresh;
	uint32_t counted; /* bytes towards the next increase in congestion avoidance */
	uint32_t flight, flight_before; /* max. in flight in this round trip and the previous one */
	uint32_t round;                 /* SND.NXT when this round trip began */
	uint32_t seen_ms;               /* time of the last ACK */
	uint32_t undo_window, undo_ssthresh; /* before the reduction; 0: nothing to undo */
	uint16_t mss;
	uint16_t avoiding : 1;  /* in congestion avoidance */
	uint16_t timed_out : 1; /* after an RTO, until congestion avoidance: RFC 3465 2.3; RFC
	                           9438 4.8 */
	uint16_t was_idle : 1; /* congestion_idle() has accounted for the time until the next ACK */
	uint16_t unused_ms : 13; /* time since the window was fully used */
	union {
		struct congestion_hystart hystart;
		struct congestion_cubic cubic;
	};
	struct congestion_cubic undo_cubic;
};
_Static_assert(sizeof(struct congestion) == 96, "less than a fifth of a connection");

struct congestion_ack {
	uint32_t bytes;    /* cumulatively acknowledged */
	uint32_t una, nxt; /* after the ACK */
	uint32_t rtt_us;   /* RTT sample; 0: none */
	uint64_t now_ms;
	bool paced; /* pacing is on */
};

/* mss excludes options, here and below. nxt: SND.NXT. */
void congestion_init(struct congestion *c, const struct congestion_ops *ops, uint16_t mss,
                     uint32_t nxt, uint64_t now_ms);

/* The MSS changed, by path MTU or handshake (RFC 5681 3.1). */
void congestion_mss(struct congestion *c, uint16_t mss);

/* Segments were sent; flight: SND.NXT - SND.UNA. */
static inline void congestion_sent(struct congestion *c, uint32_t flight)
{
	c->flight = flight > c->flight ? flight : c->flight;
}

/* Before sending after an idle time: halves the window per RTO, down to the initial window (RFC
 * 5681 4.1; RFC 2861 3). */
void congestion_idle(struct congestion *c, uint32_t idle_ms, uint32_t timeout_ms);

void congestion_acked(struct congestion *c, const struct congestion_ack *in, const struct rtt *r);

/* Congestion by loss or ECE (RFC 3168 6.1.2): call at most once per round trip. The window becomes
 * ssthresh; in recovery prr.h governs. flight: SND.NXT - SND.UNA. */
void congestion_reduce(struct congestion *c, uint32_t flight, uint64_t now_ms);

/* Fast recovery ended: RFC 6582 3.2 step 3; RFC 6675 5. Its duration is not idle time. */
void congestion_recovered(struct congestion *c, uint64_t now_ms);

/* The RTO expired: RFC 5681 3.1. repeated: again for the same segment, which keeps ssthresh. */
void congestion_timed_out(struct congestion *c, uint32_t flight, bool repeated, uint64_t now_ms);

/* Undoes the last reduction: RFC 5682 4; RFC 9438 4.9. */
void congestion_undo(struct congestion *c);

static inline bool congestion_slow_start(const struct congestion *c)
{
	return c->window < c->ssthresh;
}

/* RFC 6928, 2 */
static inline uint32_t congestion_initial(uint16_t mss)
{
	uint32_t min = 2 * (uint32_t)mss > 14600 ? 2 * (uint32_t)mss : 14600;
	return 10 * (uint32_t)mss < min ? 10 * (uint32_t)mss : min;
}

/* cubic.c, exposed for its test: the integer cube root. */
uint32_t cubic_root(uint64_t x);

#endif
