// SPDX-License-Identifier: Apache-2.0
#include "congestion.h"

#include <sy_base.h>

/* RFC 9406, 4.2 */
#define HYSTART_MIN_US  4000
#define HYSTART_MAX_US  16000
#define HYSTART_DIVISOR 8
#define HYSTART_SAMPLES 8
#define HYSTART_GROWTH  4 /* conservative slow start: 1/4 of slow start's growth */
#define HYSTART_ROUNDS  5
#define HYSTART_LIMIT   8 /* L, without pacing; 4.3 */

#define LIMIT      2      /* RFC 3465 2.3: L, increase per ACK in slow start, segments */
#define MAX_UNUSED 0x1fff /* of congestion.unused_ms */

void congestion_init(struct congestion *c, const struct congestion_ops *ops, uint16_t mss,
                     uint32_t nxt, uint64_t now_ms)
{
	*c = (struct congestion){.ops = ops,
	                         .window = congestion_initial(mss),
	                         .ssthresh = CONGESTION_NEVER,
	                         .round = nxt,
	                         .seen_ms = (uint32_t)now_ms,
	                         .mss = mss};
	ops->init(c);
}

void congestion_mss(struct congestion *c, uint16_t mss)
{
	/* The initial window depends on the MSS; a later one is kept in bytes. */
	if (c->window == congestion_initial(c->mss))
		c->window = congestion_initial(mss);
	c->mss = mss;
	c->window = c->window < mss ? mss : c->window;
}

/* ---- rounds and window validation ------------------------------------------------------------ */

/* A round trip ends when its initial SND.NXT is acknowledged. */
static bool round_ends(struct congestion *c, const struct congestion_ack *in)
{
	if (sy_seq_before(in->una, c->round))
		return false;
	c->round = in->nxt;
	c->flight_before = c->flight;
	c->flight = in->nxt - in->una;
	return true;
}

/* Returns true if the window limits the sender. In slow start half of it suffices: it grows as fast
 * as it is filled. */
static bool in_use(const struct congestion *c)
{
	uint32_t max = c->flight > c->flight_before ? c->flight : c->flight_before;
	if (congestion_slow_start(c))
		return c->window < 2 * (uint64_t)max;
	return c->window < max + (uint64_t)c->mss;
}

/* RFC 2861 3: remember the path's capacity as end of slow start. */
static void ssthresh_keep(struct congestion *c)
{
	uint32_t kept = c->window - c->window / 4;
	if (c->ssthresh != CONGESTION_NEVER && c->ssthresh < kept)
		c->ssthresh = kept;
}

void congestion_idle(struct congestion *c, uint32_t idle_ms, uint32_t timeout_ms)
{
	uint32_t initial = congestion_initial(c->mss), window = c->window;
	if (idle_ms <= timeout_ms || timeout_ms == 0)
		return;
	ssthresh_keep(c);
	for (; idle_ms > timeout_ms && c->window > initial; idle_ms -= timeout_ms)
		c->window /= 2;
	if (c->window < initial) /* never above the present window */
		c->window = window < initial ? window : initial;
	c->avoiding = false;
	c->flight = c->flight_before = 0;
	c->was_idle = true;
	c->unused_ms = 0;
}

/* The window was not fully used for `ms`. Like Linux, halves the excess over the used part (or
 * initial window) per RTO (RFC 2861 3). RFC 7661 4.3 keeps it for five minutes, though there is no
 * evidence that the path still has the capacity. */
static void window_validate(struct congestion *c, uint32_t ms, uint32_t timeout_ms)
{
	uint32_t max = c->flight > c->flight_before ? c->flight : c->flight_before;
	uint32_t initial = congestion_initial(c->mss), used = max > initial ? max : initial;
	uint32_t unused = c->unused_ms + (ms < MAX_UNUSED ? ms : MAX_UNUSED);

	timeout_ms = timeout_ms < MAX_UNUSED ? timeout_ms : MAX_UNUSED;
	if (unused < timeout_ms) {
		c->unused_ms = (uint16_t)unused;
		return;
	}
	c->unused_ms = 0;
	if (used >= c->window)
		return;
	ssthresh_keep(c);
	c->window -= (c->window - used) / 2;
	c->avoiding = false;
}

/* ---- slow start ------------------------------------------------------------------------------ */

/* RFC 9406 4.2: enters conservative slow start when the RTT increases, congestion avoidance after
 * some rounds of it; returns to slow start if the increase was transient. */
static void hystart_judge(struct congestion *c)
{
	struct congestion_hystart *h = &c->hystart;
	if (h->samples < HYSTART_SAMPLES || h->min_us == 0)
		return;
	if (h->baseline_us) {
		if (h->min_us < h->baseline_us)
			h->baseline_us = 0;
		return;
	}
	if (h->previous_min_us == 0)
		return;
	uint32_t longer = h->previous_min_us / HYSTART_DIVISOR;
	longer = longer < HYSTART_MIN_US ? HYSTART_MIN_US : longer;
	longer = longer > HYSTART_MAX_US ? HYSTART_MAX_US : longer;
	if (h->min_us >= h->previous_min_us + longer) {
		h->baseline_us = h->min_us;
		h->rounds = 0;
	}
}

