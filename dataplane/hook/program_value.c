// SPDX-License-Identifier: Apache-2.0
/*
 * Abstract interpretation: the possible contents of registers and stack before each instruction,
 * merged where paths join. Values are ranges of numbers, or pointers with ranges of offsets; so
 * each access is proved to be in bounds. DPDK's verifier runs as well but is unsound: it accepts a
 * pointer after `r6 *= 0` and sums that overflow.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "range.h"

#define REGISTERS   11
#define STACK_REG   10
#define STACK_BYTES 512
#define SLOTS       (STACK_BYTES / 8)
#define MAX_OFFSET  65536 /* largest offset of a pointer, in bytes */

enum value_type { UNSET, NUMBER, CONTEXT, PARAM, STACK, MIXED };

/* range: the number, or a pointer's offsets as signed numbers. */
struct value {
	uint8_t type;
	struct range range;
};

struct state {
	bool reached;
	struct value reg[REGISTERS], slot[SLOTS]; /* slot 0: the lowest address */
};

struct check {
	const struct ebpf_insn *one;
	uint32_t at;
	size_t view; /* bytes of the view */
	struct sy_error *err;
};

static const struct value any_number = {NUMBER, {0, UINT64_MAX}};

static bool is_pointer(const struct value *v)
{
	return v->type == CONTEXT || v->type == PARAM || v->type == STACK;
}

static int value_refuse(const struct check *c, const char *what)
{
	return sy_fail(c->err, EINVAL, "instruction %u %s", c->at, what);
}

/* ---- joins ----------------------------------------------------------------------------------- */

static struct value value_join(struct value a, struct value b)
{
	if (a.type != b.type)
		return (struct value){.type = MIXED};
	if (is_pointer(&a)) {
		int64_t lo = (int64_t)a.range.lo, other = (int64_t)b.range.lo,
		        hi = (int64_t)a.range.hi, another = (int64_t)b.range.hi;
		a.range.lo = (uint64_t)(lo < other ? lo : other);
		a.range.hi = (uint64_t)(hi > another ? hi : another);
	} else {
		a.range = range_join(a.range, b.range);
	}
	return a;
}

