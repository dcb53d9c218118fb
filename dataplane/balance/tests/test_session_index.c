// SPDX-License-Identifier: Apache-2.0
/* The index: tags, buckets, moves, collisions. */
#include "session_fixture.h"

static void match_agrees_with_portable(void **state)
{
	uint64_t seed = 1;
	struct session_bucket b;

	for (unsigned round = 0; round < 20000; round++) {
		uint16_t tag = (uint16_t)(random_next(&seed) % 5);
		for (unsigned i = 0; i < SESSION_BUCKET_ENTRIES; i++)
			b.tags[i] = (uint16_t)(random_next(&seed) % 5);
		b.absent = b.guests = tag; /* must never count as an entry */
		for (unsigned i = 0; i < SESSION_BUCKET_ENTRIES; i++)
			b.entries[i] = (uint32_t)tag << 16 | tag;
		assert_int_equal(session_bucket_match(&b, tag),
		                 session_bucket_match_portable(&b, tag));
	}
	memset(&b, 0xff, sizeof(b));
	assert_int_equal(session_bucket_match(&b, 0xffff), 0x3ff);
	assert_int_equal(session_bucket_match_portable(&b, 0xffff), 0x3ff);
}

static void other_bucket_is_its_own_inverse(void **state)
{
	const uint32_t counts[] = {1, 2, 3, 7, 10, 64, 1000, 3223, 65536, 161173};

	for (unsigned c = 0; c < SY_ARRAY_LEN(counts); c++) {
		struct session_index x;
		session_index_set(&x, NULL, counts[c], NULL);
		uint64_t seed = c;
		for (unsigned i = 0; i < 10000; i++) {
			uint64_t hash = random_next(&seed);
			uint16_t tag = session_tag(hash);
			uint32_t first = session_bucket_of(&x, hash);
			uint32_t other = session_bucket_other(&x, first, tag);
			assert_true(first < counts[c]);
			assert_true(other < counts[c]);
			assert_int_equal(session_bucket_other(&x, other, tag), first);
		}
	}
}

static void tag_is_never_empty(void **state)
{
	assert_int_equal(session_tag(0), 1);
	assert_int_equal(session_tag(0xffffffffffff0000), 1);
	assert_int_equal(session_tag(0x10002), 2);
}

/* The hash gives a 16-bit tag and a 32-bit bucket; equal hashes collide in both. */
static void equal_hashes_fail_cleanly(void **state)
{
	const uint64_t hash = 0x123456780000beef;
	struct fixture f;
	uint64_t seed = 3;
	uint64_t other[200][2];

	fixture_open(&f, 400, 83);
	for (uint64_t name = 0; name < 200; name++) {
		other[name][0] = random_next(&seed);
		other[name][1] = random_next(&seed);
		assert_int_equal(insert_named(&f.table, name, other[name][0], other[name][1]),
		                 name);
	}
	/* two buckets hold twenty entries of one tag: ten sessions if both directions have it */
	uint64_t colliding = 0;
	while (insert_named(&f.table, 1000 + colliding, hash, hash) != SESSION_NONE)
		colliding++;
	assert_int_equal(colliding, 10);

	uint8_t *before = malloc(f.geometry.size);
	memcpy(before, f.region, f.geometry.size);
	struct session_table table = f.table;
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(insert_named(&f.table, 5000, hash, random_next(&seed)),
		                 SESSION_NONE);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(insert_named(&f.table, 5000, random_next(&seed), hash),
		                 SESSION_NONE);
	assert_memory_equal(before, f.region, f.geometry.size);
	assert_memory_equal(&table, &f.table, sizeof(table));
	free(before);

	for (uint64_t name = 0; name < 200; name++)
		for (unsigned side = 0; side < 2; side++)
			assert_int_equal(find_named(&f.table, other[name][side], name, side), name);
	for (uint64_t i = 0; i < colliding; i++) {
		assert_int_not_equal(find_named(&f.table, hash, 1000 + i, SESSION_CLIENT),
		                     SESSION_NONE);
		assert_int_not_equal(find_named(&f.table, hash, 1000 + i, SESSION_SERVER),
		                     SESSION_NONE);
	}
	/* and each colliding session is removed without another one's entry */
	for (uint64_t i = 0; i < colliding; i++) {
		uint32_t record = find_named(&f.table, hash, 1000 + i, SESSION_CLIENT);
		session_remove(&f.table, record, hash, hash);
		for (uint64_t j = 0; j < colliding; j++)
			assert_int_equal(find_named(&f.table, hash, 1000 + j, SESSION_SERVER) ==
			                         SESSION_NONE,
			                 j <= i);
	}
	assert_int_equal(index_used(&f.table), 400);
	fixture_close(&f);
}

