// SPDX-License-Identifier: Apache-2.0
/*
 * Rate limits of originated packets, by class and by the receiver's network
 * (docs/design/0028-host-protection.md).
 */
#ifndef ORIGINATED_RATE_H
#define ORIGINATED_RATE_H

#include <sy_base.h>

struct sy_worker;

/* A token bucket, as saved time. All zero: full. */
struct rate_limit {
	uint64_t saved_ns, last_ns;
};

/* Consumes a token of cost_ns; at most `burst` tokens are saved. Returns false without one. */
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
	ORIGINATED_TOO_BIG,    /* ICMP errors that a transfer depends on */
	ORIGINATED_ERROR,      /* all other ICMP errors */
	ORIGINATED_ECHO,       /* echo replies */
	ORIGINATED_RESET,      /* resets for packets without a session */
	ORIGINATED_CHALLENGE,  /* probes after a possibly forged reset (RFC 5961) */
	ORIGINATED_RESET_BOTH, /* probes and resets of ending sessions */
	ORIGINATED_CLASSES
};
#define ORIGINATED_BY_NETWORK                                                                      \
	ORIGINATED_CHALLENGE     /* earlier classes are also limited by network                    \
	                          */
#define ORIGINATED_NETWORKS 1024 /* buckets per such class; a power of two */

/* The bucket of networks with one hash, as spent time in microseconds. All zero: full. last_us
 * wraps after 71 minutes, which makes a bucket seem younger. */
struct originated_bucket {
	uint32_t spent_us, last_us;
};

/* Private to one worker. */
struct originated_rates {
	struct rate_limit all[ORIGINATED_CLASSES];
	struct originated_bucket network[ORIGINATED_BY_NETWORK][ORIGINATED_NETWORKS];
};

/* May the worker send one packet of this class to `to`? Consumes a token of both limits (RFC 4443
 * 2.4 f, RFC 1812 4.3.2.8). `to` is ignored, and may be NULL, for classes not limited by
 * network. */
bool originated_charge(struct sy_worker *w, enum originated_class class, const struct sy_addr *to);
/* Max packets of the class per second, over all workers. */
uint32_t originated_rate(enum originated_class class);

#endif
