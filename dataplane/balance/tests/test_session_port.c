// SPDX-License-Identifier: Apache-2.0
/* Local ports: each in its slot, none used twice towards one endpoint, reused as late as
 * possible. */
#include <arpa/inet.h>

#include "session_fixture.h"

#define SLOT 7 /* of the fixture's table */

static const struct sy_hash_key key = {{11, 22, 33, 44, 55, 66, 77, 88}};

struct endpoint {
	struct sy_addr addr;
	uint16_t port;
	uint32_t proto;
};

/* Servers by id; 2 and 3 are one endpoint in two services. */
static struct endpoint endpoints[1024];
static struct sy_addr locals[8];
static uint16_t now;
static const uint8_t local_ids[8] = {10, 11, 12, 13, 14, 15, 16, 17};

/* Another server with the same cursor as this one. */
static uint32_t shares_cursor(uint32_t server)
{
	const struct endpoint *e = &endpoints[server];
	uint32_t cursor = session_port_cursor_of(&e->addr, e->port) % SESSION_PORT_CURSORS;
	for (uint32_t other = 10; other < SY_ARRAY_LEN(endpoints); other++) {
		const struct endpoint *o = &endpoints[other];
		if (other != server &&
		    session_port_cursor_of(&o->addr, o->port) % SESSION_PORT_CURSORS == cursor)
			return other;
	}
	fail_msg("every cursor has one server");
	return 0;
}

static int setup(void **state)
{
	sy_slot_init();
	for (uint32_t i = 0; i < SY_ARRAY_LEN(endpoints); i++)
		endpoints[i] = (struct endpoint){sy_addr_v4(htonl(0x0a000000 + i)), htons(80), 6};
	endpoints[3] = endpoints[2];
	endpoints[4] = endpoints[2];
	endpoints[4].proto = 17;
	for (uint32_t i = 0; i < SY_ARRAY_LEN(locals); i++)
		locals[i] = sy_addr_v4(htonl(0xc0000200 + i));
	return 0;
}

static bool taken(const void *ctx, const struct session *candidate,
                  enum session_direction direction)
{
	const struct session_port_search *s = ctx;
	const struct endpoint *e = &endpoints[candidate->server];

	return direction == SESSION_SERVER && candidate->local_port == s->reply.dport &&
	       candidate->local == s->local && sy_addr_equal(&e->addr, &s->reply.src) &&
	       e->port == s->reply.sport && e->proto == s->reply.proto;
}

static struct session_port_search search_for(uint32_t server, unsigned local_count)
{
	const struct endpoint *e = &endpoints[server];
	return (struct session_port_search){
	        .locals = locals,
	        .local_ids = local_ids,
	        .local_count = local_count,
	        .now = now,
	        .reply = {.src = e->addr, .sport = e->port, .proto = e->proto},
	};
}

static uint64_t names;

/* The client's side does not matter here; its hash follows from the name. */
static uint64_t client_hash(uint64_t name)
{
	return sy_hash_mix(name ^ 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9);
}

/* Finds a port by this search and acquires it. Returns the record, or SESSION_NONE if no port is
 * free. */
static uint32_t port_put(struct session_table *t, uint32_t server,
                         struct session_port_search *found)
{
	if (!session_find_port(t, &key, found, taken))
		return SESSION_NONE;
	assert_true(found->local >= local_ids[0] &&
	            found->local < local_ids[0] + found->local_count);
	assert_true(sy_addr_equal(&found->reply.dst, &locals[found->local - local_ids[0]]));
	assert_int_equal(sy_slot_of(&found->reply.dst, found->reply.dport), SLOT);
	assert_true(ntohs(found->reply.dport) >= 1024);
	assert_true(found->server_hash == sy_hash_tuple(&key, &found->reply));

	struct session hot = session_named(names);
	hot.server = server & 0xffffff;
	hot.local = found->local;
	hot.local_port = found->reply.dport;
	uint32_t record = session_insert(t, &hot, &(struct session_cold){.created = 1},
	                                 client_hash(names++), found->server_hash);
	assert_int_not_equal(record, SESSION_NONE);
	return record;
}

/* The same, by a search whose home is the first address. */
static uint32_t port_acquire(struct session_table *t, uint32_t server, unsigned local_count,
                             struct session_port_search *found)
{
	*found = search_for(server, local_count);
	return port_put(t, server, found);
}

static void port_release(struct session_table *t, uint32_t record,
                         const struct session_port_search *found)
{
	session_remove(t, record, client_hash(session_at(t, record)->client.d[1]),
	               found->server_hash);
}

