/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The learned index. See index.h, and docs/POLICY.md for the formulas.
 * Threads: any; no state. Memory: none.
 */
#include "policy/index.h"

#include "base/check.h"

/* Hazard of a bucket before anything is known. The first is twice as wide as the second: with 0.1 what is younger than
 * 4 s would go before what is a little older. */
#define HAZARD_START(bucket) ((bucket) ? 0.1 : 0.2)
#define PRIOR_WEIGHT 300.0 /* uses: so much does a class lean on all classes, and these on the start */
#define FADE_A_MINUTE 0.997116054 /* 2^(-1/240): half in four hours */

static const double bucket_ends[INDEX_AGES] = {
#define FROM(end) (end), (end) * 1.5, (end) * 2.25, (end) * 3.375
	FROM(4.0), FROM(20.25), FROM(102.515625), FROM(518.9853515625), FROM(2627.363342285156),
	FROM(13301.026920318604), 67336.44878411293, 101004.6731761694,
#undef FROM
};

uint32_t index_class(uint32_t uses, int tail)
{
	if (tail)
		return 0;
	if (uses <= 2)
		return uses == 2 ? 2 : 1;
	uint32_t class = 3;
	for (uint32_t most = 4; uses > most && class < INDEX_CLASSES - 1; most *= 2)
		class++;
	return class;
}

uint32_t index_bucket(double age_s)
{
	uint32_t low = 0, high = INDEX_AGES - 1;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (age_s < bucket_ends[middle])
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

double index_bucket_end(uint32_t bucket)
{
	check(bucket < INDEX_AGES);
	return bucket_ends[bucket];
}

static double bucket_start(uint32_t bucket)
{
	return bucket ? bucket_ends[bucket - 1] : 0;
}

static double bucket_width(uint32_t bucket)
{
	return bucket_ends[bucket] - bucket_start(bucket);
}

void index_reach(struct index_table *table, uint32_t class, double age_s, uint8_t *seen, double weight)
{
	check(class < INDEX_CLASSES);
	while (*seen < INDEX_AGES && bucket_start(*seen) <= age_s)
		table->reach[class][(*seen)++] += weight;
}

void index_again(struct index_table *table, uint32_t class, double age_s, uint8_t seen, double weight)
{
	index_reach(table, class, age_s, &seen, weight);
	if (age_s < bucket_ends[INDEX_AGES - 1])
		table->hit[class][index_bucket(age_s)] += weight;
}

/* index[class]: the best that keeping a block can give from each age on, over all horizons. */
static void class_index(struct index_table *table, uint32_t class, const double hazard_all[INDEX_AGES])
{
	double hazard[INDEX_AGES];
	for (uint32_t a = 0; a < INDEX_AGES; a++)
		hazard[a] = (table->hit[class][a] + PRIOR_WEIGHT * hazard_all[a]) / (table->reach[class][a] + PRIOR_WEIGHT);
	for (uint32_t from = 0; from < INDEX_AGES; from++) {
		double survival = 1, hits = 0, seconds = 0, best = 0;
		for (uint32_t a = from; a < INDEX_AGES; a++) {
			hits += survival * hazard[a];
			seconds += survival * (1 - hazard[a] / 2) * bucket_width(a);
			survival *= 1 - hazard[a];
			best = hits / seconds > best ? hits / seconds : best;
		}
		table->index[class][from] = best;
	}
}

static void recompute(struct index_table *table)
{
	double all[INDEX_AGES];
	for (uint32_t a = 0; a < INDEX_AGES; a++) {
		double hit = PRIOR_WEIGHT * HAZARD_START(a), reach = PRIOR_WEIGHT;
		for (uint32_t class = 0; class < INDEX_CLASSES; class++) {
			hit += table->hit[class][a];
			reach += table->reach[class][a];
		}
		all[a] = hit / reach;
	}
	for (uint32_t class = 0; class < INDEX_CLASSES; class++)
		class_index(table, class, all);
}

void index_init(struct index_table *table)
{
	*table = (struct index_table){0};
	recompute(table);
}

void index_minute(struct index_table *table)
{
	for (uint32_t class = 0; class < INDEX_CLASSES; class++)
		for (uint32_t a = 0; a < INDEX_AGES; a++) {
			table->reach[class][a] *= FADE_A_MINUTE;
			table->hit[class][a] *= FADE_A_MINUTE;
		}
	recompute(table);
}

int index_choose(const struct index_table *table, const struct index_candidate *candidates, size_t n)
{
	int best = -1;
	double least = 0, oldest = 0;
	for (size_t i = 0; i < n; i++) {
		double age = candidates[i].age_s;
		if (age < 0)
			continue;
		double index = table->index[candidates[i].class][index_bucket(age)];
		if (best >= 0 && (index > least || (index == least && age <= oldest)))
			continue;
		best = (int)i;
		least = index;
		oldest = age;
	}
	return best;
}
