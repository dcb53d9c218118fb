// SPDX-License-Identifier: Apache-2.0
/*
 * limit: how much may pass in a time. It knows nothing of packets, services or sessions: callers
 * bring a count of units (bytes, packets, sessions) and the time.
 *
 * A rate is a straight line: its volume at a time is all that may have passed since it began. A
 * bucket holds one number, its level: all that has passed, or was forfeited because the bucket was
 * full. What it has left is volume minus level. So nothing has to be added to a bucket as time
 * goes on, nothing is rounded twice, and one 64-bit word is the whole state. It is the virtual
 * scheduling algorithm of ITU-T I.371 (GCRA), in units instead of in time, which need no division.
 * docs/design/0032-limits.md compares the alternatives.
 *
 * Volumes and levels wrap around: their differences, which are less than 2^63, are what counts.
 */
#ifndef SY_LIMIT_H
#define SY_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_spinlock.h>

#include <sy_base.h>

/* Tests run other threads here, between the accesses to memory that threads share. */
#ifndef SY_LIMIT_STEP
#define SY_LIMIT_STEP() ((void)0)
#endif

/* ---- rates ----------------------------------------------------------------------------------- */

/* Owner: whoever configures limits; workers read it. Many buckets may share one. It is never
 * changed in place: sy_limit_rate_change() makes the next one. */
struct sy_limit_rate {
	uint64_t from_ns; /* CLOCK_MONOTONIC, when it began */
	uint64_t volume;  /* at from_ns */
	uint64_t slope;   /* units a nanosecond, times 2^shift; at least 2^62, so that its error is
	                     below 2^-62 */
	uint64_t burst;   /* units that a bucket can hold */
	uint8_t shift;
};

/* The largest amount, period and burst. */
#define SY_LIMIT_AMOUNT_MAX (UINT64_C(1) << 62)

/* Begins a rate of `amount` units in `period_ns` nanoseconds: 8 kbit/s in bytes are 8000 in 8e9.
 * All are between 1 and SY_LIMIT_AMOUNT_MAX, and at least one unit comes in 2^62 ns. Its buckets
 * begin full at level -burst: see sy_limit_init(). A burst below the largest cost of a packet
 * blocks this packet for ever. Returns -EINVAL outside of these bounds. */
int sy_limit_rate_init(struct sy_limit_rate *r, uint64_t amount, uint64_t period_ns, uint64_t burst,
                       uint64_t now_ns, struct sy_error *err);

/* Makes the rate that follows `old` from now on, for the same buckets. Their credit stays, up to
 * the new burst. Errors as for sy_limit_rate_init(). Threads that use the old one a little longer
 * err by what it brings in that time: sy_limit_settle() bounds it. */
int sy_limit_rate_change(struct sy_limit_rate *r, const struct sy_limit_rate *old, uint64_t amount,
                         uint64_t period_ns, uint64_t burst, uint64_t now_ns, struct sy_error *err);

/* All that may have passed until a time, modulo 2^64. A time before the rate's start counts as the
 * start: a thread's clock may be older than the change. Times are less than 2^63 ns apart. */
