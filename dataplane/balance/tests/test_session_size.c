// SPDX-License-Identifier: Apache-2.0
/* Tables sized by available memory, under control groups of both versions. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../../tests/folder.h"
#include "session_size.h"

static char root[FOLDER_NAME];
static char made[32][PATH_MAX]; /* files and folders, in order of creation */
static unsigned count;

static void path_note(const char *path)
{
	snprintf(made[count++], sizeof(made[0]), "%s", path);
}

/* Below root, with any missing folders. */
static void file_write(const char *path, const char *text)
{
	char name[PATH_MAX];
	snprintf(name, sizeof(name), "%s%s", root, path);
	for (char *slash = name + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdir(name, 0700) == 0)
			path_note(name);
		*slash = '/';
	}
	bool there = access(name, F_OK) == 0;
	FILE *file = fopen(name, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	if (!there)
		path_note(name);
}

static int setup(void **state)
{
	count = 0;
	if (!folder_make(root, "/tmp"))
		return -1;
	file_write("/proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable:    2000000 kB\n");
	return 0;
}

static int teardown(void **state)
{
	while (count-- > 0)
		assert_int_equal(remove(made[count]), 0);
	count = 0;
	return rmdir(root);
}

static void what_is_available_is_left(void **state)
{
	assert_int_equal(session_memory_left(root, NULL), UINT64_C(2000000) * 1024);
	/* a file system's own limit applies */
	assert_true(session_memory_left(root, "/tmp") <= UINT64_C(2000000) * 1024);
}

static void groups_of_version_2_limit(void **state)
{
	file_write("/proc/self/cgroup", "0::/system.slice/steelyard.service\n");
	file_write("/sys/fs/cgroup/system.slice/steelyard.service/memory.max", "max\n");
	assert_int_equal(session_memory_left(root, NULL), UINT64_C(2000000) * 1024);
	/* a parent group's limit counts */
	file_write("/sys/fs/cgroup/system.slice/memory.max", "500000000\n");
	file_write("/sys/fs/cgroup/system.slice/memory.current", "100000000\n");
	assert_int_equal(session_memory_left(root, NULL), 400000000);
	file_write("/sys/fs/cgroup/system.slice/memory.current", "600000000\n");
	assert_int_equal(session_memory_left(root, NULL), 0);
}

static void groups_of_version_1_limit(void **state)
{
	file_write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/x\n0::/\n");
	file_write("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "300000000\n");
	file_write("/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "1000\n");
	assert_int_equal(session_memory_left(root, NULL), 300000000 - 1000);
}

/* Page cache that the kernel reclaims at once does not count as used. */
static void page_cache_is_left(void **state)
{
	file_write("/proc/self/cgroup", "0::/a/b\n");
	file_write("/sys/fs/cgroup/a/b/memory.max", "800000000\n");
	file_write("/sys/fs/cgroup/a/b/memory.current", "700000000\n");
	file_write("/sys/fs/cgroup/a/b/memory.stat",
	           "anon 100\nfile 500000000\ninactive_anon 7\ninactive_file 400000000\n"
	           "workingset_refault_file 9\n");
	assert_int_equal(session_memory_left(root, NULL), 500000000);
	/* the parent's file counts the group's page cache too */
	file_write("/sys/fs/cgroup/a/memory.max", "800000000\n");
	file_write("/sys/fs/cgroup/a/memory.current", "790000000\n");
	file_write("/sys/fs/cgroup/a/memory.stat", "inactive_file 400000000\n");
	assert_int_equal(session_memory_left(root, NULL), 410000000);
	/* the two files are not of one moment */
	file_write("/sys/fs/cgroup/a/b/memory.current", "300000000\n");
	file_write("/sys/fs/cgroup/a/memory.current", "399999999\n");
	assert_int_equal(session_memory_left(root, NULL), 800000000);
}

static void page_cache_is_left_in_version_1(void **state)
{
	file_write("/proc/self/cgroup", "4:memory:/a\n");
	file_write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "300000000\n");
	file_write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "290000000\n");
	file_write("/sys/fs/cgroup/memory/a/memory.stat",
	           "inactive_file 5\ntotal_inactive_anon 6\ntotal_inactive_file 200000000\n");
	assert_int_equal(session_memory_left(root, NULL), 210000000);
}

/* A container that cannot see its group's name sees the group as the mount. */
static void containers_are_limited(void **state)
{
	file_write("/proc/self/cgroup", "0::/\n");
	file_write("/sys/fs/cgroup/memory.max", "200000000\n");
	assert_int_equal(session_memory_left(root, NULL), 200000000);
}

static void sizes_have_bounds(void **state)
{
	struct session_size size;
	session_size_choose(UINT64_C(1) << 30, &size);
	assert_int_equal(size.begin, (UINT64_C(1) << 30) / 8 / 64);
	assert_int_equal(size.limit, (UINT64_C(1) << 30) / 2 / 64);
	session_size_choose(0, &size);
	assert_int_equal(size.begin, 65536);
	assert_int_equal(size.limit, 65536);
	session_size_choose(UINT64_C(1) << 40, &size);
	assert_int_equal(size.begin, UINT64_C(1) << 24);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(what_is_available_is_left, setup, teardown),
	        cmocka_unit_test_setup_teardown(groups_of_version_2_limit, setup, teardown),
	        cmocka_unit_test_setup_teardown(groups_of_version_1_limit, setup, teardown),
	        cmocka_unit_test_setup_teardown(page_cache_is_left, setup, teardown),
	        cmocka_unit_test_setup_teardown(page_cache_is_left_in_version_1, setup, teardown),
	        cmocka_unit_test_setup_teardown(containers_are_limited, setup, teardown),
	        cmocka_unit_test(sizes_have_bounds),
	};
	return cmocka_run_group_tests_name("session size", tests, NULL, NULL);
}
