// SPDX-License-Identifier: Apache-2.0
/* Finds a free local port for a new session, for create.c and snat_create.c. There is no bitmap:
 * the index shows which ports are held, by the tuple of the server's answers. */
#include "session_walk.h"

#include <arpa/inet.h>

#define BATCH 16

_Static_assert(SESSION_PORT_CURSORS == 64, "a bit each");

uint16_t *session_port_cursor(struct session_table *t, uint32_t n)
{
	return &t->cursors[n % SESSION_PORT_CURSORS];
}

uint32_t session_port_cursor_of(const struct sy_addr *server, uint16_t port)
{
	/* as in session_check(): without a key, because cursors outlive the key in a resized
	 * file */
	return (uint32_t)sy_hash_mix(server->d[0] ^ 0x9e3779b97f4a7c15,
	                             server->d[1] ^ port ^ 0xbf58476d1ce4e5b9);
}

/* Candidate n. The addresses take turns, which spreads one server's sessions over them. */
static void search_set(struct session_port_search *search, uint8_t slot, unsigned n)
{
	unsigned i = n % search->local_count;

	search->local = search->local_ids[i];
	search->reply.dst = search->locals[i];
	search->reply.dport = sy_slot_port(slot, &search->locals[i], n / search->local_count);
}

uint32_t session_port_cost(const struct session_port_search *search, const struct session *s)
{
	uint16_t idle = session_idle(s, search->now);

	/* If the clock is earlier than the session's last packet, the session looks old; 2^15 s
	 * exceed any timeout. */
	return s->state == SESSION_TIME_WAIT && idle > 0 && idle <= INT16_MAX ? (uint16_t)~idle
	                                                                      : SESSION_NONE;
}

/* Of the sessions that hold a port, the one that costs least. */
struct cheapest {
	uint32_t record; /* SESSION_NONE: none may be ended */
	uint32_t cost;
	unsigned n;
	uint64_t hash;
};

static void cheapest_note(const struct session_table *t, const struct session_port_search *search,
                          struct cheapest *o, uint32_t record, unsigned n)
{
	const struct session *s = session_at(t, record);
	uint32_t cost = search->cost ? search->cost(search, s) : session_port_cost(search, s);

	if (cost < o->cost)
		*o = (struct cheapest){record, cost, n, search->server_hash};
}

/* Tries `count` candidates from `first` on; their cache misses overlap. Returns how many were held
 * before the first free one, which *search then holds; `count` if none is free. */
static unsigned search_batch(struct session_table *t, const struct sy_hash_key *key,
                             struct session_port_search *search, unsigned first, unsigned count,
                             session_match taken, struct cheapest *o)
{
	unsigned candidates = search->local_count * SY_SLOT_PORTS;
	uint64_t hash[BATCH];
	enum session_direction direction;

	for (unsigned i = 0; i < count; i++) {
		search_set(search, t->slot, (first + i) % candidates);
		hash[i] = sy_hash_tuple(key, &search->reply);
		session_prefetch_bucket(t->index, hash[i]);
	}
	for (unsigned i = 0; i < count; i++)
		session_prefetch_record(t->index, hash[i]);
	for (unsigned i = 0; i < count; i++) {
		if (count > 1)
			search_set(search, t->slot, (first + i) % candidates);
		search->server_hash = hash[i];
		if (ntohs(search->reply.dport) < SESSION_PORT_FIRST)
			continue;
		uint32_t record = session_find(t->index, hash[i], taken, search, &direction);
		if (record == SESSION_NONE)
			return i;
		cheapest_note(t, search, o, record, (first + i) % candidates);
	}
	return count;
}

static uint16_t *search_cursor(struct session_table *t, const struct session_port_search *search)
{
	return session_port_cursor(t,
	                           session_port_cursor_of(&search->reply.src, search->reply.sport));
}

void session_port_prefetch_cursor(struct session_table *t, struct session_port_search *search)
{
	search->cursor = search_cursor(t, search);
	__builtin_prefetch(search->cursor, 1);
}

/* The first candidate of the next search. */
static unsigned search_start(const uint16_t *cursor, unsigned candidates)
{
	return *cursor < candidates ? *cursor : 0;
}

static void search_look_ahead(struct session_table *t, const struct sy_hash_key *key,
                              struct session_port_search *search, unsigned at)
{
	search->ahead = at;
	search_set(search, t->slot, at);
	search->server_hash = sy_hash_tuple(key, &search->reply);
}

void session_port_look_ahead(struct session_table *t, const struct sy_hash_key *key,
                             struct session_port_search *search)
{
	search_look_ahead(t, key, search,
	                  search_start(search->cursor, search->local_count * SY_SLOT_PORTS));
}

/* Whether the first candidate, set by search_look_ahead(), is free. */
static bool search_first(struct session_table *t, struct session_port_search *search,
                         session_match taken)
{
	enum session_direction direction;

	return ntohs(search->reply.dport) >= SESSION_PORT_FIRST &&
	       session_find(t->index, search->server_hash, taken, search, &direction) ==
	               SESSION_NONE;
}

/* How many of the candidates a search tries. bit: the cursor's. */
static unsigned search_most(struct session_table *t, const struct session_port_search *search,
                            uint64_t bit, unsigned candidates)
{
	unsigned most = candidates < SESSION_PORT_PROBES ? candidates : SESSION_PORT_PROBES;
	if (t->none_tick != search->now) {
		t->none_tick = search->now;
		t->port_none = 0;
	}
	return t->port_none & bit && most > SESSION_PORT_SHORT ? SESSION_PORT_SHORT : most;
}

bool session_find_port(struct session_table *t, const struct sy_hash_key *key,
                       struct session_port_search *search, session_match taken)
{
	uint16_t *cursor = search->cursor ? search->cursor : search_cursor(t, search);
	unsigned candidates = search->local_count * SY_SLOT_PORTS;
	unsigned at = search_start(cursor, candidates), tried = 0;
	struct cheapest o = {.record = SESSION_NONE, .cost = SESSION_NONE};

	if (candidates == 0)
		return false;
	/* another session may have taken its candidate since */
	if (!search->cursor || search->ahead != at)
		search_look_ahead(t, key, search, at);
	search->held = SESSION_NONE;
	/* the first candidate is nearly always free; if it is not, many will not be */
	if (SY_LIKELY(search_first(t, search, taken))) {
		*cursor = (uint16_t)(at + 1); /* the next search wraps after the last */
		return true;
	}
	uint64_t bit = UINT64_C(1) << ((unsigned)(cursor - t->cursors) % SESSION_PORT_CURSORS);
	unsigned left = search_most(t, search, bit, candidates);
	for (unsigned count = 1; left > 0; count = left < BATCH ? left : BATCH) {
		unsigned passed = search_batch(t, key, search, at, count, taken, &o);
		at = (at + passed) % candidates;
		left -= passed;
		tried += passed;
		search->held = SESSION_NONE;
		if (passed < count) {
			*cursor = (uint16_t)(at + 1); /* the next search wraps after the last */
			return true;
		}
		if (o.record != SESSION_NONE && (tried >= SESSION_PORT_PATIENCE || left == 0)) {
			search_set(search, t->slot, o.n);
			search->server_hash = o.hash;
			search->held = o.record;
			*cursor = (uint16_t)(o.n + 1);
			return true;
		}
	}
	*cursor = (uint16_t)at;
	t->port_none |= bit;
	return false;
}
