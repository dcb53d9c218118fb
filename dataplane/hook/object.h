/* SPDX-License-Identifier: Apache-2.0 */
/* A hook's ELF object, before DPDK loads it. */
#ifndef HOOK_OBJECT_H
#define HOOK_OBJECT_H

#include <bpf_def.h>

#include <sy_hook.h>

/* External symbols that a program may use: functions and one data symbol. */
struct object_names {
	const char *const *function;
	unsigned functions;
	const char *data;
};

/*
 * Reads the only program of an ELF object: its kind and its instructions, which the caller frees.
 * The imm of a call is the function's index in known->function; a load of the data symbol's address
 * has src_reg OBJECT_ADDRESS, and the caller fills in the address. Fails with -EINVAL if it is no
 * eBPF object, has no program or several, or uses another symbol; -ENOMEM; or the error of opening
 * the file.
 */
#define OBJECT_ADDRESS 1
int object_read(const struct sy_hook_source *source, const struct object_names *known,
                enum sy_hook_kind *kind, struct ebpf_insn **code, uint32_t *count,
                struct sy_error *err);

#endif