/* Usable ports of the slot, over this many addresses. */
static unsigned ports_usable(unsigned local_count)
{
	unsigned usable = 0;

	for (unsigned i = 0; i < local_count; i++)
		for (unsigned n = 0; n < SY_SLOT_PORTS; n++)
			usable += ntohs(sy_slot_port(SLOT, &locals[i], n)) >= 1024;
	return usable;
}

static void exhausts_every_port_once(void **state)
{
	for (unsigned count = 1; count <= 4; count++) {
		struct fixture f;
		struct session_port_search found;
		bool *seen = calloc(count * 65536, sizeof(*seen));
		unsigned usable = ports_usable(count), got = 0;

		fixture_open(&f, 4096, 900);
		while (port_acquire(&f.table, 1, count, &found) != SESSION_NONE) {
			unsigned at = (found.local - local_ids[0]) * 65536u + found.reply.dport;
			assert_false(seen[at]);
			seen[at] = true;
			got++;
		}
		assert_int_equal(got, usable);
		assert_true(usable > 240 * count);
		/* all of them are free towards another server, even one with the same cursor */
		now++;
		uint32_t other = shares_cursor(1);
		for (got = 0; port_acquire(&f.table, other, count, &found) != SESSION_NONE; got++)
			continue;
		assert_int_equal(got, usable);
		free(seen);
		fixture_close(&f);
	}
}

/* With all other ports in use, the free one is found wherever the cursor is. */
static void finds_the_last_free_port(void **state)
{
	struct fixture f;
	struct session_port_search found[1100];
	uint32_t record[1100];
	unsigned held = 0;
	uint64_t seed = 6;

	fixture_open(&f, 2048, 450);
	while ((record[held] = port_acquire(&f.table, 1, 4, &found[held])) != SESSION_NONE)
		held++;
	for (unsigned i = 0; i < 500; i++) {
		unsigned one = (unsigned)(random_next(&seed) % held);
		struct session_port_search old = found[one];
		port_release(&f.table, record[one], &old);
		now++;
		record[one] = port_acquire(&f.table, 1, 4, &found[one]);
		assert_int_not_equal(record[one], SESSION_NONE);
		assert_int_equal(found[one].reply.dport, old.reply.dport);
		assert_int_equal(found[one].local, old.local);
		struct session_port_search none;
		assert_int_equal(port_acquire(&f.table, 1, 4, &none), SESSION_NONE);
	}
	fixture_close(&f);
}

/* More addresses than one search covers: the next search continues where the last one stopped. */
static void search_is_bounded_and_goes_on(void **state)
{
	struct fixture f;
	struct session_port_search *found = calloc(8 * SY_SLOT_PORTS, sizeof(*found)), none;
	uint32_t *record = calloc(8 * SY_SLOT_PORTS, sizeof(*record));
	unsigned usable = ports_usable(8);
	uint64_t seed = 8;

	fixture_open(&f, 4096, 900);
	for (unsigned i = 0; i < usable; i++) {
		record[i] = port_acquire(&f.table, 1, 8, &found[i]);
		assert_int_not_equal(record[i], SESSION_NONE);
	}
	for (unsigned round = 0; round < 100; round++) {
		assert_int_equal(port_acquire(&f.table, 1, 8, &none), SESSION_NONE);
		unsigned one = (unsigned)(random_next(&seed) % usable);
		struct session_port_search old = found[one];
		unsigned searches = 1;
		port_release(&f.table, record[one], &old);
		for (now++;
		     (record[one] = port_acquire(&f.table, 1, 8, &found[one])) == SESSION_NONE;
		     now++)
			/* Each covers the home address and three of the seven others. */
			assert_true(++searches <= 3);
		assert_int_equal(found[one].reply.dport, old.reply.dport);
		assert_int_equal(found[one].local, old.local);
	}
	free(record);
	free(found);
	fixture_close(&f);
}

/* Candidates that a search compares. */
static unsigned compared;

static bool in_use_counting(const void *ctx, const struct session *candidate,
                            enum session_direction direction)
{
	compared++;
	return taken(ctx, candidate, direction);
}

/* While no port is free, searches after the first are short until the second is over. A port that
 * becomes free meanwhile is found once the short searches have come to it. */