/* Equal tags in different buckets, and different tags in equal buckets: other entries move. */
static void half_collisions_find_a_place(void **state)
{
	struct fixture f;
	uint64_t seed = 4;

	fixture_open(&f, 1000, 400);
	for (uint64_t name = 0; name < 500; name++) {
		uint64_t spread = random_next(&seed) & ~(uint64_t)0xffff;
		assert_int_not_equal(insert_named(&f.table, name, spread | 0x1111, name | 1),
		                     SESSION_NONE);
		assert_int_equal(find_named(&f.table, spread | 0x1111, name, SESSION_CLIENT), name);
		assert_int_equal(find_named(&f.table, name | 1, name, SESSION_SERVER), name);
	}
	fixture_close(&f);
}

/* Fills small tables completely, again and again: an insertion that fails leaves no change,
 * whatever path it tried. */
static void failure_changes_nothing(void **state)
{
	unsigned second_failed = 0;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct fixture f;
		uint64_t random = seed;
		/* spare records, so that the index is what fails */
		fixture_open(&f, 4 * (uint32_t)(4 + seed), 1 + (uint32_t)seed / 4);
		uint8_t *before = malloc(f.geometry.size);
		for (unsigned i = 0; i < 600; i++) {
			memcpy(before, f.region, f.geometry.size);
			struct session_table table = f.table;
			uint64_t client = random_next(&random), server = random_next(&random);
			if (insert_named(&f.table, i, client, server) != SESSION_NONE)
				continue;
			assert_memory_equal(before, f.region, f.geometry.size);
			assert_memory_equal(&table, &f.table, sizeof(table));
			/* a free entry left means that the second of the two insertions failed */
			second_failed +=
			        table.live < table.capacity &&
			        index_used(&f.table) <
			                SESSION_BUCKET_ENTRIES * session_bucket_count(table.index);
		}
		free(before);
		fixture_close(&f);
	}
	assert_true(second_failed > 0);
}

static void fills_to_the_promised_load(void **state)
{
	const uint32_t records[] = {1024, 4096, 16384};

	for (unsigned i = 0; i < SY_ARRAY_LEN(records); i++) {
		struct session_geometry g;
		struct fixture f;
		uint64_t seed = i;
		uint32_t live = 0;

		session_geometry_choose(&g, (uint64_t)records[i] * SY_SLOTS);
		assert_int_equal(g.records, records[i]);
		fixture_open(&f, g.records, g.buckets);
		for (;;) {
			uint64_t client = random_next(&seed), server = random_next(&seed);
			if (insert_named(&f.table, live, client, server) == SESSION_NONE)
				break;
			live++;
		}
		assert_true(live == g.records ||
		            2.0 * live >= 0.97 * SESSION_BUCKET_ENTRIES * g.buckets);
		fixture_close(&f);
	}
}

/* Under the key that an attacker had to guess, all tuples share tag and buckets; under another key
 * they spread. */
static void crafted_collisions_need_the_key(void **state)
{
	struct sy_hash_key known = {{1, 2, 3, 4, 5, 6, 7, 8}};
	struct sy_hash_key secret;
	struct fixture f;
	struct sy_tuple crafted[40];
	struct sy_tuple t = {.dst = sy_addr_v4(0x0100a8c0), .dport = 0x5000, .proto = 6};
	unsigned count = 0;

	assert_int_equal(sy_hash_key_random(&secret), 0);
	fixture_open(&f, 64, 8);
	for (uint32_t i = 0; count < SY_ARRAY_LEN(crafted); i++) {
		t.src = sy_addr_v4(i);
		t.sport = (uint16_t)(i * 7);
		uint64_t hash = sy_hash_tuple(&known, &t);
		/* the same bucket and one of 2^8 tags: as close as brute force gets here quickly */
		if (session_bucket_of(&f.index, hash) == 3 && (hash & 0xff) == 0x42)
			crafted[count++] = t;
	}
	unsigned same = 0;
	for (unsigned i = 0; i < count; i++) {
		uint64_t hash = sy_hash_tuple(&secret, &crafted[i]);
		same += session_bucket_of(&f.index, hash) == 3 && (hash & 0xff) == 0x42;
	}
	/* one in 2048 would match by chance; four of forty match once in 10^8 runs */
	assert_true(same < 4);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(match_agrees_with_portable),
	        cmocka_unit_test(other_bucket_is_its_own_inverse),
	        cmocka_unit_test(tag_is_never_empty),
	        cmocka_unit_test(equal_hashes_fail_cleanly),
	        cmocka_unit_test(half_collisions_find_a_place),
	        cmocka_unit_test(failure_changes_nothing),
	        cmocka_unit_test(fills_to_the_promised_load),
	        cmocka_unit_test(crafted_collisions_need_the_key),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
