// SPDX-License-Identifier: Apache-2.0
/* Sets a network's names in the id dictionary, and checks that they are there. */
#ifndef SESSION_DICTIONARY_CHECK_H
#define SESSION_DICTIONARY_CHECK_H

#include "session_place.h"

static inline void name_all(struct session_store *s, const struct network *n)
{
	for (uint32_t id = 0; id < n->server_count; id++) {
		struct session_server_name name = {.addr = n->servers[id],
		                                   .vip = n->vip,
		                                   .port = 80,
		                                   .vport = 81,
		                                   .proto = 6,
		                                   .active = id};
		session_name_server(s, id, &name);
	}
	for (unsigned i = 0; i < n->local_count; i++)
		session_name_local(s, (uint8_t)i, &n->locals[i]);
}

static inline void id_dictionary_are(struct session_store *s, const struct network *n)
{
	struct session_server_name name;
	struct sy_addr addr;

	for (uint32_t id = 0; id < session_servers(s) + 2; id++) {
		bool named = id < n->server_count && id < session_servers(s);
		assert_int_equal(session_server_named(s, id, &name), named);
		if (!named)
			continue;
		assert_true(sy_addr_equal(&name.addr, &n->servers[id]));
		assert_true(sy_addr_equal(&name.vip, &n->vip));
		assert_int_equal(name.port, 80);
		assert_int_equal(name.vport, 81);
		assert_int_equal(name.proto, 6);
		assert_int_equal(name.active, id);
	}
	for (unsigned id = 0; id < SESSION_LOCALS; id++) {
		assert_int_equal(session_local_named(s, (uint8_t)id, &addr), id < n->local_count);
		if (id < n->local_count)
			assert_true(sy_addr_equal(&addr, &n->locals[id]));
	}
}

#endif
