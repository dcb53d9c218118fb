// SPDX-License-Identifier: Apache-2.0
/* Measures the memory available for session tables, and chooses their size if the operator sets
 * none (docs/design/0019-slots.md). */
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/vfs.h>

#include "session_size.h"

#define BEGIN_SHARE 8 /* 1 / part of the free memory for the initial tables */
#define LIMIT_SHARE 2 /* 1 / part of the free memory as growth limit */
#define BEGIN_MIN   (UINT64_C(1) << 16)
#define BEGIN_MAX   (UINT64_C(1) << 24)

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The number in the first line of this format, in a file below root. Returns `otherwise` if the
 * file is absent, or says "max" for no limit. */
static uint64_t number_in(const char *root, const char *path, const char *form, uint64_t otherwise)
{
	char name[PATH_MAX], line[256];
	uint64_t number = otherwise;
	unsigned long long found;
	FILE *file = NULL;

	if (snprintf(name, sizeof(name), "%s%s", root, path) < (int)sizeof(name))
		file = fopen(name, "re");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, form, &found) == 1) {
			number = found;
			break;
		}
	if (file != NULL)
		fclose(file);
	return number;
}

/* File names of a cgroup controller. */
struct group_files {
	char limit[64], used[64];
	/* The line of memory.stat with the page cache that the kernel reclaims first: counted as
	 * used, but available to any allocation. NULL: none. */
	const char *reclaimable;
};

/* Bytes in use that the kernel cannot reclaim at once. */
static uint64_t group_used(const char *root, const char *folder, const struct group_files *files)
{
	char path[PATH_MAX];
	uint64_t used = 0, reclaimable = 0;

	if (snprintf(path, sizeof(path), "%s/%s", folder, files->used) < (int)sizeof(path))
		used = number_in(root, path, "%llu", 0);
	if (files->reclaimable != NULL &&
	    snprintf(path, sizeof(path), "%s/memory.stat", folder) < (int)sizeof(path))
		reclaimable = number_in(root, path, files->reclaimable, 0);
	return used > reclaimable ? used - reclaimable : 0;
}

/* Bytes that a control group and its ancestors still allow. */
static uint64_t group_left(const char *root, const char *mount, char *group,
                           const struct group_files *files)
{
	uint64_t left = UINT64_MAX;

	for (;;) {
		char folder[PATH_MAX], path[PATH_MAX];
		int a = snprintf(folder, sizeof(folder), "%s%s", mount, group);
		int b = snprintf(path, sizeof(path), "%s%s/%s", mount, group, files->limit);
		if (a < (int)sizeof(folder) && b < (int)sizeof(path)) {
			uint64_t max = number_in(root, path, "%llu", UINT64_MAX);
			uint64_t now = group_used(root, folder, files);
			left = min_u64(left, max > now ? max - now : 0);
		}
		char *slash = strrchr(group, '/');
		if (slash == NULL)
			return left;
		*slash = '\0';
	}
}

/* The minimum over the process's groups. Version 2 has one line "0::/group", version 1 one per
 * controller. huge_kb: size of the pages counted; 0: ordinary memory. */
static uint64_t groups_left(const char *root, uint64_t huge_kb)
{
	struct group_files files = {"memory.max", "memory.current", "inactive_file %llu"};
	struct group_files files1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
	                             "total_inactive_file %llu"};
	char path[PATH_MAX], line[PATH_MAX];
	const char *controller = huge_kb ? "hugetlb" : "memory";
	uint64_t left = UINT64_MAX;

	if (huge_kb) {
		char size[24];
		uint64_t mb = huge_kb >> 10;
		snprintf(size, sizeof(size), mb < 1024 ? "%" PRIu64 "MB" : "%" PRIu64 "GB",
		         mb < 1024 ? mb : mb >> 10);
		snprintf(files.limit, sizeof(files.limit), "hugetlb.%s.max", size);
		snprintf(files.used, sizeof(files.used), "hugetlb.%s.current", size);
		snprintf(files1.limit, sizeof(files1.limit), "hugetlb.%s.limit_in_bytes", size);
		snprintf(files1.used, sizeof(files1.used), "hugetlb.%s.usage_in_bytes", size);
		files.reclaimable = files1.reclaimable = NULL;
	}
	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	FILE *file = fopen(path, "re");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
		if (group == NULL)
			continue;
		*names++ = '\0';
		*group++ = '\0';
		if (!strcmp(group, "/"))
			*group = '\0';
		char mount[64];
		snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%s", controller);
		if (*names == '\0')
			left = min_u64(left, group_left(root, "/sys/fs/cgroup", group, &files));
		else if (!strcmp(names, controller))
			left = min_u64(left, group_left(root, mount, group, &files1));
	}
	if (file != NULL)
		fclose(file);
	return left;
}

static uint64_t huge_free(const char *root, uint64_t kb)
{
	char path[96];
	const char *folder = "/sys/kernel/mm/hugepages/hugepages-";

	snprintf(path, sizeof(path), "%s%" PRIu64 "kB/free_hugepages", folder, kb);
	uint64_t free = number_in(root, path, "%llu", 0);
	snprintf(path, sizeof(path), "%s%" PRIu64 "kB/resv_hugepages", folder, kb);
	uint64_t kept = number_in(root, path, "%llu", 0);
	return (free > kept ? free - kept : 0) * kb * 1024;
}

uint64_t session_memory_left(const char *root, const char *directory)
{
	uint64_t left =
	        number_in(root, "/proc/meminfo", "MemAvailable: %llu kB", 0) * UINT64_C(1024);
	struct statfs fs;

	if (directory == NULL || statfs(directory, &fs) != 0)
		return min_u64(left, groups_left(root, 0));
	if (fs.f_type == HUGETLBFS_MAGIC) {
		uint64_t kb = (uint64_t)fs.f_bsize >> 10;
		return min_u64(huge_free(root, kb), groups_left(root, kb));
	}
	left = min_u64(left, (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize);
	return min_u64(left, groups_left(root, 0));
}

void session_size_choose(uint64_t left, struct session_size *out)
{
	uint64_t begin = left / BEGIN_SHARE / SESSION_BYTES;

	out->begin = begin < BEGIN_MIN ? BEGIN_MIN : min_u64(begin, BEGIN_MAX);
	out->limit = left / LIMIT_SHARE / SESSION_BYTES;
	if (out->limit < out->begin)
		out->limit = out->begin;
}
