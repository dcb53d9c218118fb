// SPDX-License-Identifier: Apache-2.0
/* The local address set: addresses that are in it, addresses that are not, and clustering. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "address_set.h"

#define COUNT 20000u

static struct sy_addr nth(unsigned n, bool v4)
{
	struct sy_addr a = sy_addr_v4(htonl(0x0a000000u + n));
	if (!v4) {
		a = (struct sy_addr){.b = {0x20, 0x01, 0x0d, 0xb8}};
		a.w[3] = htonl(n);
	}
	return a;
}

static struct address_set *build(bool v4)
{
	struct address_set_entry *entries = calloc(COUNT, sizeof(*entries));
	assert_non_null(entries);
	for (unsigned n = 0; n < COUNT; n++)
		entries[n] = (struct address_set_entry){nth(n, v4), n % 2 ? ADDRESS_SET_VIP
		                                                          : ADDRESS_SET_LOCAL};
	struct address_set *o = address_set_build(entries, COUNT);
	assert_non_null(o);
	free(entries);
	return o;
}

static void test_finds(void **state)
{
	for (int v4 = 0; v4 < 2; v4++) {
		struct address_set *o = build(v4);
		for (unsigned n = 0; n < 2 * COUNT; n++) {
			struct sy_addr a = nth(n, v4);
			enum address_set_kind want = n >= COUNT ? ADDRESS_SET_NONE
			                             : n % 2    ? ADDRESS_SET_VIP
			                                        : ADDRESS_SET_LOCAL;
			assert_int_equal(address_set_find(o, &a), want);
		}
		free(o);
	}
}

/* Consecutive addresses must not cluster at one entry: every packet makes a lookup here. */
static void test_spreads(void **state)
{
	for (int v4 = 0; v4 < 2; v4++) {
		struct address_set *o = build(v4);
		uint64_t probes = 0;
		for (unsigned n = 0; n < COUNT; n++) {
			struct sy_addr a = nth(n, v4);
			uint32_t i = address_set_hash(&a);
			for (probes++; !sy_addr_equal(&o->entry[i & o->mask].addr, &a); i++)
				probes++;
		}
		assert_true(probes < 2 * COUNT);
		free(o);
	}
}

static void test_empty(void **state)
{
	struct sy_addr a = nth(1, true);
	struct address_set *o = address_set_build(NULL, 0);
	assert_int_equal(address_set_find(o, &a), ADDRESS_SET_NONE);
	free(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_finds),
	        cmocka_unit_test(test_spreads),
	        cmocka_unit_test(test_empty),
	};
	return cmocka_run_group_tests_name("address_set", tests, NULL, NULL);
}
