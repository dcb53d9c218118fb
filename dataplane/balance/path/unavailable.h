// SPDX-License-Identifier: Apache-2.0
/* Answers to clients whose service, or whose port, is unavailable
 * (docs/design/0049-unavailable.md). */
#ifndef UNAVAILABLE_H
#define UNAVAILABLE_H

#include "balance.h"

static inline bool service_has_server(const struct service *service)
{
	return service && (service->pool->eligible > 0 ||
	                   (service->backups && service->backups->eligible > 0));
}

/* Returns NO_SERVER or CONNECTION_LIMIT if the service can accept no new session, without choosing
 * a server; otherwise NONE. */
static inline enum sy_drop unavailable_reason(const struct sy_balance *b,
                                              const struct service *service)
{
	if (SY_UNLIKELY(!service_has_server(service)))
		return SY_DROP_NO_SERVER;
	return SY_UNLIKELY(service->policy.max_sessions) &&
	                       SY_READ(b->service_active[service->id]) >=
	                               service->policy.max_sessions
	               ? SY_DROP_CONNECTION_LIMIT
	               : SY_DROP_NONE;
}

/* Answers packet i, a client's, which is dropped for this reason. If the reason means that the
 * service is unavailable: by its when_unavailable. If the VIP has no such service (service NULL,
 * NO_SERVICE): by sy_balance_options.unknown_ports. Rate limits of resets and ICMP errors apply.
 * The caller drops the packet. */
void unavailable_answer(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        const struct service *service, enum sy_drop reason);
/* For packets that do not reach session_create(): counts a refusal, answers and drops. */
void unavailable_refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        const struct service *service, enum sy_drop reason);

/* Refuses packet i, a SYN, if its service can accept no new session. Returns whether it did. */
static inline bool unavailable_refuses(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                                       const struct service *service)
{
	const enum sy_drop reason = unavailable_reason(w->app, service);
	if (SY_LIKELY(reason == SY_DROP_NONE))
		return false;
	unavailable_refuse(w, burst, i, service, reason);
	return true;
}

#endif
