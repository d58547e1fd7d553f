/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of policy/admit.c. One thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "policy/admit.h"

#define SECOND 1000000000ull

static void test_admit__budget_fills_with_time(void **state)
{
	struct admit_budget b;
	(void)state;
	admit_budget_init(&b, 86400 * 100, 0, 5 * SECOND); /* 100 bytes a second, so 30,000 can be saved up */
	assert_true(admit_budget_left(&b) == 1);
	admit_budget_charge(&b, 15000);
	assert_true(admit_budget_left(&b) == 0.5);
	admit_budget_fill(&b, 65 * SECOND);
	assert_true(admit_budget_left(&b) == 0.7);
	admit_budget_fill(&b, 64 * SECOND); /* a clock that is read by two threads may seem to go back */
	assert_true(admit_budget_left(&b) == 0.7);
	admit_budget_fill(&b, 1000 * SECOND);
	assert_true(admit_budget_left(&b) == 1);
	admit_budget_charge(&b, 45000); /* what must go goes, and is owed */
	assert_true(admit_budget_left(&b) == 0);
	admit_budget_fill(&b, 1150 * SECOND);
	assert_true(admit_budget_left(&b) == 0);
	admit_budget_fill(&b, 1300 * SECOND);
	assert_true(admit_budget_left(&b) == 0.5);
}

static void test_admit__budget_when_there_is_none(void **state)
{
	struct admit_budget b;
	(void)state;
	admit_budget_init(&b, 0, 4096, 0);
	admit_budget_charge(&b, 1 << 30);
	assert_true(admit_budget_left(&b) == 1);
}

static void test_admit__budget_holds_one_write_at_least(void **state)
{
	struct admit_budget b;
	(void)state;
	admit_budget_init(&b, 86400, 4096, 0); /* one byte a second */
	assert_true(b.max_bytes == 4096);
}

static void test_admit__odds(void **state)
{
	static const double left[] = {0, 0.25, 0.5, 0.75, 1}, warm[] = {0, 0.5, 1, 1, 1}, new[] = {0, 0, 0, 0.5, 1};
	(void)state;
	for (int i = 0; i < 5; i++) {
		assert_true(admit_odds(left[i], 1) == warm[i]);
		assert_true(admit_odds(left[i], 0) == new[i]);
	}
}

static void test_admit__lots_are_even(void **state)
{
	uint32_t tenths[2][10] = {{0}}, both = 0;
	(void)state;
	for (uint64_t root = 0; root < 20000; root++) {
		double first = admit_lot(root, 0, 9), again = admit_lot(root, 1, 9);
		assert_true(first == admit_lot(root, 0, 9));
		tenths[0][(int)(first * 10)]++;
		tenths[1][(int)(again * 10)]++;
		both += first < 0.5 && again < 0.5;
	}
	for (int i = 0; i < 20; i++)
		assert_in_range(tenths[i / 10][i % 10], 1850, 2150);
	assert_in_range(both, 4750, 5250); /* the two draws have nothing to do with each other */
}

static void test_admit__chain_keeps_its_lot(void **state)
{
	struct admit_cell cells[4096];
	struct admit admit = {.cells = cells, .ncells = 4096, .seed = 3};
	uint8_t first[500];
	int in = 0;
	(void)state;
	memset(cells, 0, sizeof(cells));
	for (uint64_t root = 0; root < 500; root++)
		in += first[root] = (uint8_t)admit_chain(&admit, root, 0, 0.75);
	assert_in_range(in, 200, 300);
	for (uint64_t root = 0; root < 500; root++) /* whatever the budget is by now */
		assert_int_equal(admit_chain(&admit, root, 0, root % 2 ? 1 : 0), first[root]);
	for (uint64_t root = 0; root < 500; root++) /* it returns: those that were refused draw once more */
		assert_int_equal(admit_chain(&admit, root, 1, 0.5), 1);
	memset(cells, 0, sizeof(cells));
	for (uint64_t root = 0; root < 500; root++)
		assert_int_equal(admit_chain(&admit, root, 0, 0), 0);
	for (int round = 0, now = 0; round < 2; round++, in = now, now = 0)
		for (uint64_t root = 0; root < 500; root++) {
			now += admit_chain(&admit, root, 1, round ? 1 : 0.25);
			if (round && root == 499)
				assert_int_equal(now, in); /* once more, not each time */
		}
	assert_in_range(in, 200, 300);
}

static void test_admit__oldest_is_forgotten_when_full(void **state)
{
	struct admit_cell cells[ADMIT_WAYS];
	struct admit admit = {.cells = cells, .ncells = ADMIT_WAYS};
	(void)state;
	memset(cells, 0, sizeof(cells));
	for (uint64_t root = 1; root <= ADMIT_WAYS; root++)
		assert_int_equal(admit_chain(&admit, root, 0, 1), 1);
	assert_int_equal(admit_chain(&admit, 1, 0, 0), 1); /* met again: now 2 is the oldest */
	assert_int_equal(admit_chain(&admit, 100, 0, 0), 0);
	assert_int_equal(admit_chain(&admit, 1, 0, 0), 1);
	assert_int_equal(admit_chain(&admit, 2, 0, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_admit__budget_fills_with_time),
		cmocka_unit_test(test_admit__budget_when_there_is_none),
		cmocka_unit_test(test_admit__budget_holds_one_write_at_least),
		cmocka_unit_test(test_admit__odds),
		cmocka_unit_test(test_admit__lots_are_even),
		cmocka_unit_test(test_admit__chain_keeps_its_lot),
		cmocka_unit_test(test_admit__oldest_is_forgotten_when_full),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
