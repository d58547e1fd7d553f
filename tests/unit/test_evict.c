/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of policy/evict.c, by tables. One thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy/evict.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static void test_evict__age_wraps_and_saturates(void **state)
{
	static const struct {
		uint16_t used, now;
		uint32_t age;
	} table[] = {
		{0, 0, 0},
		{7, 7, 0},
		{0, 1, 1},
		{65535, 0, 1},
		{65000, 100, 636},
		{0, 32767, 32767},
		{0, 32768, EVICT_TICKS_MAX},
		{1, 0, EVICT_TICKS_MAX},
		{40000, 39000, EVICT_TICKS_MAX},
	};
	(void)state;
	for (size_t i = 0; i < COUNT(table); i++)
		assert_int_equal(evict_age(table[i].used, table[i].now), table[i].age);
}

static double index_of(uint64_t live, uint64_t age, uint64_t kept, uint64_t segment)
{
	struct evict_segment s = {.live_bytes = live, .age_sum = live * age, .kept_bytes = kept, .segment_bytes = segment};
	return evict_segment_index(&s);
}

static void test_evict__segment_index_orders_when_compared(void **state)
{
	/* Each row's first segment goes before its second. */
	static const struct {
		uint64_t live, age, kept;
	} table[][2] = {
		{{10, 5, 0}, {20, 5, 0}},         /* fewer live bytes */
		{{50, 900, 0}, {50, 100, 0}},     /* older */
		{{0, 0, 0}, {1, 30000, 0}},       /* nothing lives */
		{{1, 0, 0}, {100, 1000, 0}},      /* almost empty though young */
		{{100, 2000, 0}, {60, 10, 0}},    /* full though stale */
		{{50, 900, 0}, {50, 900, 25}},    /* kept bytes count as just used */
		{{50, 900, 50}, {60, 0, 0}},
		{{40, 30000, 10}, {40, 30000, 40}},
	};
	(void)state;
	for (size_t i = 0; i < COUNT(table); i++) {
		double first = index_of(table[i][0].live, table[i][0].age, table[i][0].kept, 100);
		double second = index_of(table[i][1].live, table[i][1].age, table[i][1].kept, 100);
		assert_true(first < second);
		assert_true(first >= 0 && second <= 1);
	}
}

static void test_evict__segment_index_is_exact_when_simple(void **state)
{
	(void)state;
	assert_true(index_of(0, 0, 0, 100) == 0);
	assert_true(index_of(0, 0, 50, 100) == 0);
	assert_true(index_of(100, 0, 0, 100) == 1);
	assert_true(index_of(50, 0, 0, 100) == 0.5);
	assert_true(index_of(50, 12345, 50, 100) == 0.5);
	assert_true(index_of(50, 12345, 70, 100) == 0.5); /* more kept than lives: an account in between */
	assert_true(index_of(64, 256, 0, 128) == 0.25);
	assert_true(index_of(64, 256, 32, 128) == 0.375);
	assert_true(index_of(50, 1, 0, 0) == 0);
	assert_true(index_of(1ull << 30, EVICT_TICKS_MAX, 0, 1ull << 30) > 0);
}

static void test_evict__verdict_follows_the_rules_when_they_meet(void **state)
{
	static const struct {
		struct evict_part part;
		uint32_t mean_age;
		enum evict_verdict verdict;
	} table[] = {
		{{.age = 5}, 10, EVICT_DROP},
		{{.age = 5, .used = 1}, 10, EVICT_CARRY},
		{{.age = 9, .used = 1}, 10, EVICT_CARRY},
		{{.age = 10, .used = 1}, 10, EVICT_DROP},
		{{.age = 11, .used = 1}, 10, EVICT_DROP},
		{{.age = 0, .used = 1}, 0, EVICT_DROP},
		{{.age = 0, .used = 1}, 1, EVICT_CARRY},
		{{.age = 5, .used = 1, .closed = 1}, 10, EVICT_DROP},
		{{.age = 5, .used = 1, .closed = 1, .kept = 1}, 10, EVICT_KEEP},
		{{.age = 30000, .kept = 1}, 10, EVICT_KEEP},
		{{.age = 0, .kept = 1}, 0, EVICT_KEEP},
		{{.age = 5, .used = 1, .orphan = 1}, 10, EVICT_DROP},
		{{.age = 5, .kept = 1, .orphan = 1}, 10, EVICT_DROP},
	};
	(void)state;
	for (size_t i = 0; i < COUNT(table); i++)
		assert_int_equal(evict_part_verdict(&table[i].part, table[i].mean_age), table[i].verdict);
}

static void test_evict__budget_earns_a_fifth_when_written(void **state)
{
	struct evict_budget budget = {.max_bytes = 1000};
	(void)state;
	assert_int_equal(evict_budget_spend(&budget, 1), 0);
	assert_int_equal(evict_budget_spend(&budget, 0), 1);
	evict_budget_earn(&budget, 500);
	assert_int_equal(budget.tokens_bytes, 100);
	assert_int_equal(evict_budget_spend(&budget, 101), 0);
	assert_int_equal(budget.tokens_bytes, 100);
	assert_int_equal(evict_budget_spend(&budget, 60), 1);
	assert_int_equal(evict_budget_spend(&budget, 41), 0);
	assert_int_equal(evict_budget_spend(&budget, 40), 1);
	assert_int_equal(budget.tokens_bytes, 0);
}

static void test_evict__budget_stops_at_its_max_when_saved_up(void **state)
{
	struct evict_budget budget = {.max_bytes = 1000};
	(void)state;
	evict_budget_earn(&budget, 4999);
	assert_int_equal(budget.tokens_bytes, 999);
	evict_budget_earn(&budget, 5000);
	assert_int_equal(budget.tokens_bytes, 1000);
	evict_budget_earn(&budget, UINT64_MAX);
	assert_int_equal(budget.tokens_bytes, 1000);
	budget.max_bytes = 10; /* a bound that sank takes nothing away */
	evict_budget_earn(&budget, 5000);
	assert_int_equal(budget.tokens_bytes, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_evict__age_wraps_and_saturates),
		cmocka_unit_test(test_evict__segment_index_orders_when_compared),
		cmocka_unit_test(test_evict__segment_index_is_exact_when_simple),
		cmocka_unit_test(test_evict__verdict_follows_the_rules_when_they_meet),
		cmocka_unit_test(test_evict__budget_earns_a_fifth_when_written),
		cmocka_unit_test(test_evict__budget_stops_at_its_max_when_saved_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
