// SPDX-License-Identifier: Apache-2.0
/* Local ports: no bitmaps; the reverse index itself tells which are held. */
#include "session.h"

#include <arpa/inet.h>

#define FIRST_PORT 1024 /* host order; below are ports of the system (RFC 6335, section 6) */

uint16_t *session_port_cursor(struct session_table *t, uint32_t server)
{
	return &t->cursors[server % SESSION_PORT_CURSORS];
}

/* Candidate n: the addresses take turns, so that one server's sessions spread over them. */
static void search_set(struct session_port_search *search, uint8_t slot, unsigned n)
{
	unsigned i = n % search->local_count;

	search->local = search->local_ids[i];
	search->reply.dst = search->locals[i];
	search->reply.dport = sy_slot_port(slot, &search->locals[i], n / search->local_count);
}

bool session_find_port(struct session_table *t, const struct sy_hash_key *key,
                       struct session_port_search *search, session_match taken)
{
	uint16_t *cursor = session_port_cursor(t, search->server);
	unsigned candidates = search->local_count * SY_SLOT_PORTS;
	unsigned probes = candidates < SESSION_PORT_PROBES ? candidates : SESSION_PORT_PROBES;
	enum session_direction direction;

	for (; probes > 0; probes--) {
		unsigned n = *cursor < candidates ? *cursor : 0;
		*cursor = (uint16_t)(n + 1);
		search_set(search, t->slot, n);
		if (ntohs(search->reply.dport) < FIRST_PORT)
			continue;
		search->server_hash = sy_hash_tuple(key, &search->reply);
		if (session_find(t, search->server_hash, taken, search, &direction) == SESSION_NONE)
			return true;
	}
	return false;
}
