// SPDX-License-Identifier: Apache-2.0
/*
 * Tables of a stack that has ended are those of the next one, zeroed as the kernel's are. To map
 * and unmap them took a third of the time of a schedule.
 *
 * A table is used from its beginning on. So what is behind the first page that is all zero was
 * never touched; of some tables that is looked at.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <sy_base.h>

#define TABLES 32
#define LOOK   64 /* at one of so many */

static struct {
	void *at;
	size_t bytes;
	bool free;
} tables[TABLES];

void *__real_mmap64(void *at, size_t bytes, int may, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
void *__wrap_mmap64(void *at, size_t bytes, int may, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t bytes);

void *__wrap_mmap64(void *at, size_t bytes, int may, int flags, int fd, off_t offset)
{
	for (unsigned i = 0; i < TABLES; i++) {
		if (!tables[i].free || tables[i].bytes != bytes)
			continue;
		tables[i].free = false;
		return tables[i].at;
	}
	at = __real_mmap64(at, bytes, may, flags, fd, offset);
	for (unsigned i = 0; i < TABLES && at != MAP_FAILED; i++) {
		if (tables[i].at)
			continue;
		tables[i].at = at;
		tables[i].bytes = bytes;
		break;
	}
	return at;
}

static bool is_zero(const char *bytes, size_t len)
{
	static const char zero[SY_PAGE];

	return memcmp(bytes, zero, len) == 0;
}

static void table_zero(char *table, size_t bytes)
{
	static unsigned count;
	bool look = ++count % LOOK == 0, zero = false;

	for (size_t at = 0; at < bytes && (!zero || look); at += SY_PAGE) {
		size_t len = bytes - at < SY_PAGE ? bytes - at : SY_PAGE;
		if (is_zero(table + at, len))
			zero = true;
		else if (zero)
			abort(); /* it is not used from its beginning on */
		else
			memset(table + at, 0, len);
	}
}

int __wrap_munmap(void *at, size_t bytes)
{
	for (unsigned i = 0; i < TABLES; i++) {
		if (tables[i].at != at)
			continue;
		table_zero(at, bytes);
		tables[i].free = true;
		return 0;
	}
	return __real_munmap(at, bytes);
}
