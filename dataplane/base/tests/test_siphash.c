// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the above */
#include <cmocka.h>
#include <sy_siphash.h>

/* From the authors' vectors: key 00 01 … 0f, input 00 01 … of this length. */
static void test_vectors(void **state)
{
	static const struct {
		size_t len;
		uint64_t hash;
	} known[] = {{0, 0x726fdb47dd0e0e31},
	             {8, 0x93f5f5799a932462},
	             {15, 0xa129ca6149be45e5},
	             {16, 0x3f2acc7f57c29bdb},
	             {63, 0x958a324ceb064572}};
	uint8_t key[16], input[64];
	struct sy_siphash_key k;

	for (unsigned i = 0; i < sizeof(input); i++)
		input[i] = (uint8_t)i;
	memcpy(key, input, sizeof(key));
	memcpy(&k, key, sizeof(k));
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		assert_int_equal(sy_siphash(&k, input, known[i].len), known[i].hash);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
