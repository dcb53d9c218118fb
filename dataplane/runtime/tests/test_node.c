// SPDX-License-Identifier: Apache-2.0
/* Which NUMA nodes CPUs belong to, and where memory then comes from. */
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../../tests/folder.h"
#include "../runtime.h"
#include "runtime_fixture.h"

/* As in sysfs: two CPUs on node 0, one on node 1, one without a known node. */
static void test_nodes(void **state)
{
	static const char *const folders[] = {"cpu0",       "cpu0/node0", "cpu1", "cpu1/cache",
	                                      "cpu1/node0", "cpu2",       "cpu3", "cpu3/node1"};
	char root[FOLDER_NAME], path[FOLDER_NAME + 32];
	assert_true(folder_make(root, "/tmp"));
	for (unsigned i = 0; i < SY_ARRAY_LEN(folders); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, folders[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	assert_int_equal(nodes_of(root, (unsigned[]){0, 1}, 2), 1);
	assert_int_equal(nodes_of(root, (unsigned[]){0, 3}, 2), 3);
	assert_int_equal(nodes_of(root, (unsigned[]){3, 2}, 2), 2);
	assert_int_equal(nodes_of(root, (unsigned[]){2, 9}, 2), 0);
	for (unsigned i = SY_ARRAY_LEN(folders); i-- > 0;) {
		snprintf(path, sizeof(path), "%s/%s", root, folders[i]);
		assert_int_equal(rmdir(path), 0);
	}
	assert_int_equal(rmdir(root), 0);
}

static void test_memory_is_preferred(void **state)
{
	unsigned core;
	unsigned long mask = 0;
	int policy = -1;
	struct sy_error err;
	assert_true(cores_parse("", &core, 1, &err) > 0);
	uint64_t node = nodes_of("/sys/devices/system/cpu", &core, 1);
	assert_int_equal(sy_memory_near("", 1, &err), 0);
	if (!node || syscall(SYS_get_mempolicy, &policy, &mask, 8 * sizeof(mask), NULL, 0) < 0)
		skip(); /* a kernel without NUMA */
	assert_int_equal(policy, MPOL_PREFERRED);
	assert_int_equal(mask, node);
	assert_int_equal(sy_memory_near("1-", 1, &err), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_nodes),
	        cmocka_unit_test(test_memory_is_preferred),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
