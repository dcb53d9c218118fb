/* SPDX-License-Identifier: Apache-2.0 */
/* An eBPF program: reading from ELF, verification, compilation. */
#ifndef HOOK_PROGRAM_H
#define HOOK_PROGRAM_H

#include <bpf_def.h>

#include <sy_hook.h>

struct rte_bpf;

/* Results of verification. */
struct program_shape {
	uint32_t instructions;
	uint32_t longest; /* instructions on the longest path */
	bool compiles;    /* DPDK's JIT translates all its instructions correctly */
};

struct program {
	enum sy_hook_kind kind;
	struct program_shape shape;
	struct rte_bpf *bpf;
	uint64_t (*compiled)(void *view); /* NULL: interpreted */
};

/* Successors of an instruction: at[0 … count). */
struct program_next {
	uint32_t at[2];
	unsigned count;
	bool wide; /* 16 bytes: the instruction occupies two indices */
};
struct program_next program_next(const struct ebpf_insn *at, uint32_t i);

/* Reorders basic blocks so that all jumps are forward; *sorted: *code was replaced. Fails with
 * -EINVAL if the program has a loop, or -ENOMEM. */
int program_order(struct ebpf_insn **code, uint32_t *count, bool *sorted, struct sy_error *err);

/* Checks that each access is within its object. view: bytes of the context. Expects forward jumps
 * only; a load of sy_param's address has src_reg 1. Fails with -EINVAL. */
int program_values_check(const struct ebpf_insn *at, uint32_t count, size_t view,
                         struct sy_error *err);

/* Checks that each path ends within the limits, and that the verifier can walk all paths. Fails
 * with -EINVAL. */
int program_check(const struct ebpf_insn *at, uint32_t count, struct program_shape *shape,
                  struct sy_error *err);

/* param: SY_HOOK_PARAMS words that outlive the program. Fails like sy_hooks_load(). */
int program_load(struct program *p, const struct sy_hook_source *source, uint64_t *param,
                 struct sy_error *err);

/* The same for instructions from object_read(); changes their addresses. */
int program_load_code(struct program *p, enum sy_hook_kind kind, struct ebpf_insn *code,
                      uint32_t count, uint64_t *param, struct sy_error *err);
void program_unload(struct program *p);

/* Sets the payload that this thread's programs read from now on. */
void program_payload(const uint8_t *at, uint32_t len);

/* program_interpret() never runs the compiled code. */
uint64_t program_run(const struct program *p, void *view);
uint64_t program_interpret(const struct program *p, void *view);

#endif
