// SPDX-License-Identifier: Apache-2.0
/* Limits in the configuration: what is refused, which servers they apply to, what a change or a new
 * process keeps, and buckets of clients. */
#include "limit_fixture.h"
#include "limit_model.h"

#define BURST  10
#define TICKET 0x1234

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refused(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	pb_limit *l;

	put_limit(&c, "", PACKETS, 1, 1);
	flows_check_refused(f, &c, "the name of a limit has 1 to 63 bytes");
	put_limit(&c, "a", 0, 1, 1);
	flows_check_refused(f, &c, "limit a: unknown unit; known: bits, packets, sessions");
	put_limit(&c, "a", BITS, 7999, 1);
	flows_check_refused(f, &c, "limit a: 7999 bits a second are not within 8000–400000000000");
	put_limit(&c, "a", PACKETS, 1, 0);
	flows_check_refused(f, &c, "limit a: a burst of 0 packets is not within 1–1000000000");
	put_limit(&c, "a", PACKETS, 1, 1)->layer = 2;
	flows_check_refused(f, &c, "limit a: only a limit of bits has a layer: leave it out");
	put_limit(&c, "a", SESSIONS, 1, 1)->direction = INWARDS;
	flows_check_refused(f, &c,
	                    "limit a: a limit of new sessions has no direction: leave it out");
	put_limit(&c, "a", SESSIONS, 1, 1)->action = MARK;
	flows_check_refused(f, &c,
	                    "limit a: sessions cannot be marked: let it drop, or limit packets");
	put_limit(&c, "a", PACKETS, 1, 1)->dscp = 1;
	flows_check_refused(f, &c, "limit a: a DSCP is within 0–63, and of a limit that marks");
	put_limit(&c, "a", PACKETS, 1, 1)->engine = 9;
	flows_check_refused(f, &c, "limit a: unknown engine; known: cas, lock, light-lock, atomic");
	put_limit(&c, "a", PACKETS, 1, 1)->batch = 1;
	flows_check_refused(f, &c, "limit a: only the engine light-lock has a batch: leave it out");
	l = put_limit(&c, "a", PACKETS, 1, 1);
	l->engine = LIGHT;
	l->batch = 2;
	flows_check_refused(f, &c,
	                    "limit a: a batch above the burst could never be taken: lower it");
	l = put_limit(&c, "a", PACKETS, 1, 1);
	set_limit_clients(&c, l, SY_LIMIT_TABLE_MAX + 1);
	flows_check_refused(f, &c,
	                    "limit a: 1048577 buckets of clients, at most 1048576 are possible");
	l = put_limit(&c, "a", PACKETS, 1, 1);
	set_limit_clients(&c, l, 1);
	l->clients->prefix4 = 7;
	flows_check_refused(f, &c,
	                    "limit a: a client is an IPv4 network of length 8–32, an IPv6 network "
	                    "of 16–128");
	l = put_limit(&c, "a", PACKETS, 1, 1);
	set_limit_clients(&c, l, 1);
	add_limit_within(&c, l, "198.18.0.1", 24);
	flows_check_refused(f, &c, "limit a: prefix 0 of its clients has bits behind its length");
	l = put_limit(&c, "a", PACKETS, 1, 1);
	set_limit_clients(&c, l, 1);
	add_limit_within(&c, l, "10.0.0.0", 8);
	prefix_as_mapped(&c, l->clients->within[0]);
	flows_check_refused(f, &c, "limit a: prefix 0 of its clients is wrong");
	for (unsigned n = 0; n < 2; n++)
		set_limit_clients(&c, put_limit(&c, n ? "a" : "b", PACKETS, 1, 1),
		                  SY_LIMIT_TABLE_MAX);
	flows_check_refused(f, &c,
	                    "the limits by clients have 2097152 buckets, at most 1048576 are "
	                    "possible: lower the most of some");
	for (char name[2] = "a"; *name < 'j'; ++*name)
		add_limit_vip(&c, put_limit(&c, name, PACKETS, 1, 1), &f->service[0].vip);
	flows_check_refused(f, &c,
	                    "more than 8 limits concern VIP 192.0.2.10: join some of them, or name "
	                    "fewer services");
	delete_limit(&c, "a");
	flows_check_refused(f, &c, "there is no limit a");
	assert_int_equal(f->harness.b->ctl->limits->limits, 0);
	assert_int_equal(f->harness.b->ctl->limits->targets.count, 0);
	/* What a limit names only within a transaction is forgotten, too. */
	add_limit_vip(&c, put_limit(&c, "a", PACKETS, 1, 1), &f->service[0].vip);
	add_limit_service(&c, put_limit(&c, "a", PACKETS, 1, 1), &f->service[0]);
	delete_limit(&c, "a");
	flows_commit(f, &c);
	assert_int_equal(f->harness.b->ctl->limits->targets.count, 0);
}

