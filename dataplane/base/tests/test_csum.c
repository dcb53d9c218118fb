// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sy_base.h>
/* cmocka needs the above */
#include <cmocka.h>

#include "test_random.h"

/* The sum of RFC 1071, word by word, in host order. */
static uint16_t sum_slow(const uint8_t *p, size_t len)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < len; i++) {
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
		if (sum > 0xffff)
			sum -= 0xffff;
	}
	return (uint16_t)sum;
}

static void test_fold(void **state)
{
	static const struct {
		uint64_t sum;
		uint16_t folded;
	} cases[] = {
	        {0, 0},
	        {0xffff, 0xffff},
	        {0x10000, 1},
	        {0x1fffe, 0xffff},
	        {0xffffffff, 0xffff},
	        {0x100000000, 1},
	        {0xffffffffffffffff, 0xffff},
	        {0xffffffff0000ffff, 0xffff},
	        {0x8000000000000000, 0x8000},
	};

	for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++)
		assert_int_equal(sy_csum_fold(cases[i].sum), cases[i].folded);
	/* +0 only from 0, otherwise the residue modulo 0xffff. */
	for (unsigned i = 0; i < 100000; i++) {
		uint64_t sum = random_next() >> random_next() % 63;
		uint64_t rest = sum % 0xffff;
		assert_int_equal(sy_csum_fold(sum), rest == 0 && sum != 0 ? 0xffff : rest);
	}
}

static void test_sum(void **state)
{
	uint8_t *buffer = malloc(70000);

	assert_non_null(buffer);
	random_fill(buffer, 70000);
	for (size_t start = 0; start < 9; start++) {
		for (size_t len = 0; len < 300; len++)
			assert_int_equal(sy_csum_fold(sy_csum_sum(buffer + start, len)),
			                 htons(sum_slow(buffer + start, len)));
	}
	for (unsigned i = 0; i < 300; i++) {
		size_t start = random_next() % 4000, len = random_next() % 66000;
		assert_int_equal(sy_csum_fold(sy_csum_sum(buffer + start, len)),
		                 htons(sum_slow(buffer + start, len)));
	}
	memset(buffer, 0xff, 70000);
	assert_int_equal(sy_csum_fold(sy_csum_sum(buffer, 70000)), 0xffff);
	memset(buffer, 0, 70000);
	assert_int_equal(sy_csum_fold(sy_csum_sum(buffer, 70000)), 0);
	free(buffer);
}

/* The data end at the end of a heap block: ASan detects a read beyond len. */
static void test_sum_bounds(void **state)
{
	for (size_t len = 1; len < 80; len++) {
		uint8_t *exact = malloc(len);
		assert_non_null(exact);
		random_fill(exact, len);
		assert_int_equal(sy_csum_fold(sy_csum_sum(exact, len)),
		                 htons(sum_slow(exact, len)));
		free(exact);
	}
}

static void test_sum_rfc1071(void **state)
{
	static const uint8_t example[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};

	assert_int_equal(sy_csum_fold(sy_csum_sum(example, sizeof(example))), htons(0xddf2));
}

/* Replaces two words of a four-word header. */
static void delta_check(uint16_t words[4], uint16_t new0, uint16_t new1)
{
	uint16_t before = (uint16_t)~sy_csum_fold(sy_csum_sum(words, 8)), after, delta;

	delta = sy_csum_delta((uint32_t)words[0] + words[1], (uint32_t)new0 + new1);
	words[0] = new0;
	words[1] = new1;
	after = (uint16_t)~sy_csum_fold(sy_csum_sum(words, 8));
	assert_int_equal(sy_csum_apply(before, delta), after);
	before = before == 0xffff ? 0 : before;
	assert_int_equal(sy_csum_apply(after, sy_csum_inverse(delta)), before);
}

static void test_delta(void **state)
{
	static const uint16_t special[] = {0x0000, 0x0001, 0x0100, 0x7fff, 0x8000,
	                                   0xfffe, 0xfeff, 0xffff, 0x5555, 0x3285};
	const size_t n = SY_ARRAY_LEN(special);

	/* The last word is 1, so the header is never all zeros: no real one is. */
	for (size_t i = 0; i < n * n * n * n * n; i++) {
		uint16_t words[4] = {special[i % n], special[i / n % n], special[i / n / n % n], 1};
		delta_check(words, special[i / n / n / n % n], special[i / n / n / n / n % n]);
	}
	for (unsigned i = 0; i < 1000000; i++) {
		uint64_t r = random_next(), s = random_next();
		uint16_t words[4] = {(uint16_t)r, (uint16_t)(r >> 16), (uint16_t)(r >> 32), 0x4500};
		delta_check(words, (uint16_t)s, (uint16_t)(s >> 16));
	}
}

/* The example of RFC 1624, 4: eqn. 2 gives 0xffff where 0x0000 is right. */
static void test_delta_rfc1624(void **state)
{
	uint16_t delta = sy_csum_delta(htons(0x5555), htons(0x3285));

	assert_int_equal(sy_csum_apply(htons(0xdd2f), delta), 0);
}

static void test_addr_sum(void **state)
{
	for (unsigned i = 0; i < 10000; i++) {
		uint8_t raw[16];
		struct sy_addr a;
		size_t len = i & 1 ? 4 : 16;
		random_fill(raw, sizeof(raw));
		assert_int_equal(sy_addr_from_bytes(raw, len, &a), 0);
		assert_int_equal(sy_csum_fold(sy_csum_addr(&a)), htons(sum_slow(raw, len)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_fold),       cmocka_unit_test(test_sum),
	        cmocka_unit_test(test_sum_bounds), cmocka_unit_test(test_sum_rfc1071),
	        cmocka_unit_test(test_delta),      cmocka_unit_test(test_delta_rfc1624),
	        cmocka_unit_test(test_addr_sum),
	};
	return cmocka_run_group_tests_name("csum", tests, NULL, NULL);
}
