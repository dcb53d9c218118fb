// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sy_base.h>
/* cmocka needs the above */
#include <cmocka.h>

#include "test_random.h"

#define BUCKETS 4096u
#define TUPLES  65536u
#define KEYS    40

/* Sequences of clients: by port, by address, both, and over IPv6. */
static struct sy_tuple tuple_nth(unsigned pattern, uint32_t n)
{
	struct sy_tuple t = {
	        .dst = sy_addr_v4(htonl(0xc0000201)),
	        .dport = htons(443),
	        .sport = htons(40000),
	        .proto = 6,
	};

	switch (pattern) {
	case 0:
		t.src = sy_addr_v4(htonl(0x0a000001));
		t.sport = htons((uint16_t)n);
		break;
	case 1:
		t.src = sy_addr_v4(htonl(0x0a000001 + n));
		break;
	case 2:
		t.src = sy_addr_v4(htonl(0x0a000001 + (n >> 8)));
		t.sport = htons(1024 + (n & 255));
		break;
	default:
		t.src.w[0] = t.dst.w[0] = htonl(0x20010db8);
		t.src.w[3] = htonl(n);
		break;
	}
	return t;
}

/* A bucket has 16 tuples on average. With a random function, one of the 2.6 million buckets checked
 * here gets more than 64 with a probability below 1e-11. */
static void test_dispersion(void **state)
{
	for (unsigned k = 0; k < KEYS; k++) {
		struct sy_hash_key key;
		random_fill(&key, sizeof(key));
		for (unsigned pattern = 0; pattern < 4; pattern++) {
			unsigned held[4][BUCKETS] = {0};
			for (uint32_t n = 0; n < TUPLES; n++) {
				struct sy_tuple t = tuple_nth(pattern, n);
				uint64_t hash = sy_hash_tuple(&key, &t);
				for (unsigned part = 0; part < 4; part++)
					assert_true(
					        ++held[part][hash >> 16 * part & (BUCKETS - 1)] <=
					        64);
			}
		}
	}
}

/* Every input bit flips every output bit in about half of the cases. */
static void test_avalanche(void **state)
{
	enum { ROUNDS = 4000, IN = 8 * sizeof(struct sy_tuple) };
	static unsigned flips[IN][64];
	struct sy_hash_key key;

	random_fill(&key, sizeof(key));
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint8_t bytes[sizeof(struct sy_tuple)];
		struct sy_tuple t;
		uint64_t hash;
		random_fill(bytes, sizeof(bytes));
		memcpy(&t, bytes, sizeof(t));
		hash = sy_hash_tuple(&key, &t);
		for (unsigned in = 0; in < IN; in++) {
			bytes[in / 8] ^= 1 << in % 8;
			memcpy(&t, bytes, sizeof(t));
			bytes[in / 8] ^= 1 << in % 8;
			uint64_t changed = hash ^ sy_hash_tuple(&key, &t);
			for (unsigned out = 0; out < 64; out++)
				flips[in][out] += changed >> out & 1;
		}
	}
	for (unsigned in = 0; in < IN; in++) {
		for (unsigned out = 0; out < 64; out++)
			assert_in_range(flips[in][out], ROUNDS * 4 / 10, ROUNDS * 6 / 10);
	}
}

static void test_key_random(void **state)
{
	struct sy_hash_key a = {0}, b = {0};

	assert_int_equal(sy_hash_key_random(&a), 0);
	assert_int_equal(sy_hash_key_random(&b), 0);
	assert_memory_not_equal(&a, &b, sizeof(a));
	for (unsigned i = 0; i < SY_ARRAY_LEN(a.k); i++)
		assert_true(a.k[i] != 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_dispersion),
	        cmocka_unit_test(test_avalanche),
	        cmocka_unit_test(test_key_random),
	};
	return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
