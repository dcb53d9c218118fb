// SPDX-License-Identifier: Apache-2.0
/* Local ports: no bitmaps; the reverse index itself tells which are held. */
#include "session.h"

#include <arpa/inet.h>

#define FIRST_PORT 1024 /* host order; below are ports of the system (RFC 6335, section 6) */
#define BATCH      16

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

/* Tries `count` candidates from `first` on, their cache misses side by side. Returns how many it
 * passed over before one that is free, which *search then holds; `count` if none is. */
static unsigned search_batch(struct session_table *t, const struct sy_hash_key *key,
                             struct session_port_search *search, unsigned first, unsigned count,
                             session_match taken)
{
	unsigned candidates = search->local_count * SY_SLOT_PORTS;
	uint64_t hash[BATCH];
	enum session_direction direction;

	for (unsigned i = 0; i < count; i++) {
		search_set(search, t->slot, (first + i) % candidates);
		hash[i] = sy_hash_tuple(key, &search->reply);
		session_prefetch_bucket(t, hash[i]);
	}
	for (unsigned i = 0; i < count; i++)
		session_prefetch_record(t, hash[i]);
	for (unsigned i = 0; i < count; i++) {
		search_set(search, t->slot, (first + i) % candidates);
		search->server_hash = hash[i];
		if (ntohs(search->reply.dport) >= FIRST_PORT &&
		    session_find(t, hash[i], taken, search, &direction) == SESSION_NONE)
			return i;
	}
	return count;
}

bool session_find_port(struct session_table *t, const struct sy_hash_key *key,
                       struct session_port_search *search, session_match taken)
{
	uint16_t *cursor = session_port_cursor(t, search->server);
	unsigned candidates = search->local_count * SY_SLOT_PORTS;
	unsigned left = candidates < SESSION_PORT_PROBES ? candidates : SESSION_PORT_PROBES;
	unsigned at = *cursor < candidates ? *cursor : 0;

	/* the first candidate is nearly always free; if not, many will not be */
	for (unsigned count = 1; left > 0; count = left < BATCH ? left : BATCH) {
		unsigned passed = search_batch(t, key, search, at, count, taken);
		at = (at + passed) % candidates;
		left -= passed;
		if (passed < count) {
			*cursor = (uint16_t)(at + 1); /* past the last: begins anew */
			return true;
		}
	}
	*cursor = (uint16_t)at;
	return false;
}