static void searches_are_short_when_none_is_free(void **state)
{
	struct fixture f;
	struct session_port_search found[2 * SY_SLOT_PORTS], none;
	uint32_t record[2 * SY_SLOT_PORTS];
	unsigned held = 0, searches = 1;

	fixture_open(&f, 1024, 250);
	now = 500;
	while ((record[held] = port_acquire(&f.table, 1, 2, &found[held])) != SESSION_NONE)
		held++;
	for (unsigned second = 0; second < 3; second++, now++)
		for (unsigned i = 0; i < 5; i++) {
			none = search_for(1, 2);
			compared = 0;
			assert_false(session_find_port(&f.table, &key, &none, in_use_counting));
			if (second > 0 && i == 0)
				assert_true(compared >= held);
			else
				assert_in_range(compared, 0, SESSION_PORT_SHORT + 1);
		}
	none = search_for(1, 2);
	assert_false(session_find_port(&f.table, &key, &none, taken));
	port_release(&f.table, record[300], &found[300]);
	while (port_acquire(&f.table, 1, 2, &none) == SESSION_NONE)
		assert_true(++searches <= 2 * SY_SLOT_PORTS / SESSION_PORT_SHORT);
	assert_true(searches > 1);
	assert_int_equal(none.reply.dport, found[300].reply.dport);
	now = 0;
	fixture_close(&f);
}

/* A client's address is the home address while it has a port, then any other; again the home
 * address in the second after a port of it became free. */
static void home_address_comes_first(void **state)
{
	for (unsigned home = 0; home < 4; home++) {
		struct fixture f;
		struct session_port_search found[4 * SY_SLOT_PORTS];
		uint32_t record[4 * SY_SLOT_PORTS];
		unsigned of_home = 0, others[8] = {0}, n = 0;

		fixture_open(&f, 2048, 500);
		now = 700;
		for (; n < 4 * SY_SLOT_PORTS; n++) {
			found[n] = search_for(1, 4);
			found[n].home = home;
			record[n] = port_put(&f.table, 1, &found[n]);
			if (record[n] == SESSION_NONE)
				break;
			if (found[n].local == local_ids[home]) {
				assert_int_equal(of_home, n); /* none of another one before */
				of_home++;
			}
			others[found[n].local - local_ids[0]]++;
		}
		assert_int_equal(n, ports_usable(4));
		assert_true(of_home >= SY_SLOT_PORTS * 9 / 10);
		for (unsigned i = 0; i < 4; i++)
			assert_true(others[i] >= SY_SLOT_PORTS * 9 / 10);
		now++;
		port_release(&f.table, record[of_home / 2], &found[of_home / 2]);
		port_release(&f.table, record[n - 1], &found[n - 1]);
		struct session_port_search again = search_for(1, 4);
		again.home = home;
		assert_true(session_find_port(&f.table, &key, &again, taken));
		assert_int_equal(again.local, local_ids[home]);
		fixture_close(&f);
	}
	now = 0;
}

static void freed_port_comes_back_last(void **state)
{
	struct fixture f;
	struct session_port_search first, found;
	unsigned usable = ports_usable(1); /* of the home address */

	fixture_open(&f, 1024, 250);
	uint32_t record = port_acquire(&f.table, 1, 2, &first);
	port_release(&f.table, record, &first);
	for (unsigned i = 1; i < usable; i++) {
		record = port_acquire(&f.table, 1, 2, &found);
		assert_false(found.local == first.local && found.reply.dport == first.reply.dport);
		port_release(&f.table, record, &found);
	}
	port_acquire(&f.table, 1, 2, &found);
	assert_int_equal(found.local, first.local);
	assert_int_equal(found.reply.dport, first.reply.dport);
	fixture_close(&f);
}

static void one_endpoint_in_two_services_is_one(void **state)
{
	struct fixture f;
	struct session_port_search found;
	unsigned usable = ports_usable(1), got = 0;

	fixture_open(&f, 1024, 250);
	while (got < usable / 2 && port_acquire(&f.table, 2, 1, &found) != SESSION_NONE)
		got++;
	while (port_acquire(&f.table, 3, 1, &found) != SESSION_NONE)
		got++;
	assert_int_equal(got, usable);
	assert_int_equal(port_acquire(&f.table, 2, 1, &found), SESSION_NONE);
	/* the same address and port over UDP is another endpoint */
	assert_int_not_equal(port_acquire(&f.table, 4, 1, &found), SESSION_NONE);
	fixture_close(&f);
}

/* The second service continues where the first one was, whatever its servers' ids are. */
static void one_endpoint_has_one_cursor(void **state)
{
	struct fixture f;
	struct session_port_search first, found;

	fixture_open(&f, 1024, 250);
	port_release(&f.table, port_acquire(&f.table, 2, 1, &first), &first);
	for (unsigned i = 1; i < ports_usable(1); i++) {
		port_release(&f.table, port_acquire(&f.table, 2 + i % 2, 1, &found), &found);
		assert_int_not_equal(found.reply.dport, first.reply.dport);
	}
	fixture_close(&f);
}

