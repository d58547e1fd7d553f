/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to evict: pure decisions on numbers, no state of their own. Least recently used for now; the learned index comes
 * behind the same calls. The end of a chain goes before its head because a chain is touched tail first.
 */
#ifndef CAIRN_POLICY_EVICT_H
#define CAIRN_POLICY_EVICT_H

#include <stdint.h>

/* Ticks: the store's recency clock, 16 bits, one tick per 1/1024 of the flash budget that is put or read. */
#define EVICT_TICKS_MAX 32767u
/* Age in ticks, 0..EVICT_TICKS_MAX, of a use at `used` when it is `now`; wraps. */
uint32_t evict_age(uint16_t used, uint16_t now);

struct evict_segment {
	uint64_t live_bytes;
	uint64_t age_sum;      /* over live parts: bytes x age in ticks */
	uint64_t kept_bytes;   /* pinned or saved with a time to live: must be carried over */
	uint64_t segment_bytes;
};
/* The segment's index: expected worth of what lives in it. The lowest goes. Kept bytes count as just used. */
double evict_segment_index(const struct evict_segment *segment);

struct evict_part {
	uint32_t age;      /* ticks */
	uint32_t used;     /* 1: used since it was put */
	uint32_t kept;     /* 1: must stay */
	uint32_t closed;   /* 1: hint: will not return */
	uint32_t orphan;   /* 1: the head of its chain is gone */
	uint32_t bytes;
};
enum evict_verdict {
	EVICT_DROP = 0,  /* leaves the tier */
	EVICT_CARRY = 1, /* is carried over, if the budget of moved bytes allows */
	EVICT_KEEP = 2,  /* is carried over in any case */
};
/* mean_age: of the device's live bytes, in ticks. */
enum evict_verdict evict_part_verdict(const struct evict_part *part, uint32_t mean_age);

/* Budget of carried bytes: at most 0.2 of what was written since, never more than a segment saved up.
 * Source: write amplification <= 1.2. */
struct evict_budget {
	uint64_t tokens_bytes, max_bytes;
};
void evict_budget_earn(struct evict_budget *budget, uint64_t written_bytes);
int evict_budget_spend(struct evict_budget *budget, uint64_t moved_bytes); /* 1: granted */

#endif
