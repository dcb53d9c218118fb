// SPDX-License-Identifier: Apache-2.0
#include "range.h"

#include <bpf_def.h>

static struct range range_add(struct range a, struct range b)
{
	struct range sum;
	if (b.lo == b.hi && (int64_t)b.lo < 0 && a.lo >= -b.lo) /* subtracts a constant */
		return (struct range){a.lo + b.lo, a.hi + b.lo};
	sum.lo = a.lo + b.lo; /* lo overflows only if hi does */
	return __builtin_add_overflow(a.hi, b.hi, &sum.hi) ? RANGE_ALL : sum;
}

static struct range range_multiply(struct range a, struct range b)
{
	struct range product = {a.lo * b.lo, 0};
	return __builtin_mul_overflow(a.hi, b.hi, &product.hi) ? RANGE_ALL : product;
}

static struct range range_left(struct range a, struct range by)
{
	if (by.lo != by.hi || by.hi > 63 || a.hi > UINT64_MAX >> by.hi)
		return RANGE_ALL;
	return (struct range){a.lo << by.lo, a.hi << by.lo};
}

static struct range range_right(struct range a, struct range by)
{
	if (by.lo != by.hi || by.hi > 63)
		return (struct range){0, a.hi};
	return (struct range){a.lo >> by.lo, a.hi >> by.lo};
}

struct range range_arithmetic(uint8_t op, struct range a, struct range b)
{
	switch (op) {
	case BPF_ADD:
		return range_add(a, b);
	case BPF_SUB:
		return a.lo >= b.hi ? (struct range){a.lo - b.hi, a.hi - b.lo} : RANGE_ALL;
	case BPF_MUL:
		return range_multiply(a, b);
	case BPF_DIV: /* division by 0 ends the program */
		return (struct range){b.hi ? a.lo / b.hi : 0, b.lo ? a.hi / b.lo : a.hi};
	case BPF_MOD:
		return (struct range){0, b.hi && b.hi - 1 < a.hi ? b.hi - 1 : a.hi};
	case BPF_AND:
		return (struct range){0, a.hi < b.hi ? a.hi : b.hi};
	case BPF_OR:
	case BPF_XOR:
		return (struct range){0, bits_below(a.hi | b.hi)};
	case BPF_LSH:
		return range_left(a, b);
	case BPF_RSH:
		return range_right(a, b);
	case EBPF_ARSH:
		return a.hi <= INT64_MAX ? range_right(a, b) : RANGE_ALL;
	default:
		return RANGE_ALL;
	}
}

/* The opposite comparison. */
static uint8_t jump_not(uint8_t op)
{
	switch (op) {
	case BPF_JEQ:
		return EBPF_JNE;
	case EBPF_JNE:
		return BPF_JEQ;
	case BPF_JGT:
		return EBPF_JLE;
	case BPF_JGE:
		return EBPF_JLT;
	case EBPF_JLT:
		return BPF_JGE;
	case EBPF_JLE:
		return BPF_JGT;
	default:
		return 0; /* does not restrict a range */
	}
}

/* If both are non-negative, a signed comparison equals an unsigned one. */
static uint8_t jump_unsigned(uint8_t op, struct range a, struct range b)
{
	if (a.hi > INT64_MAX || b.hi > INT64_MAX)
		return op;
	return op == EBPF_JSGT   ? BPF_JGT
	       : op == EBPF_JSGE ? BPF_JGE
	       : op == EBPF_JSLT ? EBPF_JLT
	       : op == EBPF_JSLE ? EBPF_JLE
	                         : op;
}

static const struct range none = {1, 0};

struct range range_where(uint8_t op, struct range a, struct range b, int taken)
{
	uint8_t what = jump_unsigned(op, a, b);
	if (!taken)
		what = jump_not(what);
	switch (what) {
	case BPF_JEQ:
		return (struct range){a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
	case EBPF_JNE:
		return b.lo == b.hi && a.lo == a.hi && a.lo == b.lo ? none : a;
	case BPF_JGT:
		if (b.lo == UINT64_MAX)
			return none;
		return (struct range){a.lo > b.lo ? a.lo : b.lo + 1, a.hi};
	case BPF_JGE:
		return (struct range){a.lo > b.lo ? a.lo : b.lo, a.hi};
	case EBPF_JLT:
		if (b.hi == 0)
			return none;
		return (struct range){a.lo, a.hi < b.hi ? a.hi : b.hi - 1};
	case EBPF_JLE:
		return (struct range){a.lo, a.hi < b.hi ? a.hi : b.hi};
	default:
		return a;
	}
}
