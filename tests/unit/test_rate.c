/* SPDX-License-Identifier: Apache-2.0 */
/* src/policy/rate.c: what media are seen to give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy/rate.h"

#define MS 1000000ull
#define S 1000000000ull
#define MIB (1ull << 20)

static int near(double a, double b, double share)
{
	return a >= b * (1 - share) && a <= b * (1 + share);
}

static void test_rate__counts_what_overlaps_as_one(void **state)
{
	(void)state;
	struct rate rate = {0};
	/* Eight parts of 1 MiB at once, all here after 8 ms: 1 GiB/s, though each took 8 ms. */
	for (int i = 0; i < 8; i++)
		rate_begin(&rate, MIB, 10 * MS);
	assert_int_equal(rate.flying_bytes, 8 * MIB);
	for (int i = 0; i < 8; i++)
		rate_end(&rate, MIB, MIB, 18 * MS);
	assert_int_equal(rate.flying_bytes, 0);
	assert_true(near(rate_bytes_s(&rate, 1, 18 * MS), 8.0 * MIB / 0.008, 0.01));
	assert_true(rate_wait_s(&rate, 1, 18 * MS) < 1e-9);
}

static void test_rate__waits_for_what_is_under_way(void **state)
{
	(void)state;
	struct rate rate = {0};
	assert_true(near(rate_bytes_s(&rate, 1e9, 0), 1e9, 1e-9)); /* as was assumed */
	rate_begin(&rate, 100 * MIB, 0);
	assert_true(near(rate_wait_s(&rate, 1e9, 0), 100.0 * MIB / 1e9, 0.001));
	rate_begin(&rate, 100 * MIB, 0);
	assert_true(near(rate_wait_s(&rate, 1e9, 0), 200.0 * MIB / 1e9, 0.001));
	rate_end(&rate, 100 * MIB, 0, MS); /* one failed: nothing came of it */
	rate_end(&rate, 100 * MIB, 0, MS);
	assert_true(rate.bytes_s == 0);
}

static void test_rate__small_ones_tell_of_the_first_byte(void **state)
{
	(void)state;
	struct rate rate = {0};
	uint64_t now = 0;
	for (int i = 0; i < 50; i++) {
		rate_begin(&rate, 4096, now);
		now += 3 * MS;
		rate_end(&rate, 4096, 4096, now);
	}
	assert_true(near(rate_wait_s(&rate, 1e9, now), 0.003, 0.01));
	assert_true(near(rate_bytes_s(&rate, 1e9, now), 1e9, 1e-9)); /* of that they tell nothing */
	/* A large one takes as long to begin. */
	rate_begin(&rate, 10 * MIB, now);
	now += 13 * MS;
	rate_end(&rate, 10 * MIB, 10 * MIB, now);
	assert_true(near(rate_bytes_s(&rate, 1, now), 10.0 * MIB / 0.010, 0.02));
}

static void test_rate__is_believed_less_and_less(void **state)
{
	(void)state;
	struct rate rate = {0};
	rate_begin(&rate, 2 * MIB, 0);
	rate_end(&rate, 2 * MIB, 2 * MIB, 2 * S); /* 1 MiB/s: a bad day */
	assert_true(near(rate_bytes_s(&rate, 1e9, 2 * S), 1.0 * MIB, 0.01));
	double before = rate_bytes_s(&rate, 1e9, 2 * S);
	for (uint64_t age = 10; age <= 100; age += 10) {
		double now = rate_bytes_s(&rate, 1e9, (2 + age) * S);
		assert_true(now > before);
		before = now;
	}
	assert_true(near(rate_bytes_s(&rate, 1e9, 1000 * S), 1e9, 0.01)); /* tried again like a new one */
	/* A fast one stays as fast. */
	struct rate fast = {0};
	rate_begin(&fast, 20 * MIB, 0);
	rate_end(&fast, 20 * MIB, 20 * MIB, 10 * MS);
	assert_true(near(rate_bytes_s(&fast, 1e9, 1000 * S), 20.0 * MIB / 0.010, 0.01));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rate__counts_what_overlaps_as_one),
		cmocka_unit_test(test_rate__waits_for_what_is_under_way),
		cmocka_unit_test(test_rate__small_ones_tell_of_the_first_byte),
		cmocka_unit_test(test_rate__is_believed_less_and_less),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
