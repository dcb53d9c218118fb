// SPDX-License-Identifier: Apache-2.0
/* Zeroed memory for tables that are sized for the maximum. */
#ifndef TABLE_MAP_H
#define TABLE_MAP_H

#include <stddef.h>
#include <sys/mman.h>

/* Pages use no memory until touched. Returns NULL without address space. */
static inline void *table_map(size_t count, size_t size)
{
	void *p = mmap(NULL, count * size, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

/* Of the same sizes; NULL is allowed. */
static inline void table_unmap(void *p, size_t count, size_t size)
{
	if (p)
		munmap(p, count * size);
}

#endif
