// SPDX-License-Identifier: Apache-2.0
#include "locate.h"

#include "create.h"
#include "originated.h"

static inline bool is_to_same(const struct sy_tuple *a, const struct sy_tuple *b)
{
	return a->dport == b->dport && a->proto == b->proto && sy_addr_equal(&a->dst, &b->dst);
}

unsigned locate_burst(struct sy_worker *w, const struct sy_burst *burst, const uint8_t *at,
                      unsigned count, uint8_t *begins)
{
	struct balance_worker *bw = balance_worker_of(w);
	const struct service *service = NULL;   /* of the previous one */
	const struct sy_tuple *previous = NULL; /* of the previous one */
	uint64_t located = 0, listed = 0;
	bool own = false; /* does `service` have an access list? */
	unsigned n = 0;
	for (unsigned k = 0; k < count; k++) {
		const unsigned i = at[k];
		const struct sy_view *v = &burst->view[i];
		if (!packet_may_create(v) || !sy_view_has_l4(v) ||
		    burst->direction[i] != SESSION_CLIENT ||
		    originated_is_marked(w->app, burst->mbuf[i]))
			continue;
		if (!previous || !is_to_same(previous, &v->tuple)) {
			service = directory_find(w->app, &v->tuple);
			own = service && service->policy.access != 0;
		}
		previous = &v->tuple;
		located |= UINT64_C(1) << i;
		listed |= (uint64_t)own << i;
		bw->burst.service[i] = service;
		begins[n] = (uint8_t)i;
		n += service != NULL;
	}
	bw->burst.located = located;
	bw->burst.listed = listed;
	return n;
}