/* ---- whom they concern ----------------------------------------------------------------------- */

#define NAMES 10

/* Random transactions, some of them refused. Afterwards each server's chain has the limits that
 * concern it, by the messages alone. */
struct expected {
	bool exists, all;
	bool service[FLOW_SERVICES], vip[2], server[FLOW_SERVICES][FLOW_SERVERS];
	int unit, action;
};

static void expect(struct flows *f, struct changes *c, struct expected *e, const char *name)
{
	*e = (struct expected){.exists = true, .all = true};
	e->unit = 1 + (int)rng_below(&f->rng, 3);
	e->action = e->unit == SESSIONS ? 0 : (int)rng_below(&f->rng, 3);
	pb_limit *l = put_limit(c, name, e->unit, 8000, 1 + rng_below(&f->rng, 1000));
	l->action = e->action;
	for (unsigned n = rng_below(&f->rng, 4); n > 0; n--) {
		unsigned s = rng_below(&f->rng, FLOW_SERVICES),
		         i = rng_below(&f->rng, FLOW_SERVERS);
		e->all = false;
		switch (rng_below(&f->rng, 3)) {
		case 0:
			add_limit_service(c, l, &f->service[s]);
			e->service[s] = true;
			break;
		case 1:
			add_limit_vip(c, l, &f->service[s].vip);
			e->vip[s / 2] = true;
			break;
		default:
			add_limit_server(c, l, &f->service[s], &f->server[s][i],
			                 s % 2 ? 5353 : 8080);
			e->server[s][i] = true;
		}
	}
}

static bool chain_has(const struct sy_balance *b, uint32_t server, uint32_t id, unsigned *place)
{
	const struct limit_chain *chain = b->limits.chain[server];
	for (unsigned i = 0; chain && i < limit_chain_count(chain); i++)
		if (chain->id[i] == id) {
			*place = i < chain->drops ? 0 : i < chain->drops + chain->sessions ? 1 : 2;
			return true;
		}
	return false;
}

static void check_chains(struct flows *f, const struct expected *expected)
{
	const struct sy_balance *b = f->harness.b;
	const struct limit_model *m = b->ctl->limits;
	for (uint32_t id = 0; id < b->ctl->model->service_ids.fresh; id++) {
		const struct model_service *service = b->ctl->model->service[id];
		for (unsigned n = 0; service && n < service->servers; n++) {
			const uint32_t server = service->server[n].id;
			unsigned s = 0, i = 0, count = 0, sides = 0;
			while (memcmp(&f->service[s], &service->key, sizeof(service->key)) != 0)
				s++;
			while (!sy_addr_equal(&f->server[s][i], &service->server[n].addr))
				i++;
			for (unsigned k = 0; k < NAMES; k++) {
				const struct expected *e = &expected[k];
				const char name[2] = {(char)('a' + k), 0};
				const struct model_limit *l = limit_find(m, name);
				unsigned place = 0;
				assert_int_equal(l != NULL, e->exists);
				if (!l)
					continue;
				bool has =
				        e->all || e->service[s] || e->vip[s / 2] || e->server[s][i];
				assert_int_equal(chain_has(b, server, l->id, &place), has);
				if (!has)
					continue;
				count++;
				sides |= e->unit == SESSIONS ? LIMITED_SESSIONS : 3;
				assert_int_equal(place, e->unit == SESSIONS ? 1
				                        : e->action == MARK ? 2
				                                            : 0);
			}
			const struct limit_chain *chain = b->limits.chain[server];
			assert_int_equal(chain ? limit_chain_count(chain) : 0, count);
			assert_int_equal(b->endpoint[server].limited, sides);
		}
	}
}

