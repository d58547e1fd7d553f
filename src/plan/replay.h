/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pure replay of a trace through one tier of N blocks: what share of the prompts' tokens it would have held. No bytes
 * and no clock but the trace's; the policy is the very code the store decides by (policy/index.h).
 *
 * A request hits its leading run of blocks that are there. Then all its blocks are used, its tail first, so that its
 * head is the youngest; what is too much is evicted.
 *
 * Threads: any, each its own replay. Memory: one allocation a replay, in proportion to the trace's blocks.
 */
#ifndef CAIRN_PLAN_REPLAY_H
#define CAIRN_PLAN_REPLAY_H

#include "plan/trace.h"

enum replay_policy {
	REPLAY_LRU = 0,       /* the least recently used block goes */
	REPLAY_INDEX = 1,     /* the one of least index goes: policy/index.h */
	REPLAY_INDEX_ONE = 2, /* the same with all blocks in one class that goes from its old end: LRU again, for tests */
};

struct replay_options {
	uint32_t policy;       /* enum replay_policy */
	uint32_t blocks;       /* room of the tier, > 0 */
	uint32_t hint_percent; /* with each request the engine says which of its blocks will not come again, and is right
	                          for so many requests in a hundred; 0: it says nothing */
	uint32_t watched;      /* cells of the sample that it learns from (policy/watch.h), a power of two; 0: 65,536 */
	uint64_t seed;         /* of the hints that are wrong */
};
struct replay_result {
	uint64_t tokens, hit_tokens;
	uint64_t evictions;
	double hit_percent;
};
/* Errors: NOMEM; INVAL: no room, or hint_percent over 100. */
int replay_run(const struct trace *trace, const struct replay_options *options, struct replay_result *ret_result);

/* Which block uses are said to be the last, one byte for each of trace->refs, so that other replays can give the very
 * same hints. A block that comes again is one that is in a later request; for 100 - percent requests in a hundred the
 * answer is the opposite, but not of blocks at their third use or later: an engine knows its system prompt.
 * `ret_last` has room for trace->nrefs bytes. Errors: NOMEM. */
int replay_hints(const struct trace *trace, uint32_t percent, uint64_t seed, uint8_t *ret_last);

#endif
