// SPDX-License-Identifier: Apache-2.0
/* The size of session tables by the memory that there is: docs/design/0019-slots.md. */
#ifndef SY_SESSION_SIZE_H
#define SY_SESSION_SIZE_H

#include <sy_base.h>

/* Bytes that files in a directory may still take: free huge pages where it is hugetlbfs; else what
 * the kernel calls available, and the file system's room (directory NULL: memory without a file).
 * Of a control group's limit no more than is left. root: in front of /proc and /sys, for tests. */
uint64_t session_memory_left(const char *root, const char *directory);

struct session_size {
	uint64_t begin, limit; /* sessions: that tables are made for, and may grow to */
};

/* By the memory left once all else has its own: an eighth to begin with, 64 k to 16 M sessions;
 * half of it to grow to. */
void session_size_choose(uint64_t left, struct session_size *out);

#endif
