/* SPDX-License-Identifier: Apache-2.0 */
/* The unsigned 64-bit values that a register may hold: all in [lo, hi]. Each function returns a
 * range that contains every result for operands in the given ranges. */
#ifndef HOOK_RANGE_H
#define HOOK_RANGE_H

#include <stdint.h>

struct range {
	uint64_t lo, hi;
};

#define RANGE_ALL                                                                                  \
	(struct range)                                                                             \
	{                                                                                          \
		0, UINT64_MAX                                                                      \
	}

static inline struct range range_of(uint64_t number)
{
	return (struct range){number, number};
}

/* Values of `bits` bits: 8 to 64. */
static inline struct range range_bits(unsigned bits)
{
	return (struct range){0, UINT64_MAX >> (64 - bits)};
}

static inline struct range range_join(struct range a, struct range b)
{
	return (struct range){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

/* A mask of all bits up to the highest that is set. */
static inline uint64_t bits_below(uint64_t number)
{
	return number ? UINT64_MAX >> __builtin_clzll(number) : 0;
}

/* op: as BPF_OP() returns it, on 64 bits. */
struct range range_arithmetic(uint8_t op, struct range a, struct range b);

/* The range of the lower 32 bits. */
static inline struct range range_low(struct range a)
{
	return a.hi <= UINT32_MAX ? a : range_bits(32);
}

/* Restricts `a` to the values for which the jump `a op b` is taken, or not. lo > hi: there are
 * none. */
struct range range_where(uint8_t op, struct range a, struct range b, int taken);

#endif
