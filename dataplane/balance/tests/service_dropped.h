// SPDX-License-Identifier: Apache-2.0
/* Drops by service and reason, as clients of the control socket see them. */
#ifndef SERVICE_DROPPED_H
#define SERVICE_DROPPED_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

/* Returns what ListServices has of a service and a reason. */
static inline uint64_t service_dropped(struct flows *f, unsigned service, enum sy_drop reason)
{
	pb_response *response;
	const Steelyard__Forwarder__V1__ServiceStats *s =
	        flows_stats(f, &f->service[service], &response);
	uint64_t packets = 0;
	for (size_t n = 0; s && n < s->n_drops; n++) {
		assert_true(s->drops[n]->packets > 0);
		if (!strcmp(s->drops[n]->name, sy_drop_name(reason)))
			packets = s->drops[n]->packets;
	}
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return packets;
}

/* Returns how many packets count under services of these tests, which are few. */
static inline uint64_t services_dropped(const struct flows *f, enum sy_drop reason)
{
	const struct sy_balance *b = f->harness.b;
	uint64_t sum = 0;
	for (unsigned w = 0; w < b->workers; w++)
		for (uint32_t id = 0; id < 64; id++)
			sum += b->worker[w].drops[id].packets[reason];
	return sum;
}

#endif