static void test_random(void **state)
{
	struct flows *f = *state;
	struct expected now[NAMES] = {0};
	bool gone[FLOW_SERVICES] = {false};
	unsigned accepted = 0, refused = 0;
	for (unsigned n = 0; n < 600; n++) {
		struct changes c = {0};
		struct expected next[NAMES];
		memcpy(next, now, sizeof(next));
		for (unsigned k = rng_below(&f->rng, 6); k > 0; k--) {
			unsigned at = rng_below(&f->rng, NAMES);
			const char name[2] = {(char)('a' + at), 0};
			if (next[at].exists && rng_percent(&f->rng, 30)) {
				delete_limit(&c, strcpy(arena_alloc(&c.arena, 2), name));
				next[at].exists = false;
			} else {
				expect(f, &c, &next[at], name);
			}
		}
		/* Services come and go under their limits. */
		unsigned s = rng_below(&f->rng, FLOW_SERVICES);
		if (rng_percent(&f->rng, 20)) {
			if (gone[s]) {
				put_service(&c, &f->service[s], "service", FLOW_RR, NULL);
				for (unsigned i = 0; i < FLOW_SERVERS; i++)
					put_server(&c, &f->service[s], &f->server[s][i],
					           s % 2 ? 5353 : 8080, 1, FLOW_UP);
			} else {
				delete_service(&c, &f->service[s]);
			}
		} else {
			s = FLOW_SERVICES;
		}
		if (rng_percent(&f->rng, 30)) {
			put_limit(&c, "a wrong one", PACKETS, 0, 0);
			assert_false(harness_commit(&f->harness, &c));
			refused++;
		} else if (harness_commit(&f->harness, &c)) {
			memcpy(now, next, sizeof(now));
			if (s < FLOW_SERVICES)
				gone[s] = !gone[s];
			accepted++;
		} else {
			assert_non_null(strstr(f->harness.error, "more than 8 limits"));
		}
		check_chains(f, now);
		if (n % 50 == 0)
			flows_advance(f, HARNESS_RETIRED);
	}
	assert_true(accepted > 200 && refused > 100);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* A limit that is replaced keeps its credit, up to the new burst. */
static void test_change(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	flow_open(f, &flow, 0, 4000);
	limit_service(f, 0, "a", PACKETS, 1, 100);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 40), 40);
	limit_service(f, 0, "a", PACKETS, 5, 100);
	assert_int_equal(limit_show(f, "a").left, 60);
	flows_advance(f, 1);
	assert_int_equal(limit_show(f, "a").left, 65);
	limit_service(f, 0, "a", PACKETS, 5, 20);
	assert_int_equal(limit_show(f, "a").left, 20);
	limit_service(f, 0, "a", PACKETS, 5, 1000);
	assert_int_equal(limit_show(f, "a").left, 65);
	flows_advance(f, 1);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 100), 70);
	assert_int_equal(limit_show(f, "a").passed, 110);
	assert_int_equal(limit_show(f, "a").above, 30);
	/* Another unit: another bucket, and other counts. */
	limit_service(f, 0, "a", BITS, 8000, 10000);
	assert_int_equal(limit_show(f, "a").left, 10000);
	assert_int_equal(limit_show(f, "a").passed, 0);
	/* A new limit of an old name is new. */
	struct changes c = {0};
	delete_limit(&c, "a");
	flows_commit(f, &c);
	limit_service(f, 0, "a", PACKETS, 1, 100);
	assert_int_equal(limit_show(f, "a").left, 100);
	assert_int_equal(limit_show(f, "a").passed, 0);
}

/* Two changes within a transaction: the bucket that it continues is that of the limit itself, also
 * where an earlier one's id has gone to another limit. */
