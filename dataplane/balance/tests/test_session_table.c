// SPDX-License-Identifier: Apache-2.0
/* One table: creation, removal, commit byte, sweep, listing. */
#include "session_fixture.h"

#define RECORDS 20000

struct filled {
	uint64_t hash[RECORDS][2];
	bool live[RECORDS];
};

static void check_all_found(const struct session_table *t, const struct filled *all)
{
	for (uint32_t i = 0; i < RECORDS; i++)
		for (unsigned side = 0; side < 2; side++) {
			uint32_t record = find_named(t, all->hash[i][side], i, side);
			assert_int_equal(record != SESSION_NONE, all->live[i]);
			if (record != SESSION_NONE)
				assert_int_equal(session_at(t, record)->client.d[1], i);
		}
}

static uint32_t fill(struct session_table *t, struct filled *all)
{
	uint32_t added = 0;

	for (uint32_t i = 0; i < RECORDS; i++)
		if (!all->live[i] &&
		    insert_named(t, i, all->hash[i][0], all->hash[i][1]) != SESSION_NONE) {
			all->live[i] = true;
			added++;
		}
	return added;
}

static void fill_halve_refill(void **state)
{
	struct filled *all = calloc(1, sizeof(*all));
	struct session_geometry g;
	struct fixture f;
	uint64_t seed = 9;

	session_geometry_choose(&g, (uint64_t)RECORDS * SY_SLOTS);
	fixture_open(&f, g.records, g.buckets);
	for (uint32_t i = 0; i < RECORDS; i++)
		for (unsigned side = 0; side < 2; side++)
			all->hash[i][side] = random_next(&seed);
	assert_int_equal(fill(&f.table, all), RECORDS);
	assert_int_equal(insert_named(&f.table, 1 << 20, random_next(&seed), random_next(&seed)),
	                 SESSION_NONE);
	check_all_found(&f.table, all);

	for (unsigned round = 0; round < 3; round++) {
		uint32_t removed = 0;
		for (uint32_t i = 0; i < RECORDS; i++) {
			if (random_next(&seed) & 1)
				continue;
			uint32_t record = find_named(&f.table, all->hash[i][0], i, SESSION_CLIENT);
			session_remove(&f.table, record, all->hash[i][0], all->hash[i][1]);
			all->live[i] = false;
			removed++;
		}
		assert_int_equal(session_count(&f.table), RECORDS - removed);
		assert_int_equal(index_used(&f.table), 2 * (RECORDS - removed));
		check_all_found(&f.table, all);
		assert_int_equal(fill(&f.table, all), removed);
		assert_int_equal(session_count(&f.table), session_capacity(&f.table));
		check_all_found(&f.table, all);
	}
	fixture_close(&f);
	free(all);
}

static void insertion_stores_what_it_is_given(void **state)
{
	struct fixture f;
	struct session hot = {
	        .client = sy_addr_v4(0x01020304),
	        .client_port = 1,
	        .local_port = 2,
	        .server = 0xabcdef,
	        .local = 0x12,
	        .delta = 3,
	        .seen = 4,
	        .path = 5,
	        .state = SESSION_SYN_SENT,
	        .flags = SESSION_CLIENT_FIN,
	};

	fixture_open(&f, 16, 4);
	uint32_t record = session_insert(&f.table, &hot, &(struct session_cold){.created = 77},
	                                 0x1111, 0x2222);
	assert_int_equal(record, 0);
	assert_memory_equal(session_at(&f.table, record), &hot, sizeof(hot));
	const struct session_cold *cold = session_cold_at(&f.table, record);
	assert_int_equal(cold->created, 77);
	assert_int_equal(cold->fin_seq[SESSION_CLIENT], 0);
	assert_int_equal(cold->fin_seq[SESSION_SERVER], 0);
	fixture_close(&f);
}

static void commit_byte_covers_identity_only(void **state)
{
	struct fixture f;
	struct session hot = session_named(42);

	fixture_open(&f, 16, 4);
	uint32_t record =
	        session_insert(&f.table, &hot, &(struct session_cold){.created = 1}, 10, 20);
	struct session *stored = session_at(&f.table, record);
	uint16_t commit = session_cold_at(&f.table, record)->commit;
	assert_int_not_equal(commit, 0);
	assert_int_equal(commit, session_check(stored));

	stored->seen = 999;
	stored->path = 7;
	stored->state = SESSION_CLOSING;
	stored->flags = 0xf;
	assert_int_equal(session_check(stored), commit);

	session_remove(&f.table, record, 10, 20);
	assert_int_equal(session_cold_at(&f.table, record)->commit, 0);
	assert_int_equal(session_at(&f.table, record)->state, SESSION_FREE);

	/* one bit of the identity anywhere, and the byte nearly always differs */
	unsigned missed = 0, flips = 0;
	for (uint64_t name = 0; name < 200; name++) {
		struct session whole = session_named(name), torn;
		for (unsigned bit = 0; bit < 8 * offsetof(struct session, seen); bit++, flips++) {
			memcpy(&torn, &whole, sizeof(torn));
			((uint8_t *)&torn)[bit / 8] ^= (uint8_t)(1 << bit % 8);
			missed += session_check(&torn) == session_check(&whole);
			assert_int_not_equal(session_check(&torn), 0);
		}
	}
	assert_true(missed < flips / 100);
	fixture_close(&f);
}

