// SPDX-License-Identifier: Apache-2.0
/* A service's counters for packets without a session. Writer: the worker; readers: relaxed. */
#ifndef SERVICE_COUNTS_H
#define SERVICE_COUNTS_H

#include <sy_base.h>

/* Why a packet to a service began no session. */
enum refusal {
	REFUSED_NO_SESSION, /* a TCP segment that begins no connection */
	REFUSED_SERVER,     /* no server accepts it */
	REFUSED_FULL,       /* table full, no local port, or the worker is behind */
	REFUSED_OTHER,
	REFUSALS
};

struct service_counts {
	uint64_t begun; /* sessions */
	uint64_t refused[REFUSALS];
	/* SYN defence: SYNs answered by a cookie or challenge; valid answers; invalid ones. */
	uint64_t answered, right, wrong;
} __attribute__((aligned(SY_CACHE_LINE)));
_Static_assert(sizeof(struct service_counts) == SY_CACHE_LINE, "one line a service and worker");

/* Drops of a service by reason: 20 000 services use 13 MB of a worker's address space, and memory
 * only for services with drops. */
struct service_drops {
	uint64_t packets[SY_DROP_COUNT];
};

static inline enum refusal refusal_of(enum sy_drop reason)
{
	switch (reason) {
	case SY_DROP_NO_SESSION:
		return REFUSED_NO_SESSION;
	case SY_DROP_NO_SERVER:
	case SY_DROP_CONNECTION_LIMIT:
		return REFUSED_SERVER;
	case SY_DROP_NO_LOCAL_ADDRESS:
	case SY_DROP_NO_LOCAL_PORT:
	case SY_DROP_TABLE_FULL:
	case SY_DROP_OVERLOAD:
		return REFUSED_FULL;
	default:
		return REFUSED_OTHER;
	}
}

#endif
