/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook: a function that assigns a priority to a packet or segment (docs/design/0044-hooks.md).
 * Independent of connections: the caller fills in the context, struct sy_hook_packet or struct
 * sy_hook_segment.
 *
 * A hook is a C function of the process or an eBPF program, which is verified before it runs: it
 * ends after a bounded number of instructions, accesses its context and stack only, and calls only
 * the functions of sy_hook_program.h. DPDK compiles it to machine code where it can.
 *
 * A table of hooks belongs to one thread, which runs and changes it.
 */
#ifndef SY_HOOK_H
#define SY_HOOK_H

#include <stdbool.h>
#include <string.h>

#include <sy_base.h>

#include "sy_hook_program.h"

#define SY_HOOKS                      32 /* per table; numbered 1 … SY_HOOKS */
#define SY_HOOK_NONE                  0
#define SY_HOOK_NAME                  32
#define SY_HOOK_MAX_INSTRUCTIONS      4096    /* per program */
#define SY_HOOK_MAX_PATH_INSTRUCTIONS 4000000 /* summed over all paths: what the verifier walks */

enum sy_hook_kind { SY_HOOK_PACKET, SY_HOOK_SEGMENT, SY_HOOK_KINDS };

/* Returns the kind's name, which is also its section in an ELF object. */
const char *sy_hook_kind_name(enum sy_hook_kind kind);

/* A native hook. payload has view->payload_len bytes. Returns a priority or SY_KEEP. */
typedef uint8_t (*sy_hook_packet_fn)(struct sy_hook_packet *view, const uint8_t *payload);
typedef uint8_t (*sy_hook_segment_fn)(struct sy_hook_segment *view, const uint8_t *payload);

/* The code of a hook: exactly one of file, packet, segment and object. */
struct sy_hook_source {
	const char *file; /* path of an eBPF ELF object */
	sy_hook_packet_fn packet;
	sy_hook_segment_fn segment;
	const void *object; /* contents of such a file */
	size_t object_len;
	unsigned number; /* for a new name; SY_HOOK_NONE: any free one */
};

struct sy_hook_info {
	char name[SY_HOOK_NAME];
	enum sy_hook_kind kind;
	bool native;           /* a C function of the process */
	bool compiled;         /* to machine code; otherwise interpreted */
	uint32_t instructions; /* of the program */
	uint32_t longest;      /* on the longest path */
	uint32_t loads;        /* loads under this name */
	uint64_t param[SY_HOOK_PARAMS];
	uint64_t calls;
	uint64_t wrong;                /* calls that returned neither a priority nor SY_KEEP */
	uint64_t level[SY_PRIORITIES]; /* calls by the returned priority */
	uint64_t timed, cycles;        /* sampled calls, and their TSC cycles */
};

/* Returns true if a hook may have this name: a-z, digits, '-', '_' and '.', fewer than SY_HOOK_NAME
 * bytes. Reads at most SY_HOOK_NAME bytes. */
static inline bool sy_hook_name_valid(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
	size_t len = strnlen(name, SY_HOOK_NAME);
	return len > 0 && len < SY_HOOK_NAME && strspn(name, letters) == len;
}

struct sy_hooks;

/* Returns NULL if there is no memory. */
struct sy_hooks *sy_hooks_create(void);
void sy_hooks_destroy(struct sy_hooks *hs);

/*
 * Loads a hook and returns its number. If the table has the name, with the same kind, the code is
 * replaced: callers of the number run the new code from the next call on; parameters and counts
 * stay. Fails with -EINVAL if the program is refused (err has the reason), -ENOSPC if the table is
 * full, -EEXIST if the name is a hook of the other kind or the wanted number is in use, -ENOMEM, or
 * the error of reading the file.
 */
int sy_hooks_load(struct sy_hooks *hs, const char *name, const struct sy_hook_source *source,
                  struct sy_error *err);

/* Returns the number of a name, or SY_HOOK_NONE. */
unsigned sy_hooks_find(const struct sy_hooks *hs, const char *name);

/* Removes a hook. Its number returns SY_KEEP until it is reused. Fails with -ENOENT. */
int sy_hooks_remove(struct sy_hooks *hs, unsigned number);

/* Sets sy_param[i]. Fails with -ENOENT, or -EINVAL if i is out of range. */
int sy_hooks_param(struct sy_hooks *hs, unsigned number, unsigned i, uint64_t value);

/* Returns false if the number is not in use. */
bool sy_hooks_info(const struct sy_hooks *hs, unsigned number, struct sy_hook_info *info);

/*
 * Runs a hook; fills view->head from the payload. Returns SY_KEEP if the number is unused or of the
 * other kind, or if the hook returns an invalid value. The hook may write view: `own` and `become`
 * of a segment are results, too.
 */
uint8_t sy_hook_run_packet(struct sy_hooks *hs, unsigned number, struct sy_hook_packet *view,
                           const uint8_t *payload);
uint8_t sy_hook_run_segment(struct sy_hooks *hs, unsigned number, struct sy_hook_segment *view,
                            const uint8_t *payload);

#endif
