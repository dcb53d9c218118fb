// SPDX-License-Identifier: Apache-2.0
/*
 * Schedulers. Each is a function from a service and its worker's own running state to a server.
 * The state is kept by service and server id, so it survives every change of configuration.
 */
#include <forwarder.pb-c.h>

#include "balance.h"

/* One server after the other, weights aside. */
static uint32_t pick_rr(struct balance_worker *bw, const struct service *service)
{
	uint32_t *next = &bw->rr_next[service->id];
	if (*next >= service->candidates)
		*next = 0;
	return service->candidate[(*next)++].server;
}

/*
 * Smooth weighted round robin: each pick, every server gains its weight, and the one that is ahead
 * is chosen and set back by the sum of all. Weights 5,1,1 give a a b a c a a, never a a a a a b c.
 */
static uint32_t pick_wrr(struct balance_worker *bw, const struct service *service)
{
	const struct candidate *best = NULL;
	for (uint32_t i = 0; i < service->candidates; i++) {
		const struct candidate *c = &service->candidate[i];
		bw->wrr_current[c->server] += c->weight;
		if (!best || bw->wrr_current[c->server] > bw->wrr_current[best->server])
			best = c;
	}
	bw->wrr_current[best->server] -= service->total_weight;
	return best->server;
}

uint32_t scheduler_pick(struct balance_worker *bw, const struct service *service)
{
	if (service->candidates == 0)
		return SERVER_NONE;
	switch (service->scheduler) {
	case STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR:
		return pick_rr(bw, service);
	default:
		return pick_wrr(bw, service);
	}
}
