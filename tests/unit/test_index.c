/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of policy/index.c and policy/watch.c: small cases worked out by hand. One thread. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "policy/watch.h"

static void assert_near(double a, double b)
{
	if (fabs(a - b) > 1e-9 * (1 + fabs(b)))
		fail_msg("%.12g is not %.12g", a, b);
}

static void test_index__classes_when_counted(void **state)
{
	static const uint32_t uses[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 1000000}, classes[] = {1, 2, 3, 3, 4, 4, 5, 5, 6, 6};
	(void)state;
	for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
		assert_int_equal(index_class(uses[i], 0), classes[i]);
		assert_int_equal(index_class(uses[i], 1), 0);
	}
}

static void test_index__buckets_grow_by_half(void **state)
{
	double end = 4;
	(void)state;
	for (uint32_t a = 0; a < INDEX_AGES; a++, end *= 1.5) {
		assert_near(index_bucket_end(a), end);
		assert_int_equal(index_bucket(end * 0.999), a);
		assert_int_equal(index_bucket(end), a + 1 < INDEX_AGES ? a + 1 : a);
	}
	assert_int_equal(index_bucket(0), 0);
	assert_true(index_bucket_end(INDEX_AGES - 1) > 28 * 3600);
}

/* The last bucket has one horizon: its hazard over the seconds that a block stays in it on average. */
static void test_index__last_bucket_when_worked_out_by_hand(void **state)
{
	static struct index_table table;
	const uint32_t last = INDEX_AGES - 1;
	double width = 4 * pow(1.5, last) - 4 * pow(1.5, last - 1);
	uint8_t seen = 0;
	(void)state;
	index_init(&table);
	assert_near(table.index[3][last], 0.1 / (0.95 * width));
	/* 200 uses of class 3 reach it, 50 are used again in it; nothing fades but once. */
	double fade = pow(2, -1.0 / 240), end = 4 * pow(1.5, last), all, h;
	for (int i = 0; i < 150; i++, seen = 0)
		index_reach(&table, 3, end, &seen, 1);
	for (int i = 0; i < 50; i++)
		index_again(&table, 3, end * 0.9, 0, 1);
	index_minute(&table);
	all = (50 * fade + 300 * 0.1) / (200 * fade + 300);
	h = (50 * fade + 300 * all) / (200 * fade + 300);
	assert_true(fabs(table.index[3][last] - h / ((1 - h / 2) * width)) < 1e-7 * table.index[3][last]);
	/* The other classes lean on all of them. */
	assert_true(fabs(table.index[5][last] - all / ((1 - all / 2) * width)) < 1e-7 * table.index[5][last]);
}

/* Two buckets before the end: the better of stopping after one, two or three. */
static void test_index__horizon_when_the_peak_is_ahead(void **state)
{
	static struct index_table table;
	const uint32_t a = INDEX_AGES - 3;
	(void)state;
	index_init(&table);
	/* Hazards 0.01, 0.9, 0.1 of widths w, 1.5 w, 2.25 w: it pays to wait for the second, and no longer. */
	for (uint32_t i = 0; i < 3; i++) {
		double hazard = i == 0 ? 0.01 : i == 1 ? 0.9 : 0.1;
		table.reach[2][a + i] = 1e12;
		table.hit[2][a + i] = hazard * 1e12;
	}
	index_minute(&table);
	double w = 4 * pow(1.5, a) - 4 * pow(1.5, a - 1);
	double want = (0.01 + 0.99 * 0.9) / ((1 - 0.005) * w + 0.99 * (1 - 0.45) * 1.5 * w);
	assert_true(fabs(table.index[2][a] - want) < 1e-6 * want);
}

static void test_index__reach_counts_each_bucket_once(void **state)
{
	static struct index_table table;
	uint8_t seen = 0;
	(void)state;
	index_init(&table);
	index_reach(&table, 1, 0, &seen, 2);
	index_reach(&table, 1, 3.9, &seen, 2);
	assert_int_equal(seen, 1);
	index_reach(&table, 1, 6, &seen, 2);
	assert_int_equal(seen, 3);
	index_again(&table, 1, 10, seen, 2); /* bucket 3: 9 to 13.5 s */
	for (uint32_t a = 0; a < INDEX_AGES; a++) {
		assert_near(table.reach[1][a], a <= 3 ? 2 : 0);
		assert_near(table.hit[1][a], a == 3 ? 2 : 0);
		assert_near(table.reach[2][a], 0);
	}
	index_again(&table, 1, 3e6, 0, 1); /* far beyond the last bucket: it was not used within it */
	assert_near(table.reach[1][INDEX_AGES - 1], 1);
	assert_near(table.hit[1][INDEX_AGES - 1], 0);
}

static void test_index__fades_by_half_in_four_hours(void **state)
{
	static struct index_table table;
	(void)state;
	index_init(&table);
	index_again(&table, 4, 1, 0, 1000);
	for (int i = 0; i < 240; i++)
		index_minute(&table);
	assert_true(fabs(table.hit[4][0] - 500) < 1e-3 && fabs(table.reach[4][0] - 500) < 1e-3);
}

