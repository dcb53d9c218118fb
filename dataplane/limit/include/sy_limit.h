// SPDX-License-Identifier: Apache-2.0
/*
 * limit: rate limits. Independent of packets, services and sessions: callers supply a number of
 * units (bytes, packets, sessions) and the time.
 *
 * A rate is a straight line: its volume at a time is all that may have passed since it began. A
 * bucket stores one number, its level: all that has passed, or was forfeited because the bucket was
 * full. Its credit is volume minus level. So a bucket needs no refill, nothing is rounded twice,
 * and one 64-bit word is the whole state. It is the virtual scheduling algorithm of ITU-T I.371
 * (GCRA), in units instead of time, which needs no division. docs/design/0032-limits.md compares
 * the alternatives.
 *
 * Volumes and levels wrap around: only their differences count, which are less than 2^63.
 */
#ifndef SY_LIMIT_H
#define SY_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_spinlock.h>

#include <sy_base.h>

/* Tests run other threads here, between accesses to shared memory. */
#ifndef SY_LIMIT_STEP
#define SY_LIMIT_STEP() ((void)0)
#endif

/* ---- rates ----------------------------------------------------------------------------------- */

/* A rate. Owner: the configuring thread; workers read it. Many buckets may share one. Immutable:
 * sy_limit_rate_change() creates the next one. */
struct sy_limit_rate {
	uint64_t from_ns; /* CLOCK_MONOTONIC at its beginning */
	uint64_t volume;  /* at from_ns */
	uint64_t slope; /* units per nanosecond, times 2^shift; at least 2^62, so that its error is
	                   below 2^-62 */
	uint64_t burst; /* capacity of a bucket in units */
	uint8_t shift;
};

/* Max amount, period and burst. */
#define SY_LIMIT_AMOUNT_MAX (UINT64_C(1) << 62)

/* Sets a rate of `amount` units per `period_ns` nanoseconds: 8 kbit/s in bytes are 8000 in 8e9. All
 * are between 1 and SY_LIMIT_AMOUNT_MAX, with at least one unit per 2^62 ns. Its buckets begin full
 * at level -burst: see sy_limit_init(). A burst below a packet's cost blocks that packet for ever.
 * Fails with -EINVAL outside of these bounds. */
int sy_limit_rate_init(struct sy_limit_rate *r, uint64_t amount, uint64_t period_ns, uint64_t burst,
                       uint64_t now_ns, struct sy_error *err);

/* Sets the rate that follows `old` from now on, for the same buckets. Their credit stays, up to the
 * new burst. Fails like sy_limit_rate_init(). A thread that still uses the old rate for a moment
 * charges at most its volume in that time too much or too little: sy_limit_settle() bounds that. */
int sy_limit_rate_change(struct sy_limit_rate *r, const struct sy_limit_rate *old, uint64_t amount,
                         uint64_t period_ns, uint64_t burst, uint64_t now_ns, struct sy_error *err);

/* The volume at a time, modulo 2^64. A time before the rate's start counts as the start: a thread's
 * clock may be older than the change. Times are less than 2^63 ns apart. */
static inline uint64_t sy_limit_volume(const struct sy_limit_rate *r, uint64_t now_ns)
{
	int64_t since = (int64_t)(now_ns - r->from_ns);
	unsigned __int128 brought = (unsigned __int128)(since > 0 ? (uint64_t)since : 0) * r->slope;
	return r->volume + (uint64_t)(brought >> r->shift);
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* How threads share a bucket. */
enum sy_limit_engine {
	SY_LIMIT_OWN,        /* one thread only */
	SY_LIMIT_CAS,        /* any threads; exact, without a lock */
	SY_LIMIT_LOCK,       /* any threads, by a spinlock */
	SY_LIMIT_LIGHT_LOCK, /* any threads; each charges batches under a lock, and passes packets
	                        from its batch. Cheap but inexact: threads hold batches that they do
	                        not need, while other threads drop packets */
	SY_LIMIT_ATOMIC,     /* the thread to which an event device schedules the bucket's flow
	                        (sy_event.h): one at a time, and each sees the writes of the previous
	                        one. Used like SY_LIMIT_OWN */
	SY_LIMIT_ENGINES
};

/* A bucket: a word, and what the engine needs. Nothing else may share its 16 bytes. */
struct sy_limit {
	uint64_t level;
	rte_spinlock_t lock; /* SY_LIMIT_LOCK, SY_LIMIT_LIGHT_LOCK */
	uint32_t batch;      /* units; SY_LIMIT_LIGHT_LOCK */
};
_Static_assert(sizeof(struct sy_limit) == 16, "a million buckets take 16 MB");

/* Initializes a full bucket of a rate. */
void sy_limit_init(struct sy_limit *l, const struct sy_limit_rate *r, uint32_t batch,
                   uint64_t now_ns);

/* Call after a change of the rate, when no thread uses the old one: forgives what the old rate let
 * pass beyond the new one meanwhile, so that a fast old rate cannot block a slow new one. Called by
 * the owner (SY_LIMIT_OWN), by the thread that has the flow (SY_LIMIT_ATOMIC), otherwise by any
 * thread. */
void sy_limit_settle(struct sy_limit *l, enum sy_limit_engine engine, uint64_t volume);

/* The bucket's credit now, in units, without what threads hold by light locks. Any thread. */
uint64_t sy_limit_credit(const struct sy_limit *l, const struct sy_limit_rate *r, uint64_t volume);

/* Adds `cost` to the level. Returns false if that exceeds the volume. A level below volume - burst
 * is a full bucket. */
static inline bool sy_limit_next(uint64_t *level, uint64_t volume, uint64_t burst, uint64_t cost)
{
	uint64_t full = volume - burst;
	*level = ((int64_t)(*level - full) > 0 ? *level : full) + cost;
	return (int64_t)(volume - *level) >= 0;
}

/* Could the bucket pass a packet now? Charges nothing. Any thread, for any engine; ignores what
 * threads hold by light locks. For threads that steer packets to the charging thread: a packet that
 * would be refused need not be steered. */
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

/* local: units that this thread holds. */
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
 * Charges `cost` units. Returns false, with nothing charged, if the bucket has less. volume is
 * sy_limit_volume() of the rate, equal for a whole burst of packets. local is the calling thread's
 * variable for this bucket, initially 0, which only SY_LIMIT_LIGHT_LOCK uses.
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

/* Only the thread that may write now calls this. */
static inline void sy_limit_lower(struct sy_limit *l, uint64_t cost)
{
	uint64_t level = __atomic_load_n(&l->level, __ATOMIC_RELAXED);
	__atomic_store_n(&l->level, level - cost, __ATOMIC_RELAXED);
}

/* Refunds units of a packet that did not pass: a packet with several limits is charged to all or to
 * none. Until then other threads see less credit. */
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
