/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of src/base/random.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/random.h"

static void test_random__gives_known_numbers_when_seeded(void **state)
{
	(void)state;
	struct random random, same;
	/* xoshiro256** by its definition: seeded with 1, 2, 3, 4 it begins 11520, 0, 1509978240, 1215971899390074240. */
	random = (struct random){{1, 2, 3, 4}};
	assert_int_equal(random_next(&random), 11520);
	assert_int_equal(random_next(&random), 0);
	assert_int_equal(random_next(&random), 1509978240);
	assert_true(random_next(&random) == 1215971899390074240u);
	random_init(&random, 0); /* splitmix64 of 0 begins with e220a8397b1dcdaf */
	assert_true(random.state[0] == 0xe220a8397b1dcdafu);
	random_init(&same, 0);
	for (int i = 0; i < 100; i++)
		assert_true(random_next(&random) == random_next(&same));
}

static void test_random__is_even_when_bounded(void **state)
{
	(void)state;
	struct random random;
	uint32_t seen[7] = {0}, hits = 0;
	random_init(&random, 9);
	for (int i = 0; i < 70000; i++) {
		uint64_t value = random_below(&random, 7);
		assert_true(value < 7);
		seen[value]++;
		hits += (uint32_t)random_chance(&random, 250000);
		assert_false(random_chance(&random, 0));
		assert_true(random_chance(&random, 1000000));
	}
	for (int i = 0; i < 7; i++)
		assert_in_range(seen[i], 9500, 10500);
	assert_in_range(hits, 16800, 18200);
	assert_int_equal(random_below(&random, 0), 0);
	assert_int_equal(random_below(&random, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random__gives_known_numbers_when_seeded),
		cmocka_unit_test(test_random__is_even_when_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
