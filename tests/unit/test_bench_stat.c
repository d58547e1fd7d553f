/* SPDX-License-Identifier: Apache-2.0 */
/* src/cli/bench_stat.c and bench_html.c: medians, spreads, verdicts, numbers, and the page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The program is no library; its pure files are taken as they are. */
#include "cli/bench_html.c"
#include "cli/bench_stat.c"

static const struct bench_figure least = {.name = "a.least", .unit = "GB/s", .limit_name = "fio", .goal = 0.9};
static const struct bench_figure most = {.name = "a.most", .unit = "us", .limit_name = "3 us", .goal = 1, .below = 1};

static struct bench_summary summary_of(const struct bench_figure *figure, const double *ratios, uint32_t count)
{
	struct bench_result result = {.figure = figure, .count = count, .wanted = 1};
	struct bench_summary sum;

	for (uint32_t i = 0; i < count; i++) {
		result.limit[i] = 2 + i; /* a medium that drifts */
		result.value[i] = ratios[i] * result.limit[i];
	}
	bench_summarize(&result, &sum);
	return sum;
}

static void test_bench_stat__quantile_falls_between_when_even(void **state)
{
	double four[] = {4, 1, 3, 2}, one[] = {7};

	(void)state;
	assert_float_equal(bench_quantile(four, 4, 0.5), 2.5, 1e-9);
	assert_float_equal(bench_quantile(four, 4, 0), 1, 1e-9);
	assert_float_equal(bench_quantile(four, 4, 1), 4, 1e-9);
	assert_float_equal(bench_quantile(four, 4, 0.25), 1.75, 1e-9);
	assert_float_equal(bench_quantile(one, 1, 0.99), 7, 1e-9);
	assert_float_equal(bench_quantile(one, 0, 0.5), 0, 1e-9);
}

static void test_bench_stat__ratio_is_of_pairs_when_the_limit_drifts(void **state)
{
	double ratios[] = {0.95, 0.94, 0.96, 0.95, 0.95};
	struct bench_summary sum = summary_of(&least, ratios, 5);

	(void)state;
	assert_float_equal(sum.ratio, 0.95, 1e-9);
	assert_float_equal(sum.limit, 4, 1e-9);
	assert_float_equal(sum.value, 3.84, 1e-9);
	assert_float_equal(sum.spread, 0, 1e-9); /* half of the pairs are equal */
	assert_int_equal(sum.verdict, BENCH_GOOD);
}

static void test_bench_stat__nothing_is_good_when_rounds_disagree(void **state)
{
	double wide[] = {0.91, 1.4, 1.0, 0.92, 1.5}, two[] = {1, 1}, bad[] = {0.2, 0.8, 0.5, 0.3, 0.7};

	(void)state;
	assert_int_equal(summary_of(&least, wide, 5).verdict, BENCH_UNSURE);
	assert_int_equal(summary_of(&least, two, 2).verdict, BENCH_UNSURE);
	/* However far apart, none reached it. */
	assert_int_equal(summary_of(&least, bad, 5).verdict, BENCH_MISSED);
	assert_int_equal(summary_of(&least, bad, 0).verdict, BENCH_NONE);
}

static void test_bench_stat__verdict_turns_when_the_goal_is_at_most(void **state)
{
	double low[] = {0.5, 0.51, 0.5}, high[] = {1.1, 1.1, 0.99}, exact[] = {0};
	struct bench_figure count = {.name = "lost", .unit = "part", .goal = 0, .below = 1, .exact = 1};

	(void)state;
	assert_int_equal(summary_of(&most, low, 3).verdict, BENCH_GOOD);
	assert_int_equal(summary_of(&most, high, 3).verdict, BENCH_MISSED);
	assert_int_equal(summary_of(&count, exact, 1).verdict, BENCH_GOOD);
	exact[0] = 1;
	assert_int_equal(summary_of(&count, exact, 1).verdict, BENCH_MISSED);
}

static void test_bench_stat__numbers_keep_three_digits(void **state)
{
	char text[24];

	(void)state;
	assert_string_equal(bench_number(1234.4, text, sizeof text), "1234");
	assert_string_equal(bench_number(99.96, text, sizeof text), "100");
	assert_string_equal(bench_number(12.34, text, sizeof text), "12.3");
	assert_string_equal(bench_number(1.234, text, sizeof text), "1.23");
	assert_string_equal(bench_number(0.9996, text, sizeof text), "1.00");
	assert_string_equal(bench_number(0.1234, text, sizeof text), "0.123");
	assert_string_equal(bench_number(0.01234, text, sizeof text), "0.0123");
	assert_string_equal(bench_number(0, text, sizeof text), "0");
}

static void test_bench_stat__page_stands_alone_and_escapes(void **state)
{
	struct bench_result results[2] = {
		{.figure = &least, .wanted = 1, .count = 3, .value = {1, 1, 9}, .limit = {1, 1, 1}}, {.figure = &most}};
	char *page = NULL;
	size_t length = 0;
	FILE *file = open_memstream(&page, &length);

	(void)state;
	snprintf(results[0].note, sizeof results[0].note, "<b>&\"");
	assert_int_equal(bench_html(file, results, 2, "a <machine>"), 0);
	fclose(file);
	assert_non_null(strstr(page, "a &lt;machine&gt;"));
	assert_non_null(strstr(page, "&lt;b&gt;&amp;&quot;"));
	assert_non_null(strstr(page, "a.least"));
	assert_null(strstr(page, "a.most")); /* not measured */
	assert_non_null(strstr(page, "</svg>"));
	assert_null(strstr(page, "<script"));
	assert_null(strstr(page, "http"));
	/* What is beyond the plot stands at its edge. */
	assert_non_null(strstr(page, "cx=\"750.0\""));
	free(page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bench_stat__quantile_falls_between_when_even),
		cmocka_unit_test(test_bench_stat__ratio_is_of_pairs_when_the_limit_drifts),
		cmocka_unit_test(test_bench_stat__nothing_is_good_when_rounds_disagree),
		cmocka_unit_test(test_bench_stat__verdict_turns_when_the_goal_is_at_most),
		cmocka_unit_test(test_bench_stat__numbers_keep_three_digits),
		cmocka_unit_test(test_bench_stat__page_stands_alone_and_escapes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
