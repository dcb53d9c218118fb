// SPDX-License-Identifier: Apache-2.0
/* CUBIC (RFC 9438) in bytes and milliseconds, without floating point: C = 2/5 segments/s^3, beta =
 * 7/10. */
#include "congestion.h"

#define SECOND_CUBED UINT64_C(1000000000) /* ms^3 */
#define FRACTION     16                   /* fraction bits of the estimate */
#define LONG_MS      (UINT32_C(1) << 20)  /* distance from K beyond which the window is unbounded */

static void cubic_init(struct congestion *c)
{
	c->cubic = (struct congestion_cubic){0};
	c->avoiding = false;
}

/* Digit-by-digit cube root, 3 bits per step. */
uint32_t cubic_root(uint64_t x)
{
	uint64_t root = 0;
	for (int shift = 63; shift >= 0; shift -= 3) {
		root <<= 1;
		uint64_t more = 3 * root * (root + 1) + 1; /* (root + 1)^3 - root^3 */
		if (x >> shift < more)
			continue;
		x -= more << shift;
		root++;
	}
	return (uint32_t)root;
}

/* 4.2, equation 1: W_max + C * (t - K)^3 */
static uint32_t cubic_window(const struct congestion *c, uint32_t t_ms)
{
	uint32_t k = c->cubic.inflection_ms, max = c->cubic.w_max;
	uint64_t apart = t_ms > k ? t_ms - k : k - t_ms;
	if (apart > LONG_MS)
		return t_ms > k ? CONGESTION_MAX : c->mss;
	unsigned __int128 offset = (unsigned __int128)(apart * apart * apart) * 2 * c->mss;
	uint64_t bytes = (uint64_t)(offset / (5 * SECOND_CUBED));
	if (t_ms > k)
		return bytes < CONGESTION_MAX - max ? max + (uint32_t)bytes : CONGESTION_MAX;
	return bytes < max ? max - (uint32_t)bytes : 0;
}

/* Starts an epoch: K by 4.2, equation 2. After an RTO (4.8), or slow start without loss (4.10), the
 * curve starts at its inflection. */
static void epoch_begin(struct congestion *c, uint32_t now_ms)
{
	struct congestion_cubic *u = &c->cubic;
	c->avoiding = true;
	c->counted = 0;
	u->epoch_ms = now_ms;
	u->estimate = (uint64_t)c->window << FRACTION;
	if (c->timed_out || u->w_max < c->window)
		u->w_max = c->window;
	u->inflection_ms = cubic_root((u->w_max - c->window) * (5 * SECOND_CUBED) / (2u * c->mss));
}

/* 4.3, equation 4: Reno's window. It grows by alpha = 3 (1 - beta) / (1 + beta) = 9/17 segments per
 * window, so that the average rate equals Reno's, and by 1 once it reaches cwnd_prior. */
static uint32_t reno_window(struct congestion *c, uint32_t bytes)
{
	struct congestion_cubic *u = &c->cubic;
	unsigned __int128 more = ((unsigned __int128)bytes * c->mss << FRACTION) / c->window;
	if (u->estimate >> FRACTION < u->prior)
		more = more * 9 / 17;
	u->estimate += (uint64_t)more;
	if (u->estimate >> FRACTION > CONGESTION_MAX)
		u->estimate = (uint64_t)CONGESTION_MAX << FRACTION;
	return (uint32_t)(u->estimate >> FRACTION);
}

static void cubic_acked(struct congestion *c, uint32_t bytes, const struct rtt *r, uint32_t now_ms)
{
	if (!c->avoiding)
		epoch_begin(c, now_ms);
	uint32_t t = now_ms - c->cubic.epoch_ms;
	uint32_t reno = reno_window(c, bytes);
	if (cubic_window(c, t) < reno) { /* 4.3: Reno-friendly region */
		c->window = reno > c->window ? reno : c->window;
		return;
	}
	/* 4.4 and 4.5: the target is the curve one round trip later, at most 1.5 windows */
	uint32_t target = cubic_window(c, t + rtt_smoothed_us(r) / 1000);
	if (target <= c->window)
		return;
	uint32_t max = c->window + c->window / 2;
	target = target < max ? target : max;
	uint64_t step = (uint64_t)(target - c->window) * bytes + c->counted;
	c->counted = (uint32_t)(step % c->window);
	c->window += (uint32_t)(step / c->window);
}

static uint32_t cubic_reduced(struct congestion *c, uint32_t flight)
{
	struct congestion_cubic *u = &c->cubic;
	uint32_t left = (uint32_t)(flight * UINT64_C(7) / 10), min = 2 * (uint32_t)c->mss;
	/* Fast convergence (4.7): if W_max shrank since the last loss, release bandwidth to new
	 * flows. */
	u->w_max = c->window < u->w_max ? (uint32_t)(c->window * UINT64_C(17) / 20) : c->window;
	u->prior = c->window;
	u->estimate = 0;
	return left > min ? left : min; /* 4.6 */
}

/* 4.9.1: resume the curve. */
static void cubic_undo(struct congestion *c)
{
	c->avoiding = c->cubic.estimate != 0;
	c->counted = 0;
}

/* 5.8: stop the curve's clock while the window is not used. */
static void cubic_unused(struct congestion *c, uint32_t ms)
{
	if (c->avoiding)
		c->cubic.epoch_ms += ms;
}

const struct congestion_ops congestion_cubic = {
        .name = "cubic",
        .hystart = true,
        .init = cubic_init,
        .acked = cubic_acked,
        .reduced = cubic_reduced,
        .undo = cubic_undo,
        .unused = cubic_unused,
};