/* When ports run out, a session in TIME_WAIT for a second releases its port: the oldest first. */
static void ports_of_time_wait_come_back_early(void **state)
{
	struct fixture f;
	struct session_port_search found[2 * SY_SLOT_PORTS], one;
	uint32_t record[2 * SY_SLOT_PORTS], held = 0;

	now = 999;
	fixture_open(&f, 1024, 250);
	while ((record[held] = port_acquire(&f.table, 1, 2, &found[held])) != SESSION_NONE) {
		assert_int_equal(found[held].victim, SESSION_NONE);
		session_at(&f.table, record[held++])->seen = now;
	}
	now = 1000;
	for (uint32_t i = 0; i < held; i++) {
		struct session *s = session_at(&f.table, record[i]);
		s->state = i == 100 ? SESSION_CLOSING : SESSION_TIME_WAIT;
		s->seen = (uint16_t)(i == 200 ? 1001 : i % 2 ? 1000 : 990);
	}
	one = search_for(1, 2);
	assert_true(session_find_port(&f.table, &key, &one, taken));
	assert_int_not_equal(one.victim, SESSION_NONE); /* ten seconds */
	for (uint32_t i = 0; i < held; i++)
		session_at(&f.table, record[i])->seen = 1000;
	one = search_for(1, 2);
	assert_false(session_find_port(&f.table, &key, &one, taken)); /* less than a second yet */
	now = 1001;
	/* All of them become free, each once, except the live one's. */
	for (uint32_t n = 0; n < held - 1; n++) {
		uint32_t i = 0;
		one = search_for(1, 2);
		assert_true(session_find_port(&f.table, &key, &one, taken));
		assert_int_not_equal(one.victim, SESSION_NONE);
		while (record[i] != one.victim)
			assert_true(++i < held);
		assert_int_equal(one.reply.dport, found[i].reply.dport);
		assert_int_equal(one.local, found[i].local);
		assert_true(one.server_hash == found[i].server_hash);
		session_at(&f.table, one.victim)->state = SESSION_ESTABLISHED;
	}
	one = search_for(1, 2);
	assert_false(session_find_port(&f.table, &key, &one, taken));
	now = 0;
	fixture_close(&f);
}

static void no_address_no_port(void **state)
{
	struct fixture f;
	struct session_port_search found;

	fixture_open(&f, 16, 4);
	assert_int_equal(port_acquire(&f.table, 1, 0, &found), SESSION_NONE);
	fixture_close(&f);
}

/* The maximum number of addresses: the cursor reaches the last candidate. */
static void cursor_spans_all_addresses(void **state)
{
	struct fixture f;
	static struct sy_addr many[256];
	static uint8_t ids[256];

	fixture_open(&f, 16, 4);
	for (unsigned i = 0; i < 256; i++) {
		many[i] = sy_addr_v4(htonl(0xc6336400 + i));
		ids[i] = (uint8_t)i;
	}
	struct session_port_search s = search_for(1, 256);
	s.locals = many;
	s.local_ids = ids;
	uint16_t *cursor = session_port_cursor(
	        &f.table, session_port_cursor_of(&endpoints[1].addr, endpoints[1].port));
	for (unsigned home = 0; home < 256; home += 51) {
		s.home = home;
		cursor = session_port_cursor(
		        &f.table,
		        session_port_cursor_of(&endpoints[1].addr, endpoints[1].port) + home);
		*cursor = UINT16_MAX;
		assert_true(session_find_port(&f.table, &key, &s, taken));
		assert_int_equal(s.local, home);
		assert_int_equal(*cursor % SY_SLOT_PORTS, 0);
	}
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(exhausts_every_port_once),
	        cmocka_unit_test(finds_the_last_free_port),
	        cmocka_unit_test(search_is_bounded_and_goes_on),
	        cmocka_unit_test(searches_are_short_when_none_is_free),
	        cmocka_unit_test(home_address_comes_first),
	        cmocka_unit_test(freed_port_comes_back_last),
	        cmocka_unit_test(one_endpoint_in_two_services_is_one),
	        cmocka_unit_test(one_endpoint_has_one_cursor),
	        cmocka_unit_test(ports_of_time_wait_come_back_early),
	        cmocka_unit_test(no_address_no_port),
	        cmocka_unit_test(cursor_spans_all_addresses),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
