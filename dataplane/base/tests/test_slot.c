// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sy_base.h>
/* cmocka needs the above */
#include <cmocka.h>

#include "test_random.h"

/* The definition: every set bit n adds the 32 key bits from n on. */
static uint32_t toeplitz(const uint8_t *input, size_t len)
{
	uint8_t key[40];
	uint32_t hash = 0, window;

	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = i & 1 ? 0x5a : 0x6d;
	window = (uint32_t)key[0] << 24 | key[1] << 16 | key[2] << 8 | key[3];
	for (size_t bit = 0; bit < 8 * len; bit++) {
		if (input[bit / 8] & 0x80 >> bit % 8)
			hash ^= window;
		window = window << 1 | (key[bit / 8 + 4] >> (7 - bit % 8) & 1);
	}
	return hash;
}

/* The slot by an input of all fields in which only this address and port are not zero. */
static uint8_t slot_slow(const uint8_t *addr, size_t addr_len, uint16_t port, size_t addr_at,
                         size_t port_at)
{
	uint8_t input[36] = {0};

	memcpy(input + addr_at, addr, addr_len);
	memcpy(input + port_at, &port, sizeof(port));
	return (uint8_t)toeplitz(input, sizeof(input));
}

static void test_toeplitz(void **state)
{
	for (unsigned i = 0; i < 20000; i++) {
		size_t len = i & 1 ? 4 : 16;
		uint16_t port = (uint16_t)random_next();
		uint8_t raw[16], slot;
		struct sy_addr a;

		random_fill(raw, sizeof(raw));
		assert_int_equal(sy_addr_from_bytes(raw, len, &a), 0);
		slot = sy_slot_of(&a, port);
		/* source, destination, packed or where the five-tuple has them */
		assert_int_equal(slot, slot_slow(raw, len, port, 0, len));
		assert_int_equal(slot, slot_slow(raw, len, port, 0, len + 2));
		assert_int_equal(slot, slot_slow(raw, len, port, 0, 2 * len));
		assert_int_equal(slot, slot_slow(raw, len, port, len, 2 * len + 2));
		assert_int_equal(slot, slot_slow(raw, len, port, 2, len + 2));
		assert_int_equal(slot, slot_slow(raw, len, port, 2, 0));
		assert_int_equal(slot, slot_slow(raw, len, port, 18, 0));
	}
}

/* 192.0.2.1 port 443: words c000, 0201 and 01bb fold into c3ba. */
static void test_word_order(void **state)
{
	const uint8_t bytes[2] = {0xc3, 0xba};
	struct sy_addr a;

	assert_int_equal(sy_addr_parse("192.0.2.1", &a), 0);
	assert_int_equal(sy_addr_word(&a), htons(0xc201));
	assert_int_equal(sy_slot_of(&a, htons(443)), (uint8_t)toeplitz(bytes, 2));
	assert_int_equal(sy_addr_parse("1:20:300:4000:5:60:700:8000", &a), 0);
	assert_int_equal(sy_addr_word(&a), htons(0xc444));
}

static void test_words(void **state)
{
	static bool seen[65536];

	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		int last = -1;
		for (unsigned n = 0; n < SY_SLOT_PORTS; n++) {
			uint16_t word = sy_slot_words[slot][n];
			uint8_t bytes[2];
			memcpy(bytes, &word, sizeof(bytes));
			assert_int_equal((uint8_t)toeplitz(bytes, sizeof(bytes)), slot);
			assert_true(ntohs(word) > last);
			last = ntohs(word);
			assert_false(seen[word]);
			seen[word] = true;
		}
	}
}

static void test_ports(void **state)
{
	for (unsigned i = 0; i < 500; i++) {
		bool seen[65536] = {0};
		uint8_t slot = (uint8_t)random_next();
		struct sy_addr a;

		random_fill(a.b, sizeof(a.b));
		if (i & 1)
			a = sy_addr_v4(a.w[3]);
		for (unsigned n = 0; n < SY_SLOT_PORTS; n++) {
			uint16_t port = sy_slot_port(slot, &a, n);
			assert_int_equal(sy_slot_of(&a, port), slot);
			assert_false(seen[port]);
			seen[port] = true;
		}
	}
}

static int setup(void **state)
{
	sy_slot_init();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_toeplitz),
	        cmocka_unit_test(test_word_order),
	        cmocka_unit_test(test_words),
	        cmocka_unit_test(test_ports),
	};
	return cmocka_run_group_tests_name("slot", tests, setup, NULL);
}
