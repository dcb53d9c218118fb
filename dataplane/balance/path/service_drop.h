// SPDX-License-Identifier: Apache-2.0
/*
 * Counts drops by service, reason and worker if the service is known (docs/design/0030-attacks.md).
 * Only dropped packets touch these counters.
 */
#ifndef SERVICE_DROP_H
#define SERVICE_DROP_H

#include "balance.h"

static inline void service_count_drop(struct sy_worker *w, uint32_t service, enum sy_drop reason)
{
	if (SY_LIKELY(service != SERVICE_NONE))
		SY_COUNT(balance_worker_of(w)->drops[service].packets[reason], 1);
}

/* Counts a packet to or from a server that another function drops. */
static inline void server_count_drop(struct sy_worker *w, uint32_t server, enum sy_drop reason)
{
	const struct sy_balance *b = w->app;
	service_count_drop(w, SY_READ(b->endpoint[server].service), reason);
}

/* Drops a client's packet to a service. */
static inline void service_packet_drop(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                       const struct service *service, enum sy_drop reason)
{
	service_count_drop(w, service ? service->id : SERVICE_NONE, reason);
	sy_burst_drop(w, burst, i, reason);
}

/* Drops a packet of a session, in either direction. */
static inline void session_packet_drop(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                       const struct session *s, enum sy_drop reason)
{
	server_count_drop(w, s->server, reason);
	sy_burst_drop(w, burst, i, reason);
}

#endif