static void idle_time_wraps(void **state)
{
	struct session s = {.seen = 65530};

	assert_int_equal(session_idle(&s, 65530), 0);
	assert_int_equal(session_idle(&s, 65535), 5);
	assert_int_equal(session_idle(&s, 0), 6);
	assert_int_equal(session_idle(&s, 94), 100);
	s.seen = 0;
	assert_int_equal(session_idle(&s, 65535), 65535);
}

struct visits {
	uint32_t count;
	uint32_t last;
	bool remove;
	uint32_t keep;
};

/* The hashes of session n in the tests below are 2n + 1 and 2n + 2, spread by a multiplication. */
static uint64_t hash_of(uint64_t n)
{
	return n * 0x9e3779b97f4a7c15;
}

static void visit_count(void *ctx, struct session_table *t, uint32_t record)
{
	struct visits *v = ctx;

	v->count++;
	v->last = record;
	if (v->remove && record != v->keep)
		session_remove(t, record, hash_of(2 * record + 1), hash_of(2 * record + 2));
}

static void sweep_skips_space_above(void **state)
{
	struct fixture f;
	struct visits v = {0};

	fixture_open(&f, 1000, 240);
	assert_true(session_sweep(&f.table, 1, visit_count, &v)); /* empty: ends at once */
	for (uint64_t n = 0; n < 1000; n++)
		assert_int_equal(insert_named(&f.table, n, hash_of(2 * n + 1), hash_of(2 * n + 2)),
		                 n);
	assert_false(session_sweep(&f.table, 400, visit_count, &v));
	assert_int_equal(v.count, 400);
	assert_false(session_sweep(&f.table, 600, visit_count, &v));
	assert_true(session_sweep(&f.table, 1, visit_count, &v));
	assert_int_equal(v.count, 1000);

	/* all sessions but 3 are removed; the round ends with trimming, in steps as small as asked
	 * for */
	v = (struct visits){.remove = true, .keep = 3};
	assert_false(session_sweep(&f.table, 1000, visit_count, &v));
	assert_int_equal(session_count(&f.table), 1);
	unsigned slices = 0;
	while (!session_sweep(&f.table, 100, visit_count, &v))
		slices++;
	assert_int_equal(slices, 9);
	assert_int_equal(v.count, 1000);

	v = (struct visits){0};
	assert_true(session_sweep(&f.table, 5, visit_count,
	                          &v)); /* records 0 to 3, and the end of the round */
	assert_int_equal(v.count, 1);
	assert_int_equal(v.last, 3);

	/* trimmed records are used again, lowest first */
	session_remove(&f.table, 3, hash_of(7), hash_of(8));
	while (!session_sweep(&f.table, 10, visit_count, &v))
		continue;
	for (uint64_t n = 0; n < 1000; n++)
		assert_int_equal(insert_named(&f.table, n, hash_of(2 * n + 1), hash_of(2 * n + 2)),
		                 n);
	fixture_close(&f);
}

static void next_lists_live_sessions(void **state)
{
	struct fixture f;
	uint32_t cursor = 0;

	fixture_open(&f, 100, 40);
	assert_int_equal(session_next(&f.table, &cursor), SESSION_NONE);
	for (uint64_t n = 0; n < 50; n++)
		insert_named(&f.table, n, hash_of(2 * n + 1), hash_of(2 * n + 2));
	for (uint32_t n = 0; n < 50; n += 2)
		session_remove(&f.table, n, hash_of(2 * n + 1), hash_of(2 * n + 2));
	for (uint32_t n = 1; n < 50; n += 2)
		assert_int_equal(session_next(&f.table, &cursor), n);
	assert_int_equal(session_next(&f.table, &cursor), SESSION_NONE);
	assert_int_equal(session_next(&f.table, &cursor), SESSION_NONE);
	fixture_close(&f);
}

