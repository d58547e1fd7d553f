/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of a match: shared by match.c (what is there, and is held) and match_worth.c (what of it is worth loading).
 * Threads: under the store's lock. Memory: the caller's.
 */
#ifndef CAIRN_STORE_MATCH_WORTH_H
#define CAIRN_STORE_MATCH_WORTH_H

#include "policy/worth.h"
#include "store/peer.h"
#include "store/store.h"

enum { MATCH_GROUPS = 16, MATCH_RUNS = 64 };

/* Blocks of a group, one after the other, that lie on the same lanes. */
struct match_run {
	uint32_t group;
	uint64_t lanes;    /* mask */
	uint64_t from, to; /* blocks */
	struct worth_load load;
};

struct match_work {
	cairn *store;
	const struct cairn_space *space;
	const struct cairn_chain *chains[MATCH_GROUPS]; /* by group; NULL: not given */
	uint64_t parts;
	size_t good[MATCH_GROUPS];    /* leading blocks that are present, rule ALL */
	uint32_t *found[MATCH_GROUPS]; /* with one part, rule ALL: the entries of those blocks */
	/* What peers have: parts of the blocks that are not here. */
	uint32_t *asked[MATCH_GROUPS]; /* by block: where its parts are in `far`, + 1; 0: it was not asked for */
	struct peer_part *far;
	size_t nfar;
	/* What the blocks of the answer lie on. */
	struct worth_load load;       /* of groups of other rules; with the runs it is all */
	struct match_run runs[MATCH_RUNS]; /* of groups of rule ALL, each group's from its end on */
	uint32_t nruns;
};

const struct cairn_group *match_group(const struct match_work *work, uint32_t group);
/* First block of a group that a prefix needs. */
uint64_t match_first_block(const struct cairn_group *group, uint64_t tokens);
/* Whether the prefix of `tokens` satisfies the rule of a group. */
int match_rule_holds(const struct match_work *work, uint32_t group, uint64_t tokens);
/* Tokens at which all given groups have whole blocks. */
uint64_t match_step(const struct match_work *work);
/* A part of a block that a peer has; NULL: none that is known. */
const struct peer_part *match_far(const struct match_work *work, uint32_t group, uint64_t block, uint32_t part);

/* ---- match_worth.c ----------------------------------------------------------------------------------------------- */

/* Where a part would be loaded from, and what it weighs there. */
struct match_place {
	uint32_t lane;
	double bytes;
};
struct match_place match_place(const struct match_work *work, const struct catalog_entry *e,
                               const struct peer_part *far, uint32_t *ret_tier);
/* Counts a block of the answer; a group's last one first. */
void match_count(struct match_work *work, uint32_t group, uint64_t block, const struct match_place *places, uint32_t n);
/* The same for a block of one part that lies where the one after it does; else 0, and nothing is counted. */
static inline int match_run_goes_on(struct match_work *work, uint32_t group, uint64_t block,
                                    const struct match_place *place)
{
	struct match_run *run = work->nruns ? &work->runs[work->nruns - 1] : NULL;
	if (!run || run->group != group || run->from != block + 1 || run->lanes != 1ull << place->lane)
		return 0;
	run->from = block;
	run->load.bytes[place->lane] += place->bytes;
	return 1;
}
/* The prefix that saves most, and what it takes. */
void match_judge(const struct match_work *work, struct cairn_match_info *info);

#endif
