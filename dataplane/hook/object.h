/* SPDX-License-Identifier: Apache-2.0 */
/* A hook's ELF object, before DPDK loads it. */
#ifndef HOOK_OBJECT_H
#define HOOK_OBJECT_H

#include <bpf_def.h>

#include <sy_hook.h>

/* Names that a program may use: functions, and the one of data. */
struct object_names {
	const char *const *function;
	unsigned functions;
	const char *data;
};

/*
 * Reads the one program that a file, or an object in memory, has: its kind and its instructions,
 * for the caller to free. Where it calls a function, imm is the function's number; where it loads
 * the address of the data, src_reg is OBJECT_ADDRESS, and the address is for the caller to fill in.
 * Returns 0; -EINVAL: it is no such object, has none or several, or uses another name; -ENOMEM; or
 * what opening the file gives.
 */
#define OBJECT_ADDRESS 1
int object_read(const struct sy_hook_source *source, const struct object_names *known,
                enum sy_hook_kind *kind, struct ebpf_insn **code, uint32_t *count,
                struct sy_error *err);

#endif
