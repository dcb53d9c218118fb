// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sy_base.h>
/* cmocka needs the above */
#include <cmocka.h>

#include "test_random.h"

#define KEYS 200

static struct sy_slot_key random_key(void)
{
	struct sy_slot_key key;
	random_fill((uint8_t *)&key, sizeof(key));
	return key;
}

/* Every address has the same number of ports in every slot, one for each first byte. */
static void test_ports(void **state)
{
	for (unsigned i = 0; i < 500; i++) {
		bool seen[65536] = {0};
		uint8_t slot = (uint8_t)random_next();
		struct sy_addr a;

		if (i % 100 == 0) {
			const struct sy_slot_key key = random_key();
			sy_slot_set_key(&key);
		}
		random_fill(a.b, sizeof(a.b));
		if (i & 1)
			a = sy_addr_v4(a.w[3]);
		for (unsigned n = 0; n < SY_SLOT_PORTS; n++) {
			uint16_t port = sy_slot_port(slot, &a, n);
			assert_int_equal(sy_slot_of(&a, port), slot);
			assert_int_equal(ntohs(port) >> 8, n);
			assert_false(seen[port]);
			seen[port] = true;
		}
	}
}

/* The short version for the packet path. */
static void test_v4(void **state)
{
	for (unsigned i = 0; i < 1000; i++) {
		const struct sy_addr a = sy_addr_v4((uint32_t)random_next());
		uint16_t port = (uint16_t)random_next();
		assert_int_equal(sy_slot_of_v4(a.w[3], port), sy_slot_of(&a, port));
	}
}

/* Steps by which addresses and ports are incremented. */
static const struct walk {
	uint32_t addr_step, addr_modulus, port_step;
	bool v6;
} walks[] = {
        {1, 0, 1, false},   {1, 0, 0, false},  {256, 0, 1, false}, {65537, 0, 7, false},
        {1, 200, 1, false}, {0, 0, 1, false},  {1, 0, 1, true},    {1 << 16, 0, 1, true},
        {1, 0, 257, false}, {1, 0, 256, true},
};

#define WALK_TUPLES 60000

/* Number of tuples in the fullest slot, in percent of the average. */
static unsigned walk_fullest(const struct walk *w)
{
	unsigned count[SY_SLOTS] = {0}, max = 0;

	for (uint32_t i = 0; i < WALK_TUPLES; i++) {
		uint32_t at = w->addr_modulus ? i % w->addr_modulus : i;
		struct sy_addr a = sy_addr_v4(htonl(0x0a000000 + at * w->addr_step));
		if (w->v6)
			a.d[0] = 0x0000000080fe0120;
		count[sy_slot_of(&a, htons((uint16_t)(1024 + i * w->port_step)))]++;
	}
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		max = count[slot] > max ? count[slot] : max;
	return max * SY_SLOTS * 100 / WALK_TUPLES;
}

/* A plain XOR of words would map addresses and ports that are incremented together to few slots. */
static void test_counted_up(void **state)
{
	for (unsigned i = 0; i < SY_ARRAY_LEN(walks); i++) {
		unsigned worst = 0;
		for (unsigned k = 0; k < KEYS; k++) {
			const struct sy_slot_key key = random_key();
			sy_slot_set_key(&key);
			unsigned fullest = walk_fullest(&walks[i]);
			worst = fullest > worst ? fullest : worst;
		}
		print_message("walk %u: fullest slot at most %u %% of the average\n", i, worst);
		assert_in_range(worst, 100, 300);
	}
}

/* The slots of one key reveal nothing about those of another key. */
static void test_keyed(void **state)
{
	struct sy_addr a[1000];
	uint8_t slot[1000];
	unsigned together = 0;

	sy_slot_init();
	for (unsigned i = 0; i < 1000; i++) {
		a[i] = sy_addr_v4((uint32_t)random_next());
		slot[i] = sy_slot_of(&a[i], sy_slot_port(7, &a[i], i % SY_SLOT_PORTS));
		assert_int_equal(slot[i], 7);
	}
	for (unsigned i = 0; i < 1000; i++) {
		uint16_t port = sy_slot_port(7, &a[i], i % SY_SLOT_PORTS);
		const struct sy_slot_key key = {{1, 2}};
		sy_slot_set_key(&key);
		together += sy_slot_of(&a[i], port) == sy_slot_of(&a[0], htons(1));
		sy_slot_init();
	}
	assert_in_range(together, 0, 30);
}

static void test_parse(void **state)
{
	struct sy_slot_key key = {{0, 0}};

	assert_int_equal(sy_slot_key_parse("0123456789abcdefFEDCBA9876543210\n", &key), 0);
	assert_int_equal(key.k[0], 0x0123456789abcdef);
	assert_int_equal(key.k[1], 0xfedcba9876543210);
	assert_int_equal(sy_slot_key_parse("0123456789abcdeffedcba987654321", &key), -EINVAL);
	assert_int_equal(sy_slot_key_parse("0123456789abcdeffedcba98765432100", &key), -EINVAL);
	assert_int_equal(sy_slot_key_parse("", &key), -EINVAL);
	assert_int_equal(sy_slot_key_random(&key), 0);
}

static int setup(void **state)
{
	sy_slot_init();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(test_ports, setup),
	        cmocka_unit_test_setup(test_v4, setup),
	        cmocka_unit_test_setup(test_counted_up, setup),
	        cmocka_unit_test_setup(test_keyed, setup),
	        cmocka_unit_test_setup(test_parse, setup),
	};
	return cmocka_run_group_tests_name("slot", tests, setup, NULL);
}
