/* SPDX-License-Identifier: Apache-2.0 */
/* src/policy/worth.c: what a load takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy/worth.h"

static int near(double a, double b, double share)
{
	return a >= b * (1 - share) && a <= b * (1 + share);
}

static void test_worth__media_bring_side_by_side_and_all_is_copied(void **state)
{
	(void)state;
	struct worth_lane lanes[WORTH_LANES] = {{0}};
	struct worth_load load = {{0}};
	lanes[WORTH_MEMORY] = (struct worth_lane){0, 10e9};
	lanes[WORTH_FLASH] = (struct worth_lane){0.001, 1e9};
	lanes[WORTH_FLASH + 1] = (struct worth_lane){0, 2e9};
	lanes[WORTH_PEER] = (struct worth_lane){0.002, 0.5e9};
	struct worth_time none = worth_time(lanes, &load);
	assert_true(none.all_s == 0);
	load.bytes[WORTH_MEMORY] = 1e9;
	assert_true(near(worth_time(lanes, &load).all_s, 0.1, 1e-9));
	load.bytes[WORTH_FLASH] = 0.5e9;
	load.bytes[WORTH_FLASH + 1] = 0.5e9;
	struct worth_time two = worth_time(lanes, &load);
	assert_true(near(two.flash_s, 0.501, 1e-9)); /* the slower device */
	assert_true(near(two.memory_s, 0.2, 1e-9));
	assert_true(near(two.all_s, 0.701, 1e-9));
	load.bytes[WORTH_PEER] = 0.1e9;
	struct worth_time all = worth_time(lanes, &load);
	assert_true(near(all.peer_s, 0.202, 1e-9));
	assert_true(near(all.all_s, 0.501 + 0.21, 1e-9)); /* while flash brings its own */
	load.bytes[WORTH_PEER] = 0.5e9;
	assert_true(near(worth_time(lanes, &load).all_s, 1.002 + 0.25, 1e-9));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worth__media_bring_side_by_side_and_all_is_copied),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
