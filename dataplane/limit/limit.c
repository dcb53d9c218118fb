// SPDX-License-Identifier: Apache-2.0
#include "sy_limit.h"

#include <errno.h>
#include <inttypes.h>

#define SLOPE_BITS 62 /* a slope is at least 2^62 and below 2^63 */

static int bound_check(const char *what, uint64_t value, struct sy_error *err)
{
	if (value >= 1 && value <= SY_LIMIT_AMOUNT_MAX)
		return 0;
	return sy_fail(err, EINVAL, "a limit's %s of %" PRIu64 " is not between 1 and %" PRIu64,
	               what, value, SY_LIMIT_AMOUNT_MAX);
}

/* amount / period times 2^shift, for the largest shift that a slope allows. Long division, bit by
 * bit: the remainder stays below the period. Rounded up, so that a volume that should be whole is
 * not one unit short. */
static void slope_set(struct sy_limit_rate *r, uint64_t amount, uint64_t period_ns)
{
	uint64_t slope = amount / period_ns, rest = amount % period_ns;
	uint8_t shift = 0;

	while (slope >> SLOPE_BITS == 0) {
		rest <<= 1;
		slope = slope << 1 | (rest >= period_ns);
		rest -= rest >= period_ns ? period_ns : 0;
		shift++;
	}
	r->slope = slope + (rest > 0);
	r->shift = shift;
}

int sy_limit_rate_init(struct sy_limit_rate *r, uint64_t amount, uint64_t period_ns, uint64_t burst,
                       uint64_t now_ns, struct sy_error *err)
{
	if (bound_check("amount", amount, err) || bound_check("period", period_ns, err) ||
	    bound_check("burst", burst, err))
		return -EINVAL;
	/* The product with a time of 2^63 ns must fit into 128 bits after the shift. */
	if (period_ns / amount > UINT64_C(1) << 60)
		return sy_fail(err, EINVAL, "a limit of %" PRIu64 " in %" PRIu64 " ns is too low",
		               amount, period_ns);
	*r = (struct sy_limit_rate){.from_ns = now_ns, .burst = burst};
	slope_set(r, amount, period_ns);
	return 0;
}

int sy_limit_rate_change(struct sy_limit_rate *r, const struct sy_limit_rate *old, uint64_t amount,
                         uint64_t period_ns, uint64_t burst, uint64_t now_ns, struct sy_error *err)
{
	uint64_t volume = sy_limit_volume(old, now_ns);
	if (sy_limit_rate_init(r, amount, period_ns, burst, now_ns, err) < 0)
		return -EINVAL;
	r->volume = volume;
	return 0;
}

void sy_limit_init(struct sy_limit *l, const struct sy_limit_rate *r, uint32_t batch,
                   uint64_t now_ns)
{
	*l = (struct sy_limit){.level = sy_limit_volume(r, now_ns) - r->burst, .batch = batch};
	rte_spinlock_init(&l->lock);
}

/* Lowers the level to the volume. Returns true if it is there. */
static bool settle_once(struct sy_limit *l, uint64_t volume)
{
	uint64_t level = __atomic_load_n(&l->level, __ATOMIC_RELAXED);
	return (int64_t)(level - volume) <= 0 ||
	       __atomic_compare_exchange_n(&l->level, &level, volume, false, __ATOMIC_RELAXED,
	                                   __ATOMIC_RELAXED);
}

void sy_limit_settle(struct sy_limit *l, enum sy_limit_engine engine, uint64_t volume)
{
	bool locked = engine == SY_LIMIT_LOCK || engine == SY_LIMIT_LIGHT_LOCK;
	if (locked)
		sy_limit_lock(l);
	while (!settle_once(l, volume))
		continue;
	if (locked)
		rte_spinlock_unlock(&l->lock);
}

uint64_t sy_limit_credit(const struct sy_limit *l, const struct sy_limit_rate *r, uint64_t volume)
{
	int64_t credit = (int64_t)(volume - __atomic_load_n(&l->level, __ATOMIC_RELAXED));
	if (credit < 0)
		return 0;
	return (uint64_t)credit < r->burst ? (uint64_t)credit : r->burst;
}
