// SPDX-License-Identifier: Apache-2.0
/*
 * Checks that DPDK's verifier lacks, or does without saying why a program fails: loops, the length
 * of the longest path, and the number of paths, each of which that verifier walks separately. Also
 * finds instructions that DPDK's JIT miscompiles.
 */
#include <errno.h>
#include <stdlib.h>

#include "program.h"

static bool code_is_wide(uint8_t code)
{
	return code == (BPF_LD | BPF_IMM | EBPF_DW);
}

static bool code_is_jump(uint8_t code)
{
	uint8_t op = BPF_OP(code);
	return BPF_CLASS(code) == BPF_JMP && op != EBPF_CALL && op != EBPF_EXIT;
}

struct program_next program_next(const struct ebpf_insn *at, uint32_t i)
{
	uint8_t code = at[i].code;
	if (code == (BPF_JMP | EBPF_EXIT))
		return (struct program_next){.count = 0};
	uint32_t there = (uint32_t)((int64_t)i + 1 + at[i].off);
	if (code == (BPF_JMP | BPF_JA))
		return (struct program_next){{there}, 1, false};
	if (code_is_jump(code))
		return (struct program_next){{i + 1, there}, 2, false};
	bool wide = code_is_wide(code);
	return (struct program_next){{i + 1 + wide}, 1, wide};
}

/* Per instruction: the paths from here to an exit. */
struct path {
	uint64_t all;     /* instructions of all paths together */
	uint32_t longest; /* instructions of the longest path */
	bool half;        /* second half of a 16-byte instruction: not a jump target */
};

static int next_check(const struct ebpf_insn *at, uint32_t i, uint32_t count,
                      const struct path *path, struct sy_error *err)
{
	const struct program_next next = program_next(at, i);
	for (unsigned n = 0; n < next.count; n++) {
		if (next.at[n] <= i)
			return sy_fail(err, EINVAL,
			               "instruction %u jumps back to %u: a hook must not loop; "
			               "write the steps one after the other (#pragma unroll), or "
			               "use sy_find()",
			               i, next.at[n]);
		if (next.at[n] >= count || path[next.at[n]].half)
			return sy_fail(err, EINVAL,
			               "instruction %u jumps outside the program, or into the "
			               "middle of a 16-byte instruction",
			               i);
	}
	return 0;
}

static int shift_check(const struct ebpf_insn *at, uint32_t i, struct sy_error *err)
{
	uint8_t class = BPF_CLASS(at[i].code), op = BPF_OP(at[i].code);
	int32_t bits = class == EBPF_ALU64 ? 64 : 32;
	if ((class != BPF_ALU && class != EBPF_ALU64) || at[i].code & BPF_X ||
	    (op != BPF_LSH && op != BPF_RSH && op != EBPF_ARSH) ||
	    (at[i].imm >= 0 && at[i].imm < bits))
		return 0;
	return sy_fail(err, EINVAL, "instruction %u shifts %d bits by %d", i, bits, at[i].imm);
}

/* DPDK 22.11's JIT miscompiles some instructions (found by fuzz_hook): shifts and divisions of a
 * register by itself, 32-bit divisions, bit tests with a constant, and conversion to little endian.
 * Clang rarely generates these. */
static bool code_compiles(const struct ebpf_insn *one)
{
	uint8_t class = BPF_CLASS(one->code), op = BPF_OP(one->code);
	bool shifts = op == BPF_LSH || op == BPF_RSH || op == EBPF_ARSH,
	     divides = op == BPF_DIV || op == BPF_MOD, by_register = one->code & BPF_X;
	if (class == BPF_JMP)
		return op != BPF_JSET || by_register;
	if (class != BPF_ALU && class != EBPF_ALU64)
		return true;
	if (op == EBPF_END)
		return one->code & EBPF_TO_BE;
	return !(divides && class == BPF_ALU) &&
	       !((shifts || divides) && by_register && one->src_reg == one->dst_reg);
}

static void path_join(struct path *path, const struct ebpf_insn *at, uint32_t i)
{
	const struct program_next next = program_next(at, i);
	path[i].all = path[i].longest = 1;
	for (unsigned n = 0; n < next.count; n++) {
		const struct path *then = &path[next.at[n]];
		path[i].all += then->all;
		if (path[i].longest <= then->longest)
			path[i].longest = then->longest + 1;
	}
	if (path[i].all > SY_HOOK_MAX_PATH_INSTRUCTIONS) /* clamped, so sums cannot overflow */
		path[i].all = SY_HOOK_MAX_PATH_INSTRUCTIONS + 1;
}

/* Refuses a program with too many paths. Reports the last instruction from which there are too
 * many: the branches that multiply them follow it. */
static int paths_refuse(const struct ebpf_insn *at, uint32_t count, const struct path *path,
                        struct sy_error *err)
{
	uint32_t from = 0, branches = 0;
	for (uint32_t i = 0; i < count; i++)
		if (!path[i].half && path[i].all > SY_HOOK_MAX_PATH_INSTRUCTIONS)
			from = i;
	for (uint32_t i = from; i < count; i++)
		branches += !path[i].half && program_next(at, i).count == 2;
	return sy_fail(
	        err, EINVAL,
	        "from instruction %u on, its %u branches make too many paths to verify each of "
	        "them; join conditions (compare words instead of bytes, count without "
	        "branches), or end early: docs/hooks.md, \"Too many paths\"",
	        from, branches);
}

static int paths_check(const struct ebpf_insn *at, uint32_t count, struct path *path,
                       struct program_shape *shape, struct sy_error *err)
{
	for (uint32_t i = 0; i + 1 < count; i++)
		path[i + 1].half = !path[i].half && code_is_wide(at[i].code);
	*shape = (struct program_shape){.instructions = count, .compiles = true};
	for (uint32_t i = 0; i < count; i++) {
		if (path[i].half)
			continue;
		if (next_check(at, i, count, path, err) < 0 || shift_check(at, i, err) < 0)
			return -EINVAL;
		shape->compiles &= code_compiles(&at[i]);
	}
	for (uint32_t i = count; i-- > 0;)
		if (!path[i].half)
			path_join(path, at, i);
	shape->longest = path[0].longest;
	if (path[0].all > SY_HOOK_MAX_PATH_INSTRUCTIONS)
		return paths_refuse(at, count, path, err);
	return 0;
}

int program_check(const struct ebpf_insn *at, uint32_t count, struct program_shape *shape,
                  struct sy_error *err)
{
	if (count == 0)
		return sy_fail(err, EINVAL, "the program is empty");
	if (count > SY_HOOK_MAX_INSTRUCTIONS)
		return sy_fail(err, EINVAL, "the program has %u instructions; the maximum is %u",
		               count, SY_HOOK_MAX_INSTRUCTIONS);
	struct path *path = calloc(count, sizeof(*path));
	if (!path)
		return sy_fail(err, ENOMEM, "no memory to check it");
	int rc = paths_check(at, count, path, shape, err);
	free(path);
	return rc;
}
