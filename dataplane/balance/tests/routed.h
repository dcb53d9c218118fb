// SPDX-License-Identifier: Apache-2.0
/* A harness with the clients (198.18.0.0/15, 2001:db8:c::/48) behind one router and the servers
 * (10.0.0.0/16, fd00::/64) behind another. Include after cmocka.h. */
#ifndef ROUTED_H
#define ROUTED_H

#include "harness.h"

/* o: the other options. */
static inline void routed_open(struct harness *r, struct harness_options o)
{
	struct sy_static_route route[] = {
	        {"net_ring_wan", harness_addr("198.18.0.0"), harness_addr("192.0.2.1"), 15},
	        {"net_ring_lan", harness_addr("10.0.0.0"), harness_addr("10.0.0.254"), 16},
	        {"net_ring_wan", harness_addr("2001:db8:c::"), harness_addr("2001:db8::1"), 48},
	        {"net_ring_lan", harness_addr("fd00::"), harness_addr("fd00::fe"), 64}};
	struct sy_static_neigh neigh[] = {
	        {"net_ring_wan", harness_addr("192.0.2.1"), {2, 0, 0, 0, 1, 1}},
	        {"net_ring_lan", harness_addr("10.0.0.254"), {2, 0, 0, 0, 1, 2}},
	        {"net_ring_wan", harness_addr("2001:db8::1"), {2, 0, 0, 0, 1, 1}},
	        {"net_ring_lan", harness_addr("fd00::fe"), {2, 0, 0, 0, 1, 2}}};
	struct sy_error err;
	o.route = route;
	o.neigh = neigh;
	o.routes = SY_ARRAY_LEN(route);
	o.neighs = SY_ARRAY_LEN(neigh);
	if (harness_open(r, &o, &err) < 0)
		fail_msg("%s", err.text);
}

static inline void routed_commit(struct harness *r, struct changes *c)
{
	if (!harness_commit(r, c))
		fail_msg("%s", r->error);
}

/* cmocka's teardown of a fixture on the heap whose first member is its harness. */
static inline int routed_teardown(void **state)
{
	harness_close(*state);
	free(*state);
	return 0;
}

#endif
