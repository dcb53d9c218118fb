// SPDX-License-Identifier: Apache-2.0
/* Checks that a configuration is consistent, and consistent with what the workers see. */
#ifndef SOUND_H
#define SOUND_H

#include <arpa/inet.h>

#include <rte_hash.h>
#include <sanitizer/lsan_interface.h>

#include "../soak/topology.h"
#include "fuzz.h"
#include "model.h"

static inline void model_is_sound(const struct sy_balance *b)
{
	const struct model *m = inspect_model(b);
	uint32_t services = 0, servers = 0, fnat_servers = 0, locals = 0;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++) {
		const struct model_service *s = m->service[id];
		CHECK(!s == !inspect_service(b, id));
		if (!s)
			continue;
		services++;
		servers += s->servers;
		fnat_servers += mode_is_local(s->mode) ? s->servers : 0;
		CHECK(s->id == id && inspect_service(b, id)->id == id);
		CHECK(inspect_service(b, id)->pool->members <= s->servers);
		const struct sy_tuple asked = {.dst = s->key.vip,
		                               .dport = s->key.vport ? s->key.vport : htons(1),
		                               .proto = s->key.proto};
		CHECK(s->snat || directory_find(b, &asked));
		for (unsigned i = 0; i < s->servers; i++)
			CHECK(inspect_endpoint(b, s->server[i].id)->service == id &&
			      !inspect_endpoint(b, s->server[i].id)->removed);
	}
	for (unsigned id = 0; id < MAX_LOCALS; id++)
		locals += m->local[id].used && !m->local[id].pools;
	CHECK(services == m->services && servers == m->servers);
	CHECK(fnat_servers == m->local_servers[0] + m->local_servers[1]);
	CHECK(locals == inspect_locals(b, 0)->count + inspect_locals(b, 1)->count);
	CHECK((uint32_t)rte_hash_count(m->by_key) == services);
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