static inline uint64_t sy_limit_volume(const struct sy_limit_rate *r, uint64_t now_ns)
{
	int64_t since = (int64_t)(now_ns - r->from_ns);
	unsigned __int128 brought = (unsigned __int128)(since > 0 ? (uint64_t)since : 0) * r->slope;
	return r->volume + (uint64_t)(brought >> r->shift);
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* Who may use a bucket at the same time, and how. */
enum sy_limit_engine {
	SY_LIMIT_OWN,        /* one thread */
	SY_LIMIT_CAS,        /* any threads; exact, without a lock */
	SY_LIMIT_LOCK,       /* any threads, one after the other */
	SY_LIMIT_LIGHT_LOCK, /* any threads; each takes batches under a lock, and serves packets
	                        from them. Cheap, but not exact: batches lie with threads that do
	                        not need them, and packets of others are dropped */
	SY_LIMIT_ATOMIC,     /* the thread to which an event device has given the bucket's flow
	                        (sy_event.h): one at a time, and what one has written the next one
	                        sees. Used like SY_LIMIT_OWN */
	SY_LIMIT_ENGINES
};

/* A word, and what the engine needs. Threads write it; nothing else may share its 16 bytes. */
struct sy_limit {
	uint64_t level;
	rte_spinlock_t lock; /* SY_LIMIT_LOCK, SY_LIMIT_LIGHT_LOCK */
	uint32_t batch;      /* units; SY_LIMIT_LIGHT_LOCK */
};
_Static_assert(sizeof(struct sy_limit) == 16, "a million buckets take 16 MB");

/* A full bucket of a rate. */
void sy_limit_init(struct sy_limit *l, const struct sy_limit_rate *r, uint32_t batch,
                   uint64_t now_ns);

/* After a change of the rate, once no thread uses the old one: forgives what it let pass beyond the
 * new one meanwhile, so that a fast old rate cannot block a slow new one. SY_LIMIT_OWN: the owner
 * calls it; SY_LIMIT_ATOMIC: who has the flow; else any thread. */
void sy_limit_settle(struct sy_limit *l, enum sy_limit_engine engine, uint64_t volume);

/* What a bucket could pass now, in units, without what light locks have given to threads. Any
 * thread. */
uint64_t sy_limit_credit(const struct sy_limit *l, const struct sy_limit_rate *r, uint64_t volume);

/* The level after `cost` more units; false: they exceed the volume. A level below volume - burst
 * is a full bucket. */
static inline bool sy_limit_next(uint64_t *level, uint64_t volume, uint64_t burst, uint64_t cost)
{
	uint64_t full = volume - burst;
	*level = ((int64_t)(*level - full) > 0 ? *level : full) + cost;
	return (int64_t)(volume - *level) >= 0;
}

/* Whether a bucket could pass a packet now; takes nothing. Any thread, whatever the engine (what
 * light locks have given to threads does not count). For who hands packets over to the thread that
 * may take: one that the bucket would refuse need not go there. */
static inline bool sy_limit_peek(const struct sy_limit *l, const struct sy_limit_rate *r,
                                 uint64_t volume, uint64_t cost)
{
	uint64_t level = __atomic_load_n(&l->level, __ATOMIC_RELAXED);
	return sy_limit_next(&level, volume, r->burst, cost);
}

static inline bool sy_limit_charge_own(struct sy_limit *l, const struct sy_limit_rate *r,
                                       uint64_t volume, uint64_t cost)
{
	uint64_t level = __atomic_load_n(&l->level, __ATOMIC_RELAXED);
	if (!sy_limit_next(&level, volume, r->burst, cost))
		return false;
	SY_LIMIT_STEP();
	__atomic_store_n(&l->level, level, __ATOMIC_RELAXED);
	return true;
}

static inline bool sy_limit_charge_cas(struct sy_limit *l, const struct sy_limit_rate *r,
                                       uint64_t volume, uint64_t cost)
{
	SY_LIMIT_STEP();
	uint64_t old = __atomic_load_n(&l->level, __ATOMIC_RELAXED), level;
	do {
		level = old;
		if (!sy_limit_next(&level, volume, r->burst, cost))
			return false;
		SY_LIMIT_STEP();
	} while (!__atomic_compare_exchange_n(&l->level, &old, level, true, __ATOMIC_RELAXED,
	                                      __ATOMIC_RELAXED));
	return true;
}

static inline void sy_limit_lock(struct sy_limit *l)
{
	SY_LIMIT_STEP();
	while (!rte_spinlock_trylock(&l->lock)) {
		SY_LIMIT_STEP();
		rte_pause();
	}
}

static inline bool sy_limit_charge_lock(struct sy_limit *l, const struct sy_limit_rate *r,
                                        uint64_t volume, uint64_t cost)
{
	sy_limit_lock(l);
	bool charged = sy_limit_charge_own(l, r, volume, cost);
	SY_LIMIT_STEP();
	rte_spinlock_unlock(&l->lock);
	return charged;
}

/* local: what this thread holds of the bucket. */
static inline bool sy_limit_charge_light_lock(struct sy_limit *l, const struct sy_limit_rate *r,
                                              uint64_t *local, uint64_t volume, uint64_t cost)
{
	if (*local < cost) {
		uint64_t fetched = cost > l->batch ? cost : l->batch;
		if (!sy_limit_charge_lock(l, r, volume, fetched))
			return false;
		*local += fetched;
	}
	*local -= cost;
	return true;
}

/*
 * Takes `cost` units, if the bucket has as many: true, they may pass. False: nothing was charged.
 * volume is sy_limit_volume() of the rate, the same for a whole burst of packets. local is the
 * calling thread's own number for this bucket, 0 at first, which only SY_LIMIT_LIGHT_LOCK uses.
 */
static inline bool sy_limit_charge(struct sy_limit *l, enum sy_limit_engine engine,
                                   const struct sy_limit_rate *r, uint64_t *local, uint64_t volume,
                                   uint64_t cost)
{
	switch (engine) {
	case SY_LIMIT_OWN:
	case SY_LIMIT_ATOMIC:
		return sy_limit_charge_own(l, r, volume, cost);
	case SY_LIMIT_LOCK:
		return sy_limit_charge_lock(l, r, volume, cost);
	case SY_LIMIT_LIGHT_LOCK:
		return sy_limit_charge_light_lock(l, r, local, volume, cost);
	default:
		return sy_limit_charge_cas(l, r, volume, cost);
	}
}

/* By the one thread that may write now. */
static inline void sy_limit_lower(struct sy_limit *l, uint64_t cost)
{
	uint64_t level = __atomic_load_n(&l->level, __ATOMIC_RELAXED);
	__atomic_store_n(&l->level, level - cost, __ATOMIC_RELAXED);
}

/* Gives units back that were charged and did not pass: a packet that meets several limits takes
 * from all or from none. Until then other threads find that much less. */
static inline void sy_limit_refund(struct sy_limit *l, enum sy_limit_engine engine, uint64_t *local,
                                   uint64_t cost)
{
	switch (engine) {
	case SY_LIMIT_LOCK:
		sy_limit_lock(l);
		sy_limit_lower(l, cost);
		rte_spinlock_unlock(&l->lock);
		break;
	case SY_LIMIT_OWN:
	case SY_LIMIT_ATOMIC:
		sy_limit_lower(l, cost);
		break;
	case SY_LIMIT_LIGHT_LOCK:
		*local += cost;
		break;
	default:
		SY_LIMIT_STEP();
		__atomic_fetch_sub(&l->level, cost, __ATOMIC_RELAXED);
	}
}

#endif
