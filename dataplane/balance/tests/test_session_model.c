// SPDX-License-Identifier: Apache-2.0
/* Random operations on a table and on a plain list of its expected contents, compared after each
 * step. */
#include <stdio.h>

#include "session_fixture.h"

struct member {
	uint64_t name, hash[2];
	uint32_t visits; /* by this round of the sweep */
	bool elder;      /* live since the round began */
};

/* The plain model: the session of each record, if any, and an array of the live ones. */
struct model {
	struct fixture f;
	uint64_t random;
	uint64_t hash_mask; /* of all hashes: with few bits, collisions are frequent */
	uint64_t names;
	struct member *members; /* by record */
	uint32_t *live;         /* records */
	uint32_t *position;     /* in live[], by record; SESSION_NONE: not live */
	uint32_t count;
	uint32_t entries;       /* in the index */
	uint32_t sweep_removes; /* one of this many visited sessions is removed; 0: none */
};

static uint64_t model_hash(struct model *m)
{
	return random_next(&m->random) & m->hash_mask;
}

static unsigned entries_of(const struct member *there)
{
	return there->hash[SESSION_SERVER] == SESSION_ONE_WAY ? 1 : 2;
}

static void model_insert(struct model *m, uint8_t *snapshot)
{
	struct member new = {.name = m->names++, .hash = {model_hash(m), model_hash(m)}};
	if (new.name % 8 == 0)
		new.hash[SESSION_SERVER] = SESSION_ONE_WAY;
	struct session_table before = m->f.table;

	if (snapshot != NULL)
		memcpy(snapshot, m->f.region, m->f.geometry.size);
	uint32_t record = insert_named(&m->f.table, new.name, new.hash[SESSION_CLIENT],
	                               new.hash[SESSION_SERVER]);
	if (record == SESSION_NONE) {
		if (snapshot != NULL)
			assert_memory_equal(snapshot, m->f.region, m->f.geometry.size);
		assert_memory_equal(&before, &m->f.table, sizeof(before));
		/* hashes spread evenly: only a full table refuses */
		if (m->hash_mask == UINT64_MAX && m->f.geometry.buckets >= 64)
			assert_true(m->count == m->f.geometry.records ||
			            index_used(&m->f.table) >=
			                    0.95 * SESSION_BUCKET_ENTRIES * m->f.geometry.buckets);
		return;
	}
	assert_true(record < m->f.geometry.records);
	assert_int_equal(m->position[record], SESSION_NONE);
	m->members[record] = new;
	m->entries += entries_of(&new);
	m->position[record] = m->count;
	m->live[m->count++] = record;
}

static void model_forget(struct model *m, uint32_t record)
{
	uint32_t last = m->live[--m->count];

	m->entries -= entries_of(&m->members[record]);
	m->live[m->position[record]] = last;
	m->position[last] = m->position[record];
	m->position[record] = SESSION_NONE;
}

static void model_remove(struct model *m, uint32_t record)
{
	const struct member *gone = &m->members[record];

	session_remove(&m->f.table, record, gone->hash[SESSION_CLIENT], gone->hash[SESSION_SERVER]);
	model_forget(m, record);
	for (unsigned side = 0; side < 2; side++)
		assert_int_equal(find_named(&m->f.table, gone->hash[side], gone->name, side),
		                 SESSION_NONE);
}

static void model_find(struct model *m, uint32_t record)
{
	const struct member *there = &m->members[record];

	for (unsigned side = 0; side < 2; side++) {
		session_prefetch_bucket(&m->f.index, there->hash[side]);
		session_prefetch_record(&m->f.index, there->hash[side]);
		assert_int_equal(find_named(&m->f.table, there->hash[side], there->name, side),
		                 side < entries_of(there) ? record : SESSION_NONE);
	}
	assert_int_equal(find_named(&m->f.table, model_hash(m), UINT64_MAX, SESSION_CLIENT),
	                 SESSION_NONE);
}

