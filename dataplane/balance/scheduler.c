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
 * None is ever further ahead or behind than that sum, unless weights were larger before: it is
 * taken back then, or the server would flood or starve for as long as they had been.
 */
static uint32_t pick_wrr(struct balance_worker *bw, const struct service *service)
{
	const struct candidate *best = NULL;
	int64_t total = service->total_weight, most = 0;
	for (uint32_t i = 0; i < service->candidates; i++) {
		const struct candidate *c = &service->candidate[i];
		int64_t current = bw->wrr_current[c->server];
		current = current > total ? total : current < -total ? -total : current;
		current += c->weight;
		bw->wrr_current[c->server] = current;
		if (!best || current > most) {
			best = c;
			most = current;
		}
	}
	bw->wrr_current[best->server] -= total;
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
