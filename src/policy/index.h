/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index: expected hits per block and second of a block, learned from how long blocks of its class went unused
 * before they were used again. docs/POLICY.md has the formulas, what was measured, and why it is this one.
 *
 * The owner of a table tells it each use of the blocks it watches, and that time has passed; once a minute it has the
 * index made anew. What is evicted is the candidate of least index. Nothing here is a time constant of a load.
 *
 * Threads: one owner at a time; no state but what is passed. Memory: none.
 * Invariant: a verdict depends on its arguments alone, so the planner replays what the store decides.
 */
#ifndef CAIRN_POLICY_INDEX_H
#define CAIRN_POLICY_INDEX_H

#include <stddef.h>
#include <stdint.h>

enum {
	INDEX_CLASSES = 7, /* 0: a partial tail; then uses 1, 2, 3-4, 5-8, 9-16, 17 and more */
	INDEX_AGES = 26,   /* buckets of age: the first 4 s, then each ends 1.5 times as late as the one before: 28 h */
	INDEX_CANDIDATES = 2 * INDEX_CLASSES, /* two ends of each class's list */
};

/* The class of a block that was used `uses` times, first put included. */
uint32_t index_class(uint32_t uses, int tail);
/* The bucket of an age, 0..INDEX_AGES - 1: what is older than the last bucket's end is in the last. */
uint32_t index_bucket(double age_s);
/* Where a bucket ends, seconds. */
double index_bucket_end(uint32_t bucket);

struct index_table {
	double reach[INDEX_CLASSES][INDEX_AGES]; /* uses after which a block went unused until this bucket began */
	double hit[INDEX_CLASSES][INDEX_AGES];   /* of them, those after which it was used again within it */
	double index[INDEX_CLASSES][INDEX_AGES]; /* hits per block and second, as of the last index_minute */
};

/* Nothing learned yet: the same for all classes, and falling with age, which is LRU. */
void index_init(struct index_table *table);
/* A watched block of `class`, whose first `*seen` buckets are counted already, is still unused at `age_s`: counts those
 * that have begun since. weight: how many blocks it stands for. Sets *seen. */
void index_reach(struct index_table *table, uint32_t class, double age_s, uint8_t *seen, double weight);
/* It is used again at `age_s`. The caller gives it its new class, and seen 0. */
void index_again(struct index_table *table, uint32_t class, double age_s, uint8_t seen, double weight);
/* A minute has passed: what was learned fades (half in four hours), and the index is made anew. */
void index_minute(struct index_table *table);

/* One block that could go. `age_s` below 0: there is none in this place. */
struct index_candidate {
	uint32_t class;
	double age_s;
};
/* The position of the one of least index, of equals the oldest, of those the first; -1: there is none. */
int index_choose(const struct index_table *table, const struct index_candidate *candidates, size_t n);

#endif