static void model_visit(void *ctx, struct session_table *t, uint32_t record)
{
	struct model *m = ctx;

	assert_int_not_equal(m->position[record], SESSION_NONE);
	m->members[record].visits++;
	if (m->sweep_removes != 0 && random_next(&m->random) % m->sweep_removes == 0)
		model_remove(m, record);
}

static void model_sweep(struct model *m)
{
	if (!session_sweep(&m->f.table, (uint32_t)(random_next(&m->random) % 64), model_visit, m))
		return;
	for (uint32_t i = 0; i < m->count; i++) {
		struct member *there = &m->members[m->live[i]];
		assert_true(there->visits <= 1);
		if (there->elder)
			assert_int_equal(there->visits, 1);
		there->elder = true;
		there->visits = 0;
	}
}

/* Each expected session exists once, and no other. */
static void model_compare(struct model *m)
{
	uint32_t cursor = 0, listed = 0;

	for (uint32_t record; (record = session_next(&m->f.table, &cursor)) != SESSION_NONE;
	     listed++) {
		assert_int_not_equal(m->position[record], SESSION_NONE);
		const struct session *hot = session_at(&m->f.table, record);
		assert_int_equal(hot->client.d[1], m->members[record].name);
		assert_int_equal(session_cold_at(&m->f.table, record)->commit, session_check(hot));
		model_find(m, record);
	}
	assert_int_equal(listed, m->count);
	assert_int_equal(session_count(&m->f.table), m->count);
	assert_int_equal(index_used(&m->f.table), m->entries);
}

/* Phases of growth and shrinkage, each with its own mix of operations. */
static void model_run(uint32_t records, uint32_t buckets, uint64_t hash_mask, unsigned operations)
{
	struct model m = {.random = records * 31 + buckets, .hash_mask = hash_mask};
	fixture_open(&m.f, records, buckets);
	m.members = calloc(records, sizeof(*m.members));
	m.live = calloc(records, sizeof(*m.live));
	m.position = malloc(records * sizeof(*m.position));
	memset(m.position, 0xff, records * sizeof(*m.position));
	uint8_t *snapshot = records <= 64 ? malloc(m.f.geometry.size) : NULL;
	unsigned insert_percent = 0;

	for (unsigned i = 0; i < operations; i++) {
		if (i % (8 * records) == 0) {
			insert_percent = 10 + (unsigned)(random_next(&m.random) % 50);
			m.sweep_removes = (uint32_t)(random_next(&m.random) % 40);
			model_compare(&m);
		}
		unsigned rng = (unsigned)(random_next(&m.random) % 100);
		if (rng < insert_percent)
			model_insert(&m, snapshot);
		else if (rng >= 98)
			model_sweep(&m);
		else if (m.count > 0) {
			uint32_t record = m.live[random_next(&m.random) % m.count];
			if (rng % 2)
				model_remove(&m, record);
			else
				model_find(&m, record);
		}
	}
	while (m.count > 0)
		model_remove(&m, m.live[0]);
	model_compare(&m);
	free(snapshot);
	free(m.position);
	free(m.live);
	free(m.members);
	fixture_close(&m.f);
}

static void tiny_tables(void **state)
{
	for (uint32_t records = 4; records <= 40; records += 4)
		for (uint32_t buckets = 1; buckets <= 9; buckets++)
			model_run(records, buckets, UINT64_MAX, 10000);
}

static void middling_tables(void **state)
{
	model_run(256, 53, UINT64_MAX, 400000);
	model_run(1000, 207, UINT64_MAX, 400000);
	model_run(1024, 256, UINT64_MAX, 400000);
	model_run(16384, 3379, UINT64_MAX, 1500000);
}

/* Eight tags, and hashes that reach few buckets: collisions are frequent, and the index fails long
 * before the records run out. */
static void full_tables(void **state)
{
	model_run(200, 100, 0x7, 200000);
	model_run(400, 60, 0xe000000000000007, 200000);
	model_run(1000, 101, 0xfc00000000000003, 200000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(tiny_tables),
	        cmocka_unit_test(middling_tables),
	        cmocka_unit_test(full_tables),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
