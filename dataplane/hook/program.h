/* SPDX-License-Identifier: Apache-2.0 */
/* A program in eBPF: read from an ELF object, checked, compiled. */
#ifndef HOOK_PROGRAM_H
#define HOOK_PROGRAM_H

#include <bpf_def.h>

#include <sy_hook.h>

struct rte_bpf;

/* What a check finds. */
struct program_shape {
	uint32_t instructions;
	uint32_t longest; /* way through it, in instructions */
	bool compiles;    /* to right machine code */
};

struct program {
	enum sy_hook_kind kind;
	struct program_shape shape;
	struct rte_bpf *bpf;
	uint64_t (*compiled)(void *view); /* NULL: it is interpreted */
};

/* What may follow an instruction: at[0 … count). */
struct program_next {
	uint32_t at[2];
	unsigned count;
	bool wide; /* the instruction takes two places */
};
struct program_next program_next(const struct ebpf_insn *at, uint32_t i);

/* Sorts its blocks so that all jumps lead forward, if it has no loop; *sorted: that was needed, and
 * *code is another. Returns 0, -EINVAL: it loops; -ENOMEM. */
int program_order(struct ebpf_insn **code, uint32_t *count, bool *sorted, struct sy_error *err);

/* Is each access inside of what it is for? view: bytes of what the program sees. All jumps are
 * forward ones. A load of sy_param's address has src_reg 1. Returns 0, or -EINVAL. */
int program_values_check(const struct ebpf_insn *at, uint32_t count, size_t view,
                         struct sy_error *err);

/* Does each way through these instructions end, soon enough, and are there so few that a verifier
 * can walk them all? Returns 0, or -EINVAL. */
int program_check(const struct ebpf_insn *at, uint32_t count, struct program_shape *shape,
                  struct sy_error *err);

/* param: SY_HOOK_PARAMS words, as long as the program lives. Returns 0, or as sy_hooks_load(). */
int program_load(struct program *p, const struct sy_hook_source *source, uint64_t *param,
                 struct sy_error *err);

/* The same of instructions as object_read() gives them; changes their addresses. */
int program_load_code(struct program *p, enum sy_hook_kind kind, struct ebpf_insn *code,
                      uint32_t count, uint64_t *param, struct sy_error *err);
void program_unload(struct program *p);

/* The payload that this thread's programs see from now on. */
void program_payload(const uint8_t *at, uint32_t len);

/* Runs it; interpreted: not its machine code. */
uint64_t program_run(const struct program *p, void *view);
uint64_t program_interpret(const struct program *p, void *view);

#endif
