// SPDX-License-Identifier: Apache-2.0
/*
 * How much a connection may have on its way: RFC 5681, with NewReno (RFC 6582) and CUBIC (RFC 9438)
 * behind one interface. Windows are bytes, and integers.
 *
 * Common to all: the initial window (RFC 6928), slow start by acknowledged bytes (RFC 3465) with
 * HyStart++ where the algorithm wants it (RFC 9406), no growth of a window that is not used
 * (RFC 9438, 5.8; RFC 7661), its decay while the connection is idle (RFC 5681, 4.1) or uses a part
 * of it (RFC 2861), and undoing.
 * An algorithm says how the window grows in congestion avoidance, and what is left of it after a
 * loss.
 *
 *     segments leave    congestion_sent()
 *     ACK               congestion_acked(), but not in fast recovery, where prr.h counts
 *     loss or ECE       congestion_reduce(), then congestion_recovered() when the recovery ends
 *     time-out          congestion_timed_out()
 *     it was none       congestion_undo()
 */
#ifndef TCP_CONGESTION_H
#define TCP_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#include "rtt.h"

#define CONGESTION_NEVER UINT32_MAX          /* ssthresh before the first loss */
#define CONGESTION_MOST  (UINT32_C(1) << 30) /* the largest window: RFC 7323, 2.3 */

struct congestion;

/* An algorithm. Called by the functions below, not by users. */
struct congestion_ops {
	const char *name;
	bool hystart; /* leaves slow start as RFC 9406 says */
	void (*init)(struct congestion *c);
	/* Bytes acknowledged in congestion avoidance, with the window in use. */
	void (*acked)(struct congestion *c, uint32_t bytes, const struct rtt *r, uint32_t now_ms);
	/* Congestion: the new ssthresh, from what is on its way. */
	uint32_t (*reduced)(struct congestion *c, uint32_t flight);
	void (*undo)(struct congestion *c);
	/* The window was not in use for so long. */
	void (*unused)(struct congestion *c, uint32_t ms);
};

extern const struct congestion_ops congestion_newreno, congestion_cubic;

/* CUBIC's own part: RFC 9438, 4.1. */
struct congestion_cubic {
	uint64_t estimate;      /* W_est, in bytes * 2^16 */
	uint32_t most;          /* W_max */
	uint32_t inflection_ms; /* K */
	uint32_t epoch_ms;      /* when congestion avoidance began, moved by the time without use */
	uint32_t prior;         /* cwnd_prior: the window before the reduction */
};

/* HyStart++'s: RFC 9406, 4.2. Only before the first loss, when CUBIC's is empty. */
struct congestion_hystart {
	uint32_t least_us, before_us; /* of this round, and the one before; 0: none */
	uint32_t baseline_us;         /* of conservative slow start; 0: not in it */
	uint8_t samples, rounds;
};

struct congestion {
	const struct congestion_ops *ops;
	uint32_t window, ssthresh;
	uint32_t counted; /* bytes towards the next step in congestion avoidance */
	uint32_t flight,
	        flight_before; /* the most under way in this round trip, and the last one */
	uint32_t round;        /* SND.NXT when this round trip began */
	uint32_t seen_ms;      /* the last ACK */
	uint32_t undo_window, undo_ssthresh; /* before the reduction; 0: nothing to undo */
	uint16_t mss;
	uint16_t avoiding : 1;   /* in congestion avoidance, since a first ACK in it */
	uint16_t timed_out : 1;  /* until congestion avoidance: RFC 3465, 2.3; RFC 9438, 4.8 */
	uint16_t was_idle : 1;   /* congestion_idle() has judged the time until the next ACK */
	uint16_t unused_ms : 13; /* for which the window has not been in use */
	union {
		struct congestion_hystart hystart;
		struct congestion_cubic cubic;
	};
	struct congestion_cubic undo_cubic;
};
_Static_assert(sizeof(struct congestion) == 96, "less than a fifth of a connection");

struct congestion_ack {
	uint32_t bytes;    /* that SND.UNA advanced by */
	uint32_t una, nxt; /* after it */
	uint32_t rtt_us;   /* its sample; 0: none */
	uint64_t now_ms;
	bool paced; /* segments leave evenly */
};

/* mss: without options, as in all that follows. nxt: SND.NXT. */
void congestion_init(struct congestion *c, const struct congestion_ops *ops, uint16_t mss,
                     uint32_t nxt, uint64_t now_ms);

/* Another segment size: the path's MTU changed, or the handshake told it (RFC 5681, 3.1). */
void congestion_mss(struct congestion *c, uint16_t mss);

/* Segments were sent; flight: SND.NXT - SND.UNA. */
static inline void congestion_sent(struct congestion *c, uint32_t flight)
{
	c->flight = flight > c->flight ? flight : c->flight;
}

/* Nothing was under way for `idle_ms`, and now there is something to send: the window is halved for
 * each retransmission time-out, down to the initial one (RFC 5681, 4.1; RFC 2861, 3). */
void congestion_idle(struct congestion *c, uint32_t idle_ms, uint32_t timeout_ms);

void congestion_acked(struct congestion *c, const struct congestion_ack *in, const struct rtt *r);

/* Congestion, by loss or by ECE (RFC 3168, 6.1.2): once in a round trip, as recovery does. The
 * window becomes ssthresh at once; in recovery prr.h says what it is. flight: SND.NXT - SND.UNA. */
void congestion_reduce(struct congestion *c, uint32_t flight, uint64_t now_ms);

/* Fast recovery ends: RFC 6582, 3.2, step 3; RFC 6675, 5. However long it was, the connection was
 * not idle. */
void congestion_recovered(struct congestion *c, uint64_t now_ms);

/* The retransmission time-out passed: RFC 5681, 3.1. repeated: for the same segment again, which
 * leaves ssthresh as it is. */
void congestion_timed_out(struct congestion *c, uint32_t flight, bool repeated, uint64_t now_ms);

/* The last reduction was in vain: RFC 5682, 4; RFC 9438, 4.9. */
void congestion_undo(struct congestion *c);

static inline bool congestion_slow_start(const struct congestion *c)
{
	return c->window < c->ssthresh;
}

/* RFC 6928, 2 */
static inline uint32_t congestion_initial(uint16_t mss)
{
	uint32_t least = 2 * (uint32_t)mss > 14600 ? 2 * (uint32_t)mss : 14600;
	return 10 * (uint32_t)mss < least ? 10 * (uint32_t)mss : least;
}

/* cubic.c, for its test: the largest number whose cube is at most x. */
uint32_t cubic_root(uint64_t x);

#endif
