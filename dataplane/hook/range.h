/* SPDX-License-Identifier: Apache-2.0 */
/* Which numbers a register of a program may hold: all in [lo, hi], of 64 bits, unsigned. Each
 * function returns a range that has all results, of operands in the ranges given. */
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

/* What `bits` bits can say: 8 to 64. */
static inline struct range range_bits(unsigned bits)
{
	return (struct range){0, UINT64_MAX >> (64 - bits)};
}

static inline struct range range_join(struct range a, struct range b)
{
	return (struct range){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

/* All bits up to the highest that is set. */
static inline uint64_t bits_below(uint64_t number)
{
	return number ? UINT64_MAX >> __builtin_clzll(number) : 0;
}

/* op: of BPF_OP(); 64 bits. */
struct range range_arithmetic(uint8_t op, struct range a, struct range b);

/* The lower 32 bits. */
static inline struct range range_low(struct range a)
{
	return a.hi <= UINT32_MAX ? a : range_bits(32);
}

/* The part of `a` for which `a op b` is `holds`; op: of a jump. lo > hi: there is none. */
struct range range_where(uint8_t op, struct range a, struct range b, int holds);

#endif