static void test_change_twice(void **state)
{
	struct flows *f = *state;
	const struct limit_model *m = f->harness.b->ctl->limits;
	struct changes c = {0};
	struct flow flow[2];
	flow_open(f, &flow[0], 0, 4000);
	flow_open(f, &flow[1], 1, 4000);
	limit_service(f, 0, "a", PACKETS, 1, 100);
	const uint32_t first = limit_find(m, "a")->id;
	for (unsigned n = 0; n < 2; n++) {
		pb_limit *l = put_limit(&c, "a", PACKETS, 1 + n, 100);
		l->engine = LIGHT;
		add_limit_service(&c, l, &f->service[0]);
		if (n == 0) {
			flows_commit(f, &c);
			flows_advance(f, HARNESS_RETIRED);
			limit_service(f, 1, "b", PACKETS, 1, 100);
			assert_int_equal(limit_find(m, "b")->id, first);
			assert_int_equal(flow_send(f, &flow[0], SESSION_CLIENT, 40), 40);
			assert_int_equal(flow_send(f, &flow[1], SESSION_CLIENT, 30), 30);
		}
	}
	const struct shown a = limit_show(f, "a");
	assert_int_equal(a.left, 60);
	add_limit_service(&c, put_limit(&c, "a", PACKETS, 1, 100), &f->service[0]);
	flows_commit(f, &c);
	assert_int_equal(limit_show(f, "a").left, 60);
	assert_int_equal(limit_show(f, "a").passed, a.passed);
}

/* From a fast limit to a slow one: the slow one's time begins now. */
static void test_slower(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	flow_open(f, &flow, 0, 4000);
	limit_service(f, 0, "a", BITS, UINT64_C(400000000000), 1000000);
	flows_advance(f, 1);
	harness_advance(&f->harness, 5 * MS_NS);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 10), 10);
	limit_service(f, 0, "a", PACKETS, 1000000, 1000);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 1000), 1000);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 1), 0);
	limit_service(f, 0, "a", PACKETS, 2, 1000);
	flows_advance(f, 1);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 10), 2);
}

/* A refused transaction leaves limits, buckets and counts as they were. */
static void test_rollback(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	size_t len, len_after;
	flow_open(f, &flow, 0, 4000);
	limit_service(f, 0, "a", PACKETS, 1, 100);
	put_limit(&c, "b", PACKETS, 1, 100);
	set_limit_clients(&c, put_limit(&c, "c", PACKETS, 1, 100), 50);
	flows_commit(f, &c);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 40), 40);
	uint8_t *before = harness_config(&f->harness, &len);
	for (unsigned n = 0; n < 3; n++) {
		put_limit(&c, "a", BITS, 8000, 100);
		put_limit(&c, "a", PACKETS, 7, 7);
		delete_limit(&c, "b");
		put_limit(&c, "b", SESSIONS, 1, 1);
		set_limit_clients(&c, put_limit(&c, "c", PACKETS, 1, 100), 60);
		set_limit_clients(&c, put_limit(&c, "c", PACKETS, 1, 100), 70);
		delete_limit(&c, "c");
		put_limit(&c, "d", PACKETS, 1, 100);
		put_limit(&c, "e", PACKETS, 0, 100);
		flows_check_refused(f, &c,
		                    "limit e: 0 packets a second are not within 1–1000000000");
		flows_advance(f, 1);
	}
	uint8_t *after = harness_config(&f->harness, &len_after);
	assert_int_equal(len, len_after);
	assert_memory_equal(before, after, len);
	assert_int_equal(limit_show(f, "a").left, 63);
	assert_int_equal(limit_show(f, "b").passed, 40);
	assert_int_equal(limit_show(f, "c").passed, 40);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 100), 63);
	free(before);
	free(after);
}

/* ---- listings -------------------------------------------------------------------------------- */

#define MANY 2500

