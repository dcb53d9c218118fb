// SPDX-License-Identifier: Apache-2.0
/* Rate limits of originated packets: see originated_rate.h. */
#include <sy_post.h>

#include "balance.h"

#define SECOND_NS UINT64_C(1000000000)
/* Cap: after a longer stall the receive queue has lost packets anyway. */
#define LAG_MAX_NS (10 * SECOND_NS)
/* Bursts: a class saves tokens for 1/BURST_PART second, a network for 1/NETWORK_SHARE of that, each
 * at least BURST_MIN, which exceeds the tokens that are randomly missing. */
#define BURST_PART    10
#define NETWORK_SHARE 4
#define BURST_MIN     8
#define MISSING       4  /* a full bucket misses 0 to MISSING - 1 tokens */
#define NETWORK_RATE  10 /* a network gets 1/NETWORK_RATE of a class's rate */
#define V4_NETWORK    24 /* prefix bits that identify the receiver's network */
#define V6_NETWORK    48

/* Packets per second of the whole forwarder. */
static const uint32_t class_rate[ORIGINATED_CLASSES] = {
        [ORIGINATED_TOO_BIG] = 10000,    [ORIGINATED_ERROR] = 1000,
        [ORIGINATED_ECHO] = 10000,       [ORIGINATED_RESET] = 10000,
        [ORIGINATED_CHALLENGE] = 100000, [ORIGINATED_RESET_BOTH] = 100000,
};

uint32_t originated_rate(enum originated_class class)
{
	return class_rate[class];
}

static uint64_t burst_of(uint64_t tokens)
{
	return tokens > BURST_MIN ? tokens : BURST_MIN;
}

/* Randomizes the burst: remote hosts cannot infer how many tokens others consumed
 * (CVE-2020-25705). */
static uint64_t tokens_missing(const struct sy_balance *b, const struct sy_worker *w)
{
	return sy_hash_mix(w->now_ns ^ b->key.k[3], b->key.k[6]) % MISSING;
}

static struct originated_bucket *bucket_of(struct sy_worker *w, enum originated_class class,
                                           const struct sy_addr *to)
{
	struct sy_balance *b = w->app;
	struct sy_tuple network = {.proto = (uint16_t) class};
	memcpy(network.src.b, to->b, sy_addr_is_v4(to) ? 12 + V4_NETWORK / 8 : V6_NETWORK / 8);
	return &balance_worker_of(w)->originated.network[class][sy_hash_tuple(&b->key, &network) %
	                                                        ORIGINATED_NETWORKS];
}

/* Consumes a token of cost_us from a bucket with a burst of `burst` tokens, and of those saved
 * during the lag: packets that waited for the worker are charged as of their arrival. Time saved
 * during a lag is spent_us below zero. */
static bool bucket_charge(struct originated_bucket *k, uint32_t now_us, uint32_t cost_us,
                          uint32_t burst, uint32_t lag_us)
{
	int64_t spent = (int64_t)(int32_t)k->spent_us - (uint32_t)(now_us - k->last_us);
	int64_t min = -(int64_t)lag_us;
	spent = spent > min ? spent : min;
	bool allowed = spent + cost_us <= (int64_t)burst * cost_us;
	k->last_us = now_us;
	k->spent_us = (uint32_t)(int32_t)(allowed ? spent + cost_us : spent);
	return allowed;
}

static uint64_t lag_of(const struct sy_worker *w)
{
	uint64_t lag_ns = sy_worker_lag_ns(w);
	return lag_ns < LAG_MAX_NS ? lag_ns : LAG_MAX_NS;
}

bool originated_charge(struct sy_worker *w, enum originated_class class, const struct sy_addr *to)
{
	struct sy_balance *b = w->app;
	const uint64_t rate = class_rate[class], cost_ns = SECOND_NS * b->workers / rate;
	const uint64_t burst = burst_of(rate / b->workers / BURST_PART);
	const uint64_t lag_ns = lag_of(w);
	if (class < ORIGINATED_BY_NETWORK &&
	    !bucket_charge(bucket_of(w, class, to), (uint32_t)(w->now_ns / 1000),
	                   (uint32_t)(SECOND_NS / 1000 * NETWORK_RATE / rate),
	                   (uint32_t)burst_of(burst / NETWORK_SHARE), (uint32_t)(lag_ns / 1000)))
		return false;
	struct rate_limit *k = &balance_worker_of(w)->originated.all[class];
	bool full = k->saved_ns + (w->now_ns - k->last_ns) >= burst * cost_ns;
	return rate_charge(k, w->now_ns, cost_ns,
	                   (full ? burst - tokens_missing(b, w) : burst) + lag_ns / cost_ns);
}