static void state_join(struct state *to, const struct state *from)
{
	if (!to->reached) {
		*to = *from;
		return;
	}
	for (unsigned i = 0; i < REGISTERS; i++)
		to->reg[i] = value_join(to->reg[i], from->reg[i]);
	for (unsigned i = 0; i < SLOTS; i++)
		to->slot[i] = value_join(to->slot[i], from->slot[i]);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static unsigned access_size(uint8_t code)
{
	switch (BPF_SIZE(code)) {
	case BPF_B:
		return 1;
	case BPF_H:
		return 2;
	case BPF_W:
		return 4;
	default:
		return 8;
	}
}

/* Checks an access through this pointer; sets its first and last possible offset. */
static int access_check(const struct check *c, const struct value *base, int64_t *first,
                        int64_t *last)
{
	static const char *const name[] = {
	        [CONTEXT] = "what it sees", [PARAM] = "sy_param", [STACK] = "the stack"};
	const int64_t size = access_size(c->one->code);
	if (!is_pointer(base))
		return value_refuse(c, base->type == MIXED
		                               ? "uses what is a pointer on some paths only"
		                               : "uses a number as an address");
	*first = (int64_t)base->range.lo + c->one->off;
	*last = (int64_t)base->range.hi + c->one->off;
	int64_t begin = base->type == STACK ? -STACK_BYTES : 0;
	int64_t end = base->type == STACK   ? 0
	              : base->type == PARAM ? (int64_t)(SY_HOOK_PARAMS * sizeof(uint64_t))
	                                    : (int64_t)c->view;
	if (*first >= begin && *last + size <= end)
		return 0;
	return sy_fail(c->err, EINVAL,
	               "instruction %u reads or writes %ld bytes at offset %ld to %ld of %s, which "
	               "has %ld to %ld; bound the index first, e.g. by `& 63`",
	               c->at, (long)size, (long)*first, (long)*last, name[base->type], (long)begin,
	               (long)end - 1);
}

/* Marks the written stack slots: value if exactly one slot is overwritten, otherwise any number. */
static void stack_write(struct state *s, int64_t first, int64_t last, unsigned size,
                        struct value value)
{
	unsigned from = (unsigned)(first + STACK_BYTES), to = (unsigned)(last + STACK_BYTES) + size;
	bool whole = first == last && size == 8 && from % 8 == 0;
	for (unsigned slot = from / 8; slot * 8 < to; slot++)
		s->slot[slot] = whole ? value : any_number;
}

static int value_store(const struct check *c, struct state *s)
{
	const struct ebpf_insn *one = c->one;
	const struct value *base = &s->reg[one->dst_reg];
	struct value value = any_number;
	int64_t first, last;
	if (access_check(c, base, &first, &last) < 0)
		return -EINVAL;
	if (base->type == PARAM)
		return value_refuse(c, "writes a parameter");
	unsigned size = access_size(one->code);
	bool plain = BPF_MODE(one->code) == BPF_MEM;
	if (BPF_CLASS(one->code) == BPF_STX && plain)
		value = s->reg[one->src_reg];
	bool whole = base->type == STACK && first == last && size == 8 && first % 8 == 0;
	if (!whole && value.type != NUMBER)
		return value_refuse(c, "stores a pointer, or what is not set");
	if (BPF_CLASS(one->code) == BPF_STX && !plain && s->reg[one->src_reg].type != NUMBER)
		return value_refuse(c, "adds a pointer, or what is not set");
	if (base->type == STACK)
		stack_write(s, first, last, size, value);
	return 0;
}

static int value_load(const struct check *c, struct state *s)
{
	const struct value base = s->reg[c->one->src_reg];
	struct value *to = &s->reg[c->one->dst_reg];
	int64_t first, last;
	if (access_check(c, &base, &first, &last) < 0)
		return -EINVAL;
	unsigned size = access_size(c->one->code);
	if (base.type == STACK && first == last && size == 8 && first % 8 == 0)
		*to = s->slot[(first + STACK_BYTES) / 8];
	else
		*to = (struct value){NUMBER, range_bits(8 * size)};
	return 0;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static struct value value_source(const struct check *c, const struct state *s)
{
	if (c->one->code & BPF_X)
		return s->reg[c->one->src_reg];
	return (struct value){NUMBER, range_of((uint64_t)(int64_t)c->one->imm)};
}

/* Pointer arithmetic: dst += src or dst -= src, where one is a pointer and the other a number. */
static int pointer_move(const struct check *c, struct value *dst, const struct value *src)
{
	bool adds = BPF_OP(c->one->code) == BPF_ADD;
	const struct value *number = is_pointer(dst) ? src : dst;
	struct value moved = is_pointer(dst) ? *dst : *src;
	int64_t lo = (int64_t)number->range.lo, hi = (int64_t)number->range.hi;
	if (BPF_CLASS(c->one->code) != EBPF_ALU64 || number->type != NUMBER ||
	    (!adds && (BPF_OP(c->one->code) != BPF_SUB || is_pointer(src))))
		return value_refuse(c, "computes with a pointer");
	if (lo < -MAX_OFFSET || hi > MAX_OFFSET || lo > hi)
		return value_refuse(c, "moves a pointer by a number that has no bound; bound it "
		                       "first, e.g. by `& 63`");
	int64_t from = (int64_t)moved.range.lo + (adds ? lo : -hi),
	        to = (int64_t)moved.range.hi + (adds ? hi : -lo);
	if (from < -MAX_OFFSET || to > MAX_OFFSET)
		return value_refuse(c, "moves a pointer too far");
	*dst = (struct value){moved.type, {(uint64_t)from, (uint64_t)to}};
	return 0;
}

static struct range range_swapped(const struct ebpf_insn *one)
{
	if (!(one->code & EBPF_TO_BE)) /* DPDK does not truncate here */
		return RANGE_ALL;
	return range_bits(one->imm == 16 ? 16 : one->imm == 32 ? 32 : 64);
}

static int value_compute(const struct check *c, struct state *s)
{
	const struct ebpf_insn *one = c->one;
	uint8_t op = BPF_OP(one->code);
	bool wide = BPF_CLASS(one->code) == EBPF_ALU64, unary = op == BPF_NEG || op == EBPF_END;
	struct value *dst = &s->reg[one->dst_reg];
	struct value src = unary ? any_number : value_source(c, s);
	if (op == EBPF_MOV && (wide || src.type == NUMBER)) {
		*dst = src;
		if (!wide)
			dst->range = range_low(one->code & BPF_X ? src.range
			                                         : range_of((uint32_t)one->imm));
		return 0;
	}
	if (op != EBPF_MOV && (is_pointer(dst) || is_pointer(&src)))
		return pointer_move(c, dst, &src);
	if (dst->type != NUMBER || src.type != NUMBER)
		return value_refuse(c, "computes with what is not set, or a pointer on some paths");
	bool shifts = op == BPF_LSH || op == BPF_RSH || op == EBPF_ARSH;
	if (unary)
		dst->range = op == EBPF_END ? range_swapped(one) : RANGE_ALL;
	else if (wide)
		dst->range = range_arithmetic(op, dst->range, src.range);
	else if (shifts && range_low(src.range).hi > 31)
		dst->range = RANGE_ALL; /* x86 uses the lower 5 bits of the count */
	else
		dst->range = range_arithmetic(op, range_low(dst->range), range_low(src.range));
	if (!wide && op != EBPF_END)
		dst->range = range_low(dst->range);
	return 0;
}

/* ---- instructions ---------------------------------------------------------------------------- */

static int value_call(struct state *s)
{
	s->reg[0] = any_number;
	for (unsigned i = 1; i <= 5; i++)
		s->reg[i] = (struct value){.type = UNSET};
	return 0;
}

/* Applies an instruction that does not jump. */
static int value_step(const struct check *c, struct state *s)
{
	const struct ebpf_insn *one = c->one;
	switch (BPF_CLASS(one->code)) {
	case BPF_ALU:
	case EBPF_ALU64:
		return value_compute(c, s);
	case BPF_LDX:
		return value_load(c, s);
	case BPF_ST:
	case BPF_STX:
		return value_store(c, s);
	case BPF_LD: /* the address of sy_param is marked: object.c */
		if (one->code != (BPF_LD | BPF_IMM | EBPF_DW))
			return value_refuse(c, "reads a packet as classic BPF does; use sy_u8()");
		s->reg[one->dst_reg] =
		        one->src_reg ? (struct value){.type = PARAM}
		                     : (struct value){NUMBER, range_of((uint64_t)one[1].imm << 32 |
		                                                       (uint32_t)one->imm)};
		return 0;
	default:
		return BPF_OP(one->code) == EBPF_CALL ? value_call(s) : 0;
	}
}

/* Propagates the state to both successors of a branch, restricted by the comparison. */
static int value_branch(const struct check *c, const struct state *s, struct state *before,
                        const struct program_next *next)
{
	const struct ebpf_insn *one = c->one;
	const struct value src = value_source(c, s), dst = s->reg[one->dst_reg];
	if (dst.type != NUMBER || src.type != NUMBER)
		return value_refuse(c, "compares a pointer, or what is not set");
	for (unsigned n = 0; n < 2; n++) {
		struct state then = *s;
		struct range *range = &then.reg[one->dst_reg].range;
		*range = range_where(BPF_OP(one->code), dst.range, src.range, n == 1);
		if (range->lo <= range->hi)
			state_join(&before[next->at[n]], &then);
	}
	return 0;
}

static int value_walk(const struct check *c, const struct ebpf_insn *at, struct state *before)
{
	const struct program_next next = program_next(at, c->at);
	struct state s = before[c->at];
	if (c->one->dst_reg >= REGISTERS || c->one->src_reg >= REGISTERS ||
	    (c->one->dst_reg == STACK_REG &&
	     (BPF_CLASS(c->one->code) == BPF_ALU || BPF_CLASS(c->one->code) == EBPF_ALU64)))
		return value_refuse(c, "has no such register, or changes the stack's");
	if (next.count == 2)
		return value_branch(c, &s, before, &next);
	if (value_step(c, &s) < 0)
		return -EINVAL;
	if (next.count)
		state_join(&before[next.at[0]], &s);
	else if (s.reg[0].type != NUMBER)
		return value_refuse(c, "ends without a number in r0");
	return 0;
}

int program_values_check(const struct ebpf_insn *at, uint32_t count, size_t view,
                         struct sy_error *err)
{
	struct state *before = calloc(count, sizeof(*before));
	int rc = 0;
	if (!before)
		return sy_fail(err, ENOMEM, "no memory to check it");
	before[0].reached = true;
	before[0].reg[1].type = CONTEXT;
	before[0].reg[STACK_REG].type = STACK;
	for (unsigned i = 0; i < SLOTS; i++)
		before[0].slot[i] = any_number;
	for (uint32_t i = 0; rc == 0 && i < count; i++) {
		const struct check c = {&at[i], i, view, err};
		bool wide = program_next(at, i).wide;
		if (before[i].reached)
			rc = value_walk(&c, at, before);
		i += wide;
	}
	free(before);
	return rc;
}
