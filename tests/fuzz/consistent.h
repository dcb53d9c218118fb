// SPDX-License-Identifier: Apache-2.0
/* Consistency of a configuration, in itself and with what the workers read. */
#ifndef CONSISTENT_H
#define CONSISTENT_H

#include <arpa/inet.h>

#include <rte_hash.h>
#include <sanitizer/lsan_interface.h>

#include "../soak/soak_topology.h"
#include "fuzz.h"
#include "model.h"

static inline bool configuration_is_consistent(const struct sy_balance *b)
{
	const struct model *m = inspect_model(b);
	uint32_t services = 0, servers = 0, fnat_servers = 0, locals = 0;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++) {
		const struct model_service *s = m->service[id];
		HOLDS(!s == !inspect_service(b, id));
		if (!s)
			continue;
		services++;
		servers += s->servers;
		fnat_servers += mode_is_local(s->mode) ? s->servers : 0;
		HOLDS(s->id == id && inspect_service(b, id)->id == id);
		HOLDS(inspect_service(b, id)->pool->members <= s->servers);
		const struct sy_tuple to = {.dst = s->key.vip,
		                            .dport = s->key.vport ? s->key.vport : htons(1),
		                            .proto = s->key.proto};
		HOLDS(s->snat || directory_find(b, &to));
		for (unsigned i = 0; i < s->servers; i++)
			HOLDS(inspect_endpoint(b, s->server[i].id)->service == id &&
			      !inspect_endpoint(b, s->server[i].id)->removed);
	}
	for (unsigned id = 0; id < MAX_LOCALS; id++)
		locals += m->local[id].used && !m->local[id].pools;
	HOLDS(services == m->services && servers == m->servers);
	HOLDS(fnat_servers == m->local_servers[0] + m->local_servers[1]);
	HOLDS(locals == inspect_locals(b, 0)->count + inspect_locals(b, 1)->count);
	HOLDS((uint32_t)rte_hash_count(m->by_key) == services);
	return true;
}

/* Deletes all services; returns whether no id is in use then, so each input starts alike. */
static inline bool topology_is_cleared(struct topology *topology)
{
	topology_clear(topology);
	do
		harness_advance(&topology->harness, UINT64_C(1000000000));
	while (inspect_retired(topology->harness.b));
	const struct model *m = inspect_model(topology->harness.b);
	HOLDS(m->services == 0 && m->servers == 0 && rte_hash_count(m->address) == 0);
	HOLDS(m->service_ids.count == m->service_ids.fresh);
	HOLDS(m->server_ids.count == m->server_ids.fresh);
	return true;
}

/* An empty topology, opened once per process. */
static inline void topology_open_once(struct topology *topology)
{
	static struct rng rng = {1};
	static bool opened;
	if (opened)
		return;
	/* Never freed, and in memory that the leak detector cannot inspect. */
	__lsan_disable();
	CHECK(topology_open(topology, &rng, 1, NULL));
	__lsan_enable();
	topology_clear(topology);
	opened = true;
}

#endif