static void test_index__choice_when_nothing_is_known(void **state)
{
	static struct index_table table;
	struct index_candidate c[3] = {{.class = 1, .age_s = -1}, {.class = 2, .age_s = 700}, {.class = 3, .age_s = 701}};
	(void)state;
	index_init(&table);
	assert_int_equal(index_choose(&table, c, 1), -1);
	assert_int_equal(index_choose(&table, c, 3), 2); /* same bucket: the older */
	c[1].age_s = 701;
	assert_int_equal(index_choose(&table, c, 3), 1); /* equals: the first */
	c[2].age_s = 2000;
	assert_int_equal(index_choose(&table, c, 3), 2);
	for (uint32_t a = 1; a < INDEX_AGES; a++) /* LRU */
		assert_true(table.index[1][a] < table.index[1][a - 1]);
}

static void test_index__choice_when_a_class_never_returns(void **state)
{
	static struct index_table table;
	const struct index_candidate c[2] = {{.class = 2, .age_s = 600}, {.class = 1, .age_s = 1}};
	(void)state;
	index_init(&table);
	for (uint32_t i = 0; i < 10000; i++) {
		uint8_t seen = 0;
		index_reach(&table, 1, 9000, &seen, 1);
		index_again(&table, 2, 800, 0, 1);
	}
	index_minute(&table);
	assert_int_equal(index_choose(&table, c, 2), 1); /* the newcomer, for all that it is young */
}

/* ---- watch ------------------------------------------------------------------------------------------------------- */

enum { UNITS = (int)WATCH_UNITS_S };

static void test_index__watch_learns_from_what_never_returns(void **state)
{
	static struct watch watch;
	static struct watch_cell cells[64];
	(void)state;
	watch_init(&watch, cells, 64, 0);
	watch_use(&watch, 7, 1, 0);
	watch_use(&watch, 8, 2, 0);
	watch_use(&watch, 8, 3, 30 * UNITS); /* used again within bucket 4, 20.25 to 30.375 s */
	assert_int_equal(watch_minutes(&watch, 59 * UNITS), 0);
	assert_int_equal(watch_minutes(&watch, 60 * UNITS), 1);
	double fade = pow(2, -1.0 / 240);
	for (uint32_t a = 0; a < INDEX_AGES; a++) {
		double start = a ? index_bucket_end(a - 1) : 0;
		assert_true(fabs(watch.table.reach[1][a] - (start <= 60 ? fade : 0)) < 1e-6);
		assert_true(fabs(watch.table.reach[2][a] - (start <= 30 ? fade : 0)) < 1e-6);
		assert_true(fabs(watch.table.reach[3][a] - (start <= 30 ? fade : 0)) < 1e-6);
		assert_true(fabs(watch.table.hit[2][a] - (start <= 30 && index_bucket_end(a) > 30 ? fade : 0)) < 1e-6);
	}
}

/* More keys than cells: what is counted stays, within chance, what all keys together would have counted. */
static void test_index__watch_thins_out_when_full(void **state)
{
	static struct watch watch;
	static struct watch_cell cells[1024];
	const uint32_t keys = 20000;
	(void)state;
	watch_init(&watch, cells, 1024, 0);
	for (uint32_t i = 1; i <= keys; i++)
		watch_use(&watch, i * 0x9e3779b97f4a7c15u, 1, 0);
	assert_true(watch.share >= 32 && !(watch.share & (watch.share - 1)));
	assert_true(watch.watched <= 1024 && watch.watched * (double)watch.share > keys * 0.8 &&
	            watch.watched * (double)watch.share < keys * 1.2);
	for (uint32_t i = 1; i <= keys; i++)
		watch_use(&watch, i * 0x9e3779b97f4a7c15u, 2, 50 * UNITS);
	assert_true(watch.table.hit[1][index_bucket(50)] > keys * 0.8 && watch.table.hit[1][index_bucket(50)] < keys * 1.2);
	/* Cells whose buckets are all told are given up before the sample is thinned. */
	uint32_t share = watch.share;
	watch_minutes(&watch, 40u * 3600 * UNITS);
	for (uint32_t i = 1; i <= keys; i++)
		watch_use(&watch, i * 0xd6e8feb86659fd93u, 1, 40u * 3600 * UNITS);
	assert_int_equal(watch.share, share);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_index__classes_when_counted),
		cmocka_unit_test(test_index__buckets_grow_by_half),
		cmocka_unit_test(test_index__last_bucket_when_worked_out_by_hand),
		cmocka_unit_test(test_index__horizon_when_the_peak_is_ahead),
		cmocka_unit_test(test_index__reach_counts_each_bucket_once),
		cmocka_unit_test(test_index__fades_by_half_in_four_hours),
		cmocka_unit_test(test_index__choice_when_nothing_is_known),
		cmocka_unit_test(test_index__choice_when_a_class_never_returns),
		cmocka_unit_test(test_index__watch_learns_from_what_never_returns),
		cmocka_unit_test(test_index__watch_thins_out_when_full),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
