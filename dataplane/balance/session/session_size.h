// SPDX-License-Identifier: Apache-2.0
/* Chooses the size of session tables by the available memory: docs/design/0019-slots.md. */
#ifndef SY_SESSION_SIZE_H
#define SY_SESSION_SIZE_H

#include <sy_base.h>

#define SESSION_BYTES 64 /* bytes per session: 0002-session-table.md */

/* Free bytes for files in a directory. On hugetlbfs: the free huge pages. Elsewhere: the memory
 * that the kernel reports as available, at most the file system's free space (directory NULL:
 * memory without a file). A control group's remaining limit caps the result. root: prefix of /proc
 * and /sys, for tests. */
uint64_t session_memory_left(const char *root, const char *directory);

struct session_size {
	uint64_t begin, limit; /* sessions: initial capacity, and growth limit */
};

/* left: memory left by all other users. Initial capacity: an eighth of it, 64 k to 16 M sessions;
 * growth limit: half of it. */
void session_size_choose(uint64_t left, struct session_size *out);

#endif
