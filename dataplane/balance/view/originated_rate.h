// SPDX-License-Identifier: Apache-2.0
/*
 * Rates of the packets that the forwarder originates: how many of a class leave in a second, and
 * how many of them towards one network (docs/design/0028-host-protection.md).
 */
#ifndef ORIGINATED_RATE_H
#define ORIGINATED_RATE_H

#include <sy_base.h>

struct sy_worker;

/* A rate limit, as an amount of saved time. All zero: full. */
struct rate_limit {
	uint64_t saved_ns, last_ns;
};

/* May one more be sent? Each costs cost_ns, and time for at most `burst` of them is saved. */
static inline bool rate_charge(struct rate_limit *k, uint64_t now_ns, uint64_t cost_ns,
                               uint64_t burst)
{
	uint64_t saved = k->saved_ns + (now_ns - k->last_ns);
	k->last_ns = now_ns;
	if (saved > burst * cost_ns)
		saved = burst * cost_ns;
	bool allowed = saved >= cost_ns;
	k->saved_ns = allowed ? saved - cost_ns : saved;
	return allowed;
}

enum originated_class {
	ORIGINATED_TOO_BIG,    /* ICMP errors that somebody's transfer waits for */
	ORIGINATED_ERROR,      /* all other ICMP errors */
	ORIGINATED_ECHO,       /* echo replies */
	ORIGINATED_RESET,      /* resets that answer packets of no session */
	ORIGINATED_CHALLENGE,  /* probes of sessions that are said to be reset (RFC 5961) */
	ORIGINATED_RESET_BOTH, /* probes and resets of sessions that end */
	ORIGINATED_CLASSES
};
#define ORIGINATED_BY_NETWORK                                                                      \
	ORIGINATED_CHALLENGE     /* the classes before it are also limited by network */
#define ORIGINATED_NETWORKS 1024 /* buckets of each of these classes; a power of two */

/* The rate towards the networks that share this bucket, as time that was spent. All zero: nothing
 * was. Microseconds; last_us wraps after 71 minutes, which makes a bucket seem younger. */
struct originated_bucket {
	uint32_t spent_us, last_us;
};

/* Written and read by one worker only. */
struct originated_rates {
	struct rate_limit all[ORIGINATED_CLASSES];
	struct originated_bucket network[ORIGINATED_BY_NETWORK][ORIGINATED_NETWORKS];
};

/* May the worker send one packet of this class to `to`? Takes it from both limits. `to` is ignored
 * for classes that are not limited by network; NULL is allowed for these. RFC 4443 2.4 f, RFC 1812
 * 4.3.2.8. */
bool originated_charge(struct sy_worker *w, enum originated_class class, const struct sy_addr *to);
/* Packets of the class that the whole forwarder sends per second. */
uint32_t originated_rate(enum originated_class class);

#endif
