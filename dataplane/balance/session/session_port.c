// SPDX-License-Identifier: Apache-2.0
/* Finds a free local port for a new session, for create.c and snat_create.c. There is no bitmap:
 * the index shows which ports are in use, by the tuple of the server's replies. */
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

/* ---- candidates, in the order in which a search tries them --------------------------------------
 *
 *     home address: its ports from the cursor's on │ the next address: likewise │ …
 */

struct candidates {
	unsigned first; /* port index, 0 to SY_SLOT_PORTS − 1, at which each address begins */
	unsigned skip;  /* other addresses to skip after the home address */
	unsigned home;  /* candidates at the home address: fewer if it recently had none */
};

static struct candidates candidates_from(uint16_t cursor)
{
	return (struct candidates){cursor % SY_SLOT_PORTS, cursor / SY_SLOT_PORTS, SY_SLOT_PORTS};
}

/* Candidate n's distance from the home address; its port index. */
static inline unsigned candidate_address(const struct candidates *c, unsigned n)
{
	return n < c->home ? 0 : (n - c->home) / SY_SLOT_PORTS + 1;
}

static inline unsigned candidate_port(const struct candidates *c, unsigned n)
{
	return (c->first + (n < c->home ? n : n - c->home)) % SY_SLOT_PORTS;
}

static void search_set(struct session_port_search *search, uint8_t slot, const struct candidates *c,
                       unsigned n)
{
	unsigned i = search->home, beyond = candidate_address(c, n);

	if (SY_UNLIKELY(beyond)) /* one of the other local_count − 1 addresses */
		i += 1 + (c->skip + beyond - 1) % (search->local_count - 1);
	if (i >= search->local_count)
		i -= search->local_count;
	search->local = search->local_ids[i];
	search->reply.dst = search->locals[i];
	search->reply.dport = sy_slot_port(slot, &search->locals[i], candidate_port(c, n));
}

/* The cursor for a search that continues at this port, with the address of candidate n. */
static uint16_t cursor_at(const struct candidates *c, const struct session_port_search *search,
                          unsigned n, unsigned port)
{
	unsigned beyond = candidate_address(c, n), others = search->local_count - 1;
	unsigned skip = beyond > 1 && others ? (c->skip + beyond - 1) % others : c->skip;

	return (uint16_t)(skip * SY_SLOT_PORTS + port % SY_SLOT_PORTS);
}

/* The cursor after candidate n was found. */
static uint16_t cursor_after(const struct candidates *c, const struct session_port_search *search,
                             unsigned n)
{
	return cursor_at(c, search, n, candidate_port(c, n) + 1);
}

uint32_t session_port_cost(const struct session_port_search *search, const struct session *s)
{
	uint16_t idle = session_idle(s, search->now);

	/* If the clock is behind the session's last packet, the session seems old: 2^15 s exceed
	 * any timeout. */
	return s->state == SESSION_TIME_WAIT && idle > 0 && idle <= INT16_MAX ? (uint16_t)~idle
	                                                                      : SESSION_NONE;
}

/* The session with the lowest cost among those that use a port. */
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

/* Tries `count` candidates from `first` on; their cache misses overlap. Returns how many were in
 * use before the first free one, which is then in *search; `count` if none is free. */
static unsigned search_batch(struct session_table *t, const struct sy_hash_key *key,
                             struct session_port_search *search, const struct candidates *c,
                             unsigned first, unsigned count, session_match taken,
                             struct cheapest *o)
{
	uint64_t hash[BATCH];
	enum session_direction direction;

	for (unsigned i = 0; i < count; i++) {
		search_set(search, t->slot, c, first + i);
		hash[i] = sy_hash_tuple(key, &search->reply);
		session_prefetch_bucket(t->index, hash[i]);
	}
	for (unsigned i = 0; i < count; i++)
		session_prefetch_record(t->index, hash[i]);
	for (unsigned i = 0; i < count; i++) {
		if (count > 1)
			search_set(search, t->slot, c, first + i);
		search->server_hash = hash[i];
		if (ntohs(search->reply.dport) < SESSION_PORT_FIRST)
			continue;
		uint32_t record = session_find(t->index, hash[i], taken, search, &direction);
		if (record == SESSION_NONE)
			return i;
		cheapest_note(t, search, o, record, first + i);
	}
	return count;
}

