// SPDX-License-Identifier: Apache-2.0
/* The memory of a session file: allocates and maps it, or reports how much is missing. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "session_file.h"

static uint64_t round_up(uint64_t value, uint64_t step)
{
	return (value + step - 1) / step * step;
}

/* For ordinary memory: requests huge pages, and faults all of it in before the first packet. Older
 * kernels may support neither; errors are ignored. */
static void memory_settle(void *memory, uint64_t length)
{
	(void)madvise(memory, length, MADV_HUGEPAGE);
	(void)madvise(memory, length, MADV_POPULATE_WRITE);
}

/* Reserves address space for the max size of the mapping, aligned for huge pages of this size.
 * NULL: none is available, and the mapping will not grow. */
static void *area_reserve(struct session_map *m, uint64_t page)
{
	if (m->reserved < m->length)
		m->reserved = m->length;
	m->reserved = round_up(m->reserved, page);
	m->area_length = m->reserved + page;
	m->area = mmap(NULL, m->area_length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
	               -1, 0);
	if (m->area == MAP_FAILED) {
		m->area = NULL;
		m->reserved = m->length;
		return NULL;
	}
	return (void *)round_up((uint64_t)(uintptr_t)m->area, page);
}

static void area_drop(struct session_map *m)
{
	if (m->area != NULL)
		munmap(m->area, m->area_length);
	m->area = NULL;
}

static int map_anonymous(struct session_map *m, struct sy_error *err)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	m->length = round_up(m->length, page);
	void *address = area_reserve(m, page);
	void *memory = mmap(address, m->length, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED : 0), -1, 0);
	if (memory == MAP_FAILED) {
		int code = errno;
		area_drop(m);
		return sy_fail(err, code,
		               "session table: no %" PRIu64 " MiB of memory: lower --sessions",
		               m->length >> 20);
	}
	memory_settle(memory, m->length);
	sy_secret_pages(memory, m->length);
	m->file = memory;
	return 0;
}

/* ---- what is missing ------------------------------------------------------------------------- */

static uint64_t number_read(const char *path, const char *format)
{
	unsigned long long number = 0;
	char line[128];
	FILE *file = fopen(path, "re");

	while (file != NULL && fgets(line, sizeof(line), file) != NULL &&
	       sscanf(line, format, &number) != 1)
		;
	if (file != NULL)
		fclose(file);
	return number;
}

static uint64_t huge_number(uint64_t page_kb, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/%s", page_kb,
	         name);
	return number_read(path, "%llu");
}

static int fail_huge(const char *path, uint64_t length, uint64_t page, int code,
                     struct sy_error *err)
{
	uint64_t kb = page >> 10, wanted = length / page;
	uint64_t free = huge_number(kb, "free_hugepages"), kept = huge_number(kb, "resv_hugepages");
	uint64_t left = free > kept ? free - kept : 0;
	uint64_t total = huge_number(kb, "nr_hugepages") + (wanted > left ? wanted - left : 0);
	char remedy[128];

	/* the sysctl counts only pages of the default size */
	if (number_read("/proc/meminfo", "Hugepagesize: %llu kB") == kb)
		snprintf(remedy, sizeof(remedy), "sysctl vm.nr_hugepages=%" PRIu64, total);
	else
		snprintf(remedy, sizeof(remedy),
		         "echo %" PRIu64 " >/sys/kernel/mm/hugepages/hugepages-%" PRIu64
		         "kB/nr_hugepages",
		         total, kb);
	return sy_fail(err, code,
	               "session table: %.100s needs %" PRIu64 " huge pages of %" PRIu64
	               " kB and %" PRIu64 " are free: %s, or lower --sessions",
	               path, wanted, kb, left, remedy);
}

/* ---- files ----------------------------------------------------------------------------------- */

int session_map_memory(struct session_map *m, const char *path, uint64_t length,
                       struct sy_error *err)
{
	struct statfs fs;
	struct stat st;

