// SPDX-License-Identifier: Apache-2.0
/* A range contains the results for all numbers of its operands' ranges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sy_base.h>

#include "range.h"

#include <bpf_def.h>

#define ROUNDS 400000

static uint64_t draw(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	uint64_t x = *seed ^ *seed >> 29;
	/* of all magnitudes, and near the limits */
	unsigned bits = (unsigned)(x >> 58);
	uint64_t number = x >> (bits < 63 ? bits : 0);
	return x & 7 ? number : ~number;
}

static struct range range_draw(uint64_t *seed)
{
	uint64_t a = draw(seed), b = *seed >> 33 & 1 ? a + (draw(seed) & 15) : draw(seed);
	return a < b ? (struct range){a, b} : (struct range){b, a};
}

static uint64_t number_in(uint64_t *seed, struct range r)
{
	uint64_t width = r.hi - r.lo;
	switch (draw(seed) % 4) {
	case 0:
		return r.lo;
	case 1:
		return r.hi;
	default:
		return width == UINT64_MAX ? draw(seed) : r.lo + draw(seed) % (width + 1);
	}
}

static uint64_t compute(uint8_t op, uint64_t a, uint64_t b)
{
	switch (op) {
	case BPF_ADD:
		return a + b;
	case BPF_SUB:
		return a - b;
	case BPF_MUL:
		return a * b;
	case BPF_DIV:
		return a / b;
	case BPF_MOD:
		return a % b;
	case BPF_AND:
		return a & b;
	case BPF_OR:
		return a | b;
	case BPF_XOR:
		return a ^ b;
	case BPF_LSH:
		return a << (b & 63);
	case BPF_RSH:
		return a >> (b & 63);
	default:
		return (uint64_t)((int64_t)a >> (b & 63));
	}
}

static void test_arithmetic(void **state)
{
	static const uint8_t ops[] = {BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_MOD,  BPF_AND,
	                              BPF_OR,  BPF_XOR, BPF_LSH, BPF_RSH, EBPF_ARSH};
	uint64_t seed = 1, narrow = 0;
	for (unsigned n = 0; n < ROUNDS; n++) {
		uint8_t op = ops[n % SY_ARRAY_LEN(ops)];
		struct range a = range_draw(&seed), b = range_draw(&seed);
		uint64_t x = number_in(&seed, a), y = number_in(&seed, b);
		if ((op == BPF_DIV || op == BPF_MOD) && y == 0)
			continue;
		struct range r = range_arithmetic(op, a, b);
		uint64_t result = compute(op, x, y);
		if (result < r.lo || result > r.hi)
			fail_msg("%lx op %02x %lx = %lx is not in %lx to %lx, of %lx to %lx and "
			         "%lx to %lx",
			         x, op, y, result, r.lo, r.hi, a.lo, a.hi, b.lo, b.hi);
		narrow += r.hi - r.lo < UINT64_MAX;
	}
	assert_true(narrow > ROUNDS / 3); /* ranges are not trivial */
}

static int compare(uint8_t op, uint64_t a, uint64_t b)
{
	int64_t s = (int64_t)a, t = (int64_t)b;
	switch (op) {
	case BPF_JEQ:
		return a == b;
	case EBPF_JNE:
		return a != b;
	case BPF_JGT:
		return a > b;
	case BPF_JGE:
		return a >= b;
	case EBPF_JLT:
		return a < b;
	case EBPF_JLE:
		return a <= b;
	case EBPF_JSGT:
		return s > t;
	case EBPF_JSGE:
		return s >= t;
	case EBPF_JSLT:
		return s < t;
	case EBPF_JSLE:
		return s <= t;
	default:
		return (a & b) != 0;
	}
}

static void test_branches(void **state)
{
	static const uint8_t ops[] = {BPF_JEQ,   EBPF_JNE,  BPF_JGT,   BPF_JGE,
	                              EBPF_JLT,  EBPF_JLE,  EBPF_JSGT, EBPF_JSGE,
	                              EBPF_JSLT, EBPF_JSLE, BPF_JSET};
	uint64_t seed = 2;
	for (unsigned n = 0; n < ROUNDS; n++) {
		uint8_t op = ops[n % SY_ARRAY_LEN(ops)];
		struct range a = range_draw(&seed), b = range_draw(&seed);
		uint64_t x = number_in(&seed, a), y = number_in(&seed, b);
		int holds = compare(op, x, y);
		struct range r = range_where(op, a, b, holds);
		if (x < r.lo || x > r.hi)
			fail_msg("%lx is not in %lx to %lx where op %02x with %lx is %d", x, r.lo,
			         r.hi, op, y, holds);
	}
	struct range small = range_where(EBPF_JLT, (struct range){0, 255}, range_of(64), 1);
	assert_int_equal(small.hi, 63);
	small = range_where(BPF_JGT, (struct range){0, 255}, range_of(63), 0);
	assert_int_equal(small.hi, 63);
	small = range_where(BPF_JGT, range_of(7), range_of(9), 1);
	assert_true(small.lo > small.hi);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_arithmetic),
	        cmocka_unit_test(test_branches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