static uint16_t *search_cursor(struct session_table *t, const struct session_port_search *search)
{
	return session_port_cursor(
	        t, session_port_cursor_of(&search->reply.src, search->reply.sport) + search->home);
}

void session_port_prefetch_cursor(struct session_table *t, struct session_port_search *search)
{
	search->cursor = search_cursor(t, search);
	__builtin_prefetch(search->cursor, 1);
}

/* The first candidate: *cursor's port of the home address. */
static void search_look_ahead(struct session_table *t, const struct sy_hash_key *key,
                              struct session_port_search *search, uint16_t cursor)
{
	const struct candidates c = candidates_from(cursor);

	search->ahead = cursor;
	search_set(search, t->slot, &c, 0);
	search->server_hash = sy_hash_tuple(key, &search->reply);
}

void session_port_look_ahead(struct session_table *t, const struct sy_hash_key *key,
                             struct session_port_search *search)
{
	search_look_ahead(t, key, search, *search->cursor);
}

/* Is the first candidate, set by search_look_ahead(), free? */
static bool search_first(struct session_table *t, struct session_port_search *search,
                         session_match taken)
{
	enum session_direction direction;

	return ntohs(search->reply.dport) >= SESSION_PORT_FIRST &&
	       session_find(t->index, search->server_hash, taken, search, &direction) ==
	               SESSION_NONE;
}

/* The number of candidates to try, and how many of them at the home address. After a failed search
 * in this second: a few. bit: of the cursor. */
static unsigned search_max(struct session_table *t, const struct session_port_search *search,
                           uint64_t bit, struct candidates *c)
{
	unsigned max;

	if (t->none_tick != search->now) {
		t->none_tick = search->now;
		t->port_none = t->home_none = 0;
	}
	if (t->home_none & bit && search->local_count > 1)
		c->home = SESSION_PORT_SHORT / 2;
	max = c->home + (search->local_count - 1) * SY_SLOT_PORTS;
	if (max > SESSION_PORT_PROBES)
		max = SESSION_PORT_PROBES;
	return t->port_none & bit && max > SESSION_PORT_SHORT ? SESSION_PORT_SHORT : max;
}

bool session_find_port(struct session_table *t, const struct sy_hash_key *key,
                       struct session_port_search *search, session_match taken)
{
	if (search->local_count == 0)
		return false;
	uint16_t *cursor = search->cursor ? search->cursor : search_cursor(t, search);
	struct candidates c = candidates_from(*cursor);
	struct cheapest o = {.record = SESSION_NONE, .cost = SESSION_NONE};
	unsigned at = 0;

	/* another session may have used its candidate since */
	if (!search->cursor || search->ahead != *cursor)
		search_look_ahead(t, key, search, *cursor);
	search->victim = SESSION_NONE;
	/* the first candidate is nearly always free; otherwise many are in use */
	if (SY_LIKELY(search_first(t, search, taken))) {
		*cursor = cursor_after(&c, search, 0);
		return true;
	}
	uint64_t bit = UINT64_C(1) << ((unsigned)(cursor - t->cursors) % SESSION_PORT_CURSORS);
	unsigned max = search_max(t, search, bit, &c);
	for (unsigned count = 1; at < max; count = max - at < BATCH ? max - at : BATCH) {
		unsigned passed = search_batch(t, key, search, &c, at, count, taken, &o);
		at += passed;
		search->victim = SESSION_NONE;
		if (at >= c.home)
			t->home_none |= bit;
		if (passed < count) {
			*cursor = cursor_after(&c, search, at);
			return true;
		}
		if (o.record != SESSION_NONE && (at >= SESSION_PORT_PATIENCE || at == max)) {
			search_set(search, t->slot, &c, o.n);
			search->server_hash = o.hash;
			search->victim = o.record;
			*cursor = cursor_after(&c, search, o.n);
			return true;
		}
	}
	*cursor = cursor_at(&c, search, at, candidate_port(&c, at));
	t->port_none |= bit;
	return false;
}
