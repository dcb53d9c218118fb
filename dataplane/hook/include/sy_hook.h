/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook: code that tells how urgent a packet or a segment is (docs/design/0044-hooks.md). It knows
 * nothing of connections: callers say what a hook sees, in struct sy_hook_packet and struct
 * sy_hook_segment.
 *
 * A hook is a function of the process, or a program in eBPF, which is checked before it runs: it
 * ends after a bounded number of instructions, reads and writes nothing but what it is given, and
 * calls nothing but what sy_hook_program.h declares. It is compiled to machine code where DPDK can.
 *
 * A table of hooks belongs to one thread, which runs and changes it.
 */
#ifndef SY_HOOK_H
#define SY_HOOK_H

#include <stdbool.h>
#include <string.h>

#include <sy_base.h>

#include "sy_hook_program.h"

#define SY_HOOKS        32 /* in a table; numbers 1 … SY_HOOKS */
#define SY_HOOK_NONE    0
#define SY_HOOK_NAME    32
#define SY_HOOK_LONGEST 4096    /* instructions of a program */
#define SY_HOOK_WAYS    4000000 /* instructions of all ways through it: what checking it takes */

enum sy_hook_kind { SY_HOOK_PACKET, SY_HOOK_SEGMENT, SY_HOOK_KINDS };

/* Also the name of its section in an ELF object. */
const char *sy_hook_kind_name(enum sy_hook_kind kind);

/* A hook of the process. payload: all of it, view->payload_len bytes. Returns a priority or
 * SY_KEEP. */
typedef uint8_t (*sy_hook_packet_fn)(struct sy_hook_packet *view, const uint8_t *payload);
typedef uint8_t (*sy_hook_segment_fn)(struct sy_hook_segment *view, const uint8_t *payload);

/* Where a hook comes from: one of these. */
struct sy_hook_source {
	const char *file; /* an ELF object of eBPF */
	sy_hook_packet_fn packet;
	sy_hook_segment_fn segment;
	const void *object; /* what such a file has, and its bytes */
	size_t object_len;
	unsigned number; /* that a new name is to have; SY_HOOK_NONE: any */
};

struct sy_hook_info {
	char name[SY_HOOK_NAME];
	enum sy_hook_kind kind;
	bool native;           /* of the process */
	bool compiled;         /* to machine code; else interpreted */
	uint32_t instructions; /* of the program */
	uint32_t longest;      /* of its longest way */
	uint32_t loads;        /* how often code was loaded under this name */
	uint64_t param[SY_HOOK_PARAMS];
	uint64_t calls;
	uint64_t wrong;                /* calls that returned neither a priority nor SY_KEEP */
	uint64_t level[SY_PRIORITIES]; /* calls that returned this */
	uint64_t timed, cycles;        /* calls that were measured, and what they took of the TSC */
};

/* Whether a name may be a hook's: letters a-z, digits, '-', '_' and '.', less than SY_HOOK_NAME of
 * them. At most SY_HOOK_NAME bytes are read. */
static inline bool sy_hook_name_valid(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
	size_t len = strnlen(name, SY_HOOK_NAME);
	return len > 0 && len < SY_HOOK_NAME && strspn(name, letters) == len;
}

struct sy_hooks;

/* NULL: no memory. */
struct sy_hooks *sy_hooks_create(void);
void sy_hooks_destroy(struct sy_hooks *hs);

/*
 * Loads a hook. A name that is in the table gets the new code, if it is of the same kind: whoever
 * has its number runs that from the next call on, and parameters and counts stay.
 * Returns the number; -EINVAL: the program is refused, err says why and where; -ENOSPC: the table
 * is full; -EEXIST: the name is a hook of the other kind, or the wanted number is in use; -ENOMEM;
 * or what reading the file gives.
 */
int sy_hooks_load(struct sy_hooks *hs, const char *name, const struct sy_hook_source *source,
                  struct sy_error *err);

/* The number of a name; SY_HOOK_NONE: there is none. */
unsigned sy_hooks_find(const struct sy_hooks *hs, const char *name);

/* Removes it: where its number is used, SY_KEEP is the answer, until the number is given again.
 * Returns 0, or -ENOENT. */
int sy_hooks_remove(struct sy_hooks *hs, unsigned number);

/* Sets a parameter of sy_param. Returns 0, -ENOENT, or -EINVAL: i is none. */
int sy_hooks_param(struct sy_hooks *hs, unsigned number, unsigned i, uint64_t value);

/* Returns false if the number is not in use. */
bool sy_hooks_info(const struct sy_hooks *hs, unsigned number, struct sy_hook_info *info);

/*
 * Asks a hook. view->head is filled from the payload. A number that is not in use, or of the other
 * kind, gives SY_KEEP, and so does what the hook must not return. view may be changed:
 * `own` and `become` of a segment's are the hook's answer too.
 */
uint8_t sy_hook_ask_packet(struct sy_hooks *hs, unsigned number, struct sy_hook_packet *view,
                           const uint8_t *payload);
uint8_t sy_hook_ask_segment(struct sy_hooks *hs, unsigned number, struct sy_hook_segment *view,
                            const uint8_t *payload);

#endif
