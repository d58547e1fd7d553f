/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of `cairn bench`: medians, spreads, verdicts, and numbers as text.
 * Threads: any. Memory: the caller's.
 * Invariant: nothing whose rounds disagree is called good.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

static int stat_order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_quantile(double *values, size_t count, double p)
{
	if (!count)
		return 0;
	qsort(values, count, sizeof *values, stat_order);
	double at = p * (double)(count - 1);
	size_t low = (size_t)at;
	if (low + 1 >= count)
		return values[count - 1];
	return values[low] + (at - (double)low) * (values[low + 1] - values[low]);
}

static int stat_verdict(const struct bench_figure *figure, const double *ratios, size_t count, double ratio,
                        double spread)
{
	size_t met = 0;

	for (size_t i = 0; i < count; i++)
		met += figure->below ? ratios[i] <= figure->goal : ratios[i] >= figure->goal;
	if (!met)
		return BENCH_MISSED; /* in each round: however far apart they are */
	if (!figure->exact && (spread > BENCH_SPREAD_MOST || count < 3))
		return BENCH_UNSURE;
	return (figure->below ? ratio <= figure->goal : ratio >= figure->goal) ? BENCH_GOOD : BENCH_MISSED;
}

void bench_summarize(const struct bench_result *result, struct bench_summary *ret_summary)
{
	double values[BENCH_ROUNDS], limits[BENCH_ROUNDS], ratios[BENCH_ROUNDS];
	size_t count = result->count < BENCH_ROUNDS ? result->count : BENCH_ROUNDS;

	memset(ret_summary, 0, sizeof *ret_summary);
	if (!count)
		return;
	for (size_t i = 0; i < count; i++) {
		values[i] = result->value[i];
		limits[i] = result->limit[i];
		ratios[i] = limits[i] > 0 ? values[i] / limits[i] : 0;
	}
	ret_summary->value = bench_quantile(values, count, 0.5);
	ret_summary->limit = bench_quantile(limits, count, 0.5);
	ret_summary->ratio = bench_quantile(ratios, count, 0.5);
	if (ret_summary->ratio > 0)
		ret_summary->spread =
			(bench_quantile(ratios, count, 0.75) - bench_quantile(ratios, count, 0.25)) / ret_summary->ratio;
	ret_summary->verdict = stat_verdict(result->figure, ratios, count, ret_summary->ratio, ret_summary->spread);
}

const char *bench_verdict_name(int verdict)
{
	static const char *const names[] = {"-", "good", "missed", "unsure"};

	return verdict >= 0 && verdict <= BENCH_UNSURE ? names[verdict] : names[0];
}

const char *bench_number(double value, char *text, size_t max)
{
	double size = fabs(value);
	int digits = size >= 99.95 || size == 0 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.0995 ? 3 : 4;

	snprintf(text, max, "%.*f", digits, value);
	return text;
}