	m->length = length;
	if (m->fd < 0)
		return map_anonymous(m, err);
	if (fstatfs(m->fd, &fs) != 0 || fstat(m->fd, &st) != 0)
		return sy_fail(err, errno, "session table: %.200s: %s", path, strerror(errno));
	bool huge = fs.f_type == HUGETLBFS_MAGIC;
	uint64_t page = huge ? (uint64_t)fs.f_bsize : (uint64_t)sysconf(_SC_PAGESIZE);
	m->length = round_up(length, page);
	/* On hugetlbfs mmap() reserves the pages. Elsewhere allocate space now: a full file system
	 * would kill the process by SIGBUS later. */
	int rc = 0;
	void *memory = MAP_FAILED;
	if (!huge)
		rc = fallocate(m->fd, 0, 0, (off_t)m->length);
	else if ((uint64_t)st.st_size != m->length)
		rc = ftruncate(m->fd, (off_t)m->length);
	if (rc == 0) {
		void *address = area_reserve(m, page);
		memory = mmap(address, m->length, PROT_READ | PROT_WRITE,
		              MAP_SHARED | (address ? MAP_FIXED : 0) | (huge ? MAP_POPULATE : 0),
		              m->fd, 0);
	}
	rc = errno;
	if (memory == MAP_FAILED)
		area_drop(m);
	if (memory == MAP_FAILED && huge)
		return fail_huge(path, m->length, page, rc, err);
	if (memory == MAP_FAILED)
		return sy_fail(err, rc,
		               "session table: %.160s needs %" PRIu64 " pages of %" PRIu64
		               " kB: %s: free some space or lower --sessions",
		               path, m->length / page, page >> 10, strerror(rc));
	if (!huge)
		memory_settle(memory, m->length);
	/* Excludes keys and clients' addresses from core dumps. After a crash the file itself
	 * remains. */
	sy_secret_pages(memory, m->length);
	m->file = memory;
	return 0;
}

/* Extends the file. Returns false if no space is left. */
static bool file_extend(const struct session_map *m, uint64_t more, bool huge)
{
	return huge ? ftruncate(m->fd, (off_t)(m->length + more)) == 0
	            : fallocate(m->fd, 0, (off_t)m->length, (off_t)more) == 0;
}

int session_map_extend(struct session_map *m, const char *path, uint64_t length,
                       struct sy_error *err)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct statfs fs;
	bool huge = false;

	if (m->fd >= 0 && fstatfs(m->fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC) {
		huge = true;
		page = (uint64_t)fs.f_bsize;
	}
	length = round_up(length, page);
	uint64_t more = length - m->length;
	uint8_t *at = (uint8_t *)m->file + m->length;
	if (length > m->reserved)
		return sy_fail(err, ENOSPC, "session table: no address space is left to grow into");
	if (m->fd >= 0 && !file_extend(m, more, huge))
		return sy_fail(err, errno, "session table: %.160s cannot grow: %s", path,
		               strerror(errno));
	int kind = m->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	if (mmap(at, more, PROT_READ | PROT_WRITE, kind | MAP_FIXED | (huge ? MAP_POPULATE : 0),
	         m->fd, m->fd < 0 ? 0 : (off_t)m->length) == MAP_FAILED) {
		int code = errno;
		(void)mmap(at, more, PROT_NONE,
		           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		if (m->fd >= 0)
			(void)!ftruncate(m->fd, (off_t)m->length);
		return huge ? fail_huge(path, more, page, code, err)
		            : sy_fail(err, code, "session table: %.160s cannot grow: %s", path,
		                      strerror(code));
	}
	if (!huge)
		memory_settle(at, more);
	sy_secret_pages(at, more);
	m->length = length;
	return 0;
}

void session_map_drop(struct session_map *m)
{
	if (m->area != NULL)
		area_drop(m);
	else if (m->file != NULL)
		munmap(m->file, m->length);
	if (m->fd >= 0)
		close(m->fd);
	*m = (struct session_map){.fd = -1};
}
