/* SPDX-License-Identifier: Apache-2.0 */
/* The real clock, and one of somebody else's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"

static void test_clock__real_one_goes_forward(void **state)
{
	uint64_t before = clock_mono_ns(&clock_real), after;
	time_t now = time(NULL);

	(void)state;
	assert_true(before > 0);
	for (int i = 0; i < 1000; i++) {
		after = clock_mono_ns(&clock_real);
		assert_true(after >= before);
		before = after;
	}
	assert_true(clock_wall_s(&clock_real) >= (uint64_t)now);
	assert_true(clock_wall_s(&clock_real) <= (uint64_t)now + 60);
}

static uint64_t tick(void *arg)
{
	return ++*(uint64_t *)arg;
}

static void test_clock__another_one_gets_its_argument(void **state)
{
	uint64_t ticks = 41;
	const struct clock clock = {tick, tick, &ticks};

	(void)state;
	assert_int_equal(clock_mono_ns(&clock), 42);
	assert_int_equal(clock_wall_s(&clock), 43);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clock__real_one_goes_forward),
		cmocka_unit_test(test_clock__another_one_gets_its_argument),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
