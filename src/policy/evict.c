/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to evict, as arithmetic on numbers that the caller keeps.
 * Threads: any; no state. Memory: none.
 * Invariant: a verdict depends on its arguments alone, so the planner replays what the store decides.
 */
#include "policy/evict.h"

/* Age at which a byte is worth half of one just used: a quarter of the flash budget later. Not measured: it says that
 * age tells fresh from stale, and that among segments of like age the emptier one goes. */
#define HALF_TICKS 256.0

uint32_t evict_age(uint16_t used, uint16_t now)
{
	uint32_t age = (uint16_t)(now - used);
	return age < EVICT_TICKS_MAX ? age : EVICT_TICKS_MAX;
}

double evict_segment_index(const struct evict_segment *segment)
{
	uint64_t live = segment->live_bytes;
	uint64_t kept = segment->kept_bytes < live ? segment->kept_bytes : live;
	if (!live || !segment->segment_bytes)
		return 0;
	/* The mean over all live bytes stands for that of the others: the sum does not tell them apart. */
	double age = (double)segment->age_sum / (double)live;
	double worth = (double)kept + (double)(live - kept) / (1 + age / HALF_TICKS);
	return worth / (double)segment->segment_bytes;
}

enum evict_verdict evict_part_verdict(const struct evict_part *part, uint32_t mean_age)
{
	if (part->orphan)
		return EVICT_DROP;
	if (part->kept)
		return EVICT_KEEP;
	if (part->closed)
		return EVICT_DROP;
	/* With a mean of 0 nothing is younger than the others. */
	return part->used && part->age < mean_age ? EVICT_CARRY : EVICT_DROP;
}

void evict_budget_earn(struct evict_budget *budget, uint64_t written_bytes)
{
	uint64_t earned = written_bytes / 5;
	uint64_t room = budget->max_bytes > budget->tokens_bytes ? budget->max_bytes - budget->tokens_bytes : 0;
	budget->tokens_bytes += earned < room ? earned : room;
}

int evict_budget_spend(struct evict_budget *budget, uint64_t moved_bytes)
{
	if (moved_bytes > budget->tokens_bytes)
		return 0;
	budget->tokens_bytes -= moved_bytes;
	return 1;
}
