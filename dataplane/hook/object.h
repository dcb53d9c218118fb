/* SPDX-License-Identifier: Apache-2.0 */
/* A hook's ELF object, before DPDK loads it. */
#ifndef HOOK_OBJECT_H
#define HOOK_OBJECT_H

#include <bpf_def.h>

#include <sy_hook.h>

/* Names that a program may use. */
struct object_names {
	const char *const *at;
	unsigned count;
};

/*
 * Reads the one program that a file has: its kind and its instructions, for the caller to free.
 * Returns 0; -EINVAL: it is no such object, has none or several, or uses a name that is not in
 * `known`; -ENOMEM; or what opening the file gives.
 */
int object_read(const char *file, const struct object_names *known, enum sy_hook_kind *kind,
                struct ebpf_insn **code, uint32_t *count, struct sy_error *err);

#endif