static void visit_none(void *ctx, struct session_table *t, uint32_t record)
{
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static uint32_t insert_pair(struct session_table *t, uint64_t name)
{
	struct session hot[2] = {session_named(name), session_named(name + 1000000)};
	const struct session_cold cold[2] = {{.created = 1}, {.client_fin = (uint32_t)name}};
	return session_insert_pair(t, hot, cold, name * 0x9e3779b97f4a7c15u,
	                           ~name * 0x9e3779b97f4a7c15u);
}

static void remove_pair(struct session_table *t, uint32_t record, uint64_t name)
{
	session_remove(t, record, name * 0x9e3779b97f4a7c15u, ~name * 0x9e3779b97f4a7c15u);
}

static void test_pairs_fill_the_table(void **state)
{
	struct fixture f;
	uint64_t name = 1;
	fixture_open(&f, 64, 64);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 32; i++) {
			uint32_t record = insert_pair(&f.table, name + i);
			assert_int_not_equal(record, SESSION_NONE);
			assert_int_equal(record % 2, 0);
			assert_true(session_is_pair(&f.table, record));
			assert_int_equal(session_at(&f.table, record)[1].client.d[1],
			                 name + i + 1000000);
			assert_int_equal(session_cold_at(&f.table, record)->created, 1);
			assert_int_equal(session_cold_at(&f.table, record)->client_fin, 0);
			assert_int_equal(session_cold_at(&f.table, record + 1)->client_fin,
			                 (uint32_t)(name + i));
			assert_int_equal(session_cold_at(&f.table, record + 1)->commit,
			                 session_check(session_at(&f.table, record) + 1));
		}
		assert_int_equal(insert_pair(&f.table, 99999), SESSION_NONE);
		assert_int_equal(session_count(&f.table), 32);
		/* the sweep visits no pair records */
		uint32_t cursor = 0, seen = 0, record;
		while ((record = session_next(&f.table, &cursor)) != SESSION_NONE) {
			assert_int_equal(record % 2, 0);
			remove_pair(&f.table, record, f.table.index->hot[record].client.d[1]);
			seen++;
		}
		assert_int_equal(seen, 32);
		assert_int_equal(index_used(&f.table), 0);
		assert_int_equal(session_count(&f.table), 0);
		name += 100;
	}
	fixture_close(&f);
}

/* Single sessions in between: a pair needs two free neighbouring records. */
static void test_pairs_among_singles(void **state)
{
	enum { SMALL = 256 };
	struct fixture f;
	uint64_t rng = 7;
	struct {
		uint64_t name;
		bool live, pair;
	} at[SMALL] = {0};
	fixture_open(&f, SMALL, 128);
	for (uint64_t name = 1; name < 200000; name++) {
		uint64_t roll = random_next(&rng);
		uint32_t record = (uint32_t)(roll >> 32) % SMALL;
		uint64_t hash = name * 0x9e3779b97f4a7c15u;
		if (at[record].live && roll % 8 < 5) {
			remove_pair(&f.table, record, at[record].name);
			at[record].live = false;
		} else if (roll % 8 < 6) {
			struct session hot = session_named(name);
			record = session_insert(&f.table, &hot, &(struct session_cold){0}, hash,
			                        ~name * 0x9e3779b97f4a7c15u);
			if (record == SESSION_NONE)
				continue;
			assert_false(at[record].live);
			assert_false(record % 2 && at[record - 1].live && at[record - 1].pair);
			at[record] = (typeof(at[0])){name, true, false};
		} else {
			record = insert_pair(&f.table, name);
			if (record == SESSION_NONE)
				continue;
			assert_int_equal(record % 2, 0);
			assert_false(at[record].live || at[record + 1].live);
			at[record] = (typeof(at[0])){name, true, true};
		}
		if (name % 64 == 0)
			session_sweep(&f.table, 2 * SMALL, visit_none, NULL);
	}
	uint32_t live = 0;
	for (uint32_t r = 0; r < SMALL; r++) {
		live += at[r].live;
		if (at[r].live)
			assert_int_equal(session_is_pair(&f.table, r), at[r].pair);
	}
	assert_int_equal(session_count(&f.table), live);
	assert_int_equal(index_used(&f.table), 2 * live);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(fill_halve_refill),
	        cmocka_unit_test(insertion_stores_what_it_is_given),
	        cmocka_unit_test(commit_byte_covers_identity_only),
	        cmocka_unit_test(idle_time_wraps),
	        cmocka_unit_test(sweep_skips_space_above),
	        cmocka_unit_test(next_lists_live_sessions),
	        cmocka_unit_test(test_pairs_fill_the_table),
	        cmocka_unit_test(test_pairs_among_singles),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