static void hystart_round(struct congestion *c)
{
	struct congestion_hystart *h = &c->hystart;
	if (h->baseline_us && ++h->rounds >= HYSTART_ROUNDS) {
		c->ssthresh = c->window;
		*h = (struct congestion_hystart){0};
		c->ops->init(c);
		return;
	}
	h->previous_min_us = h->min_us ? h->min_us : h->previous_min_us;
	h->min_us = 0;
	h->samples = 0;
}

static void hystart_sample(struct congestion *c, uint32_t us)
{
	struct congestion_hystart *h = &c->hystart;
	if (us == 0)
		return;
	h->min_us = h->min_us && h->min_us < us ? h->min_us : us;
	h->samples += h->samples < UINT8_MAX;
	hystart_judge(c);
}

/* The union contains HyStart++'s state. */
static bool hystart_on(const struct congestion *c)
{
	return c->ops->hystart && c->ssthresh == CONGESTION_NEVER;
}

/* Returns the bytes left for congestion avoidance. */
static uint32_t slow_start(struct congestion *c, uint32_t bytes, bool paced)
{
	uint32_t max = (c->timed_out ? 1 : hystart_on(c) ? HYSTART_LIMIT : LIMIT) * c->mss;
	if (paced && hystart_on(c)) /* RFC 9406 4.3: no limit with pacing */
		max = UINT32_MAX;
	uint32_t more = bytes < max ? bytes : max, space = c->ssthresh - c->window;
	if (hystart_on(c) && c->hystart.baseline_us)
		more /= HYSTART_GROWTH;
	if (more < space) {
		c->window += more;
		return 0;
	}
	c->window = c->ssthresh;
	return more - space;
}

/* ---- ACKs ------------------------------------------------------------------------------------ */

void congestion_acked(struct congestion *c, const struct congestion_ack *in, const struct rtt *r)
{
	uint32_t bytes = in->bytes, since = (uint32_t)in->now_ms - c->seen_ms;
	bool used = in_use(c);

	c->seen_ms = (uint32_t)in->now_ms;
	if (hystart_on(c))
		hystart_sample(c, in->rtt_us);
	if (round_ends(c, in) && hystart_on(c))
		hystart_round(c);
	if (!used) {
		c->ops->unused(c, since);
		window_validate(c, c->was_idle ? 0 : since, rtt_timeout_ms(r));
		c->was_idle = false;
		return;
	}
	c->was_idle = false;
	c->unused_ms = 0;
	if (congestion_slow_start(c))
		bytes = slow_start(c, bytes, in->paced);
	if (bytes > 0 && !congestion_slow_start(c)) {
		c->ops->acked(c, bytes, r, (uint32_t)in->now_ms);
		c->timed_out = false;
	}
	if (c->window > CONGESTION_MAX)
		c->window = CONGESTION_MAX;
}

/* ---- congestion ------------------------------------------------------------------------------ */

static void state_keep(struct congestion *c)
{
	c->undo_window = c->window;
	c->undo_ssthresh = c->ssthresh;
	if (hystart_on(c)) { /* HyStart++ ends with slow start */
		c->cubic = (struct congestion_cubic){0};
		c->ops->init(c);
	}
	c->undo_cubic = c->cubic;
}

void congestion_reduce(struct congestion *c, uint32_t flight, uint64_t now_ms)
{
	state_keep(c);
	/* After an early end of recovery, `flight` still contains SACKed data. */
	flight = flight < c->window ? flight : c->window;
	c->ssthresh = c->ops->reduced(c, flight);
	c->window = c->ssthresh;
	c->avoiding = false;
	c->counted = 0;
	c->unused_ms = 0;
	c->seen_ms = (uint32_t)now_ms;
}

void congestion_recovered(struct congestion *c, uint64_t now_ms)
{
	c->seen_ms = (uint32_t)now_ms; /* ACKs arrived meanwhile, for prr.h */
	if (c->undo_window)            /* otherwise the reduction was undone */
		c->window = c->ssthresh;
	c->flight = c->flight_before = c->window; /* the window was in use during recovery */
}

void congestion_timed_out(struct congestion *c, uint32_t flight, bool repeated, uint64_t now_ms)
{
	if (!repeated)
		congestion_reduce(c, flight, now_ms);
	c->window = c->mss;
	c->timed_out = true;
	c->avoiding = false;
	c->counted = 0;
}

void congestion_undo(struct congestion *c)
{
	if (c->undo_window == 0)
		return;
	c->window = c->undo_window > c->window ? c->undo_window : c->window;
	c->ssthresh = c->undo_ssthresh;
	c->undo_window = 0;
	c->timed_out = false;
	c->cubic = c->undo_cubic;
	c->ops->undo(c);
	if (hystart_on(c)) /* reinitialize the union */
		c->hystart = (struct congestion_hystart){0};
	c->flight = c->flight_before = c->window;
}
