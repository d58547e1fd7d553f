/* SPDX-License-Identifier: Apache-2.0 */
/* src/daemon/limit.c: memory limits of control groups, in a tree of files like theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/limit.h"

static char root[64];

static void put_file(const char *path, const char *text)
{
	char command[600];
	snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s%s')\" && printf '%s\\n' >'%s%s'", root, path, text,
	         root, path);
	assert_int_equal(system(command), 0);
}

static void tree_make(const char *own)
{
	snprintf(root, sizeof root, "/tmp/cairn-limit-XXXXXX");
	assert_non_null(mkdtemp(root));
	put_file("/proc/self/cgroup", own);
}

static void tree_done(void)
{
	char command[100];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	assert_int_equal(system(command), 0);
}

static void test_limit__is_the_least_when_groups_are_nested(void **state)
{
	(void)state;
	char file[LIMIT_FILE];
	tree_make("0::/a/b");
	assert_true(limit_memory(root, file) == UINT64_MAX);
	put_file("/sys/fs/cgroup/a/b/memory.max", "max");
	assert_true(limit_memory(root, file) == UINT64_MAX);
	put_file("/sys/fs/cgroup/a/memory.max", "1073741824");
	assert_true(limit_memory(root, file) == 1u << 30);
	assert_non_null(strstr(file, "/a/memory.max"));
	put_file("/sys/fs/cgroup/a/b/memory.max", "2147483648");
	assert_true(limit_memory(root, file) == 1u << 30);
	put_file("/sys/fs/cgroup/memory.max", "536870912"); /* of a container, seen from inside of it */
	assert_true(limit_memory(root, file) == 512u << 20);
	tree_done();
}

static void test_limit__is_found_when_groups_are_of_version_1(void **state)
{
	(void)state;
	char file[LIMIT_FILE];
	tree_make("5:devices:/x\\n4:memory:/docker/abc\\n0::/");
	put_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"); /* none */
	assert_true(limit_memory(root, file) == UINT64_MAX);
	put_file("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "268435456");
	assert_true(limit_memory(root, file) == 256u << 20);
	tree_done();
}

static void test_limit__is_none_when_nothing_can_be_seen(void **state)
{
	(void)state;
	char file[LIMIT_FILE];
	assert_true(limit_memory("/nonexistent", file) == UINT64_MAX);
	tree_make("no group\\n:\\n1:memory");
	assert_true(limit_memory(root, file) == UINT64_MAX);
	tree_done();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limit__is_the_least_when_groups_are_nested),
		cmocka_unit_test(test_limit__is_found_when_groups_are_of_version_1),
		cmocka_unit_test(test_limit__is_none_when_nothing_can_be_seen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