static void test_pages(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	char name[16], last[16] = "";
	uint32_t cursor = 0;
	unsigned seen = 0, pages = 0;
	for (unsigned i = 0; i < MANY; i++) {
		struct service_key key = f->service[0];
		snprintf(name, sizeof(name), "limit %u", i * 7919 % MANY);
		key.vport = htons((uint16_t)(1000 + i));
		add_limit_service(&c, put_limit(&c, name, PACKETS, 1, 1), &key);
	}
	flows_commit(f, &c);
	do {
		pb_response *r = limits_list(f, "", cursor, 900, 0);
		assert_null(r->error);
		for (size_t i = 0; i < r->list_limits->n_limits; i++, seen++) {
			const char *here = r->list_limits->limits[i]->limit->name;
			assert_true(strcmp(last, here) < 0);
			snprintf(last, sizeof(last), "%s", here);
		}
		cursor = r->list_limits->next_cursor;
		pages++;
		steelyard__forwarder__v1__response__free_unpacked(r, NULL);
	} while (cursor);
	assert_int_equal(seen, MANY);
	assert_int_equal(pages, 3);
	/* The configuration's pages: services, then limits. */
	unsigned services = 0;
	seen = 0;
	do {
		Steelyard__Forwarder__V1__GetConfigRequest get =
		        STEELYARD__FORWARDER__V1__GET_CONFIG_REQUEST__INIT;
		pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
		q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_GET_CONFIG;
		q.get_config = &get;
		get.cursor = cursor;
		get.limit = 900;
		pb_response *r = harness_request(&f->harness, &q);
		assert_null(r->error);
		services += (unsigned)r->get_config->n_entries;
		seen += (unsigned)r->get_config->n_limits;
		cursor = r->get_config->next_cursor;
		steelyard__forwarder__v1__response__free_unpacked(r, NULL);
	} while (cursor);
	assert_int_equal(services, FLOW_SERVICES);
	assert_int_equal(seen, MANY);
	pb_response *r = limits_list(f, "no such", 0, 0, 0);
	assert_string_equal(r->error->text, "there is no limit no such");
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
}

/* ---- other processes ------------------------------------------------------------------------- */

/* Limits outlive the process, saved or in the journal, and concern the sessions that do. Buckets
 * begin full. */
static void test_restart(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	size_t len, len_after;
	flow_open(f, &flow, 0, 4000);
	for (unsigned n = 0; n < 6; n++) {
		limit_service(f, 0, "a", PACKETS, 1, 20 + n);
		flows_advance(f, 1);
		assert_true(flow_send(f, &flow, SESSION_CLIENT, 100) > 0);
		uint8_t *before = harness_config(&f->harness, &len);
		if (n % 2)
			flows_advance(f, 3); /* the snapshot has it */
		flows_reopen(f, 1 + n % 3, n < 3 ? 0 : TICKET, n < 2);
		uint8_t *after = harness_config(&f->harness, &len_after);
		assert_int_equal(len, len_after);
		assert_memory_equal(before, after, len);
		free(before);
		free(after);
		flows_advance(f, 1);
		assert_string_equal(limit_show(f, "a").engine, n % 3 ? "cas" : "own");
		assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 100), 20 + n);
		assert_int_equal(limit_show(f, "a").passed, 20 + n);
	}
}

/* Several workers share each bucket, with any engine; another engine keeps the counts and the
 * credit. */
static void test_workers(void **state)
{
	static const char *const names[] = {"cas", "cas", "lock", "light-lock", "atomic"};
	struct flows *f = *state;
	enum { FLOWS = 12, BURST_ALL = 600 };
	struct flow flow[FLOWS];
	flows_reopen(f, 3, 0, false);
	flows_advance(f, 1);
	for (unsigned i = 0; i < FLOWS; i++)
		flow_open(f, &flow[i], 1, (uint16_t)(4000 + 37 * i));
	for (int engine = 0; engine <= ATOMIC; engine++) {
		struct changes c = {0};
		unsigned through = 0;
		pb_limit *l = put_limit(&c, "a", PACKETS, 1, BURST_ALL);
		l->engine = engine;
		l->batch = engine == LIGHT ? 1 : 0;
		flows_commit(f, &c);
		assert_string_equal(limit_show(f, "a").engine, names[engine]);
		for (unsigned i = 0; i < FLOWS; i++)
			through += flow_send(f, &flow[i], i % 2 ? SESSION_SERVER : SESSION_CLIENT,
			                     2 * BURST_ALL / FLOWS);
		assert_int_equal(through, engine ? 0 : BURST_ALL);
		assert_int_equal(limit_show(f, "a").passed, BURST_ALL);
		assert_int_equal(limit_show(f, "a").above, BURST_ALL * (2 * engine + 1));
	}
	flows_advance(f, 5);
	unsigned through = 0;
	for (unsigned i = 0; i < FLOWS; i++)
		through += flow_send(f, &flow[i], SESSION_CLIENT, 1);
	assert_int_equal(through, 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, limits_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_refused), TEST(test_random),   TEST(test_change),
	        TEST(test_slower),  TEST(test_rollback), TEST(test_pages),
	        TEST(test_restart), TEST(test_workers),  TEST(test_change_twice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
